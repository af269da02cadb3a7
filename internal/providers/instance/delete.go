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
	"fmt"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// acceptedFor is how long the cloud may take for a deletion that it accepted before it is told again: tasks get lost.
	acceptedFor = 2 * time.Minute
	// conflictFor is how long a server that cannot be deleted now, mostly because it is being deleted, is left alone.
	conflictFor = 15 * time.Second
	// maxLeaveTries is how often BKE is told that a node is gone before a person must do it.
	maxLeaveTries = 5
)

// view is the cloud as seen by one caller: each list is begun after the call and read at most once.
type view struct {
	servers func(context.Context) ([]*gobizfly.Server, error)
	volumes func(context.Context) ([]*gobizfly.Volume, error)
}

func (p *DefaultProvider) newView() *view {
	return &view{servers: once(p.servers), volumes: once(p.volumes)}
}

// once remembers the first list that could be read.
func once[T any](list *sharedList[T]) func(context.Context) ([]T, error) {
	var items []T
	var read bool
	return func(ctx context.Context) ([]T, error) {
		if read {
			return items, nil
		}
		got, err := list.get(ctx, 0)
		if err == nil {
			items, read = got, true
		}
		return got, err
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
	return p.advance(ctx, p.newView(), request)
}

// advance brings one deletion as far as it can get now. Every step looks at the cloud first, so that it can be taken
// by whoever comes, from whatever state the last one has left.
func (p *DefaultProvider) advance(ctx context.Context, v *view, request DeleteRequest) error {
	server, err := p.look(ctx, v, request.ID)
	if err != nil {
		return err
	}
	if server == nil || gone(server) {
		return p.finish(ctx, v, p.deletions.change(request.ID, func(r *record) { p.begin(r, request) }))
	}
	if !p.ours(server) {
		p.deletions.forget(request.ID)
		return fmt.Errorf("%w: %w: %s (%s)", ErrNotFound, ErrNotOurs, server.Name, request.ID)
	}
	current := p.deletions.change(request.ID, func(r *record) {
		p.begin(r, request)
		seen := convert(server)
		// Node, disks and interfaces were named after the order, whatever somebody calls the server now.
		r.Name = p.orderedName(server)
		r.Description = r.Description.or(Description{NodeClaim: seen.NodeClaim, NodeClaimUID: seen.NodeClaimUID, NodePool: seen.NodePool,
			NodeClass: seen.NodeClass, Flavor: seen.Flavor, Zone: seen.Zone})
		r.Done = false
	})
	if leaving(server) || p.underWay(current) {
		return nil
	}
	if request.Unclaimed {
		if err := p.pending.add(ctx, current.Name, server.Metadata[v1alpha1.MetadataNodeClaimUID], p.config.Clock.Now()); err != nil {
			return err
		}
	}
	return p.deleteServer(ctx, v, server, current)
}

// begin adds to the record what the caller knows.
func (p *DefaultProvider) begin(r *record, request DeleteRequest) {
	r.merge(request)
	if r.Begun.IsZero() {
		r.Begun = p.config.Clock.Now()
	}
}

// look returns the server, or nil when it is absent from a list begun after the call and the API denies its id.
func (p *DefaultProvider) look(ctx context.Context, v *view, id string) (*gobizfly.Server, error) {
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
	// Core deletes from two controllers at once: only who writes the time down first sends the call.
	mine := false
	p.deletions.change(server.ID, func(r *record) {
		if mine = !p.underWay(*r); mine {
			r.AskAgain = p.config.Clock.Now().Add(acceptedFor)
			r.Asked = lo.Union(r.Asked, volumes)
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
		// It is on its way out already, from a life of ours before or by someone else's hand; the next look tells.
		p.deletions.change(server.ID, func(r *record) { r.AskAgain = p.config.Clock.Now().Add(conflictFor) })
		return nil
	}
	deletionsTotal.Inc(map[string]string{labelOutcome: outcomeError})
	p.deletions.change(server.ID, func(r *record) { r.AskAgain = time.Time{} })
	return fmt.Errorf("deleting server %s (%s, status %s): %w", server.Name, server.ID, server.Status, err)
}

// finish is what remains once the server is gone: its disks, its addresses, and BKE. ErrNotFound says that nothing does.
func (p *DefaultProvider) finish(ctx context.Context, v *view, current record) error {
	if !current.Done {
		twin, err := p.hasTwin(ctx, v, current)
		if err != nil {
			return err
		}
		if twin {
			// What is found by the name alone, a free disk and the node in BKE, is the other server's until that one goes.
			current.Name = ""
		}
		remaining, err := p.removeLeftovers(ctx, v, current)
		if err != nil || remaining {
			return err
		}
		if remaining, err := p.releaseAddresses(ctx, current); err != nil || remaining {
			return err
		}
		if err := p.leaveBKE(ctx, current); err != nil {
			return err
		}
		p.done(ctx, current.ID)
	}
	return fmt.Errorf("%w: %s", ErrNotFound, current.ID)
}

// done closes the record, and tells of the removal once: two controllers of core delete at the same time.
func (p *DefaultProvider) done(ctx context.Context, id string) {
	first := false
	closed := p.deletions.change(id, func(r *record) { first, r.Done = !r.Done, true })
	if first {
		p.config.OnRemoved(ctx, Removed{Description: closed.Description, ID: id, Reason: closed.Reason, Took: p.config.Clock.Since(closed.Begun)})
	}
}

// hasTwin says whether another server of ours has the same name: a gateway that repeats an order makes two.
func (p *DefaultProvider) hasTwin(ctx context.Context, v *view, current record) (bool, error) {
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

// leaveBKE tells BKE that the node is gone, a bounded number of times: a Kubernetes Engine that is down must not keep
// nodes from going away.
func (p *DefaultProvider) leaveBKE(ctx context.Context, current record) error {
	if current.Left || current.Name == "" {
		return nil
	}
	values, err := p.config.BKE.Values(ctx)
	if err == nil {
		if values.ClusterID == "" || values.Token == "" {
			return nil
		}
		err = p.api.LeaveCluster(ctx, values.ClusterID, values.Token, current.Name)
	}
	after := p.deletions.change(current.ID, func(r *record) {
		if err != nil {
			r.LeaveFailures++
		}
		r.Left = err == nil || r.LeaveFailures >= maxLeaveTries
	})
	switch {
	case err == nil:
		return nil
	case !after.Left:
		return fmt.Errorf("telling BKE that node %s is gone: %w", current.Name, err)
	}
	log.FromContext(ctx).Error(err, "giving up telling BKE that a node is gone", "node", current.Name)
	p.config.OnLeaveFailed(ctx, current.Name, err)
	return nil
}
