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

package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// parallelDeletions bounds the deletions that one pass brings forward at the same time; the adapter limits their rate.
const parallelDeletions = 10

// deleter deletes servers and what they leave behind.
type deleter struct {
	*inventory
	config Config
	// protected are the handles of the volumes that PersistentVolumes name.
	protected *shared[sets.Set[string]]
	tracker   *tracker
}

// view is what one step of a deletion decides by: a list of the servers, and as its other lists only such as began after it.
// So whatever a server that is absent from the first has left is in the others, and all deletions share them.
type view = listed[*Snapshot]

func (d *deleter) view(ctx context.Context, after time.Time) (*view, error) {
	v, err := d.servers.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return v, nil
}

// Delete deletes a server with its root disk and those of the recorded disks that no PersistentVolume owns.
func (d *deleter) Delete(ctx context.Context, request DeleteRequest) error {
	// Core's two controllers that delete ask again after the answer "gone".
	if request.ID == "" || d.tracker.known(request).settled() {
		return fmt.Errorf("%w: %q", ErrNotFound, request.ID)
	}
	return d.reconcileDeletion(ctx, request)
}

// ReconcileDeletions deletes the orphans, continues what Launch and Delete began, and finds what servers of this cluster
// have left.
func (d *deleter) ReconcileDeletions(ctx context.Context, request DeletionsRequest) ([]Deletion, error) {
	v, err := d.view(ctx, d.recent())
	if err != nil {
		return nil, err
	}
	err = d.findLeftovers(ctx, v, request.Launching)
	orphans := sets.New(lo.Map(request.Orphans, func(server *Instance, _ int) string { return server.ID })...)
	open := lo.Reject(d.tracker.open(), func(r record, _ int) bool {
		return orphans.Has(r.ID) || d.clock.Now().Before(r.NotBefore) || (r.Found && request.Launching.Has(r.Name))
	})
	deletions := make([]Deletion, len(request.Orphans)+len(open))
	workqueue.ParallelizeUntil(ctx, parallelDeletions, len(deletions), func(i int) {
		if i < len(request.Orphans) {
			orphan := DeleteRequest{ID: request.Orphans[i].ID, Name: request.Orphans[i].Name, Reason: ReasonGarbageCollected}
			deletions[i] = Deletion{ID: orphan.ID, Name: orphan.Name, Reason: orphan.Reason, Repeated: d.tracker.known(orphan).settled(),
				Err: d.reconcileDeletion(ctx, orphan)}
			return
		}
		r := open[i-len(request.Orphans)]
		deletions[i] = Deletion{ID: r.ID, Name: r.Name, Reason: r.Reason, Repeated: r.Released, Err: d.resume(ctx, v, r, request.DryRun)}
	})
	leftoversGauge.Set(float64(lo.CountBy(d.tracker.open(), func(r record) bool { return r.Released })), nil)
	return deletions, err
}

// resume continues one deletion.
func (d *deleter) resume(ctx context.Context, v *view, open record, dryRun bool) error {
	switch {
	case open.ID != "" && !dryRun:
		return d.reconcileDeletion(ctx, DeleteRequest{ID: open.ID})
	case open.ID != "":
		log.FromContext(ctx).Info("would continue to delete a server (dry run)", "server", open.Name, "server-id", open.ID)
		return nil
	case len(v.value.named(open.Name)) > 0:
		// The deletion of that server deletes what is left by its name.
		return nil
	case !dryRun:
		return d.finish(ctx, v, open)
	}
	left, err := d.leftoverDisks(ctx, v, open)
	for _, volume := range left {
		log.FromContext(ctx).Info("would delete a disk that outlived its server (dry run)", "volume", volume.Name, "volume-id", volume.ID)
	}
	return err
}

