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
	"strings"

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
// launched can then not be known.
var errIntentUnreadable = fmt.Errorf("annotation %s cannot be read", v1alpha1.AnnotationLaunchIntent)

// errAbandoned says that the NodeClaim still exists although it was abandoned: core could not delete it.
var errAbandoned = errors.New("the NodeClaim was abandoned and still exists")

// errIntentForeign says that another process has launched for the NodeClaim since it was read.
var errIntentForeign = errors.New("another process has launched a server for this NodeClaim")

// launchRecord is what is known of the last launch for a NodeClaim.
type launchRecord struct {
	instance.Intent
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
	*config
	memory *cache.Cache
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

// encode returns the intent as the annotation has it.
func encode(intent instance.Intent) string {
	text, _ := json.Marshal(intent) // strings, numbers and times always marshal
	return string(text)
}

// intentOf is the launch intent of the NodeClaim, empty where there is none or it is unreadable.
func intentOf(claim *karpv1.NodeClaim) instance.Intent {
	intent, _ := IntentOf(claim)
	return lo.FromPtr(intent)
}

// load returns the last record of the NodeClaim, nil when no launch was begun for it, and the NodeClaim as the API server has it
// where it had to be read. It is read there, because "no launch was begun" is what allows one.
func (r *launchRecords) load(ctx context.Context, claim *karpv1.NodeClaim) (*launchRecord, *karpv1.NodeClaim, error) {
	record := r.remembered(claim.UID)
	if record.Name != "" && !record.Abandoned {
		return &record, nil, nil
	}
	live, err := r.live(ctx, claim.Name, claim.UID)
	if err != nil {
		return nil, nil, err
	}
	if record.Abandoned {
		return nil, nil, errAbandoned
	}
	intent, err := IntentOf(live)
	if err != nil || intent == nil {
		return nil, live, err
	}
	record = launchRecord{Intent: *intent}
	if record.TaskID == "" && !record.Rejected {
		// An earlier process ended with the request on its way, however long that had waited for its turn.
		record.RequestedAt = r.Clock.Now()
	}
	r.memory.SetDefault(string(claim.UID), record)
	return &record, live, nil
}

// live reads the NodeClaim from the API server. Another one of the same name is an error.
func (r *launchRecords) live(ctx context.Context, name string, uid types.UID) (*karpv1.NodeClaim, error) {
	live := &karpv1.NodeClaim{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Name: name}, live); client.IgnoreNotFound(err) != nil {
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
	claim *karpv1.NodeClaim
	// nodeClass is the NodeClass at the launch: by its hashes a later change of it is detected.
	nodeClass *v1alpha1.BizflyNodeClass
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
	r.memory.SetDefault(string(r.claim.UID), launchRecord{Intent: known})
	return err
}

// write patches the annotations with an optimistic lock. After one conflict the NodeClaim is read again: core patches it too.
func (r *recordWriter) write(ctx context.Context, intent instance.Intent, before bool) error {
	var err error
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
			v1alpha1.AnnotationLaunchIntent:         encode(intent),
			v1alpha1.AnnotationNodeClassHash:        r.nodeClass.Hash(),
			v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
			v1alpha1.AnnotationInPlaceHash:          r.nodeClass.InPlaceHash(),
		})
		err = r.KubeClient.Patch(ctx, updated, client.MergeFromWithOptions(r.base, client.MergeFromWithOptimisticLock{}))
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

// outdated rejects overwriting the launch of another process: two leaders must not launch for one NodeClaim. A new attempt follows one
// that is recorded as rejected, or that this process itself began and knows to be.
func (r *recordWriter) outdated(intent instance.Intent, before bool) error {
	written, err := IntentOf(r.base)
	if err != nil || written == nil {
		return err
	}
	known := r.remembered(r.claim.UID)
	rejected := written.Rejected || known.Rejected && known.RequestedAt.Equal(written.RequestedAt)
	if written.Attempt < intent.Attempt && rejected || written.Attempt == intent.Attempt && !before {
		return nil
	}
	return fmt.Errorf("%w: attempt %d as server %s", errIntentForeign, written.Attempt, written.Name)
}

// remembered returns the record in memory, or an empty one.
func (r *launchRecords) remembered(uid types.UID) launchRecord {
	known, _ := r.memory.Get(string(uid))
	record, _ := known.(launchRecord)
	return record
}

// change replaces the record of a NodeClaim; core launches one NodeClaim once at a time.
func (r *launchRecords) change(uid types.UID, apply func(*launchRecord)) {
	record := r.remembered(uid)
	apply(&record)
	r.memory.SetDefault(string(uid), record)
}

// OwnedAddresses returns the ids of the network interfaces that are recorded on the NodeClaim as its server's own.
func OwnedAddresses(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedAddresses], ","))
}

// OwnedVolumes returns the ids of the disks that are recorded on the NodeClaim as its server's own.
func OwnedVolumes(claim *karpv1.NodeClaim) []string {
	return lo.Compact(strings.Split(claim.Annotations[v1alpha1.AnnotationOwnedVolumes], ","))
}

// delivered is the server that a create request led to, as it was before the node registered. Where BizFly Cloud rounds a disk,
// names a plan differently or adds a network of its own, its next server would be the same again: what was delivered so has
// not drifted, or nodes would be replaced indefinitely.
type delivered struct {
	// BillingPlan is the billing plan that BizFly Cloud returned.
	BillingPlan string `json:"billingPlan,omitempty"`
	// Networks are the private networks of its interfaces, as far as they were listed by then.
	Networks []string `json:"networks,omitempty"`
	// Disks are its disks by id.
	Disks map[string]deliveredDisk `json:"disks,omitempty"`
}

type deliveredDisk struct {
	GiB    int                 `json:"gib"`
	Medium v1alpha1.DiskMedium `json:"type,omitempty"`
}

// Delivered returns how a new server was delivered, as text for AnnotationDelivered. The ports are those of the project.
func Delivered(server *instance.Instance, ports []instance.Port) string {
	disks := lo.SliceToMap(server.Volumes, func(v instance.Volume) (string, deliveredDisk) { return v.ID, deliveredDisk{v.SizeGiB, v.Medium} })
	text, _ := json.Marshal(delivered{server.BillingPlan, networksOf(ports)[server.ID], disks}) // strings and numbers always marshal
	return string(text)
}

// deliveredOf reads the annotation of the NodeClaim; it is empty where that is missing or invalid.
func deliveredOf(claim *karpv1.NodeClaim) (as delivered) {
	if err := json.Unmarshal([]byte(claim.Annotations[v1alpha1.AnnotationDelivered]), &as); err != nil {
		return delivered{}
	}
	return as
}

// same reports whether the disk is as it was delivered.
func (d delivered) same(v instance.Volume) bool {
	as, known := d.Disks[v.ID]
	return known && as == deliveredDisk{v.SizeGiB, v.Medium}
}
