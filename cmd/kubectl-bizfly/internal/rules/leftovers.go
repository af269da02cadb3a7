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
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// owned are the servers and the NodeClaims of the cluster. Servers are read first: a NodeClaim that is listed after its
// server cannot be missed.
type owned struct {
	servers []*gobizfly.Server
	claims  []karpv1.NodeClaim
}

var (
	factOwned = newFact("servers and NodeClaims", func(ctx context.Context, r *reading) (owned, error) {
		servers, err := factServers.in(ctx, r)
		if err != nil {
			return owned{}, err
		}
		claims := &karpv1.NodeClaimList{}
		if err := r.List(ctx, claims); err != nil && !connect.IsMissing(err) {
			return owned{}, err
		}
		return owned{servers, claims.Items}, nil
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
	given: given1(factOwned, func(all owned) outcome {
		claims := map[string]string{}
		for i := range all.claims {
			if id, ok := providerid.Parse(all.claims[i].Status.ProviderID); ok && all.claims[i].DeletionTimestamp == nil {
				claims[id] = all.claims[i].Name
			}
		}
		return found(lo.FilterMap(all.servers, func(s *gobizfly.Server, _ int) (Finding, bool) {
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
		given: given3(factOwned, factClusterUID, factFlavorPrices, lostServers)},
	// The project may have other clusters, so a person has to look before deleting.
	{code: "DiskWithoutOwner", about: "disks without owner", severity: Warning,
		given: given4(factVolumes, factServers, factHandles, factDiskPrices, lostDisks)},
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

// lostServers are the servers of this cluster that no NodeClaim accounts for. A NodeClaim that was restored from a
// backup has another UID than its server's metadata name.
func lostServers(all owned, uid string, prices map[string]float64) outcome {
	known := sets.New(lo.Compact(lo.FlatMap(all.claims, func(c karpv1.NodeClaim, _ int) []string {
		server, _ := providerid.Parse(c.Status.ProviderID)
		return []string{string(c.UID), server}
	}))...)
	return found(lo.FilterMap(all.servers, func(server *gobizfly.Server, _ int) (Finding, bool) {
		f := Finding{
			What: fmt.Sprintf("server %s (%s) has this cluster in its metadata, and no NodeClaim accounts for it",
				server.Name, server.ID),
			Why: "it is paid for", Fix: "kubectl bizfly leftovers (a copy that a user has made has the same metadata; where " +
				"the controller runs, its garbage collection deletes within minutes what is proven to be its own)",
			VNDPerMonth: prices[server.Flavor.Name] * price.HoursPerMonth,
		}
		if f.VNDPerMonth > 0 {
			f.Why = fmt.Sprintf("it is paid for: about %s VND per month", output.VND(f.VNDPerMonth))
		}
		return f, uid != "" && server.Metadata[v1alpha1.MetadataClusterUID] == uid &&
			!known.HasAny(server.Metadata[v1alpha1.MetadataNodeClaimUID], server.ID)
	})...)
}

// lostDisks are root disks without a server, and volumes of pods without a PersistentVolume. It leaves out what garbage
// collection does: root disks made from a snapshot or named like a server that exists, and disks that are being created
// or deleted.
func lostDisks(volumes []*gobizfly.Volume, servers []*gobizfly.Server, handles sets.Set[string],
	pricePerHour func(*gobizfly.Volume) float64) outcome {
	live := sets.New(lo.Map(servers, func(server *gobizfly.Server, _ int) string { return server.Name })...)
	return found(lo.FilterMap(volumes, func(volume *gobizfly.Volume, _ int) (Finding, bool) {
		server, isRoot := strings.CutSuffix(volume.Name, instance.RootDiskSuffix)
		lost := isRoot && volume.SnapshotID == "" && !live.Has(server) || !isRoot && strings.HasPrefix(volume.Name,
			instance.CSIVolumePrefix)
		perMonth := pricePerHour(volume) * price.HoursPerMonth
		return Finding{
			VNDPerMonth: perMonth,
			What: fmt.Sprintf("disk %s (%s, %d GiB) is attached to no server, and no PersistentVolume of this cluster "+
				"names it", volume.Name, volume.ID, volume.Size),
			Why: fmt.Sprintf("it is paid for: about %s VND per month. It may belong to another cluster of the project",
				output.VND(perMonth)),
			Fix: "bizfly volume delete " + volume.ID,
		}, lost && instance.Settled(volume) && len(volume.Attachments) == 0 && !handles.Has(volume.ID)
	})...)
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
