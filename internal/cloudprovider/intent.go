// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

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

// errIntentUnreadable says that the annotation holds something that this controller did not write. Whether a server was
// launched can then not be known.
var errIntentUnreadable = fmt.Errorf("annotation %s cannot be read: another client has changed it", v1alpha1.AnnotationLaunchIntent)

// errIntentForeign says that another process has launched for the NodeClaim since it was read.
var errIntentForeign = errors.New("another process has launched a server for this NodeClaim")

// errNotRecorded says that no create request was sent, because its intent could not be recorded.
var errNotRecorded = errors.New("recording the launch intent, so no create request was sent")

// launchRecord is what is known of the last launch for a NodeClaim.
type launchRecord struct {
	instance.Intent
	// begun are the times at which this process recorded intents of the NodeClaim, by which they are told from those of another process.
	// All but the last one are rejected, or the last would not have been begun.
	begun []time.Time
	// chosen is the offering of a launch that is about to begin, before its intent has been written.
	chosen capacity.Offering
	// Ended is why the launch failed after its request was accepted: the NodeClaim ends, and its server is removed for that.
	Ended string
	// Reported is true once core knows the server.
	Reported bool
}

// open reports whether a server of the launch may exist.
func (r launchRecord) open() bool { return r.Name != "" && !r.Rejected && r.Ended == "" }

// offering is what the launch has, or is about to request; empty where nothing is built for it.
func (r launchRecord) offering() capacity.Offering {
	if r.Name == "" || r.Rejected {
		return r.chosen
	}
	return capacity.Offering{Flavor: r.Flavor, Zone: r.Zone}
}

// intents are the launch intents on the NodeClaims, where they survive a restart, and in memory, because a NodeClaim read from
// the informer's cache right after it was patched may still be the previous one.
type intents struct {
	kubeClient client.Client
	apiReader  client.Reader
	clock      clock.Clock
	memory     *cache.Cache
}

// ReadIntent reads the launch intent of the NodeClaim; it is nil when no launch was ever begun for it.
func ReadIntent(claim *karpv1.NodeClaim) (*instance.Intent, error) {
	text, ok := claim.Annotations[v1alpha1.AnnotationLaunchIntent]
	if !ok {
		return nil, nil
	}
	intent := &instance.Intent{}
	if err := json.Unmarshal([]byte(text), intent); err != nil || intent.Attempt < 1 || intent.Name == "" {
		return nil, errIntentUnreadable
	}
	return intent, nil
}

// EncodeIntent returns the intent as the annotation has it.
func EncodeIntent(intent instance.Intent) string {
	text, _ := json.Marshal(intent) // strings, numbers and times always marshal
	return string(text)
}

// intentOf is the launch intent of the NodeClaim, empty where there is none or it is unreadable.
func intentOf(claim *karpv1.NodeClaim) instance.Intent {
	intent, _ := ReadIntent(claim)
	return lo.FromPtr(intent)
}

// load returns the last record of the NodeClaim, an empty one when no launch was begun for it, and the NodeClaim as the API
// server has it where it had to be read. It is read there, because "no launch was begun" is what allows one.
func (i *intents) load(ctx context.Context, claim *karpv1.NodeClaim) (launchRecord, *karpv1.NodeClaim, error) {
	record := i.remembered(claim.UID)
	if record.Name != "" && record.Ended == "" {
		return record, nil, nil
	}
	live, err := i.live(ctx, claim)
	if err != nil || record.Ended != "" {
		return record, live, err
	}
	intent, err := ReadIntent(live)
	if err != nil || intent == nil {
		return launchRecord{}, live, err
	}
	if intent.TaskID == "" && !intent.Rejected {
		// An earlier process ended with the request on its way, however long that had waited for its turn.
		intent.RequestedAt = i.clock.Now()
	}
	record = launchRecord{Intent: *intent}
	i.memory.SetDefault(string(claim.UID), record)
	return record, live, nil
}

// live reads the NodeClaim from the API server. Another one of the same name is an error.
func (i *intents) live(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	live := &karpv1.NodeClaim{}
	if err := i.apiReader.Get(ctx, client.ObjectKeyFromObject(claim), live); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading NodeClaim %s: %w", claim.Name, err)
	}
	if live.UID != claim.UID || !live.DeletionTimestamp.IsZero() {
		return nil, errClaimGone
	}
	return live, nil
}

// begin records an intent before its create request; after an error none may be sent.
func (i *intents) begin(ctx context.Context, l *launch, intent instance.Intent) error {
	err := i.write(ctx, l, intent)
	if errors.Is(err, errIntentForeign) {
		// What is remembered is not true any more.
		i.memory.Delete(string(l.claim.UID))
		return err
	}
	if err != nil {
		// The write may have reached the API server although its answer was lost, so the number is used up.
		intent.Rejected = true
	}
	i.remember(l, intent, append(l.record.begun, intent.RequestedAt))
	return err
}

