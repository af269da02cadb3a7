// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// A part that has never been read, because its endpoint is absent or fails, is made up from what is there, so that it does not keep
// everything from being launched. Flavors have no such replacement. See the hedge register, docs/contribute/first-contact.md.

// regionFromZones makes a region of its zones that flavors and volume types name, all of them open. A flavor may name zones of other
// regions, too.
func (p *DefaultProvider) regionFromZones(ctx context.Context, s *Snapshot) (bool, error) {
	scope, err := p.api.Scope(ctx)
	if err != nil {
		return false, err
	}
	zones := lo.FlatMap(s.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) []string { return f.Generation.AvailabilityZones })
	zones = append(zones, lo.FlatMap(s.VolumeTypes, func(t *gobizfly.VolumeType, _ int) []string { return t.AvailabilityZones })...)
	zones = lo.Filter(lo.Uniq(zones), func(zone string, _ int) bool {
		region, err := bizfly.ParseRegion(regionOf(zone))
		return err == nil && region == scope.Region
	})
	slices.Sort(zones)
	if len(zones) == 0 {
		return false, nil
	}
	s.Region = gobizfly.Region{Active: true, RegionName: scope.Region, ShortName: regionOf(zones[0]),
		Zones: lo.Map(zones, func(zone string, _ int) gobizfly.AvailabilityZone {
			return gobizfly.AvailabilityZone{Active: true, Name: zone, ShortName: zone}
		})}
	return true, nil
}

// regionOf returns the short name of a zone's region: zones are called by it and a number.
func regionOf(zone string) string { return strings.TrimRight(zone, "0123456789") }

// serverTypesOfFlavors makes server types of the categories of flavors, all of them enabled.
func serverTypesOfFlavors(_ context.Context, s *Snapshot) (bool, error) {
	names := lo.Uniq(lo.FilterMap(s.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) (string, bool) { return f.Category, f.Category != "" }))
	slices.Sort(names)
	s.ServerTypes = lo.Map(names, func(name string, _ int) *gobizfly.ServerType { return &gobizfly.ServerType{Name: name, Enabled: true} })
	return len(names) > 0, nil
}

// volumeTypesOfVolumes makes volume types of the volumes that the project has, and of the pools of the BKE cluster. Where one of both
// cannot be read it also returns the error, and what was known before stays.
func (p *DefaultProvider) volumeTypesOfVolumes(ctx context.Context, s *Snapshot) (bool, error) {
	volumes, err := p.api.ListVolumes(ctx)
	if id := p.clusterID(ctx); id != "" {
		cluster, clusterErr := p.api.GetCluster(ctx, id)
		for _, pool := range lo.FromPtr(cluster).WorkerPools {
			volumes = append(volumes, &gobizfly.Volume{VolumeType: pool.VolumeType, Category: pool.ProfileType, AvailabilityZone: pool.AvailabilityZone})
		}
		err = errors.Join(err, clusterErr)
	}
	byType := lo.GroupBy(lo.Filter(volumes, func(v *gobizfly.Volume, _ int) bool {
		return v.VolumeType != "" && v.Category != "" && v.AvailabilityZone != ""
	}), func(v *gobizfly.Volume) [2]string { return [2]string{v.VolumeType, v.Category} })
	s.VolumeTypes = lo.MapToSlice(byType, func(of [2]string, volumes []*gobizfly.Volume) *gobizfly.VolumeType {
		return &gobizfly.VolumeType{Name: of[0], Category: of[1], Type: volumes[0].Type,
			AvailabilityZones: lo.Uniq(lo.Map(volumes, func(v *gobizfly.Volume, _ int) string { return v.AvailabilityZone }))}
	})
	sortVolumeTypes(s.VolumeTypes)
	if known := p.snapshot.Load(); err != nil && known != nil {
		s.VolumeTypes = known.VolumeTypes
	}
	return len(s.VolumeTypes) > 0, err
}
