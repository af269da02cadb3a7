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
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// capacityType is what every server is bought as, in the words of the removal log line.
	capacityType = "on-demand"
	// parallelDeletions bounds the deletions that one pass brings forward at the same time; the adapter limits their rate.
	parallelDeletions = 10
)

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
type view struct {
	*Snapshot
	begun time.Time
}

func (d *deleter) view(ctx context.Context, after time.Time) (*view, error) {
	listed, err := d.servers.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return &view{Snapshot: listed.value, begun: listed.begun}, nil
}

// Delete deletes a server with its root disk and those of the recorded disks that no PersistentVolume owns.
func (d *deleter) Delete(ctx context.Context, request DeleteRequest) error {
	// Core's two controllers that delete ask again after the answer "gone".
	if request.ID == "" || d.tracker.known(record{ID: request.ID}).settled() {
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
	orphans := sets.New(lo.Map(request.Orphans, func(r DeleteRequest, _ int) string { return r.ID })...)
	open := lo.Reject(d.tracker.open(), func(r record, _ int) bool {
		return orphans.Has(r.ID) || d.clock.Now().Before(r.NotBefore) || (r.Found && request.Launching.Has(r.Name))
	})
	deletions := make([]Deletion, len(request.Orphans)+len(open))
	workqueue.ParallelizeUntil(ctx, parallelDeletions, len(deletions), func(i int) {
		if i < len(request.Orphans) {
			orphan, r := request.Orphans[i], d.tracker.known(record{ID: request.Orphans[i].ID})
			deletions[i] = Deletion{ID: orphan.ID, Name: orphan.Name, Reason: orphan.Reason, Repeated: r.settled(), Err: d.reconcileDeletion(ctx, orphan)}
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
	case len(v.named(open.Name)) > 0:
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
	current := d.tracker.change(record{ID: request.ID}, func(r *record) { d.begin(r, request) })
	v, server, err := d.find(ctx, current)
	switch {
	case err != nil:
		return err
	case server == nil || server.gone():
		return d.finish(ctx, v, current)
	case !d.ours(server):
		d.tracker.forget(request.ID)
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	}
	late := false
	current = d.tracker.change(current, func(r *record) {
		late = !r.Late && d.clock.Since(r.Begun) >= ttl.LeftoverPatience
		r.Late = r.Late || late
		// Node, disks and interfaces have the name that the server was launched under, whatever it is called now.
		r.Name = server.launchName
		r.Description = r.Description.or(Description{
			NodeClaim: server.NodeClaim, NodeClaimUID: server.NodeClaimUID, Flavor: server.Flavor, Zone: server.Zone,
		})
		r.Done, r.GoneSince = false, time.Time{}
	})
	if late {
		// Nothing ends without it: its node may run pods.
		d.config.OnLeftover(ctx, current.Name, LeftoverServer, fmt.Errorf("server %s is %s", server.ID, server.Status))
	}
	if server.Deleting() || d.underWay(current) {
		return nil
	}
	return d.deleteServer(ctx, v, server, current)
}

// begin adds to the record what the caller knows, as far as it is proven.
func (d *deleter) begin(r *record, request DeleteRequest) {
	r.merge(request)
	if r.Name == "" && d.trusted(request.Name, r.Description) {
		r.Name = request.Name
	}
	if r.Begun.IsZero() {
		r.Begun = d.clock.Now()
	}
}

// find returns the server; nil when it is provably gone: absent from a list that began after its deletion was first requested,
// and denied by the API under its id. The list is shared by all deletions, so that only the second costs a call per server, and
// that it is made once.
func (d *deleter) find(ctx context.Context, r record) (*view, *Instance, error) {
	v, err := d.view(ctx, d.recent())
	if err == nil && v.Get(r.ID) == nil && !v.begun.After(r.Begun) {
		v, err = d.view(ctx, r.Begun)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("deleting server %s: %w", r.ID, err)
	}
	if server := v.Get(r.ID); server != nil {
		return v, server, nil
	}
	if !r.GoneSince.IsZero() {
		return v, nil, nil
	}
	server, err := d.getServer(ctx, r.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		d.tracker.change(r, func(r *record) { r.GoneSince = lo.CoalesceOrEmpty(r.GoneSince, d.clock.Now()) })
		return v, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("making sure that a server is gone: %w", err)
	}
	return v, server, nil
}

func (d *deleter) underWay(r record) bool { return d.clock.Now().Before(r.RetryAt) }

// deleteServer requests the deletion of the server with the disks that are its own.
func (d *deleter) deleteServer(ctx context.Context, v *view, server *Instance, current record) error {
	volumes, err := d.disposable(ctx, v, server, current.Recorded)
	if err != nil {
		return err
	}
	attached := d.attachedAddresses(ctx, v, server, current)
	// Core deletes from two controllers at once: only the one that writes the time first sends the request.
	mine := false
	d.tracker.change(record{ID: server.ID}, func(r *record) {
		if mine = !d.underWay(*r); mine {
			r.RetryAt = d.clock.Now().Add(ttl.AcceptedDeletion)
			r.Requested = lo.Union(r.Requested, volumes)
			r.Attached = lo.Union(r.Attached, attached)
		}
	})
	if !mine {
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
		d.tracker.change(record{ID: server.ID}, func(r *record) { r.RetryAt = d.clock.Now().Add(ttl.ConflictingDeletion) })
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	d.tracker.change(record{ID: server.ID}, func(r *record) { r.RetryAt = time.Time{} })
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
	if lo.SomeBy(v.named(current.Name), func(server *Instance) bool { return server.ID != current.ID }) {
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
	first := false
	after := d.tracker.change(current, func(r *record) {
		now := d.clock.Now()
		r.GoneSince = lo.CoalesceOrEmpty(r.GoneSince, now)
		if now.Sub(r.GoneSince) < ttl.LeftoverPatience {
			return
		}
		first, r.Released = !r.Released, true
		r.NotBefore = now.Add(min(ttl.LeftoverRetry<<min(r.Failures, 10), ttl.MaxLeftoverRetry))
		r.Failures++
	})
	if !first {
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
	first := false
	closed := d.tracker.change(current, func(r *record) { first, r.Done = !r.Done && !r.Released, true })
	if first {
		d.removed(closed)
	}
}

// removed writes the removal log line: once, although two controllers of core delete at the same time.
func (d *deleter) removed(server record) {
	if server.ID == "" {
		return
	}
	d.config.Audit.Removed(audit.Record{
		NodeClaim: server.Description.NodeClaim, Server: server.ID, Flavor: server.Description.Flavor, Zone: server.Description.Zone,
		CapacityType: capacityType, Reason: server.Reason, Took: d.clock.Since(server.Begun),
	})
}
