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
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reapers bounds the deletions that one pass drives at the same time; the adapter limits their rate.
const reapers = 10

// Reap deletes the orphans, carries on what Launch and Delete began, and finds what servers of this cluster have left. All
// of it is decided by the same lists.
func (p *DefaultProvider) Reap(ctx context.Context, request ReapRequest) ([]Reaped, error) {
	if p.config.ClusterUID == "" {
		return nil, errNoClusterUID
	}
	v := p.newView()
	err := p.findLeftovers(ctx, v, request.Launching)
	orphans := sets.New(lo.Map(request.Orphans, func(r DeleteRequest, _ int) string { return r.ID })...)
	open := lo.Reject(p.deletions.open(), func(r record, _ int) bool {
		return orphans.Has(r.ID) || p.config.Clock.Now().Before(r.NotBefore) || (r.Found && request.Launching.Has(r.Name))
	})
	reaped := make([]Reaped, len(request.Orphans)+len(open))
	workqueue.ParallelizeUntil(ctx, reapers, len(reaped), func(i int) {
		if i < len(request.Orphans) {
			orphan, r := request.Orphans[i], p.deletions.known(record{ID: request.Orphans[i].ID})
			reaped[i] = Reaped{ID: orphan.ID, Name: orphan.Name, Reason: orphan.Reason, Repeated: r.Released || r.Done, Err: p.reconcileDeletion(ctx, v, orphan)}
			return
		}
		r := open[i-len(request.Orphans)]
		reaped[i] = Reaped{ID: r.ID, Name: r.Name, Reason: r.Reason, Repeated: r.Released, Err: p.reap(ctx, v, r, request.DryRun)}
	})
	leftoversGauge.Set(float64(lo.CountBy(p.deletions.open(), func(r record) bool { return r.Released })), nil)
	return reaped, err
}

// reap carries one record on.
func (p *DefaultProvider) reap(ctx context.Context, v *view, open record, dryRun bool) error {
	switch {
	case open.ID == "":
		return p.sweep(ctx, open.Name, v, dryRun)
	case dryRun:
		log.FromContext(ctx).Info("would go on deleting a server (dry run)", "server", open.Name, "server-id", open.ID)
		return nil
	}
	return p.reconcileDeletion(ctx, v, DeleteRequest{ID: open.ID})
}

// findLeftovers remembers the names of those servers of this cluster of which only a free root disk or address is left. Their
// names prove them to be ours, so that no process needs to have known them. They may be those of a launch that is waited
// for, so nothing is deleted before that has ended.
func (p *DefaultProvider) findLeftovers(ctx context.Context, v *view, launching sets.Set[string]) error {
	servers, err := v.servers(ctx)
	if err != nil {
		return fmt.Errorf("listing servers to find what deleted ones have left: %w", err)
	}
	volumes, err := v.volumes(ctx)
	if err != nil {
		return fmt.Errorf("listing volumes to find what deleted servers have left: %w", err)
	}
	ports, err := p.ports.get(ctx, 0)
	if err != nil {
		return fmt.Errorf("listing network interfaces to find what deleted servers have left: %w", err)
	}
	names := sets.New[string]()
	for _, volume := range volumes {
		if name, ok := strings.CutSuffix(volume.Name, rootDiskSuffix); ok && len(volume.Attachments) == 0 && p.proven(name) {
			names.Insert(name)
		}
	}
	for _, port := range ports {
		if usedBy(port) == "" {
			names.Insert(p.provenServer(port.Name))
		}
	}
	names.Delete("")
	for _, server := range servers {
		if p.ours(server) && !gone(server) {
			names.Delete(server.Name, p.orderedName(server))
		}
	}
	// A deletion that knows more of the server removes them.
	for _, r := range p.deletions.open() {
		names.Delete(r.Name)
	}
	for name := range names.Difference(launching) {
		p.deletions.found(name, p.config.Clock.Now().Add(abandonedAfter))
	}
	return nil
}

// sweep deletes what a launch left behind without a server: what is free and has
// the name that was made for that launch alone. Where there is a server of ours by that name, its deletion takes them.
func (p *DefaultProvider) sweep(ctx context.Context, name string, v *view, dryRun bool) error {
	current := p.deletions.known(record{Name: name})
	servers, err := v.servers(ctx)
	if err != nil {
		return fmt.Errorf("listing servers to find what launch %s left: %w", name, err)
	}
	if lo.SomeBy(servers, func(server *gobizfly.Server) bool { return p.ours(server) && !gone(server) && p.called(server, name) }) {
		return nil
	}
	if dryRun {
		left, err := p.leftovers(ctx, v, current)
		for _, volume := range left {
			log.FromContext(ctx).Info("would delete a disk that outlived its server (dry run)", "volume", volume.Name, "volume-id", volume.ID)
		}
		return err
	}
	return p.finish(ctx, v, current)
}