// reconcileDeletion brings one deletion as far as it can get now. Every step reads the cloud first, so that any caller can
// take it, from whatever state the last one has left.
func (d *deleter) reconcileDeletion(ctx context.Context, request DeleteRequest) error {
	_, current := d.tracker.change(request, func(r *record) { d.begin(r, request) })
	v, server, err := d.find(ctx, current)
	switch {
	case err != nil:
		return err
	case server == nil || server.gone():
		return d.finish(ctx, v, current)
	case !d.ours(server):
		d.tracker.forget(request)
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	}
	before, current := d.tracker.change(request, func(r *record) {
		r.Late = r.Late || d.clock.Since(r.Begun) >= ttl.LeftoverPatience
		// Node, disks and interfaces have the name that the server was launched under, whatever it is called now.
		r.Name = server.launchName
		r.describe(server.NodeClaim, server.NodeClaimUID, server.Flavor, server.Zone)
		r.Done, r.GoneSince = false, time.Time{}
	})
	if current.Late && !before.Late {
		// Nothing ends without it: its node may run pods.
		d.config.OnLeftover(ctx, current.Name, LeftoverServer, fmt.Errorf("server %s is %s", server.ID, server.Status))
	}
	if server.Deleting() || d.clock.Now().Before(current.RetryAt) {
		return nil
	}
	return d.deleteServer(ctx, v, server, current)
}

// begin adds to the record what the caller knows, as far as it is proven.
func (d *deleter) begin(r *record, request DeleteRequest) {
	r.RecordedVolumes = lo.Union(r.RecordedVolumes, request.RecordedVolumes)
	r.RecordedAddresses = lo.Union(r.RecordedAddresses, request.RecordedAddresses)
	r.Reason = lo.CoalesceOrEmpty(r.Reason, request.Reason)
	r.describe(request.NodeClaim, request.NodeClaimUID, request.Flavor, request.Zone)
	if r.Name == "" && d.trusted(request.Name, r.NodeClaim, r.NodeClaimUID) {
		r.Name = request.Name
	}
	r.Begun = lo.CoalesceOrEmpty(r.Begun, d.clock.Now())
}

// find returns the server; nil when it is provably gone: absent from a list that began after its deletion was first requested,
// and denied by the API under its id. The list is shared by all deletions, so that only the second costs a call per server, and
// that it is made once.
func (d *deleter) find(ctx context.Context, r record) (*view, *Instance, error) {
	v, err := d.view(ctx, d.recent())
	if err == nil && v.value.Get(r.ID) == nil && !v.begun.After(r.Begun) {
		v, err = d.view(ctx, r.Begun)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("deleting server %s: %w", r.ID, err)
	}
	if server := v.value.Get(r.ID); server != nil {
		return v, server, nil
	}
	if !r.GoneSince.IsZero() {
		return v, nil, nil
	}
	server, err := d.getServer(ctx, r.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		d.tracker.change(r.DeleteRequest, func(r *record) { r.GoneSince = lo.CoalesceOrEmpty(r.GoneSince, d.clock.Now()) })
		return v, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("making sure that a server is gone: %w", err)
	}
	return v, server, nil
}

