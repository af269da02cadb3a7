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

// Ports are the network interfaces of the project by their server: read only.
type Ports map[string][]*gobizfly.NetworkInterface

// Of returns the sorted ids of the interfaces, private and public, that the server uses and that were created before
// this time; of all where it is zero.
func (p Ports) Of(serverID string, before time.Time) []string {
	ids := lo.FilterMap(p[serverID], func(port *gobizfly.NetworkInterface, _ int) (string, bool) {
		created := bizfly.Time(port.CreatedAt)
		return port.ID, before.IsZero() || !created.IsZero() && created.Before(before)
	})
	slices.Sort(ids)
	return ids
}

func (p *DefaultProvider) listPorts(ctx context.Context) (Ports, error) {
	all, err := p.api.ListNetworkInterfaces(ctx)
	return lo.OmitByKeys(lo.GroupBy(all, bizfly.UsedBy), []string{""}), err
}
