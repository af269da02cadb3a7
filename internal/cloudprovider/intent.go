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

// errClaimGone says that the claim was deleted or replaced meanwhile: nothing may be ordered for it.
var errClaimGone = errors.New("the NodeClaim is deleted or being deleted")

// errIntentUnreadable says that the annotation holds something that we did not write. Whether a server was ordered is
// then unknown for ever.
var errIntentUnreadable = fmt.Errorf("annotation %s cannot be read", v1alpha1.AnnotationLaunchIntent)

// errAbandoned says that the NodeClaim is still there although it was abandoned: whoever was to delete it could not.
var errAbandoned = errors.New("the NodeClaim was abandoned and is still there")

// errIntentForeign says that another process has ordered for the claim since we looked.
var errIntentForeign = errors.New("another process has ordered for this NodeClaim")

// launchRecord is what is known of the last order for a claim.
type launchRecord struct {
	instance.Intent
	// Hash and HashVersion are those of the NodeClass that was ordered with, which may have changed since.
	Hash        string
	HashVersion string
	// Abandoned is true once the NodeClaim was to be deleted because of what became of its launch.
	Abandoned bool
	// Launched is true once core was told of the server.
	Launched bool
}

// launchRecords keeps records on the claims, where they outlive us, and in memory, because a claim read from the
// informer's cache right after it was patched may still be the one before.
type launchRecords struct {
	kubeClient client.Client
	apiReader  client.Reader
	memory     *cache.Cache
}

// IntentOf reads the intent that is written on the claim; nil when nothing was ever ordered for it.
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

// load returns the last record of the claim, nil when nothing was ordered for it, and the claim as the API server has it
// where it had to be read. It is read there, because "nothing was ordered" is what allows an order.
func (r *launchRecords) load(ctx context.Context, claim *karpv1.NodeClaim) (*launchRecord, *karpv1.NodeClaim, error) {
	if known, ok := r.memory.Get(string(claim.UID)); ok {
		record := known.(launchRecord)
		if record.Abandoned {
			if _, err := r.live(ctx, claim.Name, claim.UID); err != nil {
				return nil, nil, err
			}
			return nil, nil, errAbandoned
		}
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
	record := launchRecord{
		Intent:      *intent,
		Hash:        live.Annotations[v1alpha1.AnnotationNodeClassHash],
		HashVersion: live.Annotations[v1alpha1.AnnotationNodeClassHashVersion],
	}
	r.memory.SetDefault(string(claim.UID), record)
	return &record, live, nil
}

// live reads the claim from the API server, and insists that it is the same one.
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

// recorder writes the records of one launch. It patches copies of its own, never the claim that core passed, which core
// compares with its earlier state to find out what to patch itself.
type recorder struct {
	records     *launchRecords
	name        string
	uid         types.UID
	hash        string
	hashVersion string
	// base is the claim as last seen at the API server; nil when it has to be read.
	base *karpv1.NodeClaim
}

// record writes an intent down. Before an order (no task, not refused) an error means that nothing is ordered; afterwards
// memory knows more than the annotation, which is enough unless we stop, and then the claim is given up.
func (r *recorder) record(ctx context.Context, intent instance.Intent) error {
	before := intent.TaskID == "" && !intent.Rejected
	err := r.write(ctx, intent, before)
	if errors.Is(err, errIntentForeign) {
		// What we remember is not the truth any more.
		r.records.memory.Delete(string(r.uid))
		return err
	}
	known := intent
	if err != nil && before {
		// The write may have reached the API server although its answer did not reach us, so the number is used up.
		known.Rejected = true
	}
	r.records.memory.SetDefault(string(r.uid), launchRecord{Intent: known, Hash: r.hash, HashVersion: r.hashVersion})
	return err
}

// write patches the annotations with an optimistic lock. One conflict is met with a fresh read: core patches claims too.
func (r *recorder) write(ctx context.Context, intent instance.Intent, before bool) error {
	text, err := json.Marshal(intent)
	if err != nil {
		return fmt.Errorf("encoding the launch intent: %w", err)
	}
	for try := 0; ; try++ {
		if r.base == nil {
			if r.base, err = r.records.live(ctx, r.name, r.uid); err != nil {
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
		err = r.records.kubeClient.Patch(ctx, updated, client.MergeFromWithOptions(r.base, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.base = updated
			return nil
		}
		r.base = nil
		if !apierrors.IsConflict(err) || try > 0 {
			return fmt.Errorf("recording the launch intent on NodeClaim %s: %w", r.name, err)
		}
	}
}

// outdated refuses to overwrite what another process has ordered since: two leaders must not launch for one claim.
func (r *recorder) outdated(intent instance.Intent, before bool) error {
	written, err := IntentOf(r.base)
	if err != nil {
		return err
	}
	if written == nil || written.Attempt < intent.Attempt {
		return nil
	}
	if written.Attempt == intent.Attempt && !before {
		return nil
	}
	return fmt.Errorf("%w: attempt %d as server %s", errIntentForeign, written.Attempt, written.Name)
}

// abandon remembers that whatever the launch leaves behind has no NodeClaim any more.
func (r *launchRecords) abandon(uid types.UID) {
	r.change(uid, func(record *launchRecord) { record.Abandoned = true })
}

// launched remembers that core was told of the claim's server.
func (r *launchRecords) launched(uid types.UID) {
	r.change(uid, func(record *launchRecord) { record.Launched = true })
}

// change replaces the record of a claim; core launches one claim once at a time.
func (r *launchRecords) change(uid types.UID, apply func(*launchRecord)) {
	record := launchRecord{}
	if known, ok := r.memory.Get(string(uid)); ok {
		record = known.(launchRecord)
	}
	apply(&record)
	r.memory.SetDefault(string(uid), record)
}
