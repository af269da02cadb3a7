// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// makeRegion makes a region of its zones that flavors and volume types name, all of them open, and reports whether
// there are any. A flavor may name zones of other regions, too. So that an endpoint which is absent or fails does not
// keep everything from being launched: see the hedge register, docs/contribute/first-contact.md. Flavors and volume
// types have no such replacement.
func (p *DefaultProvider) makeRegion(ctx context.Context, s *Snapshot) bool {
	scope, err := p.api.Scope(ctx)
	if err != nil {
		return false
	}
	zones := lo.FlatMap(s.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) []string {
		return f.Generation.AvailabilityZones
	})
	zones = append(zones, lo.FlatMap(s.VolumeTypes, func(t *gobizfly.VolumeType, _ int) []string {
		return t.AvailabilityZones
	})...)
	zones = lo.Filter(lo.Uniq(zones), func(zone string, _ int) bool {
		region, err := bizfly.ParseRegion(regionOf(zone))
		return err == nil && region == scope.Region
	})
	slices.Sort(zones)
	if len(zones) == 0 {
		return false
	}
	s.Region = gobizfly.Region{Active: true, RegionName: scope.Region, ShortName: regionOf(zones[0]),
		Zones: lo.Map(zones, func(zone string, _ int) gobizfly.AvailabilityZone {
			return gobizfly.AvailabilityZone{Active: true, Name: zone, ShortName: zone}
		})}
	return true
}

// regionOf returns the short name of a zone's region: zones are called by it and a number.
func regionOf(zone string) string { return strings.TrimRight(zone, "0123456789") }
