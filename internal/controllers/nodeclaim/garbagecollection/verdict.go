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

package garbagecollection

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// A verdict against more servers than both of these is doubted.
const (
	massCount = 5
	massShare = 0.5
)

var (
	orphanServers = metrics.Gauge("orphan_servers",
		"Servers of this cluster that no NodeClaim accounts for, at the last pass of the garbage collector.")
	suspendedGauge = metrics.Gauge("garbage_collection_suspended",
		"1 while so many servers lack a NodeClaim that the garbage collector deletes none.")
	collectedTotal = metrics.Counter("garbage_collected_servers_total",
		"Servers without a NodeClaim that were deleted.")
)

// verdict returns the servers that no claim accounts for and the number of all servers. The cloud is read first: a server
// in the list was ordered for a claim that existed before, so a claim that is absent afterwards has been deleted.
func (c *Controller) verdict(ctx context.Context) (orphans []*instance.Instance, total int, err error) {
	servers, err := c.instances.List(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("listing servers: %w", err)
	}
	byUID, err := c.providerIDs(ctx)
	if err != nil {
		return nil, 0, err
	}
	c.forget(servers)
	orphans = lo.Filter(servers, func(server *instance.Instance, _ int) bool {
		return orphaned(server, byUID) && c.age(server) >= c.config.Settings.Load().GarbageCollectionGrace
	})
	return orphans, len(servers), nil
}

// providerIDs returns the provider ids of all claims by UID.
func (c *Controller) providerIDs(ctx context.Context) (map[types.UID]string, error) {
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return lo.SliceToMap(claims.Items, func(claim karpv1.NodeClaim) (types.UID, string) { return claim.UID, claim.Status.ProviderID }), nil
}

// claims returns the UIDs of all claims, and of each whether it holds the id of its server.
func (c *Controller) claims(ctx context.Context) (map[string]bool, error) {
	byUID, err := c.providerIDs(ctx)
	return lo.MapEntries(byUID, func(uid types.UID, providerID string) (string, bool) { return string(uid), providerID != "" }), err
}

// orphaned says that no claim accounts for the server.
func orphaned(server *instance.Instance, providerIDs map[types.UID]string) bool {
	if server.ClusterUID == "" || server.NodeClaimUID == "" {
		// Nothing proves that it is ours to delete.
		return false
	}
	providerID, exists := providerIDs[types.UID(server.NodeClaimUID)]
	if !exists {
		return true
	}
	// A claim that has no server yet may be about to get this one.
	return providerID != "" && providerID != providerid.New(server.ID)
}

// age is how long the server has existed, or has been seen where the cloud does not say since when it exists. A time in
// the future says nothing either: one of the two clocks is wrong, or the cloud wrote its local time.
func (c *Controller) age(server *instance.Instance) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := c.clock.Since(server.CreatedAt); !server.CreatedAt.IsZero() && age >= 0 {
		return age
	}
	if _, seen := c.firstSeen[server.ID]; !seen {
		c.firstSeen[server.ID] = c.clock.Now()
	}
	return c.clock.Since(c.firstSeen[server.ID])
}

// forget drops what is remembered of servers that are not there any more.
func (c *Controller) forget(servers []*instance.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	present := lo.SliceToMap(servers, func(s *instance.Instance) (string, struct{}) { return s.ID, struct{}{} })
	for id := range c.firstSeen {
		if _, ok := present[id]; !ok {
			delete(c.firstSeen, id)
		}
	}
}

// doubtful says that so many servers look orphaned that lost claims are more likely than lost servers. Those whose claims
// we gave up ourselves, or whose deletion is under way, are no surprise.
func (c *Controller) doubtful(orphans []*instance.Instance, total int) bool {
	return tooMany(c.surprising(orphans), total)
}

// surprising returns the orphans that this process knows no reason for.
func (c *Controller) surprising(orphans []*instance.Instance) []*instance.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lo.Filter(orphans, func(server *instance.Instance, _ int) bool {
		_, begun := c.deleting[server.ID]
		return !begun && !server.Deleting() && !c.config.Expected(server.NodeClaimUID)
	})
}

// explained says that the durable record of orders knows why these servers have no claim: it was given up by a process
// that has stopped since, before anybody was told of the server. What a lost cluster state or another scope shows is not
// on this record, and stays a matter for people.
func (c *Controller) explained(ctx context.Context, orphans []*instance.Instance, total int) bool {
	abandoned, err := c.instances.Abandoned(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "finding out why servers have no claim")
		return false
	}
	return !tooMany(lo.Reject(c.surprising(orphans), func(server *instance.Instance, _ int) bool { return abandoned.Has(server.NodeClaimUID) }), total)
}

func tooMany(orphans []*instance.Instance, total int) bool {
	return len(orphans) > massCount && float64(len(orphans)) > massShare*float64(total)
}

// names returns some names for an event.
func names(servers []*instance.Instance) []string {
	all := lo.Map(servers, func(s *instance.Instance, _ int) string { return s.Name })
	slices.Sort(all)
	if len(all) > maxNames {
		return append(all[:maxNames:maxNames], fmt.Sprintf("and %d more", len(all)-maxNames))
	}
	return all
}
