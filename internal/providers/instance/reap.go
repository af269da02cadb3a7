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

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ReapRequest is one call of Reap.
type ReapRequest struct {
	// DryRun says in the log what would be deleted, and deletes nothing.
	DryRun bool
	// Claims returns the UIDs of all claims that exist, and of each whether it holds the id of its server. It is called
	// after the durable record was read, and must not answer from a cache; nil leaves that record as it is.
	Claims func(ctx context.Context) (map[string]bool, error)
}

// Reap carries on what Launch and Delete began and nobody polls. All of it is judged by the same lists.
func (p *DefaultProvider) Reap(ctx context.Context, request ReapRequest) error {
	if p.config.ClusterUID == "" {
		return errNoClusterUID
	}
	orphaned, err := p.orphaned(ctx, request)
	errs := []error{err}
	v := p.newView()
	for _, open := range p.deletions.open() {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := p.reap(ctx, v, open, request.DryRun, orphaned.Has(open.Name)); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, p.pending.flush(ctx))...)
}

// reap carries one record on.
func (p *DefaultProvider) reap(ctx context.Context, v *view, open record, dryRun, orphaned bool) error {
	now := p.config.Clock.Now()
	switch {
	case open.ID != "" && dryRun:
		log.FromContext(ctx).Info("would go on deleting a server (dry run)", "server", open.Name, "server-id", open.ID)
		return nil
	case open.ID != "":
		return p.advance(ctx, v, DeleteRequest{ID: open.ID})
	case now.Before(open.NotBefore):
		return nil
	}
	left, err := p.sweep(ctx, open.Name, v, dryRun)
	if err == nil && !left && orphaned && now.Sub(p.pending.since(open.Name)) > pendingFor {
		p.pending.forget(open.Name)
		p.deletions.arrived(open.Name)
	}
	return err
}

// orphaned returns the names of those servers on the durable record that no claim remembers, and sees to it that they are
// followed. A claim that holds the id of its server remembers all that there was of it, since it does not go before that
// is gone; one that exists without is being launched, and nothing is known of its end.
func (p *DefaultProvider) orphaned(ctx context.Context, request ReapRequest) (sets.Set[string], error) {
	entries, err := p.pending.read(ctx)
	if err != nil || len(entries) == 0 || request.Claims == nil {
		return nil, err
	}
	claims, err := request.Claims(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding out which servers no claim remembers: %w", err)
	}
	names := sets.New[string]()
	for name, entry := range entries {
		holds, exists := claims[entry.NodeClaimUID]
		switch {
		case !exists:
			names.Insert(name)
			p.deletions.follow(name, entry.Since.Add(abandonedAfter))
		case holds:
			p.pending.forget(name)
		}
	}
	return names, nil
}

// sweep deletes what an order left behind without a server, and says whether anything is still there: its disks, which are
// free and have the name that we made of the UIDs for that order alone. Where there is a server of ours by that name, its
// deletion takes them; what is attached to somebody else's of that name is not free.
func (p *DefaultProvider) sweep(ctx context.Context, name string, v *view, dryRun bool) (bool, error) {
	servers, err := v.servers(ctx)
	if err != nil {
		return true, fmt.Errorf("listing servers to find what order %s left: %w", name, err)
	}
	if lo.SomeBy(servers, func(server *gobizfly.Server) bool { return p.ours(server) && !gone(server) && p.called(server, name) }) {
		return true, nil
	}
	if !dryRun {
		return p.removeLeftovers(ctx, v, record{Name: name})
	}
	left, err := p.leftovers(ctx, v, record{Name: name})
	for _, volume := range left {
		log.FromContext(ctx).Info("would delete a disk that outlived its server (dry run)", "volume", volume.Name, "volume-id", volume.ID)
	}
	return len(left) > 0, err
}
