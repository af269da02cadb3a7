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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// More orphans than both of these are doubted.
const (
	massCount = 5
	massShare = 0.5
)

var (
	orphanServers = metrics.Gauge("orphan_servers",
		"Servers of this cluster that no NodeClaim accounts for, at the last pass of the garbage collector.")
	suspendedGauge = metrics.Gauge("garbage_collection_suspended",
		"1 while so many servers with a registered node lack a NodeClaim that the garbage collector deletes none.")
	collectedTotal = metrics.Counter("garbage_collected_servers_total",
		"Servers without a NodeClaim that were deleted.")
)

// classification is what one pass has found.
type classification struct {
	// orphans are the servers that no NodeClaim accounts for, of total servers.
	orphans []*instance.Instance
	total   int
	// held are the servers that a NodeClaim with another UID than theirs accounts for.
	held []heldServer
	// launching are the names of the servers that NodeClaims without a provider ID wait for.
	launching sets.Set[string]
}

// heldServer is a server with the NodeClaim that has its id.
type heldServer struct {
	server *instance.Instance
	claim  *karpv1.NodeClaim
}

// classify finds the servers that no NodeClaim accounts for. The cloud is read first: a server in the list was launched for
// a NodeClaim that existed before, so one that is absent afterwards has been deleted.
func (c *Controller) classify(ctx context.Context) (classification, error) {
	servers, err := c.instances.List(ctx)
	if err != nil {
		return classification{}, fmt.Errorf("listing servers: %w", err)
	}
	c.forget(servers)
	found := classification{total: len(servers), launching: sets.New[string]()}
	byUID, byProviderID, err := c.claims(ctx, found.launching)
	if err != nil {
		return classification{}, err
	}
	for _, server := range servers {
		if server.ClusterUID == "" || server.NodeClaimUID == "" {
			// Nothing proves that it is ours to delete.
			continue
		}
		claim, exists := byUID[server.NodeClaimUID]
		holder, held := byProviderID[providerid.New(server.ID)]
		switch {
		case held && (!exists || holder.UID != claim.UID):
			// A NodeClaim that was restored from a backup has a new UID, and the node of this server.
			found.held = append(found.held, heldServer{server: server, claim: holder})
		case held, exists && claim.Status.ProviderID == "":
			// A NodeClaim that has no server yet may be about to get this one.
		case c.age(server) >= c.config.Settings.Load().GarbageCollectionGrace:
			found.orphans = append(found.orphans, server)
		}
	}
	return found, nil
}

// claims returns the NodeClaims by UID and by provider ID, and adds the names of the servers that are being launched.
func (c *Controller) claims(ctx context.Context, launching sets.Set[string]) (byUID, byProviderID map[string]*karpv1.NodeClaim, err error) {
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return nil, nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	byUID, byProviderID = map[string]*karpv1.NodeClaim{}, map[string]*karpv1.NodeClaim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		byUID[string(claim.UID)] = claim
		if claim.Status.ProviderID != "" {
			byProviderID[claim.Status.ProviderID] = claim
		} else if intent, err := cloudprovider.IntentOf(claim); err == nil && intent != nil {
			launching.Insert(intent.Name)
		}
	}
	return byUID, byProviderID, nil
}

// age is how long the server has existed, or has been seen where the cloud does not say since when it exists. A time in
// the future says nothing either: one of the two clocks is wrong, or the cloud wrote its local time.
func (c *Controller) age(server *instance.Instance) time.Duration {
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
	present := lo.SliceToMap(servers, func(s *instance.Instance) (string, struct{}) { return s.ID, struct{}{} })
	for id := range c.firstSeen {
		if _, ok := present[id]; !ok {
			delete(c.firstSeen, id)
		}
	}
}

// suspended reports whether so many orphans have a registered node that lost NodeClaims are more likely than lost servers. A
// node registers only once its NodeClaim holds the server's id; a server that no NodeClaim ever held has none, and many of
// those at once are what an outage leaves behind. Servers whose deletion is under way count no more.
func (c *Controller) suspended(ctx context.Context, found classification) (bool, error) {
	if !tooMany(len(found.orphans), found.total) {
		return false, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.apiReader.List(ctx, nodes, client.HasLabels{karpv1.NodeRegisteredLabelKey}); err != nil {
		return false, fmt.Errorf("listing the nodes of servers without a NodeClaim: %w", err)
	}
	registered := sets.New(lo.FilterMap(nodes.Items, func(node corev1.Node, _ int) (string, bool) {
		return node.Spec.ProviderID, node.DeletionTimestamp.IsZero()
	})...)
	return tooMany(lo.CountBy(found.orphans, func(server *instance.Instance) bool {
		return !server.Deleting() && registered.Has(providerid.New(server.ID))
	}), found.total), nil
}

func tooMany(orphans, total int) bool {
	return orphans > massCount && float64(orphans) > massShare*float64(total)
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
