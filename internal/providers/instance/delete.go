// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// leavesWaiting bounds how many nodes are being removed from BKE or wait for their turn: a Kubernetes Engine can
	// hang.
	leavesWaiting = 1000
	// provingAtOnce bounds how many servers that a list lacks are read by their ids. All reads wait in one queue of the
	// adapter: without a bound, a big removal would hold up the lists by which launches find their servers, and a cloud
	// that hangs for it would take all slots.
	provingAtOnce = 10
)

// view is what one step of a deletion decides by: a list of the servers, and as its other lists only such as began
// after it. So whatever a server that is absent from the first has left is in the others, and all deletions share them.
type view = listed[*Snapshot]

func (p *DefaultProvider) view(ctx context.Context, after time.Time) (*view, error) {
	v, err := p.servers.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return v, nil
}

// Delete deletes a server with its root disk and those of the recorded disks that no PersistentVolume owns. It is
// called again and again until it returns ErrNotFound.
func (p *DefaultProvider) Delete(ctx context.Context, request DeleteRequest) error {
	v, server, err := p.find(ctx, request.ID, request.Since)
	switch {
	case err != nil:
		return fmt.Errorf("deleting server %s: %w", request.ID, err)
	case server == nil || server.Gone():
		if before := p.noteRemoval(request.ID, func(r *removal) { r.left = true }); !before.left {
			p.leaveBKE(ctx, v, request.Node)
		}
		return fmt.Errorf("%w: %q", ErrNotFound, request.ID)
	case !p.cluster.ours(server):
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	case server.Deleting():
		return nil
	}
	if err := p.checkUnpaid(ctx, server); err != nil || p.requestedRecently(server.ID) {
		return err
	}
	disks, err := p.disksToDelete(ctx, v, server, request.RecordedVolumes)
	if err == nil {
		err = p.requestDeletion(ctx, server, disks, request.Since)
	}
	if err != nil {
		p.noteRemoval(server.ID, func(r *removal) { r.requested = time.Time{} })
	}
	return err
}

// checkUnpaid keeps a stopped server while the account is unpaid: its node is silent, and so it is taken for empty or
// broken. Where the account was never asked with success, nothing is known, and the deletion goes on.
func (p *DefaultProvider) checkUnpaid(ctx context.Context, server *Instance) error {
	if p.config.Unpaid == nil || !server.Stopped() {
		return nil
	}
	if unpaid, _ := p.config.Unpaid(ctx); unpaid != "" {
		return fmt.Errorf("%w: %s (%s) waits, since %s", ErrUnpaid, server.Name, server.ID, unpaid)
	}
	return nil
}

// find returns the server; nil when it is provably gone: absent from a list that began after its deletion, and denied
// by the API under its id. All deletions share the list, so that only the second costs a call per server.
func (p *DefaultProvider) find(ctx context.Context, id string, deleted time.Time) (*view, *Instance, error) {
	after := p.recent()
	if deleted.After(after) {
		after = deleted
	}
	v, err := p.view(ctx, after)
	if err != nil {
		return nil, nil, err
	}
	if server := v.value.Get(id); server != nil {
		return v, server, nil
	}
	if p.removalOf(id).gone {
		return v, nil, nil
	}
	waiting, cancel := context.WithTimeout(ctx, ttl.Admission)
	defer cancel()
	if err := p.proving.Acquire(waiting, 1); err != nil {
		return nil, nil, fmt.Errorf("waiting to read server %s, while %d others are being read: %w", id, provingAtOnce, err)
	}
	defer p.proving.Release(1)
	if p.removalOf(id).gone {
		return v, nil, nil // the other controller has proved it meanwhile
	}
	server, err := p.getServer(ctx, id)
	if errors.Is(err, ErrNotFound) {
		p.noteRemoval(id, func(r *removal) { r.gone = true })
		return v, nil, nil
	}
	return v, server, err
}

