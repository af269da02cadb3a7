// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// leavesWaiting bounds how many nodes are being removed from BKE or wait for their turn: a Kubernetes Engine can hang.
	leavesWaiting = 1000
	// provingAtOnce bounds how many servers that a list lacks are read by their ids. All reads wait in one queue of the adapter: without a bound,
	// a big removal would hold up the lists by which launches find their servers, and a cloud that hangs for it would take all slots.
	provingAtOnce = 10
)

// view is what one step of a deletion decides by: a list of the servers, and as its other lists only such as began after it.
// So whatever a server that is absent from the first has left is in the others, and all deletions share them.
type view = listed[*Snapshot]

func (p *DefaultProvider) view(ctx context.Context, after time.Time) (*view, error) {
	v, err := p.servers.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return v, nil
}

// Delete deletes a server with its root disk and those of the recorded disks that no PersistentVolume owns.
func (p *DefaultProvider) Delete(ctx context.Context, request DeleteRequest) error {
	gone := fmt.Errorf("%w: %q", ErrNotFound, request.ID)
	if request.ID == "" {
		return gone
	}
	v, server, err := p.find(ctx, request.ID, request.Since)
	switch {
	case err != nil:
		return fmt.Errorf("deleting server %s: %w", request.ID, err)
	case server == nil || server.Gone():
		if p.left.Add(request.ID, nil, cache.DefaultExpiration) == nil {
			p.left.DeleteExpired()
			p.leaveBKE(ctx, v, request)
		}
		return gone
	case !p.ours(server):
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	case server.Deleting():
		return nil
	}
	if err := p.checkUnpaid(ctx, server); err != nil {
		return err
	}
	return p.deleteServer(ctx, v, server, request)
}

// checkUnpaid keeps a stopped server while the account is unpaid: its node is silent, and so it is taken for empty or broken. Where the
// account was never asked with success, nothing is known, and the deletion goes on.
func (p *DefaultProvider) checkUnpaid(ctx context.Context, server *Instance) error {
	if p.config.Unpaid == nil || !server.Stopped() {
		return nil
	}
	if unpaid, _ := p.config.Unpaid(ctx); unpaid != "" {
		return fmt.Errorf("%w: %s (%s) waits, since %s", ErrUnpaid, server.Name, server.ID, unpaid)
	}
	return nil
}

// find returns the server; nil when it is provably gone: absent from a list that began after its deletion, and denied by the API
// under its id. All deletions share the list, so that only the second costs a call per server.
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
	if _, known := p.gone.Get(id); known {
		return v, nil, nil
	}
	waiting, cancel := context.WithTimeout(ctx, ttl.Admission)
	defer cancel()
	if err := p.proving.Acquire(waiting, 1); err != nil {
		return nil, nil, fmt.Errorf("waiting to read server %s, while %d others are being read: %w", id, provingAtOnce, err)
	}
	defer p.proving.Release(1)
	if _, known := p.gone.Get(id); known {
		return v, nil, nil // the other controller has proved it meanwhile
	}
	server, err := p.getServer(ctx, id)
	if errors.Is(err, ErrNotFound) {
		p.gone.DeleteExpired()
		p.gone.SetDefault(id, nil)
		return v, nil, nil
	}
	return v, server, err
}

// deleteServer requests the deletion of the server with the disks that are its own.
func (p *DefaultProvider) deleteServer(ctx context.Context, v *view, server *Instance, request DeleteRequest) error {
	if !p.begin(server.ID) {
		return nil
	}
	volumes, err := p.disksToDelete(ctx, v, server, request.RecordedVolumes)
	if err != nil {
		p.requested.Delete(server.ID)
		return err
	}
	err = p.api.DeleteServer(ctx, server.ID, volumes)
	switch {
	case err == nil, bizfly.IsNotFound(err): // a list of seconds ago shows it: the answer to a request that was repeated
		deletionsTotal.Inc(map[string]string{labelOutcome: outcomeAccepted})
		_, logged := p.logged.Get(server.ID)
		p.logged.DeleteExpired()
		p.logged.SetDefault(server.ID, nil)
		if logged {
			return nil // a removal is one line, however often and for how long it is requested
		}
		took := lo.Ternary(request.Since.IsZero(), 0, p.clock.Since(request.Since))
		// docs/operate/monitoring.md explains the message and its keys. The logger of the context has the NodeClaim.
		log.FromContext(ctx).Info("removed server", "server-id", server.ID, "flavor", server.Flavor, "zone", server.Zone,
			"capacity-type", karpv1.CapacityTypeOnDemand, "reason", request.Reason, "seconds", math.Round(max(0, took.Seconds())*10)/10, "volumes", volumes)
		return nil
	case bizfly.IsConflict(err) && server.Status != StatusBuild:
		// It is being deleted already, by an earlier process or by a user; or it cannot be deleted at this moment.
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	p.requested.Delete(server.ID)
	return fmt.Errorf("deleting server %s (%s, status %s): %w", server.Name, server.ID, server.Status, err)
}

// begin reports whether the caller is the one to send the request to delete the server, because none was sent or the last one may have
// got lost: BizFly Cloud shows the server as it was for a while after it has accepted one.
func (p *DefaultProvider) begin(id string) bool {
	p.beginning.Lock()
	defer p.beginning.Unlock()
	if at, requested := p.requested.Get(id); requested && p.clock.Since(at.(time.Time)) < ttl.DeletionRetry {
		return false
	}
	p.requested.DeleteExpired()
	p.requested.SetDefault(id, p.clock.Now())
	return true
}

// leaveBKE removes the node of a server that is gone from BKE, in the background and once: nothing depends on it.
func (p *DefaultProvider) leaveBKE(ctx context.Context, v *view, request DeleteRequest) {
	launched := p.provenIn(request.Node)
	if launched == "" || len(v.value.named(launched)) > 0 {
		// A gateway that repeats a create request creates a duplicate, which is the node of that name until it is deleted.
		return
	}
	// After a burst of deletions many wait for their turn.
	ctx = bizfly.AdmitWithin(context.WithoutCancel(ctx), ttl.LeaveBKE)
	started := p.leaving.TryGo(func() error {
		values, err := p.config.BKE.Values(ctx)
		if err == nil && values.ClusterID != "" && values.Token != "" {
			err = p.api.LeaveCluster(ctx, values.ClusterID, values.Token, request.Node)
		}
		if err != nil {
			p.leaveFailed(ctx, request.Node, err)
		}
		return nil
	})
	if !started {
		p.leaveFailed(ctx, request.Node, fmt.Errorf("%d nodes wait for BizFly Kubernetes Engine already", leavesWaiting))
	}
}

func (p *DefaultProvider) leaveFailed(ctx context.Context, node string, err error) {
	log.FromContext(ctx).Error(err, "removing a node whose server is deleted from BizFly Kubernetes Engine", "node", node)
	p.config.OnLeaveFailed(node, err)
}
