// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// defaultFirewallName is the firewall that the cloud attaches where none is requested.
const defaultFirewallName = "default"

// Settings are what is changed on a running server instead of replacing it.
type Settings struct {
	// NetworkPlan is how its traffic is charged.
	NetworkPlan string
	// Firewalls are the ids of the firewalls that each of its interfaces is to have; with none, no interface is changed.
	Firewalls []string
	// Attached are the ids of those that we have attached to it: of these, what is not in Firewalls is removed. Others stay.
	Attached []string
	// RecordedPorts are the ids of the interfaces that it was launched with; empty as long as they are not recorded.
	RecordedPorts []string
}

// plan reports whether the server is known to have another network plan.
func (s *Settings) plan(server *Instance) bool {
	return server.NetworkPlan != "" && server.NetworkPlan != s.NetworkPlan
}

// firewalls returns which firewalls an interface lacks, and which it has that it must not have.
func (s *Settings) firewalls(port *gobizfly.NetworkInterface) (missing, surplus []string) {
	missing, _ = lo.Difference(s.Firewalls, port.SecurityGroups)
	return missing, lo.Without(lo.Intersect(port.SecurityGroups, s.Attached), s.Firewalls...)
}

// Differs reports whether a server has other settings, by lists of up to two minutes ago.
func (p *DefaultProvider) Differs(ctx context.Context, server *Instance, wanted Settings) (bool, error) {
	if wanted.plan(server) || len(wanted.Firewalls) == 0 {
		return wanted.plan(server), nil
	}
	ports, err := p.ownPorts(ctx, server, wanted.RecordedPorts, p.atMost(ttl.PeriodicServers))
	return lo.SomeBy(ports, func(port *gobizfly.NetworkInterface) bool {
		missing, surplus := wanted.firewalls(port)
		return len(missing)+len(surplus) > 0
	}), err
}

// Apply changes what differs, by what the cloud shows now, and returns what it has changed. A change that fails stops no other one.
func (p *DefaultProvider) Apply(ctx context.Context, id string, wanted Settings) ([]string, error) {
	server, err := p.liveServer(ctx, id)
	if err != nil {
		return nil, err
	}
	var done []string
	var errs []error
	if wanted.plan(server) {
		if err := p.api.ChangeNetworkPlan(ctx, id, wanted.NetworkPlan); err != nil {
			errs = append(errs, fmt.Errorf("changing the network plan of server %s (%s) to %s: %w", server.Name, id, wanted.NetworkPlan, err))
		} else {
			inPlaceChangesTotal.Inc(map[string]string{labelChange: changeNetworkPlan})
			done = append(done, fmt.Sprintf("network plan %s instead of %s", wanted.NetworkPlan, server.NetworkPlan))
		}
	}
	changed, err := p.setFirewalls(ctx, server, wanted)
	if changed {
		done = append(done, "firewalls "+strings.Join(wanted.Firewalls, ", "))
	}
	if len(done) > 0 {
		log.FromContext(ctx).Info("changed a server in place", "server", server.Name, "server-id", id, "changes", done)
	}
	return done, errors.Join(append(errs, err)...)
}

// setFirewalls gives the interfaces of a server the wanted firewalls. It first adds and then removes, so that no interface is ever
// without any.
func (p *DefaultProvider) setFirewalls(ctx context.Context, server *Instance, wanted Settings) (changed bool, err error) {
	if len(wanted.Firewalls) == 0 {
		return false, nil
	}
	ports, err := p.ownPorts(ctx, server, wanted.RecordedPorts, p.clock.Now())
	if err == nil && len(ports) == 0 {
		err = errors.New("none of its network interfaces is recorded and listed as one that it was launched with")
	}
	for _, port := range ports {
		missing, surplus := wanted.firewalls(port)
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
			inPlaceChangesTotal.Inc(map[string]string{labelChange: changeFirewalls})
			changed = true
		}
	}
	if err != nil {
		return changed, fmt.Errorf("changing the firewalls of server %s: %w", server.Name, err)
	}
	return changed, nil
}

// ownPorts are the interfaces that a server was launched with, as they are on the record. What a user attached later is the user's: the
// firewalls of a NodeClass could open it.
func (p *DefaultProvider) ownPorts(ctx context.Context, server *Instance, recorded []string, after time.Time) ([]*gobizfly.NetworkInterface, error) {
	ports, err := p.ports.get(ctx, after)
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces of server %s: %w", server.Name, err)
	}
	return lo.Filter(ports.value.byServer[server.ID], func(port *gobizfly.NetworkInterface, _ int) bool {
		return slices.Contains(recorded, port.ID)
	}), nil
}

// DefaultFirewall returns the id of the firewall that the cloud attaches where none is requested.
func (p *DefaultProvider) DefaultFirewall(ctx context.Context) (string, error) {
	firewalls, err := p.firewalls.get(ctx, p.atMost(ttl.Firewalls))
	if err != nil {
		return "", fmt.Errorf("listing firewalls: %w", err)
	}
	found, ok := lo.Find(firewalls.value, func(f *gobizfly.Firewall) bool { return f.Name == defaultFirewallName })
	if !ok {
		return "", fmt.Errorf("%w: no firewall is called %q", ErrNotFound, defaultFirewallName)
	}
	return found.ID, nil
}
