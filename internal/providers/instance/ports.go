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
)

// Port is a network interface that a server uses.
type Port struct {
	// ID is the interface's id.
	ID string
	// ServerID is the server that uses it.
	ServerID string
	// NetworkID is the network that it is in: a VPC network where it is Private.
	NetworkID string
	// Public is true for the interface of a public address, and Private for one in a VPC network. Where the cloud says
	// neither, or says it in a word that we do not know, both are false.
	Public, Private bool
}

// Ports returns the network interfaces of the servers of the project, from a list that is at most a few seconds old.
func (p *DefaultProvider) Ports(ctx context.Context) ([]Port, error) {
	ports, err := p.ports.get(ctx, p.settings.Load().ServerListMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	return lo.FilterMap(ports, func(port *gobizfly.NetworkInterface, _ int) (Port, bool) {
		return Port{
			ID: port.ID, ServerID: usedBy(port), NetworkID: port.NetworkID,
			Public: port.Type == interfaceWAN, Private: port.Type == interfaceLAN,
		}, usedBy(port) != ""
	}), nil
}

// ownPorts are the interfaces that a server got at its order: those on the record or, where nobody wrote any down, those
// that the cloud named after the order. What somebody attached later is theirs.
func (p *DefaultProvider) ownPorts(ctx context.Context, server *gobizfly.Server, recorded []string) ([]*gobizfly.NetworkInterface, error) {
	ports, err := p.ports.get(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces of server %s: %w", server.Name, err)
	}
	name := p.orderedName(server)
	return lo.Filter(ports, func(port *gobizfly.NetworkInterface, _ int) bool {
		if usedBy(port) != server.ID {
			return false
		}
		if len(recorded) > 0 {
			return slices.Contains(recorded, port.ID)
		}
		return port.Name == name || strings.HasPrefix(port.Name, name+"-")
	}), nil
}
