/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cloudprovider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// errClaimGone says that the NodeClaim was deleted or replaced meanwhile: nothing may be launched for it.
var errClaimGone = errors.New("the NodeClaim is deleted or being deleted")

// errIntentUnreadable says that the annotation holds something that this controller did not write. Whether a server was
// launched will then never be known.
var errIntentUnreadable = fmt.Errorf("annotation %s cannot be read", v1alpha1.AnnotationLaunchIntent)

// errAbandoned says that the NodeClaim still exists although it was abandoned: core could not delete it.
var errAbandoned = errors.New("the NodeClaim was abandoned and still exists")

// errIntentForeign says that another process has launched for the NodeClaim since it was read.
var errIntentForeign = errors.New("another process has launched a server for this NodeClaim")

// launchRecord is what is known of the last launch for a NodeClaim.
type launchRecord struct {
	instance.Intent
	// Hash and HashVersion are those of the NodeClass at the launch, which may have changed since.
	Hash        string
	HashVersion string
	// Failure is why the launch failed after its request was accepted, the reason of the removal of its server.
	Failure string
	// Abandoned is true once the NodeClaim was to be deleted because its launch failed.
	Abandoned bool
	// Launched is true once core knows the server, so that it is reported once.
	Launched bool
}

// launchRecords keeps records on the NodeClaims, where they survive a restart, and in memory, because a NodeClaim read from the
// informer's cache right after it was patched may still be the previous one.
type launchRecords struct {
	kubeClient client.Client
	apiReader  client.Reader
	memory     *cache.Cache
}

// IntentOf reads the launch intent of the NodeClaim; it is nil when no launch was ever begun for it.
func IntentOf(claim *karpv1.NodeClaim) (*instance.Intent, error) {
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

// load returns the last record of the NodeClaim, nil when no launch was begun for it, and the NodeClaim as the API server has it
// where it had to be read. It is read there, because "no launch was begun" is what allows one.
func (r *launchRecords) load(ctx context.Context, claim *karpv1.NodeClaim) (*launchRecord, *karpv1.NodeClaim, error) {
	record := r.remembered(claim.UID)
	if record.Abandoned {
		if _, err := r.live(ctx, claim.Name, claim.UID); err != nil {
			return nil, nil, err
		}
		return nil, nil, errAbandoned
	}
	if record.Name != "" {
		return &record, nil, nil
	}
	live, err := r.live(ctx, claim.Name, claim.UID)
	if err != nil {
		return nil, nil, err
	}
	intent, err := IntentOf(live)
	if err != nil || intent == nil {
		return nil, live, err
	}
	record = launchRecord{
		Intent:      *intent,
		Hash:        live.Annotations[v1alpha1.AnnotationNodeClassHash],
		HashVersion: live.Annotations[v1alpha1.AnnotationNodeClassHashVersion],
	}
	r.memory.SetDefault(string(claim.UID), record)
	return &record, live, nil
}

// live reads the NodeClaim from the API server. Another one of the same name is an error.
func (r *launchRecords) live(ctx context.Context, name string, uid types.UID) (*karpv1.NodeClaim, error) {
	live := &karpv1.NodeClaim{}
	if err := r.apiReader.Get(ctx, client.ObjectKey{Name: name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errClaimGone
		}
		return nil, fmt.Errorf("reading NodeClaim %s: %w", name, err)
	}
	if live.UID != uid || !live.DeletionTimestamp.IsZero() {
		return nil, errClaimGone
	}
	return live, nil
}

// recordWriter writes the records of one launch. It patches copies of its own, never the NodeClaim that core passed, which core
// compares with its earlier state to find out what to patch itself.
type recordWriter struct {
	*launchRecords
	claim             *karpv1.NodeClaim
	hash, hashVersion string
	// base is the NodeClaim as last seen at the API server; nil when it has to be read.
	base *karpv1.NodeClaim
}

// record writes an intent. Before a create request (no task, not rejected) an error means that none is sent; afterwards
// memory has more than the annotation, which is enough unless the process ends, and then the NodeClaim is abandoned.
func (r *recordWriter) record(ctx context.Context, intent instance.Intent) error {
	before := intent.TaskID == "" && !intent.Rejected
	err := r.write(ctx, intent, before)
	if errors.Is(err, errIntentForeign) {
		// What is remembered is not true any more.
		r.memory.Delete(string(r.claim.UID))
		return err
	}
	known := intent
	if err != nil && before {
		// The write may have reached the API server although its answer was lost, so the number is used up.
		known.Rejected = true
	}
	r.memory.SetDefault(string(r.claim.UID), launchRecord{Intent: known, Hash: r.hash, HashVersion: r.hashVersion})
	return err
}

// write patches the annotations with an optimistic lock. After one conflict the NodeClaim is read again: core patches it too.
func (r *recordWriter) write(ctx context.Context, intent instance.Intent, before bool) error {
	text, err := json.Marshal(intent)
	if err != nil {
		return fmt.Errorf("encoding the launch intent: %w", err)
	}
	for try := 0; ; try++ {
		if r.base == nil {
			if r.base, err = r.live(ctx, r.claim.Name, r.claim.UID); err != nil {
				return err
			}
		}
		if err = r.outdated(intent, before); err != nil {
			return err
		}
		updated := r.base.DeepCopy()
		updated.Annotations = lo.Assign(updated.Annotations, map[string]string{
			v1alpha1.AnnotationLaunchIntent:         string(text),
			v1alpha1.AnnotationNodeClassHash:        r.hash,
			v1alpha1.AnnotationNodeClassHashVersion: r.hashVersion,
		})
		err = r.kubeClient.Patch(ctx, updated, client.MergeFromWithOptions(r.base, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.base = updated
			return nil
		}
		r.base = nil
		if !apierrors.IsConflict(err) || try > 0 {
			return fmt.Errorf("recording the launch intent on NodeClaim %s: %w", r.claim.Name, err)
		}
	}
}

// outdated rejects overwriting the launch of another process: two leaders must not launch for one NodeClaim.
func (r *recordWriter) outdated(intent instance.Intent, before bool) error {
	written, err := IntentOf(r.base)
	if err != nil {
		return err
	}
	if written == nil || written.Attempt < intent.Attempt || written.Attempt == intent.Attempt && !before {
		return nil
	}
	return fmt.Errorf("%w: attempt %d as server %s", errIntentForeign, written.Attempt, written.Name)
}

// remembered returns the record in memory, or an empty one.
func (r *launchRecords) remembered(uid types.UID) launchRecord {
	if known, ok := r.memory.Get(string(uid)); ok {
		return known.(launchRecord)
	}
	return launchRecord{}
}

// change replaces the record of a NodeClaim; core launches one NodeClaim once at a time.
func (r *launchRecords) change(uid types.UID, apply func(*launchRecord)) {
	record := r.remembered(uid)
	apply(&record)
	r.memory.SetDefault(string(uid), record)
}
