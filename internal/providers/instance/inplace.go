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
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// defaultFirewallName is the firewall that the cloud attaches where none is requested.
const defaultFirewallName = "default"

// Port is a network interface that a server uses.
type Port struct {
	ID string
	// ServerID is the server that uses it.
	ServerID string
	// NetworkID is the network that it is in: a VPC network where it is Private.
	NetworkID string
	// Public is true for the interface of a public address, and Private for one in a VPC network. Where the cloud reports
	// neither, or a type that is not known, both are false.
	Public, Private bool
}

// AddressesOf returns the sorted ids of those interfaces that the server uses.
func AddressesOf(ports []Port, serverID string) []string {
	ids := lo.FilterMap(ports, func(port Port, _ int) (string, bool) { return port.ID, port.ServerID == serverID })
	slices.Sort(ids)
	return ids
}

// FirewallRequest is which firewalls the interfaces of a server are to have.
type FirewallRequest struct {
	ServerID string
	// Wanted are the ids of the firewalls that each interface must have.
	Wanted []string
	// Attached are the ids of those that we have attached to it: of these, what is not wanted is removed. Others stay.
	Attached []string
	// RecordedPorts are the ids of the interfaces that the server was launched with; nil where they were not recorded.
	RecordedPorts []string
}

// changer changes servers that exist: it updates, starts and reboots them.
type changer struct {
	*inventory
	// reboots are the reboots that were requested, by operation id.
	reboots *cache.Cache
}

// liveServer reads a server of this cluster that is not being deleted.
func (c *changer) liveServer(ctx context.Context, id string) (*Instance, error) {
	server, err := c.ownServer(ctx, id)
	if err == nil && server.Deleting() {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, err
}

// ChangeNetworkPlan changes how a server's traffic is charged.
func (c *changer) ChangeNetworkPlan(ctx context.Context, id, plan string) error {
	server, err := c.liveServer(ctx, id)
	if err != nil || server.NetworkPlan == plan {
		return err
	}
	if err := c.api.ChangeNetworkPlan(ctx, id, plan); err != nil {
		return fmt.Errorf("changing the network plan of server %s (%s) to %s: %w", server.Name, id, plan, err)
	}
	inPlaceChangesTotal.Inc(map[string]string{labelChange: "network_plan"})
	log.FromContext(ctx).Info("changed the network plan of a server", "server", server.Name, "server-id", id, "network-plan", plan)
	return nil
}

// DefaultFirewall returns the id of the firewall that the cloud attaches where none is requested.
func (c *changer) DefaultFirewall(ctx context.Context) (string, error) {
	firewalls, err := c.firewalls.get(ctx, c.atMost(ttl.Firewalls))
	if err != nil {
		return "", fmt.Errorf("listing firewalls: %w", err)
	}
	found, ok := lo.Find(firewalls.value, func(f *gobizfly.Firewall) bool { return f.Name == defaultFirewallName })
	if !ok {
		return "", fmt.Errorf("%w: no firewall is called %q", ErrNotFound, defaultFirewallName)
	}
	return found.ID, nil
}

// SetFirewalls gives the interfaces of a server the wanted firewalls. It first adds and then removes, so that no interface is
// ever without any.
func (c *changer) SetFirewalls(ctx context.Context, request FirewallRequest) error {
	server, err := c.liveServer(ctx, request.ServerID)
	if err != nil {
		return err
	}
	ports, err := c.ownPorts(ctx, server, request.RecordedPorts)
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return fmt.Errorf("changing the firewalls of server %s: the cloud lists no network interface that it was launched with", server.Name)
	}
	for _, port := range ports {
		err := c.setPortFirewalls(ctx, port, request)
		if bizfly.IsNotFound(err) {
			err = c.unlessGone(ctx, port, err)
		}
		if err != nil {
			return fmt.Errorf("changing the firewalls of server %s, interface %s: %w", server.Name, port.ID, err)
		}
	}
	return nil
}

// unlessGone returns the error where the interface still exists: then it is the firewall that does not, and to count the
// change as done would leave the interface open to what the old one permits.
func (c *changer) unlessGone(ctx context.Context, port *gobizfly.NetworkInterface, notFound error) error {
	ports, err := c.ports.get(ctx, c.clock.Now())
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	if lo.ContainsBy(ports.value.all, func(other *gobizfly.NetworkInterface) bool { return other.ID == port.ID }) {
		return notFound
	}
	return nil
}

func (c *changer) setPortFirewalls(ctx context.Context, port *gobizfly.NetworkInterface, request FirewallRequest) error {
	missing, _ := lo.Difference(lo.Uniq(request.Wanted), port.SecurityGroups)
	surplus := lo.Without(lo.Intersect(port.SecurityGroups, request.Attached), request.Wanted...)
	if len(missing) > 0 {
		if err := c.api.AddFirewalls(ctx, port.ID, missing); err != nil {
			return err
		}
	}
	if len(surplus) > 0 {
		if err := c.api.RemoveFirewalls(ctx, port.ID, surplus); err != nil {
			return err
		}
	}
	if len(missing)+len(surplus) > 0 {
		inPlaceChangesTotal.Inc(map[string]string{labelChange: "firewalls"})
		log.FromContext(ctx).Info("changed the firewalls of a network interface", "server-id", request.ServerID, "interface-id", port.ID,
			"added", missing, "removed", surplus)
	}
	return nil
}

