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
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// quotaMemory is how long a refusal by the quota of vCPUs or memory is believed: longer than a want of room, since
// servers have to go or somebody has to ask for more.
const quotaMemory = 5 * time.Minute

// takeOut takes out of sale what the error names, and says whether the next offering may be tried. What concerns the
// account ends the launch at once: whatever is left of its quota belongs to the next claim that core plans.
func (c *CloudProvider) takeOut(ctx context.Context, claim *karpv1.NodeClaim, key capacity.Offering, m meaning, err error) (next bool) {
	ttl := c.settings.Load().UnavailableOfferingTTL
	switch bizfly.ReachOf(err) {
	case bizfly.ReachAccount:
		c.pauseAccount(ctx, claim, m.reason, err)
		return false
	case bizfly.ReachSize:
		c.learnQuota(ctx, claim, key, m, err)
		return false
	case bizfly.ReachNetwork:
		if c.markNetworks(ctx, claim, key, m, err) {
			return false // every other offering of the NodeClass is in the same network
		}
		c.capacity.MarkUnavailable(ctx, key, m.reason, ttl)
	case bizfly.ReachZone:
		c.capacity.RecordFailure(key)
		c.capacity.MarkUnavailable(ctx, capacity.Offering{Zone: key.Zone}, m.reason, ttl)
	case bizfly.ReachPlan:
		c.capacity.RecordFailure(key)
		c.capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: key.Flavor, BillingPlan: key.BillingPlan}, m.reason, ttl)
	case bizfly.ReachCategory:
		c.capacity.RecordFailure(key)
		category, _ := c.flavors.Category(key.Flavor)
		scopes := lo.FilterMap(c.types(ctx, claim), func(it *cloudprovider.InstanceType, _ int) (capacity.Offering, bool) {
			other, known := c.flavors.Category(it.Name)
			return capacity.Offering{Flavor: it.Name, Zone: key.Zone}, known && other == category
		})
		c.capacity.MarkAll(ctx, append(scopes, capacity.Offering{Flavor: key.Flavor, Zone: key.Zone}), m.reason, ttl)
	default:
		if m.scope == scopeAccount {
			c.pauseAccount(ctx, claim, m.reason, err)
			return false
		}
		c.capacity.MarkUnavailable(ctx, key, m.reason, ttl)
	}
	return true
}

// markNetworks takes those networks of the claim's NodeClass out of sale that the error says to be full, and says whether
// there are any. Where it names none, a server in all of these networks together cannot be had, whichever of them is full.
func (c *CloudProvider) markNetworks(ctx context.Context, claim *karpv1.NodeClaim, key capacity.Offering, m meaning, err error) bool {
	nodeClass, getErr := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if getErr != nil {
		log.FromContext(ctx).V(1).Info("reading the NodeClass of a refused launch", "error", getErr.Error())
		return false
	}
	ids := networkIDs(nodeClass)
	full := lo.Intersect(ids, bizfly.IDsIn(err))
	marks := full
	if len(full) == 0 {
		full, marks = ids, lo.Compact([]string{together(ids)})
	}
	if len(marks) == 0 {
		return false
	}
	scopes := lo.Map(marks, func(id string, _ int) capacity.Offering { return capacity.Offering{Network: id} })
	ttl := c.settings.Load().UnavailableOfferingTTL
	c.capacity.RecordFailure(key)
	// Launches that were under way fail in the same way: people are told once for each mark.
	if c.capacity.MarkAll(ctx, scopes, m.reason, ttl) {
		names := lo.FilterMap(nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) (string, bool) {
			return fmt.Sprintf("%s (%s)", n.Name, n.ID), lo.Contains(full, n.ID)
		})
		c.recorder.Publish(events.NetworkOutOfAddresses(nodeClass, names, ttl, err))
	}
	return true
}

// room refuses a launch for which nothing would have to be ordered to know that there is no room.
func (c *CloudProvider) room(ctx context.Context, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) error {
	if err := c.roomInPackage(ctx, claim); err != nil {
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, capacity.ReasonPackageLimit))
		return err
	}
	if reason, full := c.networkFull(nodeClass); full {
		c.journal.LaunchFailed(c.entry(claim, nil, instance.Intent{}, reason))
		return noRoom("a network of BizflyNodeClass %q has no address left; it is tried again in a while. Give it another network, or make room in this one", nodeClass.Name)
	}
	return nil
}

// networkFull says that a network of the NodeClass had no address left a short while ago, and why it is left alone.
func (c *CloudProvider) networkFull(nodeClass *v1alpha1.BizflyNodeClass) (reason string, full bool) {
	for _, network := range nodeClass.Status.Networks {
		if reason, full = c.capacity.Unavailable(capacity.Offering{Network: network.ID}); full {
			return reason, full
		}
	}
	if len(nodeClass.Status.Networks) > 1 {
		return c.capacity.Unavailable(capacity.Offering{Network: together(networkIDs(nodeClass))})
	}
	return "", false
}

func networkIDs(nodeClass *v1alpha1.BizflyNodeClass) []string {
	return lo.Map(nodeClass.Status.Networks, func(network v1alpha1.NetworkStatus, _ int) string { return network.ID })
}

// together is a mark's name for several networks of one server.
func together(networks []string) string {
	return strings.Join(slices.Sorted(slices.Values(networks)), "+")
}

// learnQuota takes out of sale what is at least as big as what the quota has refused.
func (c *CloudProvider) learnQuota(ctx context.Context, claim *karpv1.NodeClaim, key capacity.Offering, m meaning, err error) {
	sizes := lo.SliceToMap(c.types(ctx, claim), func(it *cloudprovider.InstanceType) (string, capacity.Size) { return it.Name, sizeOf(it) })
	refused, known := sizes[key.Flavor]
	if !known {
		c.pauseAccount(ctx, claim, m.reason, err)
		return
	}
	c.capacity.RecordFailure(key)
	c.capacity.LearnQuota(ctx, refused, sizes, quotaMemory)
	c.recorder.Publish(events.QuotaTooSmall(claim, refused.CPU, refused.MemoryMiB, quotaMemory, err))
}

func sizeOf(it *cloudprovider.InstanceType) capacity.Size {
	number := func(key string) int {
		n, _ := strconv.Atoi(it.Requirements.Get(key).Any())
		return n
	}
	return capacity.Size{CPU: number(v1alpha1.LabelInstanceCPU), MemoryMiB: number(v1alpha1.LabelInstanceMemory)}
}

// types are the flavors that the claim's NodeClass can use; none where they cannot be read, and then only what was
// ordered itself is taken out of sale.
func (c *CloudProvider) types(ctx context.Context, claim *karpv1.NodeClaim) []*cloudprovider.InstanceType {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		log.FromContext(ctx).V(1).Info("reading the NodeClass of a refused launch", "error", err.Error())
		return nil
	}
	all, err := c.flavors.List(ctx, nodeClass)
	if err != nil {
		log.FromContext(ctx).V(1).Info("listing the flavors of a refused launch", "error", err.Error())
	}
	return all
}
