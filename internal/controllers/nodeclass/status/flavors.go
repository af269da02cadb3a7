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
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// flavorsConcern says whether zones, billing plan and volume type leave any flavor. What is sold out counts: it comes
// back by itself.
type flavorsConcern struct {
	flavors flavor.Provider
}

func (*flavorsConcern) conditionType() string { return v1alpha1.ConditionTypeFlavorsReady }

func (c *flavorsConcern) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) finding {
	if len(nodeClass.Status.Zones) == 0 {
		return awaiting(reasonAwaitingZones, "flavors depend on the zones, which are not known yet")
	}
	instanceTypes, err := c.flavors.List(ctx, nodeClass)
	if err != nil {
		return unavailable(err)
	}
	usable := lo.CountBy(instanceTypes, func(it *cloudprovider.InstanceType) bool {
		return slices.ContainsFunc(nodeClass.Status.Zones, func(zone string) bool { return launchable(it, zone) })
	})
	if usable == 0 {
		return missing(reasonNoFlavors, noFlavors(nodeClass))
	}
	return fine(fmt.Sprintf("%d flavors", usable))
}

// launchable says whether the flavor is sold in the zone at all. An offering alone does not say so: one that nodes still
// run on is listed even where the class could not launch it again.
func launchable(it *cloudprovider.InstanceType, zone string) bool {
	return it.Requirements.Get(corev1.LabelTopologyZone).Has(zone) &&
		lo.ContainsBy(it.Offerings, func(o *cloudprovider.Offering) bool { return o.Requirements.Get(corev1.LabelTopologyZone).Has(zone) })
}

func noFlavors(nodeClass *v1alpha1.BizflyNodeClass) string {
	disk := lo.FromPtr(nodeClass.Spec.RootDisk)
	message := fmt.Sprintf("no flavor is sold in zones %v with spec.billingPlan %q", nodeClass.Status.Zones, nodeClass.Spec.BillingPlan)
	if disk.VolumeType != "" {
		return message + fmt.Sprintf(" and spec.rootDisk.volumeType %q; use spec.rootDisk.type (SSD or HDD), or a volume type of these zones", disk.VolumeType)
	}
	return message + fmt.Sprintf(" and spec.rootDisk.type %q; change the plan or the type, or allow more zones", lo.CoalesceOrEmpty(disk.Type, v1alpha1.DiskTypeSSD))
}
