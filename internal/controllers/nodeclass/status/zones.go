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

package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// zonesConcern finds the zones in which servers may be launched: those that the region has open, that the spec allows,
// and in which servers can have a port in every network. They are also the domains over which pods are spread.
type zonesConcern struct {
	zones    zone.Provider
	networks network.Provider
}

func (*zonesConcern) conditionType() string { return v1alpha1.ConditionTypeZonesReady }

func (c *zonesConcern) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) finding {
	all, err := c.zones.Zones()
	if err != nil {
		return unavailable(err)
	}
	names := lo.Map(all, func(z zone.Zone, _ int) string { return z.Name })
	for i, wanted := range nodeClass.Spec.Zones {
		if !slices.Contains(names, wanted) {
			return missing(reasonZoneNotFound, fmt.Sprintf("spec.zones[%d]: no zone of the region matches %q; available: %v", i, wanted, lookup.Shorten(names)))
		}
	}
	networks, err := c.networks.Networks(ctx, nodeClass)
	if miss := (*network.NotFoundError)(nil); errors.As(err, &miss) {
		return awaiting(reasonAwaitingNetworks, "zones depend on the networks, which were not found")
	}
	if err != nil {
		return unavailable(err)
	}
	usable, excluded := usableZones(all, nodeClass.Spec.Zones, networks)
	if len(usable) == 0 {
		return missing(reasonNoZones, fmt.Sprintf("spec.zones: no zone is left in which servers may be launched: %s; available zones of the region: %v",
			strings.Join(excluded, "; "), lookup.Shorten(names)))
	}
	nodeClass.Status.Zones = usable
	return fine(excluded...)
}

// usableZones also says of each zone that was asked for and is left out why.
func usableZones(all []zone.Zone, wanted []string, networks []network.Network) (usable, excluded []string) {
	for _, z := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, z.Name) {
			continue
		}
		unreachable, found := lo.Find(networks, func(n network.Network) bool {
			return len(n.Zones) > 0 && !slices.Contains(n.Zones, z.Name)
		})
		switch {
		case !z.Active:
			excluded = append(excluded, fmt.Sprintf("zone %s is closed for new servers", z.Name))
		case found:
			excluded = append(excluded, fmt.Sprintf("network %s (%s) is not in zone %s, only in %v", unreachable.Name, unreachable.ID, z.Name, unreachable.Zones))
		default:
			usable = append(usable, z.Name)
		}
	}
	return usable, excluded
}
