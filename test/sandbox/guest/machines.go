// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	vm "github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/machine"
)

// Machines are the power of real machines, by the ids of their servers.
type Machines interface {
	// PowerOn boots a machine with what its disk had when it was powered off.
	PowerOn(context.Context, vm.Spec) error
	// PowerOff takes the power from it, without a word to it; Delete its disk as well. Both do nothing for a server without a machine.
	PowerOff(id string) error
	Delete(id string) error
}

// power is the life of real machines: whether they join is up to them.
func (g *Guests) power(ctx context.Context, servers map[string]cloud.Server, booting []cloud.Server, dying []string) error {
	failures := []error{
		each(ctx, dying, func(_ context.Context, id string) error {
			m, end := g.machines[id], g.opts.Machines.PowerOff
			_, exists := servers[id]
			if !exists {
				end = g.opts.Machines.Delete
			}
			err := end(id)
			m.alive, m.gone = err != nil, err == nil && !exists
			return err
		}),
		each(ctx, booting, func(ctx context.Context, s cloud.Server) error {
			m := g.machines[s.ID]
			if m.alive { // it was off between two passes
				if err := g.opts.Machines.PowerOff(s.ID); err != nil {
					return err
				}
			}
			if err := g.opts.Machines.PowerOn(ctx, g.spec(s)); err != nil {
				return err
			}
			m.alive, m.bootedAt = true, s.Truth.ActiveAt
			return nil
		}),
	}
	maps.DeleteFunc(g.machines, func(_ string, m *machine) bool { return m.gone })
	nodes, err := g.listNodes(ctx)
	for _, node := range nodes {
		id, ours := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix)
		if s, exists := servers[id]; ours && exists && (s.Truth.Guest == nil || !s.Truth.Guest.Joined) {
			g.cloud.SetGuest(id, cloud.Guest{Joined: true, Node: node.Name})
		}
	}
	return errors.Join(append(failures, err)...)
}

// spec is the machine of a server.
func (g *Guests) spec(s cloud.Server) vm.Spec {
	spec := vm.Spec{
		ID: s.ID, Name: hostname(s), Zone: s.AvailabilityZone, Meta: s.Metadata, UserData: s.Truth.UserData,
		CPUs: s.Truth.Flavor.VCPUs, MemoryMiB: s.Truth.Flavor.RAM, VisibleKiB: g.visibleMemory(s) / 1024, DiskGiB: s.Truth.RootDiskGiB,
	}
	for _, address := range s.IPAddresses.LAN {
		spec.Addresses = append(spec.Addresses, address.Addr)
	}
	for _, address := range s.IPAddresses.WANV4 {
		spec.Addresses = append(spec.Addresses, address.Addr)
	}
	return spec
}
