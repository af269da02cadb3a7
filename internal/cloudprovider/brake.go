// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
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

// brake holds launches back beyond what the whole cluster may have or cost. Limits of NodePools are optional, and they count no server
// that has lost its NodeClaim.
type brake struct {
	*config
	// mu makes counting and reserving one step: launches at the same time must see each other.
	mu sync.Mutex
	// reserved has a reservation for each launch that was admitted, by the UID of the NodeClaim: lists show launches late.
	reserved *cache.Cache
	// last is the launch that was held back last.
	last atomic.Pointer[heldBack]
}

type reservation struct {
	price float64
	// seen is true once the informer's cache had the NodeClaim: when it has none any more, the launch has ended.
	seen bool
}

type heldBack struct {
	reason, description string
	until               time.Time
}

// paid is a server that the cluster pays for, or soon will.
type paid struct {
	name, nodeClass, flavor, zone string
	// price is what is known of it without the price table, in VND per hour; 0 where that is nothing.
	price float64
}

// admit reserves the launch of an offering. Where the launch would exceed a limit of the cluster, or where it is not known whether it
// would, the reason and the error are why the NodeClaim ends. What cannot be launched is unavailable for a while, or core would plan it
// again at once.
func (b *brake) admit(ctx context.Context, l *launch, chosen candidate) (reason string, err error) {
	limits := b.Settings.Load()
	if limits.MaxServers == 0 && limits.MaxVNDPerHour == 0 {
		return "", nil
	}
	snapshot, err := b.Instances.Snapshot(ctx, 0)
	if err != nil {
		return b.hold(ctx, l, nil, ReasonSpendingUnknown, fmt.Errorf("the servers of the cluster cannot be counted: %w", err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fleet, err := b.fleet(ctx, snapshot, l.claim)
	if err != nil {
		return b.hold(ctx, l, nil, ReasonSpendingUnknown, err)
	}
	if limits.MaxServers > 0 && len(fleet) >= int(limits.MaxServers) {
		return b.hold(ctx, l, nil, ReasonMaxServersReached,
			fmt.Errorf("the cluster has %d servers, and MAX_SERVERS is %.0f", len(fleet), limits.MaxServers))
	}
	price := 0.0
	if limits.MaxVNDPerHour > 0 {
		added := paid{name: "the new server", nodeClass: l.nodeClass.Name, flavor: chosen.key.Flavor, zone: chosen.key.Zone}
		prices, err := b.prices(ctx, append(fleet, added))
		if err != nil {
			return b.hold(ctx, l, nil, ReasonSpendingUnknown, err)
		}
		price = prices[len(fleet)]
		if left := limits.MaxVNDPerHour - lo.Sum(prices[:len(fleet)]); price > left {
			return b.hold(ctx, l, moreExpensive(l, chosen, left), ReasonMaxVNDPerHourReached,
				fmt.Errorf("%s in %s costs %.0f VND per hour, and %.0f are left of MAX_VND_PER_HOUR=%.0f", added.flavor, added.zone, price, max(left, 0),
					limits.MaxVNDPerHour))
		}
	}
	b.reserved.SetDefault(string(l.claim.UID), reservation{price: price})
	return "", nil
}

// hold makes the scopes unavailable, or everything where there are none, and reports the limit.
func (b *brake) hold(ctx context.Context, l *launch, scopes []capacity.Offering, reason string, err error) (string, error) {
	pause := b.Settings.Load().AccountPause
	if len(scopes) == 0 {
		scopes = []capacity.Offering{{}}
	}
	b.Capacity.MarkAll(ctx, scopes, reason, pause)
	b.Recorder.Publish(events.SpendingLimitReached(l.claim, reason, pause, err))
	// Longer than the pause, so that the condition stays while launches keep being held back.
	b.last.Store(&heldBack{reason: reason, description: err.Error(), until: b.Clock.Now().Add(2 * pause)})
	return reason, err
}

// LimitReached returns the reason and the description of the limit that holds launches back now, and an empty reason without one.
func (c *CloudProvider) LimitReached() (reason, description string) {
	if last := c.brake.last.Load(); last != nil && c.Clock.Now().Before(last.until) {
		return last.reason, last.description
	}
	return "", ""
}

// moreExpensive are the offering and the others of its NodeClass that cost more than what is left.
func moreExpensive(l *launch, chosen candidate, left float64) []capacity.Offering {
	scopes := []capacity.Offering{chosen.key}
	for _, it := range l.types {
		for _, offering := range it.Offerings {
			if offering.Price > left {
				key := chosen.key
				key.Flavor, key.Zone = it.Name, offering.Zone()
				scopes = append(scopes, key)
			}
		}
	}
	return scopes
}

// fleet are the servers of the cluster and its launches under way, except that of one NodeClaim: what BizFly Cloud lists, what
// NodeClaims have or wait for, and what was admitted since. Servers count until they are gone, with a NodeClaim or without.
func (b *brake) fleet(ctx context.Context, snapshot *instance.Snapshot, except *karpv1.NodeClaim) ([]paid, error) {
	list := &karpv1.NodeClaimList{}
	if err := b.KubeClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	claims := lo.KeyBy(list.Items, func(claim karpv1.NodeClaim) string { return string(claim.UID) })
	counted := map[string]bool{string(except.UID): true}
	var fleet []paid
	for _, server := range snapshot.All() {
		if server.Deleting() && server.Status != instance.StatusDeleting {
			continue
		}
		claim := claims[server.NodeClaimUID]
		fleet = append(fleet, paid{server.Name, server.NodeClass, server.Flavor, server.Zone, launchPrice(&claim)})
		counted[server.NodeClaimUID] = true
	}
	for uid, claim := range claims {
		intent := intentOf(&claim)
		if counted[uid] || !IsManaged(&claim) || claim.Status.ProviderID == "" && (intent.Name == "" || intent.Rejected) {
			continue
		}
		fleet = append(fleet, paid{claim.Name, claim.Spec.NodeClassRef.Name, lo.CoalesceOrEmpty(claim.Labels[corev1.LabelInstanceTypeStable], intent.Flavor),
			lo.CoalesceOrEmpty(claim.Labels[corev1.LabelTopologyZone], intent.Zone), launchPrice(&claim)})
		counted[uid] = true
	}
	return append(fleet, b.admitted(claims, counted)...), nil
}

// admitted are the launches that were admitted and are not counted yet. What is reserved for a NodeClaim ends with it.
func (b *brake) admitted(claims map[string]karpv1.NodeClaim, counted map[string]bool) []paid {
	var admitted []paid
	for uid, item := range b.reserved.Items() {
		known, reserved := claims[uid], item.Object.(reservation)
		switch {
		case known.UID == "" && reserved.seen:
			b.reserved.Delete(uid)
			continue
		case known.UID != "" && !reserved.seen:
			b.reserved.SetDefault(uid, reservation{price: reserved.price, seen: true})
		}
		if !counted[uid] {
			admitted = append(admitted, paid{name: uid, price: reserved.price})
		}
	}
	return admitted
}

// launchPrice is the price that the NodeClaim was launched at, 0 where it has none.
func launchPrice(claim *karpv1.NodeClaim) float64 {
	price, _ := strconv.ParseFloat(claim.Labels[v1alpha1.LabelLaunchPrice], 64)
	return price
}

// prices returns what each of the servers costs, in VND per hour, by the price table as it is now, and by what is known of the server
// itself where the table has nothing. NodeOverlays do not count, as in the metric of the cost.
func (b *brake) prices(ctx context.Context, fleet []paid) ([]float64, error) {
	lists := map[string]cloudprovider.InstanceTypes{}
	prices := make([]float64, len(fleet))
	for i, server := range fleet {
		types, read := lists[server.nodeClass]
		if !read && server.nodeClass != "" {
			nodeClass := &v1alpha1.BizflyNodeClass{}
			if err := b.KubeClient.Get(ctx, client.ObjectKey{Name: server.nodeClass}, nodeClass); err == nil {
				types, _ = b.Flavors.List(ctx, nodeClass)
			}
			lists[server.nodeClass] = types
		}
		_, offering := find(types, server.flavor, server.zone)
		if prices[i] = lo.CoalesceOrEmpty(lo.FromPtr(offering).Price, server.price); prices[i] <= 0 {
			return nil, fmt.Errorf("the price of %s (%s in %s) is not known", server.name, server.flavor, server.zone)
		}
	}
	return prices, nil
}