// deleteServer requests the deletion of the server with the disks that are its own.
func (d *deleter) deleteServer(ctx context.Context, v *view, server *Instance, current record) error {
	volumes, err := d.disposable(ctx, v, server, current.RecordedVolumes)
	if err != nil {
		return err
	}
	attached := d.attachedAddresses(ctx, v, server, current)
	// Core deletes from two controllers at once: only the one that writes the time first sends the request.
	now := d.clock.Now()
	before, _ := d.tracker.change(current.DeleteRequest, func(r *record) {
		if !now.Before(r.RetryAt) {
			r.RetryAt = now.Add(ttl.AcceptedDeletion)
			r.Requested = lo.Union(r.Requested, volumes)
			r.Attached = lo.Union(r.Attached, attached)
		}
	})
	if now.Before(before.RetryAt) {
		return nil
	}
	_, err = d.api.DeleteServer(ctx, server.ID, volumes)
	switch {
	case err == nil:
		deletionsTotal.Inc(map[string]string{labelOutcome: outcomeAccepted})
		log.FromContext(ctx).V(1).Info("deleting server", "server", server.Name, "server-id", server.ID, "volumes", volumes)
		return nil
	case bizfly.IsNotFound(err), bizfly.IsConflict(err) && server.Status != StatusBuild:
		// It is being deleted already, by an earlier process or by a user; the next call sees it.
		d.tracker.change(current.DeleteRequest, func(r *record) { r.RetryAt = d.clock.Now().Add(ttl.ConflictingDeletion) })
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	d.tracker.change(current.DeleteRequest, func(r *record) { r.RetryAt = time.Time{} })
	return fmt.Errorf("deleting server %s (%s, status %s): %w", server.Name, server.ID, server.Status, err)
}

// leftover is one thing that a deleted server has left.
type leftover struct {
	kind LeftoverKind
	// err is why it is still there, and waiting that this is no failure: it is being removed, or cannot be yet.
	err     error
	waiting bool
}

// finish removes what remains once the server is gone. It returns ErrNotFound when nothing does, and also when something has
// remained for too long: the NodeClaim ends then, and ReconcileDeletions goes on.
func (d *deleter) finish(ctx context.Context, v *view, current record) error {
	gone := fmt.Errorf("%w: %s", ErrNotFound, lo.CoalesceOrEmpty(current.ID, current.Name))
	if current.Done || (current.Released && d.clock.Now().Before(current.NotBefore)) {
		return gone
	}
	found := current
	if lo.SomeBy(v.value.named(current.Name), func(server *Instance) bool { return server.ID != current.ID }) {
		// A gateway that repeats a create request makes a duplicate: what is found by the name alone is its until it is deleted.
		found.Name = ""
	}
	left := slices.Concat(d.deleteDisks(ctx, v, found), d.releaseAddresses(ctx, v, found), d.leaveBKE(ctx, found))
	switch {
	case len(left) == 0:
		d.done(current)
		return gone
	case d.release(ctx, current, left):
		return gone
	}
	return errors.Join(lo.FilterMap(left, func(l leftover, _ int) (error, bool) { return l.err, !l.waiting })...)
}

// release reports whether the NodeClaim no longer waits for what its server left, and, when that begins, reports what it is.
func (d *deleter) release(ctx context.Context, current record, left []leftover) bool {
	before, after := d.tracker.change(current.DeleteRequest, func(r *record) {
		now := d.clock.Now()
		r.GoneSince = lo.CoalesceOrEmpty(r.GoneSince, now)
		if now.Sub(r.GoneSince) < ttl.LeftoverPatience {
			return
		}
		r.Released = true
		r.NotBefore = now.Add(min(ttl.LeftoverRetry<<min(r.Failures, 10), ttl.MaxLeftoverRetry))
		r.Failures++
	})
	if before.Released == after.Released {
		return after.Released
	}
	for _, l := range left {
		log.FromContext(ctx).Error(l.err, "a deleted server has left something that cannot be removed, it is tried again later", "server", after.Name, "server-id",
			after.ID, "kind", l.kind)
		d.config.OnLeftover(ctx, lo.CoalesceOrEmpty(after.Name, after.ID), l.kind, l.err)
	}
	d.removed(after)
	return true
}

// done closes the record of a server of which nothing is left. One that is known by name alone stays open until it expires:
// the cloud may still be building something.
func (d *deleter) done(current record) {
	if current.ID == "" && !current.Released {
		return
	}
	before, closed := d.tracker.change(current.DeleteRequest, func(r *record) { r.Done = true })
	if !before.settled() {
		d.removed(closed)
	}
}

// removed writes the removal log line: once, although two controllers of core delete at the same time.
func (d *deleter) removed(server record) {
	if server.ID == "" {
		return
	}
	d.config.Audit.Removed(audit.Record{
		NodeClaim: server.NodeClaim, Server: server.ID, Flavor: server.Flavor, Zone: server.Zone,
		Reason: server.Reason, Took: d.clock.Since(server.Begun),
	})
}

const (
	// maxRecords bounds the tracker. What does not fit is deleted all the same, but not continued by ReconcileDeletions.
	maxRecords = 20_000
)

// record is what is remembered of one deletion. Nothing depends on it for safety: a controller that starts anew finds
// out the same from the cloud and from the NodeClaim, with a few calls more.
type record struct {
	// DeleteRequest is what all callers together know. The name is proven; the id is empty where only what the server left is
	// known, by its name.
	DeleteRequest
	// Found is true where nothing but the names of its leftovers is known of the server.
	Found bool
	// NotBefore is when the record is next reconciled: what has no server may still be of a launch that is waited for, and
	// what could not be removed is tried again later and later.
	NotBefore time.Time
	// Attached are the recorded network interfaces that this process has seen attached to the server.
	Attached []string
	// Requested are the disks that a request has listed to delete with the server.
	Requested []string
	// RetryAt is when the request to delete a server that is still there is sent again; zero while none was sent.
	RetryAt time.Time
	// Late is true once it was reported that the server is still there.
	Late bool
	// GoneSince is when the server was proved to be gone; zero while it was not.
	GoneSince time.Time
	// Released is true once the NodeClaim no longer waits for what the server left, and Failures counts the tries since.
	Released bool
	Failures int
	// Left is true when BKE has been left, and LeavingUntil is until when one request to leave it is waited for.
	Left         bool
	LeavingUntil time.Time
	// Done is true when everything is gone.
	Done bool
	// Begun is when the deletion was first requested from this process.
	Begun time.Time
}

// settled reports whether the NodeClaim of the server may end.
func (r record) settled() bool { return r.Done || r.Released }

// describe fills in what is not known of the server yet.
func (r *record) describe(nodeClaim, nodeClaimUID, flavor, zone string) {
	r.NodeClaim, r.NodeClaimUID = lo.CoalesceOrEmpty(r.NodeClaim, nodeClaim), lo.CoalesceOrEmpty(r.NodeClaimUID, nodeClaimUID)
	r.Flavor, r.Zone = lo.CoalesceOrEmpty(r.Flavor, flavor), lo.CoalesceOrEmpty(r.Zone, zone)
}

// key identifies the record by the server's id, or else by its name.
func (r *DeleteRequest) key() string { return lo.Ternary(r.ID != "", "id/"+r.ID, "name/"+r.Name) }

// tracker remembers the deletions under way in a cache whose entries expire.
type tracker struct {
	// mu makes a change of one record atomic; it is never held across a call.
	mu    sync.Mutex
	cache *cache.Cache
}

// known returns the record of a server; an empty one where there is none.
func (t *tracker) known(server DeleteRequest) record {
	if found, ok := t.cache.Get(server.key()); ok {
		return found.(record)
	}
	return record{DeleteRequest: DeleteRequest{ID: server.ID, Name: lo.Ternary(server.ID == "", server.Name, "")}}
}

// change applies a function to the record of a server and returns the record before and after.
func (t *tracker) change(server DeleteRequest, apply func(*record)) (before, after record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.known(server)
	after = before
	apply(&after)
	if _, exists := t.cache.Get(server.key()); exists || t.cache.ItemCount() < maxRecords {
		t.cache.Set(server.key(), after, lo.Ternary(after.Done, ttl.DoneDeletion, cache.DefaultExpiration))
	}
	return before, after
}

// forget drops the record of a server that turned out not to be ours, or of a launch whose server has come.
func (t *tracker) forget(server DeleteRequest) { t.cache.Delete(server.key()) }

// expect remembers the name of a launch that may have left disks or addresses, or may yet, and from when on they are no
// longer waited for. found is true where only a disk or an address in the cloud proves the name.
func (t *tracker) expect(name string, notBefore time.Time, found bool) {
	server := DeleteRequest{Name: name}
	if _, known := t.cache.Get(server.key()); (!known || !found) && t.cache.ItemCount() < maxRecords {
		t.cache.SetDefault(server.key(), record{DeleteRequest: server, NotBefore: notBefore, Found: found})
	}
}

// open returns all records that are not done, sorted so that every pass treats them in the same order.
func (t *tracker) open() []record {
	items := lo.PickBy(t.cache.Items(), func(_ string, item cache.Item) bool { return !item.Object.(record).Done })
	keys := lo.Keys(items)
	slices.Sort(keys)
	return lo.Map(keys, func(key string, _ int) record { return items[key].Object.(record) })
}