// requestDeletion sends the request to delete a server, whose deletion began at this time, with these disks.
func (p *DefaultProvider) requestDeletion(ctx context.Context, server *Instance, disks []string,
	since time.Time) error {
	err := p.api.DeleteServer(ctx, server.ID, disks)
	switch {
	// A list of seconds ago shows a server that is not found: the answer to a request that was repeated.
	case err == nil, bizfly.IsNotFound(err):
		deletionsTotal.Inc(map[string]string{labelOutcome: outcomeAccepted})
		if p.noteRemoval(server.ID, func(r *removal) { r.logged = true }).logged {
			return nil // a removal is one line, however often and for how long it is requested
		}
		took := lo.Ternary(since.IsZero(), 0, p.clock.Since(since))
		// docs/operate/monitoring.md explains the message and its keys. The logger of the context has the NodeClaim.
		log.FromContext(ctx).Info("removed server", "server-id", server.ID, "flavor", server.Flavor, "zone", server.Zone,
			"capacity-type", karpv1.CapacityTypeOnDemand, "seconds", math.Round(max(0, took.Seconds())*10)/10,
			"volumes", disks)
		return nil
	case bizfly.IsConflict(err) && server.Status != StatusBuild:
		// It is being deleted already, by an earlier process or by a user; or it cannot be deleted at this moment.
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	return fmt.Errorf("deleting server %s (%s, status %s): %w", server.Name, server.ID, server.Status, err)
}

// requestedRecently reports whether a request to delete the server was sent a moment ago. Where it was not, or the last
// one may have got lost, the caller is the one to send it.
func (p *DefaultProvider) requestedRecently(id string) bool {
	now := p.clock.Now()
	isRecent := func(r removal) bool { return now.Sub(r.requested) < ttl.DeletionRetry }
	return isRecent(p.noteRemoval(id, func(r *removal) {
		if !isRecent(*r) {
			r.requested = now
		}
	}))
}

// removal is what is remembered of the deletion of one server. It is replaced, never changed.
type removal struct {
	// requested is when a request to delete the server was last sent. BizFly Cloud shows the server as it was for a
	// while after it has accepted one.
	requested time.Time
	// logged and left are true once the removal was logged, and the node was removed from BKE, each once.
	logged, left bool
	// gone is true once the server was proved to be gone, which spares Get and Delete a request each.
	gone bool
}

// removalOf returns what is remembered of the deletion of a server.
func (p *DefaultProvider) removalOf(id string) removal {
	known, _ := p.removals.Get(id)
	r, _ := known.(removal)
	return r
}

// noteRemoval changes what is remembered of the deletion of a server, and returns what was remembered before.
func (p *DefaultProvider) noteRemoval(id string, note func(*removal)) removal {
	p.noting.Lock()
	defer p.noting.Unlock()
	p.removals.DeleteExpired()
	before := p.removalOf(id)
	after := before
	note(&after)
	p.removals.SetDefault(id, after)
	return before
}

// leaveBKE removes the node of a server that is gone from BKE, in the background and once: nothing depends on it.
func (p *DefaultProvider) leaveBKE(ctx context.Context, v *view, node string) {
	launched := p.cluster.provenIn(node)
	if launched == "" || v.value.hasNamed(launched) {
		// A gateway that repeats a create request creates a duplicate, which is the node of that name until it is
		// deleted.
		return
	}
	failed := func(err error) {
		log.FromContext(ctx).Error(err, "removing a node whose server is deleted from BizFly Kubernetes Engine", "node", node)
		p.config.OnLeaveFailed(node, err)
	}
	// After a burst of deletions many wait for their turn.
	ctx = bizfly.AdmitWithin(context.WithoutCancel(ctx), ttl.LeaveBKE)
	started := p.leaving.TryGo(func() error {
		values, err := p.config.BKE.Values(ctx)
		if err == nil && values.ClusterID != "" && values.Token != "" {
			err = p.api.LeaveCluster(ctx, values.ClusterID, values.Token, node)
		}
		if err != nil {
			failed(err)
		}
		return nil
	})
	if !started {
		failed(fmt.Errorf("%d nodes wait for BizFly Kubernetes Engine already", leavesWaiting))
	}
}
