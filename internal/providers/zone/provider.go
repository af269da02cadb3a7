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

package zone

import (
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Config is what the user may say about the region.
type Config struct {
	// RegionLabel is the value of topology.kubernetes.io/region. The cloud controller manager writes its own
	// BIZFLYCLOUD_REGION verbatim, so whoever has set that must set this; empty means the region's short name, for
	// example HN, which is what the cloud controller manager has by default.
	RegionLabel string
}

// DefaultProvider answers from the catalog.
type DefaultProvider struct {
	catalog catalog.Provider
	config  Config
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider makes a provider over the catalog.
func NewDefaultProvider(catalog catalog.Provider, config Config) *DefaultProvider {
	return &DefaultProvider{catalog: catalog, config: config}
}

// Zones returns the zones of the region, sorted by name. A zone whose name cannot be a label's value is left out, since
// no node could ever say that it is there.
func (p *DefaultProvider) Zones() ([]Zone, error) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	zones := make([]Zone, 0, len(snapshot.Region.Zones))
	for _, zone := range snapshot.Region.Zones {
		if zone.ShortName != "" && len(validation.IsValidLabelValue(zone.ShortName)) == 0 {
			zones = append(zones, Zone{Name: zone.ShortName, Active: zone.Active && snapshot.Region.Active})
		}
	}
	slices.SortFunc(zones, func(a, b Zone) int { return strings.Compare(a.Name, b.Name) })
	return lo.UniqBy(zones, func(z Zone) string { return z.Name }), nil
}

// RegionLabel returns the configured label or the region's short name, and "" while neither is known.
func (p *DefaultProvider) RegionLabel() string {
	if p.config.RegionLabel != "" {
		return p.config.RegionLabel
	}
	if snapshot, err := p.catalog.Snapshot(); err == nil {
		return snapshot.Region.ShortName
	}
	return ""
}

// VolumeType returns the alphabetically first volume type of the medium for the category in the zone.
func (p *DefaultProvider) VolumeType(zone, category string, disk v1alpha1.DiskMedium) (string, bool) {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return "", false
	}
	// The catalog sorts volume types by name.
	found, ok := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool {
		medium, known := Medium(t)
		return known && medium == disk && sold(t, zone, category)
	})
	if !ok {
		return "", false
	}
	return found.Name, true
}

// HasVolumeType says whether the named volume type exists for the category in the zone.
func (p *DefaultProvider) HasVolumeType(zone, category, volumeType string) bool {
	snapshot, err := p.catalog.Snapshot()
	return err == nil && lo.ContainsBy(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool {
		return t.Name == volumeType && sold(t, zone, category)
	})
}

// VolumeTypes returns the names of the volume types in the zone.
func (p *DefaultProvider) VolumeTypes(zone string) []string {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil
	}
	names := lo.FilterMap(snapshot.VolumeTypes, func(t *gobizfly.VolumeType, _ int) (string, bool) {
		return t.Name, sold(t, zone, t.Category)
	})
	slices.Sort(names)
	return lo.Uniq(names)
}

// Categories returns the server types as servers are ordered with them.
func (p *DefaultProvider) Categories() []string {
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil
	}
	names := lo.FilterMap(snapshot.ServerTypes, func(t *gobizfly.ServerType, _ int) (string, bool) {
		return strings.ToLower(t.Name), t.Name != ""
	})
	slices.Sort(names)
	return lo.Uniq(names)
}

// Medium returns the medium of a volume type. The API says it as "SSD" or with the category before it ("PREMIUM SSD");
// older types say it in their name only (PREMIUM-SSD1).
func Medium(volumeType *gobizfly.VolumeType) (v1alpha1.DiskMedium, bool) {
	for _, text := range []string{volumeType.Type, volumeType.Name} {
		for _, medium := range []v1alpha1.DiskMedium{v1alpha1.DiskMediumSSD, v1alpha1.DiskMediumHDD} {
			if strings.Contains(strings.ToUpper(text), string(medium)) {
				return medium, true
			}
		}
	}
	return "", false
}

// sold says whether the volume type can be had for the category in the zone; one that names no zones is everywhere.
func sold(volumeType *gobizfly.VolumeType, zone, category string) bool {
	return volumeType.Name != "" && strings.EqualFold(volumeType.Category, category) &&
		(len(volumeType.AvailabilityZones) == 0 || slices.Contains(volumeType.AvailabilityZones, zone))
}
