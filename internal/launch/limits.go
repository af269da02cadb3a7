// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Reasons of launches that the limits of the cluster hold back, and of the condition WithinSpendingLimits.
const (
	// ReasonMaxServersReached says that the cluster has as many servers as MAX_SERVERS allows.
	ReasonMaxServersReached = "MaxServersReached"
	// ReasonMaxVNDPerHourReached says that the servers and another one would cost more than MAX_VND_PER_HOUR allows.
	ReasonMaxVNDPerHourReached = "MaxVNDPerHourReached"
	// ReasonSpendingUnknown says that the servers could not be counted, or that the price of one is not known.
	ReasonSpendingUnknown = "SpendingUnknown"
)

// heldBack is a launch that was held back. It is replaced, never changed.
type heldBack struct {
	reason, description string
	until               time.Time
}

// paid is a server that the cluster pays for, or soon will.
type paid struct {
	name, nodeClass, flavor, zone string
	// claim is its NodeClaim; empty where there is none.
	claim *karpv1.NodeClaim
}

// reserveOffering remembers which offering is launched for the NodeClaim, unless the launch would exceed a limit of the
// cluster, or it is not known whether it would. Then the reason and the error are why the NodeClaim ends. What cannot
// be launched is unavailable for a while, or core would plan it again at once. Limits of NodePools are optional, and
// they count no server that has lost its NodeClaim.
func (l *Launcher) reserveOffering(ctx context.Context, launch *Launch, candidate Candidate) (reason string,
	err error) {
	limits := l.config.Settings.Load()
	if limits.MaxServers == 0 && limits.MaxVNDPerHour == 0 {
		l.records.reserve(launch.NodeClaim.UID, candidate.Key)
		return "", nil
	}
	snapshot, err := l.config.Servers.Snapshot(ctx, 0)
	if err != nil {
		return l.holdBack(ctx, nil, ReasonSpendingUnknown, fmt.Errorf("the servers of the cluster cannot be counted: %w",
			err))
	}
	l.reserving.Lock()
	defer l.reserving.Unlock()
	fleet, err := l.listPaid(ctx, snapshot, launch.NodeClaim)
	if err != nil {
		return l.holdBack(ctx, nil, ReasonSpendingUnknown, err)
	}
	if limits.MaxServers > 0 && len(fleet) >= int(limits.MaxServers) {
		return l.holdBack(ctx, nil, ReasonMaxServersReached,
			fmt.Errorf("the cluster has %d servers, and settings.maxServers (MAX_SERVERS) is %.0f: "+
				"delete what is not needed, or raise it",
				len(fleet), limits.MaxServers))
	}
	if limits.MaxVNDPerHour > 0 {
		added := paid{name: "the new server", nodeClass: launch.NodeClass.Name, flavor: candidate.Key.Flavor,
			zone: candidate.Key.Zone, claim: launch.NodeClaim}
		prices, err := l.pricesOf(ctx, append(fleet, added))
		if err != nil {
			return l.holdBack(ctx, nil, ReasonSpendingUnknown, err)
		}
		price := prices[len(fleet)]
		if left := limits.MaxVNDPerHour - lo.Sum(prices[:len(fleet)]); price > left {
			return l.holdBack(ctx, l.moreExpensive(ctx, launch, candidate, left), ReasonMaxVNDPerHourReached,
				fmt.Errorf("%s in %s costs %.0f VND per hour, and %.0f are left of "+
					"settings.maxVNDPerHour (MAX_VND_PER_HOUR), which is %.0f: delete what is not needed, or raise it",
					added.flavor, added.zone, price, max(left, 0), limits.MaxVNDPerHour))
		}
	}
	l.records.reserve(launch.NodeClaim.UID, candidate.Key)
	return "", nil
}

// holdBack makes the scopes unavailable, or everything where there are none. The error is for core's event and the
// condition WithinSpendingLimits.
func (l *Launcher) holdBack(ctx context.Context, scopes []capacity.Offering, reason string, err error) (string, error) {
	pause := l.config.Settings.Load().AccountPause
	if len(scopes) == 0 {
		scopes = []capacity.Offering{{}}
	}
	l.config.Capacity.MarkAll(ctx, scopes, reason, pause)
	// Longer than the pause, so that the condition stays while launches keep being held back.
	l.heldBack.Store(&heldBack{reason: reason, description: err.Error(), until: l.config.Clock.Now().Add(2 * pause)})
	return reason, err
}

// LimitReached returns the reason and the description of the limit that holds launches back now, and an empty reason
// without one.
func (l *Launcher) LimitReached() (reason, description string) {
	if last := l.heldBack.Load(); last != nil && l.config.Clock.Now().Before(last.until) {
		return last.reason, last.description
	}
	return "", ""
}

// AccountRejected returns the reason and BizFly Cloud's answer while launches pause for the account's balance or
// credentials, and an empty reason while they do not.
func (l *Launcher) AccountRejected() (reason, description string) {
	if last := l.rejected.Load(); last != nil && l.config.Clock.Now().Before(last.until) {
		return last.reason, last.description
	}
	return "", ""
}

