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

	opmetrics "github.com/awslabs/operatorpkg/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// A verdict against more servers than both of these is doubted.
const (
	massCount = 5
	massShare = 0.5
)

var (
	orphanServers = opmetrics.NewPrometheusGauge(crmetrics.Registry, prometheus.GaugeOpts{
		Namespace: "karpenter", Subsystem: "bizfly", Name: "orphan_servers",
		Help: "Servers of this cluster that no NodeClaim accounts for, at the last pass of the garbage collector.",
	}, nil)
	suspendedGauge = opmetrics.NewPrometheusGauge(crmetrics.Registry, prometheus.GaugeOpts{
		Namespace: "karpenter", Subsystem: "bizfly", Name: "garbage_collection_suspended",
		Help: "1 while so many servers lack a NodeClaim that the garbage collector deletes none.",
	}, nil)
	collectedTotal = opmetrics.NewPrometheusCounter(crmetrics.Registry, prometheus.CounterOpts{
		Namespace: "karpenter", Subsystem: "bizfly", Name: "garbage_collected_servers_total",
		Help: "Servers without a NodeClaim that were deleted.",
	}, nil)
)

// verdict returns the servers that no claim accounts for and the number of all servers. The cloud is read first: a server
// in the list was ordered for a claim that existed before, so a claim that is absent afterwards has been deleted.
func (c *Controller) verdict(ctx context.Context) (orphans []*instance.Instance, total int, err error) {
	servers, err := c.instances.List(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("listing servers: %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return nil, 0, fmt.Errorf("listing NodeClaims: %w", err)
	}
	byUID := lo.SliceToMap(claims.Items, func(claim karpv1.NodeClaim) (types.UID, string) { return claim.UID, claim.Status.ProviderID })
	c.forget(servers)
	orphans = lo.Filter(servers, func(server *instance.Instance, _ int) bool {
		return orphaned(server, byUID) && c.age(server) >= time.Duration(c.grace.Load())
	})
	return orphans, len(servers), nil
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
	c.mu.Lock()
	defer c.mu.Unlock()
	surprising := lo.CountBy(orphans, func(server *instance.Instance) bool {
		_, begun := c.deleting[server.ID]
		return !begun && !server.Deleting() && !c.config.Expected(server.NodeClaimUID)
	})
	return surprising > massCount && float64(surprising) > massShare*float64(total)
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
