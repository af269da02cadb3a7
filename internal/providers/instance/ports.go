// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"slices"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// Ports is one list of the network interfaces of the project, indexed once for all of its readers: read only.
type Ports struct {
	byServer map[string][]*gobizfly.NetworkInterface
	// networks are the private networks by server.
	networks map[string][]string
}

const (
	// interfaceWAN is what the cloud calls the interface of a public address, and interfaceLAN one in a VPC network.
	interfaceWAN = "WAN"
	interfaceLAN = "LAN"
)

// newPorts indexes network interfaces.
func newPorts(all []*gobizfly.NetworkInterface) *Ports {
	p := &Ports{byServer: lo.GroupBy(all, bizfly.UsedBy), networks: map[string][]string{}}
	delete(p.byServer, "")
	for server, ports := range p.byServer {
		// Of a server with an interface that may be public or private nothing is known: taken for private, the public
		// one of each server would be drift of all servers, and of their replacements too.
		if lo.EveryBy(ports, func(port *gobizfly.NetworkInterface) bool {
			return port.Type == interfaceWAN || port.Type == interfaceLAN
		}) {
			p.networks[server] = lo.Uniq(lo.FilterMap(ports, func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
				return port.NetworkID, port.Type == interfaceLAN && port.NetworkID != ""
			}))
		}
	}
	return p
}

// Of returns the sorted ids of the interfaces, private and public, that the server uses and that were created before
// this time; of all where it is zero.
func (p *Ports) Of(serverID string, before time.Time) []string {
	ids := lo.FilterMap(p.byServer[serverID], func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
		created := bizfly.Time(port.CreatedAt)
		return port.ID, before.IsZero() || !created.IsZero() && created.Before(before)
	})
	slices.Sort(ids)
	return ids
}

// Networks returns the ids of the VPC networks that the server is in; none where that is not known.
func (p *Ports) Networks(serverID string) []string { return p.networks[serverID] }

func (p *DefaultProvider) listPorts(ctx context.Context) (*Ports, error) {
	all, err := p.api.ListNetworkInterfaces(ctx)
	return newPorts(all), err
}
