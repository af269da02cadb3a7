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
	// maxReleaseTries is how often addresses are tried to be released before a person must do it: one that the cloud does
	// not let go must not keep a node from going away.
	maxReleaseTries = 5
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

// releaseAddresses releases the interfaces that outlived their server, and says whether any is still there. Those that a
// server gets for free go with it; those that are paid for stay, like disks. Ours are those on the record, and where
// nobody wrote anything down, those that the cloud named after the server, whose name is unique for ever. What another
// server uses by now is that one's.
func (p *DefaultProvider) releaseAddresses(ctx context.Context, current record) (bool, error) {
	if len(current.Addresses) == 0 && current.Name == "" {
		return false, nil
	}
	if current.ReleaseFailures >= maxReleaseTries {
		return false, nil
	}
	remaining, err := p.tryRelease(ctx, current)
	if err == nil {
		return remaining, nil
	}
	after := p.deletions.change(current.ID, func(r *record) { r.ReleaseFailures++ })
	if after.ReleaseFailures < maxReleaseTries {
		return true, fmt.Errorf("releasing the addresses of server %s: %w", lo.CoalesceOrEmpty(current.Name, current.ID), err)
	}
	log.FromContext(ctx).Error(err, "giving up releasing addresses", "server", current.Name, "addresses", current.Addresses)
	p.config.OnReleaseFailed(ctx, current.Name, err)
	return false, nil
}

func (p *DefaultProvider) tryRelease(ctx context.Context, current record) (bool, error) {
	ports, err := p.ports.get(ctx, 0)
	if err != nil {
		return true, err
	}
	remaining := false
	for _, port := range ports {
		if user := usedBy(port); !ownAddress(port, current) || (user != "" && user != current.ID) {
			continue
		}
		remaining = true
		if usedBy(port) != "" {
			// The cloud is still taking the server apart.
			continue
		}
		release := lo.Ternary(port.Type == interfaceWAN, p.api.DeleteWanIP, p.api.DeleteNetworkInterface)
		err := release(ctx, port.ID)
		switch {
		case err == nil:
			addressesReleasedTotal.Inc(map[string]string{labelType: port.Type})
			log.FromContext(ctx).Info("releasing address that outlived its server", "address", port.IPAddress, "type", port.Type, "interface-id", port.ID)
		case !bizfly.IsNotFound(err) && !bizfly.IsConflict(err):
			return true, fmt.Errorf("releasing interface %s (%s): %w", port.Name, port.ID, err)
		}
	}
	return remaining, nil
}

// ownAddress says whether the interface is provably the server's.
func ownAddress(port *gobizfly.NetworkInterface, current record) bool {
	if lo.Contains(current.Addresses, port.ID) {
		return true
	}
	return len(current.Addresses) == 0 && current.Name != "" && (port.Name == current.Name || strings.HasPrefix(port.Name, current.Name+"-"))
}
