// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package price knows what flavors cost that no NodePool launches, such as those of worker pools.
package price

import (
	"context"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/duration"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// HoursPerMonth is how many hours BizFly Cloud's billing counts for a month (docs/concepts/pricing.md).
const HoursPerMonth = 720

// NotePeriod says what BizFly Cloud charges at once as far as the settings know it, beside prices per hour.
func NotePeriod(s *connect.Session, cloud *connect.Cloud) {
	switch period := cloud.Settings.Load().BillingPeriod; {
	case period > time.Second:
		s.Note("a started %s is charged in full (billingPeriod of the tuning): a node that lives 5 minutes costs as much as one that lives %[1]s",
			duration.ShortHumanDuration(period))
	default:
		s.Note("prices count seconds (billingPeriod is 1s, the default). If an invoice shows started hours, a node that lives 5 minutes costs an hour, " +
			"and 1h keeps it for that hour")
	}
}

var standard = []byte(`{"apiVersion": "karpenter.bizflycloud.vn/v1alpha1", "kind": "BizflyNodeClass",
	"metadata": {"name": "standard"}, "spec": {}}`)

// StandardNodeClass is the NodeClass of "spec: {}", in every zone of the region: the prices of worker pools are those of its
// flavors.
func StandardNodeClass(zones []string) *v1alpha1.BizflyNodeClass {
	nodeClass := input.BuiltIn[*v1alpha1.BizflyNodeClass](standard)
	nodeClass.UID, nodeClass.Generation, nodeClass.Status.Zones = "standard", 1, zones
	return nodeClass
}

// StandardFlavors returns every flavor with its prices for a server of the defaults.
func StandardFlavors(ctx context.Context, cloud *connect.Cloud) ([]*corecloudprovider.InstanceType, *v1alpha1.BizflyNodeClass, error) {
	nodeClass := StandardNodeClass(lo.Map(cloud.Snapshot.Zones(), func(z catalog.Zone, _ int) string { return z.Name }))
	instanceTypes, err := wiring.Build(cloud.Over(memory.New(nil))).Flavors.List(ctx, nodeClass)
	return instanceTypes, nodeClass, err
}

// ByFlavor are the prices of flavors in VND per hour, which do not differ between zones.
func ByFlavor(flavors []*corecloudprovider.InstanceType) map[string]float64 {
	return lo.FilterSliceToMap(flavors, func(it *corecloudprovider.InstanceType) (string, float64, bool) {
		offering, ok := lo.First(it.Offerings)
		return it.Name, lo.FromPtr(offering).Price, ok
	})
}
