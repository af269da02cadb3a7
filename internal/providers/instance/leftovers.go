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
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// interfaceWAN is what the cloud calls the interface of a public address, and interfaceLAN one in a VPC network.
	interfaceWAN = "WAN"
	interfaceLAN = "LAN"
)

// usedBy returns the id of the server that has the interface; "" when none has.
func usedBy(port *gobizfly.NetworkInterface) string {
	return lo.CoalesceOrEmpty(port.AttachedServer.ID, port.DeviceID)
}

// deleteLeftovers deletes what a launch without a server left behind: what is free and has the name of that launch.
func (d *deleter) deleteLeftovers(ctx context.Context, name string) error {
	v, err := d.view(ctx, d.clock.Now())
	if err != nil {
		return err
	}
	return d.resume(ctx, v, d.tracker.known(record{Name: name}), false)
}

// findLeftovers remembers the names of those servers of this cluster of which only a free root disk or address is left. Their
// names prove them to be ours, so that no process needs to have known them. They may be those of a launch that is waited
// for, so nothing is deleted before that has ended.
func (d *deleter) findLeftovers(ctx context.Context, v *view, launching sets.Set[string]) error {
	volumes, err := d.volumes.get(ctx, v.begun)
	if err != nil {
		return fmt.Errorf("listing volumes to find what deleted servers have left: %w", err)
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		return fmt.Errorf("listing network interfaces to find what deleted servers have left: %w", err)
	}
	names := sets.New[string]()
	for _, volume := range volumes.value {
		if name, ok := strings.CutSuffix(volume.Name, rootDiskSuffix); ok && len(volume.Attachments) == 0 && d.proven(name) {
			names.Insert(name)
		}
	}
	for _, port := range ports.value.all {
		if usedBy(port) == "" {
			names.Insert(d.provenServer(port.Name))
		}
	}
	names.Delete("")
	// A deletion that knows more of the server removes them.
	for _, r := range d.tracker.open() {
		names.Delete(r.Name)
	}
	for name := range names.Difference(launching) {
		if len(v.named(name)) == 0 {
			d.tracker.found(name, d.clock.Now().Add(ttl.AbandonedLaunch))
		}
	}
	return nil
}

// attachedAddresses returns those of the recorded interfaces that the server has now. It is read before the server is
// deleted, because the record alone proves nothing. The deletion does not wait for it: what the cloud has named after the
// server needs no record.
func (d *deleter) attachedAddresses(ctx context.Context, v *view, server *Instance, current record) []string {
	if len(current.Addresses) == 0 {
		return nil
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the network interfaces of a server that is deleted", "server", server.Name)
		return nil
	}
	return lo.FilterMap(ports.value.used, func(port Port, _ int) (string, bool) {
		return port.ID, port.ServerID == server.ID && lo.Contains(current.Addresses, port.ID)
	})
}

// releaseAddresses releases the interfaces that outlived their server, and returns those that are still there. Those that a
// server gets for free are deleted with it; those that are paid for stay, like disks. What another server uses by now is
// that server's.
func (d *deleter) releaseAddresses(ctx context.Context, v *view, current record) []leftover {
	if len(current.Attached) == 0 && current.Name == "" {
		return nil
	}
	ports, err := d.ports.get(ctx, v.begun)
	if err != nil {
		return []leftover{{kind: LeftoverAddress, err: fmt.Errorf("listing network interfaces to find what server %s left: %w",
			lo.CoalesceOrEmpty(current.Name, current.ID), err)}}
	}
	var left []leftover
	for _, port := range ports.value.all {
		if user := usedBy(port); ownAddress(port, current) && (user == "" || user == current.ID) {
			left = append(left, d.releaseAddress(ctx, port)...)
		}
	}
	return left
}

// releaseAddress releases one interface, which is a leftover until the list no longer has it.
func (d *deleter) releaseAddress(ctx context.Context, port *gobizfly.NetworkInterface) []leftover {
	still := func(err error, waiting bool) []leftover {
		return []leftover{{kind: LeftoverAddress, waiting: waiting,
			err: fmt.Errorf("releasing %s (%s, interface %s): %w", port.IPAddress, port.Name, port.ID, err)}}
	}
	if usedBy(port) != "" {
		return still(errors.New("the cloud has not detached it"), true)
	}
	err := lo.Ternary(port.Type == interfaceWAN, d.api.DeleteWanIP, d.api.DeleteNetworkInterface)(ctx, port.ID)
	switch {
	case err == nil:
		addressesReleasedTotal.Inc(map[string]string{labelType: port.Type})
		log.FromContext(ctx).Info("releasing address that outlived its server", "address", port.IPAddress, "type", port.Type, "interface-id", port.ID)
		return still(errors.New("the cloud has accepted it"), true)
	case bizfly.IsNotFound(err):
		return nil
	}
	return still(err, bizfly.IsConflict(err))
}

// ownAddress reports whether the interface is provably the server's: by the name that the cloud gave it at the launch, or
// because it is on the record and this process has seen it attached to the server.
func ownAddress(port *gobizfly.NetworkInterface, current record) bool {
	named := current.Name != "" && (port.Name == current.Name || strings.HasPrefix(port.Name, current.Name+"-"))
	return named || lo.Contains(current.Attached, port.ID)
}

// leaveBKE removes the node from BKE. A Kubernetes Engine that is down keeps a NodeClaim no longer than a disk does.
func (d *deleter) leaveBKE(ctx context.Context, current record) []leftover {
	if current.Left || current.Name == "" || current.ID == "" {
		return nil
	}
	values, err := d.config.BKE.Values(ctx)
	if err == nil {
		if values.ClusterID == "" || values.Token == "" {
			return nil
		}
		// Core and a pass of garbage collection may both be here: only the one that writes the time first sends the request.
		mine := false
		current = d.tracker.change(current, func(r *record) {
			if mine = !r.Left && !d.clock.Now().Before(r.LeavingUntil); mine {
				r.LeavingUntil = d.clock.Now().Add(ttl.LeavingBKE)
			}
		})
		switch {
		case current.Left:
			return nil
		case !mine:
			return []leftover{{kind: LeftoverNode, err: fmt.Errorf("node %s leaves BKE", current.Name), waiting: true}}
		}
		err = d.api.LeaveCluster(ctx, values.ClusterID, values.Token, current.Name)
	}
	if err != nil {
		d.tracker.change(current, func(r *record) { r.LeavingUntil = time.Time{} })
		return []leftover{{kind: LeftoverNode, err: fmt.Errorf("removing node %s from BKE: %w", current.Name, err)}}
	}
	d.tracker.change(current, func(r *record) { r.Left = true })
	return nil
}
