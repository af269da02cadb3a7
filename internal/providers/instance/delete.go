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
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/audit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

const (
	// acceptedFor is how long the cloud may take for a deletion that it accepted before it is told again: tasks get lost.
	acceptedFor = 2 * time.Minute
	// conflictFor is how long a server that cannot be deleted now, mostly because it is being deleted, is not retried.
	conflictFor = 15 * time.Second
	// leftoverPatience is how long a NodeClaim waits, once its server is provably gone, for disks, addresses and BKE. The
	// cloud takes seconds; what takes longer waits for a person, for example to delete a snapshot of the disk, and the Node
	// must not stay in termination for that.
	leftoverPatience = 10 * time.Minute
	// leftoverRetry doubles with each further try of Reap up to maxLeftoverRetry, which is below the time for which a
	// deletion is remembered.
	leftoverRetry    = time.Minute
	maxLeftoverRetry = 30 * time.Minute
)

// capacityType is what every server is bought as, in the words of the removal log line.
const capacityType = "on-demand"

// view is the cloud as seen by one caller: each list is begun after the call and read at most once.
type view struct {
	servers func(context.Context) ([]*gobizfly.Server, error)
	volumes func(context.Context) ([]*gobizfly.Volume, error)
}

func (p *DefaultProvider) newView() *view {
	return &view{servers: once(p.servers), volumes: once(p.volumes)}
}

// once remembers the first list that could be read. Callers at the same moment share one request all the same.
func once[T any](list *sharedList[T]) func(context.Context) ([]T, error) {
	var read atomic.Pointer[[]T]
	return func(ctx context.Context) ([]T, error) {
		if items := read.Load(); items != nil {
			return *items, nil
		}
		items, err := list.get(ctx, 0)
		if err == nil {
			read.Store(&items)
		}
		return items, err
	}
}

// Delete deletes a server with its root disk and those of the recorded disks that no PersistentVolume owns.
func (p *DefaultProvider) Delete(ctx context.Context, request DeleteRequest) error {
	if p.config.ClusterUID == "" {
		return errNoClusterUID
	}
	if request.ID == "" {
		return fmt.Errorf("%w: it has no id", ErrNotFound)
	}
	return p.reconcileDeletion(ctx, p.newView(), request)
}

// reconcileDeletion brings one deletion as far as it can get now. Every step looks at the cloud first, so that any caller can
// take it, from whatever state the last one has left.
func (p *DefaultProvider) reconcileDeletion(ctx context.Context, v *view, request DeleteRequest) error {
	server, err := p.getServer(ctx, v, request.ID)
	if err != nil {
		return err
	}
	if server == nil || gone(server) {
		return p.finish(ctx, v, p.deletions.change(record{ID: request.ID}, func(r *record) { p.begin(r, request) }))
	}
	if !p.ours(server) {
		p.deletions.forget(request.ID)
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	}
	late := false
	current := p.deletions.change(record{ID: request.ID}, func(r *record) {
		p.begin(r, request)
		late = !r.Late && p.config.Clock.Since(r.Begun) >= leftoverPatience
		r.Late = r.Late || late
		seen := convert(server)
		// Node, disks and interfaces have the name that the server was launched under, whatever it is called now.
		r.Name = p.orderedName(server)
		r.Description = r.Description.or(Description{NodeClaim: seen.NodeClaim, NodeClaimUID: seen.NodeClaimUID, Flavor: seen.Flavor, Zone: seen.Zone})
		r.Done = false
	})
	if late {
		// Nothing ends without it: its node may run pods.
		p.config.OnLeftover(ctx, current.Name, LeftoverServer, fmt.Errorf("server %s is %s", server.ID, server.Status))
	}
	if leaving(server) || p.underWay(current) {
		return nil
	}
	return p.deleteServer(ctx, v, server, current)
}

// begin adds to the record what the caller knows, as far as it is proven.
func (p *DefaultProvider) begin(r *record, request DeleteRequest) {
	r.merge(request)
	if r.Name == "" && p.trusted(request.Name, r.Description) {
		r.Name = request.Name
	}
	if r.Begun.IsZero() {
		r.Begun = p.config.Clock.Now()
	}
}

// getServer returns the server, or nil when it is absent from a list begun after the call and the API denies its id.
func (p *DefaultProvider) getServer(ctx context.Context, v *view, id string) (*gobizfly.Server, error) {
	servers, err := v.servers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing servers to delete %s: %w", id, err)
	}
	if server, ok := lo.Find(servers, func(server *gobizfly.Server) bool { return server.ID == id }); ok {
		return server, nil
	}
	server, err := p.api.GetServer(ctx, id)
	if bizfly.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("making sure that server %s is gone: %w", id, err)
	}
	return server, nil
}

func (p *DefaultProvider) underWay(r record) bool {
	return p.config.Clock.Now().Before(r.AskAgain)
}

