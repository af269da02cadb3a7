// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

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

// clusterUID is what servers of this cluster are recognised by.
func (d *examination) clusterUID(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{}
	err := d.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, namespace)
	return string(namespace.UID), err
}

// volumeHandles are the ids of the volumes that PersistentVolumes of this cluster name.
func (d *examination) volumeHandles(ctx context.Context) (sets.Set[string], error) {
	persistent := &corev1.PersistentVolumeList{}
	if err := d.List(ctx, persistent); err != nil {
		return nil, err
	}
	return sets.New(lo.FilterMap(persistent.Items, func(v corev1.PersistentVolume, _ int) (string, bool) {
		return lo.FromPtr(v.Spec.CSI).VolumeHandle, v.Spec.CSI != nil
	})...), nil
}

// checkServers looks for servers of this cluster that no NodeClaim accounts for.
func checkServers(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	uid, err := d.clusterUID(ctx)
	if err != nil {
		return nil, err
	}
	// Servers come first: a NodeClaim that is listed after its server cannot be missed.
	servers, err := cloud.API.ListServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := d.List(ctx, claims); err != nil && !connect.IsMissing(err) {
		return nil, err
	}
	// A NodeClaim that was restored from a backup has another UID than its server's metadata name.
	known := sets.New(lo.Compact(lo.FlatMap(claims.Items, func(c karpv1.NodeClaim, _ int) []string {
		server, _ := providerid.Parse(c.Status.ProviderID)
		return []string{string(c.UID), server}
	}))...)
	instanceTypes, _, err := price.StandardFlavors(ctx, cloud)
	if err != nil {
		return nil, err
	}
	byName := lo.KeyBy(instanceTypes, func(it *corecloudprovider.InstanceType) string { return it.Name })
	return lo.FilterMap(servers, func(server *gobizfly.Server, _ int) (Finding, bool) {
		f := Finding{
			Code: "ServerWithoutNodeClaim", Severity: Warning,
			What: fmt.Sprintf("server %s (%s) was launched by Karpenter for this cluster, and no NodeClaim accounts for it", server.Name, server.ID),
			Why:  "it is paid for", Fix: "bizfly server delete " + server.ID + " (garbage collection deletes it within minutes where the controller runs)",
		}
		if it := byName[server.Flavor.Name]; it != nil && len(it.Offerings) > 0 {
			f.VNDPerMonth = it.Offerings[0].Price * price.HoursPerMonth
			f.Why = fmt.Sprintf("it is paid for: about %s VND per month", output.VND(f.VNDPerMonth))
		}
		return f, uid != "" && server.Metadata[v1alpha1.MetadataClusterUID] == uid &&
			!known.HasAny(server.Metadata[v1alpha1.MetadataNodeClaimUID], server.ID)
	}), nil
}

// checkDisks looks for root disks without a server, and volumes of pods without a PersistentVolume. It leaves out what garbage collection does:
// root disks made from a snapshot or named like a server that exists, and disks that are being created or deleted. The project may have other
// clusters, so a person has to look before deleting.
func checkDisks(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := cloud.API.ListVolumes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	servers, err := cloud.API.ListServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	live := sets.New(lo.Map(servers, func(server *gobizfly.Server, _ int) string { return server.Name })...)
	handles, err := d.volumeHandles(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := cloud.Catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	prices := cloud.Settings.Load().Prices
	return lo.FilterMap(volumes, func(volume *gobizfly.Volume, _ int) (Finding, bool) {
		server, isRoot := strings.CutSuffix(volume.Name, instance.RootDiskSuffix)
		owned := isRoot && volume.SnapshotID == "" && !live.Has(server) || !isRoot && strings.HasPrefix(volume.Name, instance.CSIVolumePrefix)
		perMonth := diskPrice(prices, snapshot, volume) * price.HoursPerMonth
		return Finding{
			Code: "DiskWithoutOwner", Severity: Warning, VNDPerMonth: perMonth,
			What: fmt.Sprintf("disk %s (%s, %d GiB) is attached to no server, and no PersistentVolume of this cluster names it", volume.Name, volume.ID, volume.Size),
			Why:  fmt.Sprintf("it is paid for: about %s VND per month. It may belong to another cluster of the project", output.VND(perMonth)),
			Fix:  "bizfly volume delete " + volume.ID,
		}, owned && instance.Settled(volume) && len(volume.Attachments) == 0 && !handles.Has(volume.ID)
	}), nil
}

// diskPrice is what a disk costs, in VND per hour.
func diskPrice(prices *pricing.Table, snapshot *catalog.Snapshot, volume *gobizfly.Volume) float64 {
	medium := v1alpha1.DiskMediumSSD
	if found, ok := lo.Find(snapshot.VolumeTypes, func(t *gobizfly.VolumeType) bool { return t.Name == volume.VolumeType }); ok {
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

// checkAddresses looks for public addresses that no server uses.
func checkAddresses(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	interfaces, err := cloud.API.ListNetworkInterfaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	return lo.FilterMap(interfaces, func(port *gobizfly.NetworkInterface, _ int) (Finding, bool) {
		free := bizfly.UsedBy(port) == ""
		return Finding{
			Code: "AddressWithoutOwner", Severity: Warning, What: fmt.Sprintf("the public address %s (%s) is used by no server",
				lo.CoalesceOrEmpty(port.IPAddress, port.Name), port.ID),
			Why: "it is paid for; the price list of addresses is not public. It may be kept on purpose", Fix: "bizfly wan-ip delete " + port.ID,
		}, free && strings.Contains(strings.ToUpper(port.Type), "WAN")
	}), nil
}
