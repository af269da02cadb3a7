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

// part is one read of the catalog.
type part struct {
	name string
	// read sets exactly this part of the content, and leaves it as it is where it fails. Parts are read at the same time.
	read func(ctx context.Context) error
	// bke parts are those of the Kubernetes Engine, which only some NodeClasses need.
	bke bool
}

// partRegions is the part that can be made up of the others.
const partRegions = "regions"

// newParts lists what this catalog reads. Everything is sorted, because the API promises no order and the content is
// compared: a list in another order is not a change.
func (p *DefaultProvider) newParts() []part {
	parts := []part{
		{name: "flavors", read: list(p.api.ListFlavors, sortFlavors, &p.content.Flavors)},
		{name: "volume types", read: list(p.api.ListVolumeTypes, sortVolumeTypes, &p.content.VolumeTypes)},
		{name: partRegions, read: p.readRegion},
	}
	if p.config.BKEClusterID != "" || p.config.LearnedBKEClusterID != nil {
		parts = append(parts,
			part{name: "Kubernetes versions", bke: true, read: list(p.api.ListKubernetesVersions, sortVersions,
				&p.content.KubernetesVersions)},
			part{name: "BKE cluster", bke: true, read: p.readCluster})
	}
	return parts
}

func (p *DefaultProvider) readRegion(ctx context.Context) error {
	scope, err := p.api.Scope(ctx)
	if err != nil {
		return err
	}
	regions, err := lookup.NotEmpty(p.api.ListRegions)(ctx)
	if err != nil {
		return err
	}
	region, ok := lo.Find(regions, func(r gobizfly.Region) bool { return strings.EqualFold(r.RegionName, scope.Region) })
	if !ok {
		names := lo.Map(regions, func(r gobizfly.Region, _ int) string {
			return fmt.Sprintf("%s (%s)", r.ShortName, r.RegionName)
		})
		slices.Sort(names)
		return fmt.Errorf("region %q is not among those of the account: %s", scope.Region, strings.Join(names, ", "))
	}
	if len(region.Zones) == 0 {
		return fmt.Errorf("region %q was answered without zones", scope.Region)
	}
	slices.SortFunc(region.Zones, func(a, b gobizfly.AvailabilityZone) int {
		return cmp.Compare(a.ShortName, b.ShortName)
	})
	p.content.Region = region
	return nil
}

// list returns the read of a part that is one list. An empty one is an error: accepting it would remove every instance
// type, so that core replaced every node.
func list[T any](read func(context.Context) ([]T, error), sort func([]T), into *[]T) func(context.Context) error {
	return func(ctx context.Context) error {
		answer, err := lookup.NotEmpty(read)(ctx)
		if err != nil {
			return err
		}
		sort(answer)
		*into = answer
		return nil
	}
}

func sortFlavors(flavors []*gobizfly.ServerFlavorResponse) {
	for _, f := range flavors {
		slices.Sort(f.BillingPlans)
		slices.Sort(f.Generation.AvailabilityZones)
	}
	slices.SortFunc(flavors, func(a, b *gobizfly.ServerFlavorResponse) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// sortVolumeTypes also makes the name of each its identifier. Public clients show both {name PREMIUM-SSD1, type
// "PREMIUM SSD"} and {name SSD, type PREMIUM-SSD1}; internal/providers/instance/forms.go decides which of both a create
// request has.
func sortVolumeTypes(types []*gobizfly.VolumeType) {
	for _, t := range types {
		slices.Sort(t.AvailabilityZones)
		if t.Type != "" && !strings.Contains(t.Type, " ") && (strings.Contains(t.Name, " ") || len(t.Type) > len(t.Name)) {
			t.Name, t.Type = t.Type, t.Name
		}
	}
	slices.SortFunc(types, func(a, b *gobizfly.VolumeType) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Type, b.Type))
	})
}

func sortVersions(versions []gobizfly.ControllerVersion) {
	slices.SortFunc(versions, func(a, b gobizfly.ControllerVersion) int {
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

func (p *DefaultProvider) readCluster(ctx context.Context) error {
	id := p.clusterID(ctx)
	if id == "" {
		p.content.ClusterUnknown = p.content.Cluster == nil // it is not known yet which cluster is ours
		return nil
	}
	cluster, err := p.api.GetCluster(ctx, id)
	if err != nil {
		return err
	}
	if cluster.Version.K8SVersion == "" {
		// Nothing would bound an alias, so that its nodes would be replaced by those of another version or OS, and back.
		return errors.New("it was answered without its version")
	}
	cluster.WorkerPools, cluster.WorkerPoolsCount, cluster.Stat = nil, 0, gobizfly.ClusterStat{}
	slices.Sort(cluster.Tags)
	p.content.Cluster, p.content.ClusterUnknown = cluster, false
	return nil
}