// deleteServer tells the cloud to delete the server with the disks that are its own.
func (p *DefaultProvider) deleteServer(ctx context.Context, v *view, server *gobizfly.Server, current record) error {
	volumes, err := p.disposable(ctx, v, server, current.Recorded)
	if err != nil {
		return err
	}
	attached := p.attachedAddresses(ctx, server, current)
	// Core deletes from two controllers at once: only the one that writes the time first sends the call.
	mine := false
	p.deletions.change(record{ID: server.ID}, func(r *record) {
		if mine = !p.underWay(*r); mine {
			r.AskAgain = p.config.Clock.Now().Add(acceptedFor)
			r.Asked = lo.Union(r.Asked, volumes)
			r.Attached = lo.Union(r.Attached, attached)
		}
	})
	if !mine {
		return nil
	}
	_, err = p.api.DeleteServer(ctx, server.ID, volumes)
	switch {
	case err == nil:
		deletionsTotal.Inc(map[string]string{labelOutcome: outcomeAccepted})
		log.FromContext(ctx).V(1).Info("deleting server", "server", server.Name, "server-id", server.ID, "volumes", volumes)
		return nil
	case bizfly.IsNotFound(err), bizfly.IsConflict(err) && server.Status != StatusBuild:
		// It is being deleted already, by an earlier process or by a user; the next call sees it.
		p.deletions.change(record{ID: server.ID}, func(r *record) { r.AskAgain = p.config.Clock.Now().Add(conflictFor) })
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	p.deletions.change(record{ID: server.ID}, func(r *record) { r.AskAgain = time.Time{} })
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
// remained for too long: the NodeClaim ends then, and Reap goes on.
func (p *DefaultProvider) finish(ctx context.Context, v *view, current record) error {
	gone := fmt.Errorf("%w: %s", ErrNotFound, lo.CoalesceOrEmpty(current.ID, current.Name))
	if current.Done || (current.Released && p.config.Clock.Now().Before(current.NotBefore)) {
		return gone
	}
	left, err := p.removeLeftovers(ctx, v, current)
	switch {
	case err != nil:
		return err
	case len(left) == 0:
		p.done(current)
		return gone
	case p.release(ctx, current, left):
		return gone
	}
	return errors.Join(lo.FilterMap(left, func(l leftover, _ int) (error, bool) { return l.err, !l.waiting })...)
}

// removeLeftovers removes disks, addresses and the node in BKE, and returns what is still there.
func (p *DefaultProvider) removeLeftovers(ctx context.Context, v *view, current record) ([]leftover, error) {
	duplicate, err := p.hasDuplicate(ctx, v, current)
	if err != nil {
		return nil, err
	}
	if duplicate {
		// What is found by the name alone is the other server's until that one goes.
		current.Name = ""
	}
	return slices.Concat(p.deleteDisks(ctx, v, current), p.releaseAddresses(ctx, current), p.leaveBKE(ctx, current)), nil
}

// release reports whether the NodeClaim no longer waits for what its server left, and, when that begins, what it is.
func (p *DefaultProvider) release(ctx context.Context, current record, left []leftover) bool {
	first := false
	after := p.deletions.change(current, func(r *record) {
		now := p.config.Clock.Now()
		r.GoneSince = lo.CoalesceOrEmpty(r.GoneSince, now)
		if now.Sub(r.GoneSince) < leftoverPatience {
			return
		}
		first, r.Released = !r.Released, true
		r.NotBefore = now.Add(min(leftoverRetry<<min(r.Failures, 10), maxLeftoverRetry))
		r.Failures++
	})
	if !first {
		return after.Released
	}
	for _, l := range left {
		log.FromContext(ctx).Error(l.err, "a deleted server has left something that cannot be removed, it is tried again later", "server", after.Name, "server-id", after.ID, "kind", l.kind)
		p.config.OnLeftover(ctx, lo.CoalesceOrEmpty(after.Name, after.ID), l.kind, l.err)
	}
	p.removed(after)
	return true
}

// done closes the record of a server of which nothing is left. One that is known by name alone stays open until it expires:
// the cloud may still be building something.
func (p *DefaultProvider) done(current record) {
	if current.ID == "" && !current.Released {
		return
	}
	first := false
	closed := p.deletions.change(current, func(r *record) { first, r.Done = !r.Done && !r.Released, true })
	if first {
		p.removed(closed)
	}
}

// removed writes the removal log line: once, although two controllers of core delete at the same time.
func (p *DefaultProvider) removed(server record) {
	if server.ID == "" {
		return
	}
	p.config.Audit.Removed(audit.Record{
		NodeClaim: server.Description.NodeClaim, Server: server.ID, Flavor: server.Description.Flavor, Zone: server.Description.Zone,
		CapacityType: capacityType, Reason: server.Reason, Took: p.config.Clock.Since(server.Begun),
	})
}

// hasDuplicate reports whether another server of ours has the same name: a gateway that repeats a create request makes two.
func (p *DefaultProvider) hasDuplicate(ctx context.Context, v *view, current record) (bool, error) {
	if current.Name == "" {
		return false, nil
	}
	servers, err := v.servers(ctx)
	if err != nil {
		return false, fmt.Errorf("listing servers to find what server %s left: %w", current.Name, err)
	}
	return lo.SomeBy(servers, func(server *gobizfly.Server) bool {
		return server.ID != current.ID && !gone(server) && p.ours(server) && p.called(server, current.Name)
	}), nil
}

// leaveBKE tells BKE that the node is gone. A Kubernetes Engine that is down keeps a node no longer than a disk does.
func (p *DefaultProvider) leaveBKE(ctx context.Context, current record) []leftover {
	if current.Left || current.Name == "" || current.ID == "" {
		return nil
	}
	values, err := p.config.BKE.Values(ctx)
	if err == nil {
		if values.ClusterID == "" || values.Token == "" {
			return nil
		}
		err = p.api.LeaveCluster(ctx, values.ClusterID, values.Token, current.Name)
	}
	if err != nil {
		return []leftover{{kind: LeftoverNode, err: fmt.Errorf("telling BKE that node %s is gone: %w", current.Name, err)}}
	}
	p.deletions.change(current, func(r *record) { r.Left = true })
	return nil
}