// moreExpensive are the offering and the others of its NodeClass that cost more than what is left, without NodeOverlays
// as all that is paid.
func (l *Launcher) moreExpensive(ctx context.Context, launch *Launch, candidate Candidate,
	left float64) []capacity.Offering {
	scopes := []capacity.Offering{candidate.Key}
	types, _ := l.config.Flavors.List(ctx, launch.NodeClass)
	for _, it := range types {
		for _, offering := range it.Offerings {
			if offering.Price > left {
				key := candidate.Key
				key.Flavor, key.Zone = it.Name, offering.Zone()
				scopes = append(scopes, key)
			}
		}
	}
	return scopes
}

// listPaid returns the servers of the cluster and its launches under way, except that of one NodeClaim: what BizFly
// Cloud lists, and what NodeClaims have or wait for. Servers count until they are gone, with a NodeClaim or without.
func (l *Launcher) listPaid(ctx context.Context, snapshot *instance.Snapshot, except *karpv1.NodeClaim) ([]paid,
	error) {
	list := &karpv1.NodeClaimList{}
	if err := l.config.KubeClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	claims := lo.KeyBy(list.Items, func(claim karpv1.NodeClaim) string { return string(claim.UID) })
	byProviderID := lo.KeyBy(list.Items, func(claim karpv1.NodeClaim) string { return claim.Status.ProviderID })
	counted := map[string]bool{string(except.UID): true}
	var fleet []paid
	for _, server := range snapshot.All() {
		if server.Deleting() && server.Status != instance.StatusDeleting {
			continue
		}
		// A NodeClaim that was restored from a backup has this server under another UID.
		claim, held := byProviderID[providerid.New(server.ID)]
		if !held {
			claim = claims[server.NodeClaimUID]
			claim.UID = types.UID(server.NodeClaimUID) // its launch is remembered also after it has ended
		}
		// The cloud may call the flavor by another name than the NodeClaim.
		offering := l.records.offeringOf(&claim)
		fleet = append(fleet, paid{server.Name, server.NodeClass, lo.CoalesceOrEmpty(offering.Flavor, server.Flavor),
			lo.CoalesceOrEmpty(offering.Zone, server.Zone), &claim})
		counted[string(claim.UID)] = true
	}
	for uid, claim := range claims {
		offering := l.records.offeringOf(&claim)
		launched := claim.Status.ProviderID != "" || offering.Flavor != ""
		if counted[uid] || !launched || !v1alpha1.IsOurs(claim.Spec.NodeClassRef) {
			continue
		}
		fleet = append(fleet, paid{claim.Name, claim.Spec.NodeClassRef.Name, offering.Flavor, offering.Zone, &claim})
	}
	return fleet, nil
}

// pricesOf returns what each of the servers costs, in VND per hour, by the price table as it is now. NodeOverlays do
// not count: no invoice follows them.
func (l *Launcher) pricesOf(ctx context.Context, fleet []paid) ([]float64, error) {
	prices := make([]float64, len(fleet))
	for i, server := range fleet {
		if prices[i] = l.priceOf(ctx, server); prices[i] <= 0 {
			return nil, fmt.Errorf("the price of %s (%s in %s) is not known", server.name, server.flavor, server.zone)
		}
	}
	return prices, nil
}

// priceOf returns what a server costs in VND per hour, and 0 where that is not known: by what was delivered with it,
// else by its NodeClass, whatever that selects by now, or by an empty one where it is gone.
func (l *Launcher) priceOf(ctx context.Context, server paid) float64 {
	if item, recorded := l.itemDelivered(server.claim); recorded {
		price, _ := l.config.Settings.Load().Prices.Price(item)
		return price
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := l.config.KubeClient.Get(ctx, client.ObjectKey{Name: server.nodeClass},
		nodeClass); client.IgnoreNotFound(err) != nil {
		return 0
	}
	types, _ := l.config.Flavors.List(ctx, nodeClass)
	_, offering := flavor.Find(types, server.flavor, server.zone)
	if offering == nil {
		_, offering = flavor.Find(l.config.Flavors.Launched(nodeClass, server.flavor, server.zone), server.flavor,
			server.zone)
	}
	return lo.FromPtr(offering).Price
}

// itemDelivered returns what the server of the NodeClaim is priced as by what was delivered with it, and false where
// that is not recorded completely. Its NodeClass may have changed since, which concerns the next server.
func (l *Launcher) itemDelivered(claim *karpv1.NodeClaim) (pricing.Item, bool) {
	record := DeliveredOf(claim)
	plan, named := lo.Find([]v1alpha1.BillingPlan{v1alpha1.BillingPlanOnDemand, v1alpha1.BillingPlanSavingPlan},
		func(plan v1alpha1.BillingPlan) bool {
			return bizfly.PlanWord(plan) == record.BillingPlan
		})
	item, ok := l.config.Flavors.Item(claim.Labels, plan)
	for _, disk := range record.Disks {
		item.Disks = append(item.Disks, pricing.Disk{GiB: disk.GiB, Type: lo.CoalesceOrEmpty(disk.Type,
			v1alpha1.DiskMediumSSD)})
		ok = ok && disk.GiB > 0
	}
	return item, ok && named && len(item.Disks) > record.DataDisks
}
