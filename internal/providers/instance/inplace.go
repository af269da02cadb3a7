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
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
)

const (
	// defaultFirewallName is the firewall that the cloud attaches where none is ordered.
	defaultFirewallName = "default"
	// firewallsMaxAge is how old the list of firewalls may be in which the default one is looked up: it never changes.
	firewallsMaxAge = 5 * time.Minute

	changeName        = "name"
	changeNetworkPlan = "network_plan"
	changeFirewalls   = "firewalls"
)

var inPlaceChangesTotal = metrics.Counter("instance_in_place_changes_total",
	"Changes made to running servers without replacing them, by what was changed: name, network_plan or firewalls.",
	metrics.Label("change"))

// errNoPorts says that the firewalls of a server cannot be changed because no interface is known to be its own.
var errNoPorts = errors.New("the cloud lists no network interface that the server got at its order")

// FirewallRequest is which firewalls the interfaces of a server are to have.
type FirewallRequest struct {
	// ServerID is the server.
	ServerID string
	// Wanted are the ids of the firewalls that each interface must have.
	Wanted []string
	// Attached are the ids of those that we have attached to it: of these, what is not wanted is taken off. Others stay.
	Attached []string
	// RecordedPorts are the ids of the interfaces that the server got at its order; nil where nobody wrote them down.
	RecordedPorts []string
}

// ourServer returns a server that provably is this cluster's.
func (p *DefaultProvider) ourServer(ctx context.Context, id string) (*gobizfly.Server, error) {
	if p.config.ClusterUID == "" {
		return nil, errNoClusterUID
	}
	server, err := p.api.GetServer(ctx, id)
	if bizfly.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", id, err)
	}
	if leaving(server) || !p.ours(server) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, nil
}

// Rename gives a server its name back.
func (p *DefaultProvider) Rename(ctx context.Context, id, name string) error {
	server, err := p.ourServer(ctx, id)
	if err != nil || server.Name == name {
		return err
	}
	if err := p.api.RenameServer(ctx, id, name); err != nil {
		return fmt.Errorf("renaming server %s (%s) to %s: %w", server.Name, id, name, err)
	}
	inPlaceChangesTotal.Inc(map[string]string{"change": changeName})
	log.FromContext(ctx).Info("gave a server its name back", "server", name, "server-id", id, "was", server.Name)
	return nil
}

// ChangeNetworkPlan changes how a server's traffic is charged.
func (p *DefaultProvider) ChangeNetworkPlan(ctx context.Context, id, plan string) error {
	server, err := p.ourServer(ctx, id)
	if err != nil || convert(server).NetworkPlan == plan {
		return err
	}
	if err := p.api.ChangeNetworkPlan(ctx, id, plan); err != nil {
		return fmt.Errorf("changing the network plan of server %s (%s) to %s: %w", server.Name, id, plan, err)
	}
	inPlaceChangesTotal.Inc(map[string]string{"change": changeNetworkPlan})
	log.FromContext(ctx).Info("changed the network plan of a server", "server", server.Name, "server-id", id, "network-plan", plan)
	return nil
}

// DefaultFirewall returns the id of the firewall that the cloud attaches where none is ordered.
func (p *DefaultProvider) DefaultFirewall(ctx context.Context) (string, error) {
	firewalls, err := p.firewalls.get(ctx, firewallsMaxAge)
	if err != nil {
		return "", fmt.Errorf("listing firewalls: %w", err)
	}
	found, ok := lo.Find(firewalls, func(f *gobizfly.Firewall) bool { return f.Name == defaultFirewallName })
	if !ok {
		return "", fmt.Errorf("%w: no firewall is called %q", ErrNotFound, defaultFirewallName)
	}
	return found.ID, nil
}

// SetFirewalls brings the interfaces of a server to the firewalls that are wanted. It first adds and then takes off, so
// that no interface is ever without any.
func (p *DefaultProvider) SetFirewalls(ctx context.Context, request FirewallRequest) error {
	server, err := p.ourServer(ctx, request.ServerID)
	if err != nil {
		return err
	}
	ports, err := p.ownPorts(ctx, server, request.RecordedPorts)
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return fmt.Errorf("changing the firewalls of server %s: %w", server.Name, errNoPorts)
	}
	for _, port := range ports {
		err := p.setPortFirewalls(ctx, port, request)
		if bizfly.IsNotFound(err) {
			err = p.unlessGone(ctx, port, err)
		}
		if err != nil {
			return fmt.Errorf("changing the firewalls of server %s, interface %s: %w", server.Name, port.ID, err)
		}
	}
	return nil
}

// unlessGone returns the error where the interface is still there: then it is the firewall that is not, and to take the
// change for made would leave the interface open to what the old one lets in.
func (p *DefaultProvider) unlessGone(ctx context.Context, port *gobizfly.NetworkInterface, notFound error) error {
	ports, err := p.ports.get(ctx, 0)
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	if lo.ContainsBy(ports, func(other *gobizfly.NetworkInterface) bool { return other.ID == port.ID }) {
		return notFound
	}
	return nil
}

func (p *DefaultProvider) setPortFirewalls(ctx context.Context, port *gobizfly.NetworkInterface, request FirewallRequest) error {
	missing, _ := lo.Difference(lo.Uniq(request.Wanted), port.SecurityGroups)
	surplus := lo.Without(lo.Intersect(port.SecurityGroups, request.Attached), request.Wanted...)
	if len(missing) > 0 {
		if err := p.api.AddFirewalls(ctx, port.ID, missing); err != nil {
			return err
		}
	}
	if len(surplus) > 0 {
		if err := p.api.RemoveFirewalls(ctx, port.ID, surplus); err != nil {
			return err
		}
	}
	if len(missing)+len(surplus) > 0 {
		inPlaceChangesTotal.Inc(map[string]string{"change": changeFirewalls})
		log.FromContext(ctx).Info("changed the firewalls of a network interface", "server-id", request.ServerID, "interface-id", port.ID,
			"added", missing, "removed", surplus)
	}
	return nil
}
