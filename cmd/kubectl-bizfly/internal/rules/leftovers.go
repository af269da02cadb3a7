// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/leftovers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

var (
	// factLeftovers is what was launched for this cluster, and what no NodeClaim accounts for.
	factLeftovers = newFact("leftovers", func(ctx context.Context, r *reading) ([]leftovers.Item, error) {
		found, err := leftovers.Find(ctx, r.Session)
		return lo.FromPtr(found).Items, err
	})

	// factFlavorPrices are the prices of flavors with the default disk, in VND per hour.
	factFlavorPrices = catalogFact("prices of flavors", func(ctx context.Context, cloud *connect.Cloud) (map[string]float64, error) {
		instanceTypes, _, err := price.StandardFlavors(ctx, cloud)
		return price.ByFlavor(instanceTypes), err
	})

	// factDiskPrices is what a disk costs, in VND per hour.
	factDiskPrices = catalogFact("prices of disks", func(_ context.Context,
		cloud *connect.Cloud) (func(*gobizfly.Volume) float64, error) {
		return func(volume *gobizfly.Volume) float64 {
			return diskPrice(cloud.Settings.Load().Prices, cloud.Snapshot, volume)
		}, nil
	})
)

// serverRules are about servers that should run.
var serverRules = []rule{{
	code: "ServerStopped", about: "servers", severity: Warning, why: "its node is not ready, and the disk is paid for " +
		"all the same",
	given: given2(factServers, factNodeClaims, func(servers []*gobizfly.Server, all *karpv1.NodeClaimList) outcome {
		claims := lo.FilterSliceToMap(all.Items, func(c karpv1.NodeClaim) (id, name string, kept bool) {
			id, known := providerid.Parse(c.Status.ProviderID)
			return id, c.Name, known && c.DeletionTimestamp == nil
		})
		return found(lo.FilterMap(servers, func(s *gobizfly.Server, _ int) (Finding, bool) {
			return Finding{
				What: fmt.Sprintf("server %s (%s) of NodeClaim %s is stopped (%s)", s.Name, s.ID, claims[s.ID], s.Status),
				Fix: fmt.Sprintf("bizfly server start %s (if nobody has stopped it on purpose, the account may be unpaid), or "+
					"kubectl delete nodeclaim %s", s.ID,
					claims[s.ID]),
			}, claims[s.ID] != "" && s.Status == instance.StatusShutoff
		})...)
	}),
}}

// leftoverRules are about what is paid for and belongs to nobody.
var leftoverRules = []rule{
	{code: "ServerWithoutNodeClaim", about: "servers without owner", severity: Warning,
		fix: "kubectl bizfly leftovers (a copy that a user has made has the same metadata; where the controller runs, its " +
			"garbage collection deletes within minutes what is proven to be its own)",
		given: given3(factLeftovers, factServers, factFlavorPrices, lostServers)},
	{code: "DiskWithoutOwner", about: "disks without owner", severity: Warning,
		given: given4(factLeftovers, factVolumes, factHandles, factDiskPrices, lostDisks)},
	{code: "AddressWithoutOwner", about: "addresses without owner", severity: Warning,
		why: "it is paid for; the price list of addresses is not public. It may be kept on purpose",
		given: given1(factInterfaces, func(interfaces []*gobizfly.NetworkInterface) outcome {
			return found(lo.FilterMap(interfaces, func(port *gobizfly.NetworkInterface, _ int) (Finding, bool) {
				return Finding{
					What: fmt.Sprintf("the public address %s (%s) is used by no server", lo.CoalesceOrEmpty(port.IPAddress, port.Name),
						port.ID),
					Fix: "bizfly wan-ip delete " + port.ID,
				}, bizfly.UsedBy(port) == "" && strings.Contains(strings.ToUpper(port.Type), "WAN")
			})...)
		})},
}

// lostServers are those of leftovers, with their prices.
func lostServers(left []leftovers.Item, servers []*gobizfly.Server, prices map[string]float64) outcome {
	perHour := lo.SliceToMap(servers, func(s *gobizfly.Server) (string, float64) { return s.ID, prices[s.Flavor.Name] })
	return found(lo.FilterMap(left, func(i leftovers.Item, _ int) (Finding, bool) {
		perMonth := perHour[i.ID] * price.HoursPerMonth
		return Finding{
			What: fmt.Sprintf("server %s (%s) has this cluster in its metadata, and no NodeClaim accounts for it", i.Name, i.ID),
			Why:  paidFor(perMonth), VNDPerMonth: perMonth,
		}, i.Kind == "server"
	})...)
}

// lostDisks are those of leftovers, and volumes of pods without a PersistentVolume, whose owner is not known.
func lostDisks(left []leftovers.Item, volumes []*gobizfly.Volume, handles sets.Set[string],
	pricePerHour func(*gobizfly.Volume) float64) outcome {
	ours := lo.KeyBy(left, func(i leftovers.Item) string { return i.ID })
	return found(lo.FilterMap(volumes, func(volume *gobizfly.Volume, _ int) (Finding, bool) {
		perMonth := pricePerHour(volume) * price.HoursPerMonth
		f := Finding{
			What: fmt.Sprintf("disk %s (%s, %d GiB) is attached to no server, and no PersistentVolume of this cluster "+
				"names it", volume.Name, volume.ID, volume.Size),
			Why: paidFor(perMonth), Fix: "kubectl bizfly leftovers", VNDPerMonth: perMonth,
		}
		if lo.HasKey(ours, volume.ID) {
			return f, !handles.Has(volume.ID)
		}
		f.Why += ". It may belong to another cluster of the project, or hold data that a PersistentVolume has retained"
		f.Fix = "kubectl get pv (in each cluster of the project); if nobody needs it: bizfly volume delete " + volume.ID
		return f, strings.HasPrefix(volume.Name, instance.CSIVolumePrefix) && instance.Settled(volume) &&
			len(volume.Attachments) == 0 && !handles.Has(volume.ID)
	})...)
}

func paidFor(perMonth float64) string {
	return "it is paid for" + lo.Ternary(perMonth > 0, fmt.Sprintf(": about %s VND per month", output.VND(perMonth)), "")
}

// diskPrice is what a disk costs, in VND per hour.
func diskPrice(prices *pricing.Table, snapshot *catalog.Snapshot, volume *gobizfly.Volume) float64 {
	medium := v1alpha1.DiskMediumSSD
	if found, ok := lo.Find(snapshot.VolumeTypes,
		func(t *gobizfly.VolumeType) bool { return t.Name == volume.VolumeType }); ok {
		if m, known := catalog.Medium(found); known {
			medium = m
		}
	}
	billing := v1alpha1.BillingPlanOnDemand
	if normalPlan(volume.BillingPlan) == normalPlan(string(v1alpha1.BillingPlanSavingPlan)) {
		billing = v1alpha1.BillingPlanSavingPlan
	}
	return float64(volume.Size) * prices.Disks[medium] * prices.BillingPlans[billing].Disk
}
