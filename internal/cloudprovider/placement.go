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

package cloudprovider

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"github.com/patrickmn/go-cache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// place sorts the candidates by the strategy of the NodeClass. The price comes first in every strategy: core assumes that the
// cheapest is launched, and would replace anything more expensive at once and indefinitely.
func (c *CloudProvider) place(ctx context.Context, l *launch, all []candidate) {
	claim, nodeClass := l.claim, l.nodeClass
	tries := c.pauses.tries(nodeClass, claim.UID)
	for i := range all {
		if tries {
			all[i].lastFailure = c.Capacity.LastFailure(all[i].key)
		}
		all[i].failures = c.Capacity.RecentFailures(all[i].key)
		// What was never launched counts as fast, so that it is tried once.
		all[i].seconds, _ = c.Capacity.LaunchSeconds(capacity.Launch{Flavor: all[i].key.Flavor, Zone: all[i].key.Zone, ImageID: imageID(nodeClass)})
	}
	switch nodeClass.Spec.PlacementStrategy {
	case v1alpha1.PlacementStrategyBinPack:
		for i := range all {
			all[i].preference = idle(claim.Spec.Resources.Requests, all[i].instanceType.Allocatable())
		}
	case v1alpha1.PlacementStrategySpread:
		c.placements.spread(ctx, c.KubeClient, claim, all)
		return
	}
	sortCandidates(all)
}

// sortCandidates sorts by price, then by what the strategy prefers, then by what is known of the offerings, and at last by names,
// so that the same knowledge gives the same choice. The trial of a paused NodeClass takes first what has not failed for the
// longest time: trials are rare, and one that works must be found among many that do not.
func sortCandidates(all []candidate) {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(
			a.lastFailure.Compare(b.lastFailure),
			cmp.Compare(price(a), price(b)),
			cmp.Compare(a.preference, b.preference),
			cmp.Compare(a.failures, b.failures),
			cmp.Compare(a.seconds, b.seconds),
			cmp.Compare(a.key.Flavor, b.key.Flavor),
			cmp.Compare(a.key.Zone, b.key.Zone),
		)
	})
}

// idle is how much of a server was not requested: the share of its CPU plus the share of its memory, each from 0 to 1.
// Shares, because cores and bytes do not add up.
func idle(requests, allocatable corev1.ResourceList) float64 {
	total := 0.0
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		has, asked := allocatable[resource], requests[resource]
		if has.IsZero() {
			continue
		}
		total += 1 - asked.AsApproximateFloat64()/has.AsApproximateFloat64()
	}
	// Rounded, so that the order does not depend on the last bit of a division.
	return math.Round(total*1e6) / 1e6
}

// placements remembers in which zones launches under way are, until their NodeClaims say so: the informer's cache lags.
type placements struct {
	mu sync.Mutex
	// underWay is by the UID of the NodeClaim.
	underWay *cache.Cache
}

type placement struct{ pool, zone string }

// spread sorts the candidates so that, among the cheapest, the zone with the fewest nodes of the NodePool comes first, and counts
// the NodeClaim in the zone of the first candidate: launches at the same time must see each other. A preference prevents no
// launch, so an error leaves none.
func (p *placements) spread(ctx context.Context, reader client.Reader, claim *karpv1.NodeClaim, all []candidate) {
	pool, claims := claim.Labels[karpv1.NodePoolLabelKey], &karpv1.NodeClaimList{}
	if pool == "" {
		sortCandidates(all)
		return
	}
	if err := reader.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "counting the nodes of the NodePool by zone", "NodePool", pool)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	zones := p.zones(pool, claim.UID, claims.Items)
	for i := range all {
		all[i].preference = float64(zones[all[i].key.Zone])
	}
	sortCandidates(all)
	if len(all) > 0 {
		p.underWay.SetDefault(string(claim.UID), placement{pool: pool, zone: all[0].key.Zone})
	}
}

// zones counts the nodes of the NodePool by zone, without those being deleted and without the NodeClaim itself.
func (p *placements) zones(pool string, except types.UID, claims []karpv1.NodeClaim) map[string]int {
	counts, counted := map[string]int{}, map[string]bool{string(except): true}
	for i := range claims {
		other := &claims[i]
		if counted[string(other.UID)] {
			continue
		}
		if !other.DeletionTimestamp.IsZero() {
			counted[string(other.UID)] = true
			continue
		}
		if zone := zoneOf(other); zone != "" {
			counted[string(other.UID)] = true
			counts[zone]++
		}
	}
	for uid, item := range p.underWay.Items() {
		if known, ok := item.Object.(placement); ok && known.pool == pool && !counted[uid] {
			counts[known.zone]++
		}
	}
	return counts
}

// zoneOf is where the NodeClaim's server is or is being launched; "" when nothing is known or nothing was built.
func zoneOf(claim *karpv1.NodeClaim) string {
	if claim.Status.ProviderID != "" {
		return claim.Labels[corev1.LabelTopologyZone]
	}
	if intent, err := IntentOf(claim); err == nil && intent != nil && !intent.Rejected {
		return intent.Zone
	}
	return ""
}

// moved records that the NodeClaim is launched in another zone than the first choice; "" that it is not launched at all.
func (p *placements) moved(claim *karpv1.NodeClaim, zone string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.underWay.Get(string(claim.UID))
	switch {
	case !ok:
	case zone == "":
		p.underWay.Delete(string(claim.UID))
	default:
		p.underWay.SetDefault(string(claim.UID), placement{pool: known.(placement).pool, zone: zone})
	}
}
