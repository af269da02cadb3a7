// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// fixedAPI always returns the content of a snapshot.
type fixedAPI struct {
	bizfly.API
	catalog.Snapshot
}

func (f fixedAPI) Scope(context.Context) (bizfly.Scope, error) {
	return bizfly.Scope{Region: "HaNoi"}, nil
}
func (f fixedAPI) ListRegions(context.Context) ([]gobizfly.Region, error) {
	return []gobizfly.Region{f.Region}, nil
}
func (f fixedAPI) ListFlavors(context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
	return f.Flavors, nil
}
func (f fixedAPI) ListServerTypes(context.Context) ([]*gobizfly.ServerType, error) {
	return f.ServerTypes, nil
}
func (f fixedAPI) ListVolumeTypes(context.Context) ([]*gobizfly.VolumeType, error) {
	return f.VolumeTypes, nil
}
func (f fixedAPI) ListKubernetesVersions(context.Context) ([]gobizfly.ControllerVersion, error) {
	return []gobizfly.ControllerVersion{{ID: "version"}}, nil
}
func (f fixedAPI) GetCluster(_ context.Context, uid string) (*gobizfly.FullCluster, error) {
	cluster := &gobizfly.FullCluster{}
	cluster.UID = uid
	return cluster, nil
}

var _ = Describe("What BizFly Cloud offers", func() {
	// offered is every series by name and label values, those in the order of the labels' names.
	offered := func() map[string]float64 {
		GinkgoHelper()
		families, err := crmetrics.Registry.Gather()
		Expect(err).ToNot(HaveOccurred())
		all := map[string]float64{}
		for _, family := range families {
			name, ours := strings.CutPrefix(family.GetName(), "karpenter_bizfly_")
			if !ours || !lo.SomeBy([]string{"zone_", "category_", "flavor_", "cluster_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
				continue
			}
			for _, metric := range family.GetMetric() {
				var values []string
				for _, label := range metric.GetLabel() {
					values = append(values, label.GetValue())
				}
				all[name+"{"+strings.Join(values, ",")+"}"] = metric.GetGauge().GetValue()
			}
		}
		return all
	}

	It("should be metrics", func(ctx context.Context) {
		generation := gobizfly.FlavorGeneration{Code: "p2", AvailabilityZones: []string{"HN1", "HN2"}}
		Expect(catalog.NewDefaultProvider(fixedAPI{Snapshot: catalog.Snapshot{
			Region:      gobizfly.Region{RegionName: "HaNoi", ShortName: "HN", Zones: []gobizfly.AvailabilityZone{{ShortName: "HN1", Active: true}, {ShortName: "HN2"}}},
			ServerTypes: []*gobizfly.ServerType{{Name: "Premium", Enabled: true}, {Name: "Basic"}},
			Flavors: []*gobizfly.ServerFlavorResponse{
				{Name: "p2.2c_4g", Category: "premium", BillingPlans: []string{"on_demand", "saving_plan"}, Generation: generation},
				{Name: "p2.4c_8g", Category: "premium", BillingPlans: []string{"on_demand"}, Generation: generation},
				{Name: "old", Category: "premium"},
			},
			VolumeTypes: []*gobizfly.VolumeType{{Name: "PREMIUM-SSD1", Category: "premium", AvailabilityZones: []string{"HN1"}}},
		}}, clocktesting.NewFakeClock(start), catalog.Config{BKEClusterID: "cluster"}).Refresh(ctx)).To(Succeed())
		Expect(offered()).To(Equal(map[string]float64{
			"zone_active{HN1}": 1, "zone_active{HN2}": 0,
			"category_enabled{premium}": 1, "category_enabled{basic}": 0,
			"flavor_billing_plan{on_demand,p2.2c_4g}": 1, "flavor_billing_plan{saving_plan,p2.2c_4g}": 1, "flavor_billing_plan{on_demand,p2.4c_8g}": 1,
			"zone_generation_flavors{premium,p2,HN1}": 2, "zone_generation_flavors{premium,p2,HN2}": 2,
			"zone_volume_type{premium,PREMIUM-SSD1,HN1}": 1,
		}))
	})
})
