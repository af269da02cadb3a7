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

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

const (
	// interfaceWAN is what the cloud calls the interface of a public address, and interfaceLAN one in a VPC network.
	interfaceWAN = "WAN"
	interfaceLAN = "LAN"
)

// Addresses returns the ids of the interfaces, private and public, that are attached to the server now.
func (p *DefaultProvider) Addresses(ctx context.Context, id string) ([]string, error) {
	ports, err := p.ports.get(ctx, p.settings.Load().ServerListMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces of server %s: %w", id, err)
	}
	ids := lo.FilterMap(ports, func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
		return port.ID, id != "" && usedBy(port) == id
	})
	slices.Sort(ids)
	return ids, nil
}

// usedBy returns the id of the server that has the interface; "" when none has.
func usedBy(port *gobizfly.NetworkInterface) string {
	return lo.CoalesceOrEmpty(port.AttachedServer.ID, port.DeviceID)
}

// attachedAddresses returns those of the recorded interfaces that the server has now. It is looked up before the server is
// deleted, because the record alone proves nothing. The deletion does not wait for it: what the cloud has named after the
// server needs no record.
func (p *DefaultProvider) attachedAddresses(ctx context.Context, server *gobizfly.Server, current record) []string {
	if len(current.Addresses) == 0 {
		return nil
	}
	ports, err := p.ports.get(ctx, p.settings.Load().ServerListMaxAge)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the network interfaces of a server that is deleted", "server", server.Name)
		return nil
	}
	return lo.FilterMap(ports, func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
		return port.ID, usedBy(port) == server.ID && lo.Contains(current.Addresses, port.ID)
	})
}

// releaseAddresses releases the interfaces that outlived their server, and returns those that are still there. Those that a
// server gets for free are deleted with it; those that are paid for stay, like disks. What another server uses by now is
// that server's.
func (p *DefaultProvider) releaseAddresses(ctx context.Context, current record) []leftover {
	if len(current.Attached) == 0 && current.Name == "" {
		return nil
	}
	ports, err := p.ports.get(ctx, 0)
	if err != nil {
		return []leftover{{kind: LeftoverAddress, err: fmt.Errorf("listing network interfaces to find what server %s left: %w",
			lo.CoalesceOrEmpty(current.Name, current.ID), err)}}
	}
	var left []leftover
	for _, port := range ports {
		if user := usedBy(port); ownAddress(port, current) && (user == "" || user == current.ID) {
			left = append(left, p.releaseAddress(ctx, port)...)
		}
	}
	return left
}

// releaseAddress releases one interface, which is a leftover until the list no longer has it.
func (p *DefaultProvider) releaseAddress(ctx context.Context, port *gobizfly.NetworkInterface) []leftover {
	still := func(err error, waiting bool) []leftover {
		return []leftover{{kind: LeftoverAddress, waiting: waiting,
			err: fmt.Errorf("releasing %s (%s, interface %s): %w", port.IPAddress, port.Name, port.ID, err)}}
	}
	if usedBy(port) != "" {
		return still(errors.New("the cloud has not detached it"), true)
	}
	err := lo.Ternary(port.Type == interfaceWAN, p.api.DeleteWanIP, p.api.DeleteNetworkInterface)(ctx, port.ID)
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