// finish records what has become of an intent, also when the caller's own time is up. Where a server was found, core writes it
// with the server's id. When it cannot be written, memory has more than the annotation, which is enough unless the process
// ends: a later one then takes the outcome for unknown.
func (i *intents) finish(ctx context.Context, l *launch, intent instance.Intent, write bool) {
	i.remember(l, intent, l.record.begun)
	if !write || intent.TaskID == "" && !intent.Rejected {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl.LaunchCleanup)
	defer cancel()
	if err := i.write(ctx, l, intent); err != nil {
		log.FromContext(ctx).Error(err, "recording the outcome of a create request", "server", intent.Name)
	}
}

// write patches the annotations of a copy, never of the NodeClaim that core passed, which core compares with its earlier state to
// find out what to patch itself. It locks: after one conflict the NodeClaim is read again, because core patches it too. Each patch makes core
// call Create again at once, without its back-off: only the rate and the pauses of package bizfly hold back the create requests of one NodeClaim.
func (i *intents) write(ctx context.Context, l *launch, intent instance.Intent) error {
	return retry.RetryOnConflict(wait.Backoff{Steps: 2}, func() (err error) {
		if l.live == nil {
			if l.live, err = i.live(ctx, l.claim); err != nil {
				return err
			}
		}
		if err = i.outdated(l.live, intent); err != nil {
			return err
		}
		updated := l.live.DeepCopy()
		// By the hashes a later change of the NodeClass is detected.
		updated.Annotations = lo.Assign(updated.Annotations, map[string]string{
			v1alpha1.AnnotationLaunchIntent:         EncodeIntent(intent),
			v1alpha1.AnnotationNodeClassHash:        l.nodeClass.Hash(),
			v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
		})
		if err = i.kubeClient.Patch(ctx, updated, client.MergeFromWithOptions(l.live, client.MergeFromWithOptimisticLock{})); err != nil {
			l.live = nil
			return fmt.Errorf("patching NodeClaim %s: %w", l.claim.Name, err)
		}
		l.live = updated
		return nil
	})
}

// outdated rejects overwriting the launch of another process: two leaders must not launch for one NodeClaim. A new attempt follows one
// that is recorded as rejected, or that this process itself began and knows to be.
func (i *intents) outdated(live *karpv1.NodeClaim, intent instance.Intent) error {
	written, err := ReadIntent(live)
	if err != nil || written == nil {
		return err
	}
	known := i.remembered(live.UID)
	rejected := written.Rejected || known.Rejected && slices.ContainsFunc(known.begun, written.RequestedAt.Equal)
	finishes := written.Attempt == intent.Attempt && (intent.Rejected || intent.TaskID != "")
	if finishes || written.Attempt < intent.Attempt && rejected {
		return nil
	}
	return fmt.Errorf("%w: attempt %d as server %s", errIntentForeign, written.Attempt, written.Name)
}

// remember replaces the intent of the launch, whose intents were recorded at these times.
func (i *intents) remember(l *launch, intent instance.Intent, begun []time.Time) {
	l.record = launchRecord{Intent: intent, begun: begun}
	i.memory.SetDefault(string(l.claim.UID), l.record)
}

// remembered returns the record in memory, or an empty one.
func (i *intents) remembered(uid types.UID) launchRecord {
	known, _ := i.memory.Get(string(uid))
	record, _ := known.(launchRecord)
	return record
}

// recordOf returns the record in memory, or what the annotation of the NodeClaim has of a launch by an earlier process.
func (i *intents) recordOf(claim *karpv1.NodeClaim) launchRecord {
	record := i.remembered(claim.UID)
	if record.Name == "" {
		record.Intent = intentOf(claim)
	}
	return record
}

// choose remembers which offering is about to be launched for a NodeClaim.
func (i *intents) choose(uid types.UID, offering capacity.Offering) {
	i.change(uid, func(r *launchRecord) { r.chosen = offering })
}

// offeringOf is what the NodeClaim runs on, or is being launched with; empty where nothing is known or nothing was built.
func (i *intents) offeringOf(claim *karpv1.NodeClaim) capacity.Offering {
	if claim.Status.ProviderID != "" {
		return capacity.Offering{Flavor: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone]}
	}
	return i.recordOf(claim).offering()
}

// change replaces the record of a NodeClaim; core launches one NodeClaim once at a time.
func (i *intents) change(uid types.UID, apply func(*launchRecord)) {
	record := i.remembered(uid)
	apply(&record)
	i.memory.SetDefault(string(uid), record)
}