// ownPorts are the interfaces that a server was launched with: those on the record or, where none were recorded, those
// that the cloud named after the server. What a user attached later is the user's.
func (c *changer) ownPorts(ctx context.Context, server *Instance, recorded []string) ([]*gobizfly.NetworkInterface, error) {
	ports, err := c.ports.get(ctx, c.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces of server %s: %w", server.Name, err)
	}
	return lo.Filter(ports.value.all, func(port *gobizfly.NetworkInterface, _ int) bool {
		if usedBy(port) != server.ID {
			return false
		}
		if len(recorded) > 0 {
			return slices.Contains(recorded, port.ID)
		}
		return port.Name == server.launchName || strings.HasPrefix(port.Name, server.launchName+"-")
	}), nil
}

// ErrRebootRejected means that BizFly Cloud rejects the reboot of a server for a reason that no retry changes.
var ErrRebootRejected = errors.New("BizFly Cloud rejects the reboot")

// reboot is a reboot that was requested.
type reboot struct {
	at time.Time
	// updated is when the server had last changed before, in the cloud's own words: a reboot changes it.
	updated  string
	accepted bool
}

// notRunning are the states in which a server runs nothing until it is acted upon. States that end by themselves, like
// HARD_REBOOT or MIGRATING, are not among them.
var notRunning = map[string]string{
	StatusShutoff: v1alpha1.ReasonServerStopped,
	"SUSPENDED":   v1alpha1.ReasonServerSuspended, "PAUSED": v1alpha1.ReasonServerSuspended,
	"SHELVED": v1alpha1.ReasonServerSuspended, "SHELVED_OFFLOADED": v1alpha1.ReasonServerSuspended,
	StatusError:   v1alpha1.ReasonServerFailed,
	StatusDeleted: v1alpha1.ReasonServerMissing, StatusSoftDeleted: v1alpha1.ReasonServerMissing,
}

// NotRunning returns why the server runs nothing, as a reason of the condition ServerRunning; empty where it runs, or is
// changing to another state.
func (i *Instance) NotRunning() string { return notRunning[i.Status] }

// Start starts a server of this cluster that was stopped.
func (c *changer) Start(ctx context.Context, id string) error {
	server, err := c.ownServer(ctx, id)
	if err != nil {
		return err
	}
	if server.Status != StatusShutoff {
		return nil
	}
	err = c.api.StartServer(ctx, id)
	switch {
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("starting server %s (%s): %w", server.Name, id, err)
	}
	startsTotal.Inc(nil)
	return nil
}

// Reboot resets a server of this cluster, once per operation. What was requested is remembered in memory: a controller
// that restarts between the cloud's answer and core's record of it finds a server in HARD_REBOOT, or a boot id that has
// changed, and only in the seconds between these two is a server that has just been reset reset once more.
func (c *changer) Reboot(ctx context.Context, id, operationID string) error {
	server, err := c.liveServer(ctx, id)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	value, repeated := c.reboots.Get(operationID)
	requested, _ := value.(reboot)
	switch {
	case server.Status == StatusReboot || server.Status == StatusHardReboot:
		return nil
	case repeated && (requested.accepted || requested.updated != server.UpdatedAt):
		return nil
	case repeated && now.Sub(requested.at) < ttl.RebootVisible:
		return fmt.Errorf("rebooting server %s (%s): BizFly Cloud did not answer and does not show a reboot yet", server.Name, id)
	}
	c.reboots.DeleteExpired()
	c.reboots.SetDefault(operationID, reboot{at: now, updated: server.UpdatedAt})
	err = c.api.RebootServer(ctx, id)
	rebootsTotal.Inc(map[string]string{labelOutcome: c.recordReboot(operationID, err)})
	switch {
	case err == nil:
		return nil
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsPermission(err), bizfly.IsInvalid(err), bizfly.IsConflict(err) && server.NotRunning() != "":
		return fmt.Errorf("%w of server %s (%s, %s): %w", ErrRebootRejected, server.Name, id, server.Status, err)
	}
	return fmt.Errorf("rebooting server %s (%s, %s): %w", server.Name, id, server.Status, err)
}

// recordReboot remembers the outcome of a request and returns its name. One without an answer stays as it was requested.
func (c *changer) recordReboot(operationID string, err error) string {
	switch {
	case err == nil:
		c.reboots.SetDefault(operationID, reboot{accepted: true})
		return outcomeAccepted
	case bizfly.IsAmbiguous(err):
		return outcomeUnknown
	}
	c.reboots.Delete(operationID)
	return outcomeError
}
