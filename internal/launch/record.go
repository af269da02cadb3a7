// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// errClaimGone says that the NodeClaim was deleted or replaced meanwhile: nothing may be launched for it.
var errClaimGone = errors.New("the NodeClaim is deleted or being deleted")

// errRecordUnreadable says that the annotation holds something that this controller did not write. Whether a server was
// launched can then not be known.
var errRecordUnreadable = fmt.Errorf("annotation %s cannot be read: another client has changed it",
	v1alpha1.AnnotationLaunchIntent)

// errRecordForeign says that another process has launched for the NodeClaim since it was read.
var errRecordForeign = errors.New("another process has launched a server for this NodeClaim")

// errNotRecorded says that no create request was sent, because its intent could not be recorded.
var errNotRecorded = errors.New("writing the launch record, so no create request was sent")

// record is what is known of the last attempt for a NodeClaim.
type record struct {
	intent instance.Intent
	// begun are the times at which this process recorded intents of the NodeClaim, by which they are told from those of
	// another process. All but the last one are rejected, or the last would not have been begun.
	begun []time.Time
	// sent is when this process began the attempt, by the clock of the marks.
	sent time.Time
	// reserved is the offering of an attempt that is about to begin, before its intent has been written.
	reserved capacity.Offering
	// ended is why the launch failed after its request was accepted: the NodeClaim ends, and its server is removed for
	// that.
	ended string
	// reported is true once core knows the server.
	reported bool
}

// mayHaveServer reports whether a server of the launch may exist.
func (r record) mayHaveServer() bool {
	return r.intent.Name != "" && !r.intent.Rejected && r.ended == ""
}

// offering is what the launch has, or is about to request; empty where nothing is built for it.
func (r record) offering() capacity.Offering {
	if r.intent.Name == "" || r.intent.Rejected {
		return r.reserved
	}
	return capacity.Offering{Flavor: r.intent.Flavor, Zone: r.intent.Zone}
}

// records are on the NodeClaims, where they survive a restart, and in memory, because a NodeClaim read from
// the informer's cache right after it was patched may still be the previous one.
type records struct {
	kubeClient client.Client
	apiReader  client.Reader
	clock      clock.Clock
	memory     *cache.Cache
}

// ReadIntent reads the launch record of the NodeClaim; it is nil when no launch was ever begun for it.
func ReadIntent(claim *karpv1.NodeClaim) (*instance.Intent, error) {
	text, ok := claim.Annotations[v1alpha1.AnnotationLaunchIntent]
	if !ok {
		return nil, nil
	}
	intent := &instance.Intent{}
	if err := json.Unmarshal([]byte(text), intent); err != nil || intent.Attempt < 1 || intent.Name == "" {
		return nil, errRecordUnreadable
	}
	return intent, nil
}

// EncodeIntent returns the intent as the annotation has it.
func EncodeIntent(intent instance.Intent) string {
	text, _ := json.Marshal(intent) // strings, numbers and times always marshal
	return string(text)
}

// IntentOf is the launch record of the NodeClaim, empty where there is none or it is unreadable.
func IntentOf(claim *karpv1.NodeClaim) instance.Intent {
	intent, _ := ReadIntent(claim)
	return lo.FromPtr(intent)
}

// load returns the last record of the NodeClaim, an empty one when no launch was begun for it, and the NodeClaim as the
// API server has it where it had to be read. It is read there, because "no launch was begun" is what allows one.
func (s *records) load(ctx context.Context, claim *karpv1.NodeClaim) (record, *karpv1.NodeClaim, error) {
	known := s.remembered(claim.UID)
	if known.intent.Name != "" && known.ended == "" {
		return known, nil, nil
	}
	live, err := s.live(ctx, claim)
	if err != nil || known.ended != "" {
		return known, live, err
	}
	intent, err := ReadIntent(live)
	if err != nil || intent == nil {
		return record{}, live, err
	}
	now := s.clock.Now()
	if intent.TaskID == "" && !intent.Rejected || intent.RequestedAt.After(now) {
		// An earlier process ended with the request on its way, however long that had waited for its turn; or its clock
		// was ahead, and the server would be waited for that much longer.
		intent.RequestedAt = now
	}
	known = record{intent: *intent, sent: now}
	s.memory.SetDefault(string(claim.UID), known)
	return known, live, nil
}

// live reads the NodeClaim from the API server. Another one of the same name is an error.
func (s *records) live(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	live := &karpv1.NodeClaim{}
	if err := s.apiReader.Get(ctx, client.ObjectKeyFromObject(claim), live); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading NodeClaim %s: %w", claim.Name, err)
	}
	if live.UID != claim.UID || !live.DeletionTimestamp.IsZero() {
		return nil, errClaimGone
	}
	return live, nil
}

