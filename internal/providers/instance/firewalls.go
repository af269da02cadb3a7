// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// Firewalls are those of a running server, which are changed instead of replacing it.
type Firewalls struct {
	// Wanted are the ids of the firewalls that each of its interfaces is to have; with none, no interface is changed.
	Wanted []string
	// Attached are the ids of those that we have attached to it: of these, what is not wanted is removed. Others stay.
	Attached []string
	// Interfaces are the ids of the interfaces that it was launched with; empty as long as they are not recorded. What
	// a user attached later is the user's: the firewalls of a NodeClass could open it.
	Interfaces []string
}

// compare returns which firewalls an interface lacks, and which it has that it must not have.
func (f *Firewalls) compare(port *gobizfly.NetworkInterface) (missing, surplus []string) {
	missing, _ = lo.Difference(f.Wanted, port.SecurityGroups)
	return missing, lo.Without(lo.Intersect(port.SecurityGroups, f.Attached), f.Wanted...)
}

// FirewallsDiffer reports whether a server has other firewalls, by lists of up to two minutes ago.
func (p *DefaultProvider) FirewallsDiffer(ctx context.Context, server *Instance, firewalls Firewalls) (bool, error) {
	if len(firewalls.Wanted) == 0 {
		return false, nil
	}
	ports, err := p.listOwnPorts(ctx, server, firewalls.Interfaces, p.atMost(ttl.PeriodicServers))
	return lo.SomeBy(ports, func(port *gobizfly.NetworkInterface) bool {
		missing, surplus := firewalls.compare(port)
		return len(missing)+len(surplus) > 0
	}), err
}

// SetFirewalls gives the interfaces of a server the firewalls, by what the cloud shows now, and reports whether it has
// changed any, and whether all recorded interfaces were listed. It first adds and then removes, so that no interface is
// ever without any. ErrNotFound says that the server does not exist or is not ours.
func (p *DefaultProvider) SetFirewalls(ctx context.Context, id string, firewalls Firewalls) (changed, complete bool,
	err error) {
	server, err := p.liveServer(ctx, id)
	if err != nil || len(firewalls.Wanted) == 0 {
		return false, false, err
	}
	ports, err := p.listOwnPorts(ctx, server, firewalls.Interfaces, p.clock.Now())
	if err == nil && len(ports) == 0 {
		err = errors.New("none of its network interfaces is recorded and listed as one that it was launched with")
	}
	for _, port := range ports {
		missing, surplus := firewalls.compare(port)
		var failed error
		if len(missing) > 0 {
			failed = p.api.AddFirewalls(ctx, port.ID, missing)
		}
		if failed == nil && len(surplus) > 0 {
			failed = p.api.RemoveFirewalls(ctx, port.ID, surplus)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("interface %s: %w", port.ID, failed))
		} else if len(missing)+len(surplus) > 0 {
			inPlaceChangesTotal.Inc(nil)
			changed = true
		}
	}
	if changed {
		log.FromContext(ctx).Info("changed the firewalls of a server", "server", server.Name, "server-id", id,
			"firewalls", firewalls.Wanted)
	}
	if err != nil {
		return changed, false, fmt.Errorf("changing the firewalls of server %s: %w", server.Name, err)
	}
	return changed, len(ports) == len(firewalls.Interfaces), nil
}

// listOwnPorts are the interfaces of the server that are on the record.
func (p *DefaultProvider) listOwnPorts(ctx context.Context, server *Instance, recorded []string,
	after time.Time) ([]*gobizfly.NetworkInterface, error) {
	ports, err := p.ports.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces of server %s: %w", server.Name, err)
	}
	return lo.Filter(ports.value.byServer[server.ID], func(port *gobizfly.NetworkInterface, _ int) bool {
		return slices.Contains(recorded, port.ID)
	}), nil
}
