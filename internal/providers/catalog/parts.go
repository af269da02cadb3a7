// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
)

// part is one read of the catalog. What it returns sets exactly that part of a snapshot.
type part struct {
	name string
	read func(ctx context.Context) (func(*Snapshot), error)
	// bke parts are those of the Kubernetes Engine, which only some NodeClasses need.
	bke bool
	// replace returns what sets the part, where it can, while it was never read; the parts before it in the list are set then.
	replace func(ctx context.Context) (func(*Snapshot) bool, error)
}

// newParts lists what this catalog reads. Everything is sorted and copied, because the API promises no order and the
// content is compared: a list in another order is not a change.
func (p *DefaultProvider) newParts() []part {
	parts := []part{
		{name: "flavors", read: list(p.api.ListFlavors, flavorsOf, func(s *Snapshot, l []*gobizfly.ServerFlavorResponse) { s.Flavors = l })},
		{name: "server types", replace: serverTypesOfFlavors,
			read: list(p.api.ListServerTypes, serverTypesOf, func(s *Snapshot, l []*gobizfly.ServerType) { s.ServerTypes = l })},
		{name: "volume types", replace: p.volumeTypesOfVolumes,
			read: list(p.api.ListVolumeTypes, volumeTypesOf, func(s *Snapshot, l []*gobizfly.VolumeType) { s.VolumeTypes = l })},
		{name: "regions", replace: p.regionFromZones, read: p.readRegion},
	}
	if p.config.BKEClusterID != "" || p.config.LearnedBKEClusterID != nil {
		parts = append(parts, part{name: "Kubernetes versions", bke: true, read: list(p.api.ListKubernetesVersions, versionsOf,
			func(s *Snapshot, l []gobizfly.ControllerVersion) { s.KubernetesVersions = l })},
			part{name: "BKE cluster", bke: true, read: p.readCluster})
	}
	return parts
}

func (p *DefaultProvider) readRegion(ctx context.Context) (func(*Snapshot), error) {
	scope, err := p.api.Scope(ctx)
	if err != nil {
		return nil, err
	}
	regions, err := lookup.NotEmpty(p.api.ListRegions)(ctx)
	if err != nil {
		return nil, err
	}
	region, ok := lo.Find(regions, func(r gobizfly.Region) bool { return strings.EqualFold(r.RegionName, scope.Region) })
	if !ok {
		names := lo.Map(regions, func(r gobizfly.Region, _ int) string { return fmt.Sprintf("%s (%s)", r.ShortName, r.RegionName) })
		slices.Sort(names)
		return nil, fmt.Errorf("region %q is not among those of the account: %s", scope.Region, strings.Join(names, ", "))
	}
	if len(region.Zones) == 0 {
		return nil, fmt.Errorf("region %q was answered without zones", scope.Region)
	}
	region.Zones = sorted(region.Zones, func(a, b gobizfly.AvailabilityZone) int { return cmp.Compare(a.ShortName, b.ShortName) })
	return func(s *Snapshot) { s.Region = region }, nil
}

// list returns the read of a part that is one list. An empty one is an error: accepting it would remove every instance type, so that core
// replaced every node.
func list[T any](read func(context.Context) ([]T, error), prepare func([]T) []T, set func(*Snapshot, []T)) func(context.Context) (func(*Snapshot), error) {
	return func(ctx context.Context) (func(*Snapshot), error) {
		answer, err := lookup.NotEmpty(read)(ctx)
		if err != nil {
			return nil, err
		}
		content := prepare(answer)
		return func(s *Snapshot) { set(s, content) }, nil
	}
}

func flavorsOf(answer []*gobizfly.ServerFlavorResponse) []*gobizfly.ServerFlavorResponse {
	return sorted(copied(answer, func(f *gobizfly.ServerFlavorResponse) {
		f.BillingPlans = sorted(f.BillingPlans, cmp.Compare[string])
		f.Generation.AvailabilityZones = sorted(f.Generation.AvailabilityZones, cmp.Compare[string])
		if f.GPU != nil {
			f.GPU = lo.ToPtr(*f.GPU)
		}
	}), func(a, b *gobizfly.ServerFlavorResponse) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

func serverTypesOf(answer []*gobizfly.ServerType) []*gobizfly.ServerType {
	return sorted(copied(answer, func(t *gobizfly.ServerType) { t.ComputeClass = sorted(t.ComputeClass, cmp.Compare[string]) }),
		func(a, b *gobizfly.ServerType) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
}

func volumeTypesOf(answer []*gobizfly.VolumeType) []*gobizfly.VolumeType {
	return sorted(copied(answer, func(t *gobizfly.VolumeType) {
		t.AvailabilityZones = sorted(t.AvailabilityZones, cmp.Compare[string])
		// Public clients show both {name PREMIUM-SSD1, type "PREMIUM SSD"} and {name SSD, type PREMIUM-SSD1}. Here the name is always the
		// identifier; internal/providers/instance/forms.go decides which of both a create request has.
		if t.Type != "" && !strings.Contains(t.Type, " ") && (strings.Contains(t.Name, " ") || len(t.Type) > len(t.Name)) {
			t.Name, t.Type = t.Type, t.Name
		}
	}),
		func(a, b *gobizfly.VolumeType) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Type, b.Type))
		})
}

func versionsOf(answer []gobizfly.ControllerVersion) []gobizfly.ControllerVersion {
	return sorted(answer, func(a, b gobizfly.ControllerVersion) int {
		return cmp.Or(cmp.Compare(a.K8SVersion, b.K8SVersion), cmp.Compare(a.ID, b.ID))
	})
}

// clusterID is the uid of our own BKE cluster, empty where there is none or it is not known yet.
func (p *DefaultProvider) clusterID(ctx context.Context) string {
	if p.config.BKEClusterID == "" && p.config.LearnedBKEClusterID != nil {
		return p.config.LearnedBKEClusterID(ctx)
	}
	return p.config.BKEClusterID
}

func (p *DefaultProvider) readCluster(ctx context.Context) (func(*Snapshot), error) {
	id := p.clusterID(ctx)
	if id == "" {
		return func(s *Snapshot) { s.ClusterUnknown = s.Cluster == nil }, nil // it is not known yet which cluster is ours
	}
	answer, err := p.api.GetCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	if answer == nil || answer.UID == "" {
		return nil, errors.New("the answer names no cluster")
	}
	cluster := *answer
	cluster.WorkerPools, cluster.WorkerPoolsCount, cluster.Stat = nil, 0, gobizfly.ClusterStat{}
	cluster.Tags = sorted(cluster.Tags, cmp.Compare[string])
	return func(s *Snapshot) { s.Cluster, s.ClusterUnknown = &cluster, false }, nil
}

func sorted[T any](in []T, compare func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, compare)
	return out
}

// copied returns copies of what is not nil, each passed through prepare.
func copied[T any](in []*T, prepare func(*T)) []*T {
	out := make([]*T, 0, len(in))
	for _, item := range in {
		if item == nil {
			continue
		}
		clone := *item
		prepare(&clone)
		out = append(out, &clone)
	}
	return out
}