// recordAttempt records an intent before its create request; after an error none may be sent.
func (s *records) recordAttempt(ctx context.Context, launch *Launch, intent instance.Intent) error {
	sent := s.clock.Now()
	err := s.write(ctx, launch, intent)
	if errors.Is(err, errRecordForeign) {
		// What is remembered is not true any more.
		s.memory.Delete(string(launch.NodeClaim.UID))
		return err
	}
	if err != nil {
		// The write may have reached the API server although its answer was lost, so the number is used up.
		intent.Rejected = true
	}
	s.remember(launch, record{intent: intent, begun: append(launch.record.begun, intent.RequestedAt), sent: sent})
	return err
}

// recordOutcome records what has become of an intent, also when the caller's own time is up. Where a server was found,
// core writes it with the server's id. When it cannot be written, memory has more than the annotation, which is enough
// unless the process ends: a later one then takes the outcome for unknown.
func (s *records) recordOutcome(ctx context.Context, launch *Launch, intent instance.Intent, write bool) {
	s.remember(launch, record{intent: intent, begun: launch.record.begun, sent: launch.record.sent})
	if !write || intent.TaskID == "" && !intent.Rejected {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl.LaunchCleanup)
	defer cancel()
	if err := s.write(ctx, launch, intent); err != nil {
		log.FromContext(ctx).Error(err, "recording the outcome of a create request", "server", intent.Name)
	}
}

// write patches the annotations of a copy, never of the NodeClaim that core passed, which core compares with its
// earlier state to find out what to patch itself. It locks: after one conflict the NodeClaim is read again, because
// core patches it too. Each patch makes core call Create again at once, without its back-off: only the rate and the
// pauses of package bizfly hold back the create requests of one NodeClaim.
func (s *records) write(ctx context.Context, launch *Launch, intent instance.Intent) error {
	return retry.RetryOnConflict(wait.Backoff{Steps: 2}, func() (err error) {
		if launch.live == nil {
			if launch.live, err = s.live(ctx, launch.NodeClaim); err != nil {
				return err
			}
		}
		if err = s.checkOutdated(launch.live, intent); err != nil {
			return err
		}
		updated := launch.live.DeepCopy()
		// By the hashes a later change of the NodeClass is detected.
		updated.Annotations = lo.Assign(updated.Annotations, map[string]string{
			v1alpha1.AnnotationLaunchIntent:         EncodeIntent(intent),
			v1alpha1.AnnotationNodeClassHash:        launch.NodeClass.Hash(),
			v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
		})
		patch := client.MergeFromWithOptions(launch.live, client.MergeFromWithOptimisticLock{})
		if err = s.kubeClient.Patch(ctx, updated, patch); err != nil {
			launch.live = nil
			return fmt.Errorf("patching NodeClaim %s: %w", launch.NodeClaim.Name, err)
		}
		launch.live = updated
		return nil
	})
}

// checkOutdated rejects overwriting the launch of another process: two leaders must not launch for one NodeClaim. A new
// attempt follows one that is recorded as rejected, or that this process itself began and knows to be.
func (s *records) checkOutdated(live *karpv1.NodeClaim, intent instance.Intent) error {
	written, err := ReadIntent(live)
	if err != nil || written == nil {
		return err
	}
	known := s.remembered(live.UID)
	rejected := written.Rejected || known.intent.Rejected && slices.ContainsFunc(known.begun, written.RequestedAt.Equal)
	finishes := written.Attempt == intent.Attempt && (intent.Rejected || intent.TaskID != "")
	if finishes || written.Attempt < intent.Attempt && rejected {
		return nil
	}
	return fmt.Errorf("%w: attempt %d as server %s", errRecordForeign, written.Attempt, written.Name)
}

// remember replaces the record of the launch.
func (s *records) remember(launch *Launch, known record) {
	launch.record = known
	s.memory.SetDefault(string(launch.NodeClaim.UID), known)
}

// remembered returns the record in memory, or an empty one.
func (s *records) remembered(uid types.UID) record {
	known, _ := s.memory.Get(string(uid))
	found, _ := known.(record)
	return found
}

// recordOf returns the record in memory, or what the annotation of the NodeClaim has of a launch by an earlier process.
func (s *records) recordOf(claim *karpv1.NodeClaim) record {
	known := s.remembered(claim.UID)
	if known.intent.Name == "" {
		known.intent = IntentOf(claim)
	}
	return known
}

// reserve remembers which offering is about to be launched for a NodeClaim.
func (s *records) reserve(uid types.UID, offering capacity.Offering) {
	s.change(uid, func(r *record) { r.reserved = offering })
}

// offeringOf is what the NodeClaim runs on, or is being launched with; empty where nothing is known or nothing was
// built.
func (s *records) offeringOf(claim *karpv1.NodeClaim) capacity.Offering {
	if claim.Status.ProviderID != "" {
		return capacity.Offering{Flavor: claim.Labels[corev1.LabelInstanceTypeStable],
			Zone: claim.Labels[corev1.LabelTopologyZone]}
	}
	return s.recordOf(claim).offering()
}

// change replaces the record of a NodeClaim; core launches one NodeClaim once at a time.
func (s *records) change(uid types.UID, apply func(*record)) {
	known := s.remembered(uid)
	apply(&known)
	s.memory.SetDefault(string(uid), known)
}
