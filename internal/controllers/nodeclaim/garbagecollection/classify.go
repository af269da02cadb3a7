// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// More orphans than both of these are doubted.
const (
	massCount = 5
	massShare = 0.5
)

// classification is what one pass has found.
type classification struct {
	servers *instance.Snapshot
	// orphans are the servers that no NodeClaim accounts for; unproven are those whose name does not prove that this
	// cluster has launched them.
	orphans, unproven []*instance.Instance
	// leftovers are what deleted servers have left; unlisted is whether there may be others.
	leftovers []instance.Leftover
	unlisted  bool
}

// classify finds the servers that no NodeClaim accounts for, and what deleted servers have left. The cloud is read
// first: a server in the list was launched for a NodeClaim that existed before, so one that is absent afterwards has
// been deleted.
func (c *Controller) classify(ctx context.Context) (classification, error) {
	servers, err := c.instances.Snapshot(ctx, 0)
	if err != nil {
		return classification{}, err
	}
	leftovers, err := c.instances.Leftovers(ctx)
	if err != nil {
		// Servers are deleted without them.
		c.failed(ctx, err)
	}
	leftBy := lo.KeyBy(leftovers, func(left instance.Leftover) string { return left.ID })
	if err == nil { // what was not listed may still be there
		maps.DeleteFunc(c.firstSeen,
			func(id string, _ time.Time) bool { return servers.Get(id) == nil && !lo.HasKey(leftBy, id) })
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.apiReader.List(ctx, claims); err != nil {
		return classification{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	byUID, byProviderID := map[string]*karpv1.NodeClaim{}, map[string]*karpv1.NodeClaim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		byUID[string(claim.UID)] = claim
		if claim.Status.ProviderID != "" {
			byProviderID[claim.Status.ProviderID] = claim
		}
	}
	found := classification{servers: servers, unlisted: err != nil}
	found.leftovers = lo.Filter(leftovers, func(left instance.Leftover, _ int) bool {
		// A NodeClaim that names the server may be about to get it, or have it although the list of servers lacks it.
		named := lo.ContainsBy(claims.Items, func(claim karpv1.NodeClaim) bool {
			return strings.Contains(claim.Annotations[v1alpha1.AnnotationLaunchIntent], left.Server)
		})
		return !named && c.oldEnough(left.ID, left.CreatedAt)
	})
	for _, server := range servers.All() {
		c.classifyServer(&found, server, byUID[server.NodeClaimUID], byProviderID[providerid.New(server.ID)])
	}
	return found, nil
}

// classifyServer adds a server to what a pass has found. claim is the NodeClaim for which it was launched, and holder
// the one that has its id; each is nil where there is none.
func (c *Controller) classifyServer(found *classification, server *instance.Instance, claim, holder *karpv1.NodeClaim) {
	switch {
	case server.ClusterUID == "" || server.NodeClaimUID == "":
		// Nothing proves that it is ours to delete.
	case server.Gone():
		// It is only still listed.
	case holder != nil, claim != nil && claim.Status.ProviderID == "":
		// A NodeClaim that was restored from a backup has this server under another UID, and one that has no server yet
		// may be about to get it.
	case !c.oldEnough(server.ID, server.CreatedAt):
	case server.NameProven:
		found.orphans = append(found.orphans, server)
	case !server.Deleting():
		found.unproven = append(found.unproven, server)
	}
}

// oldEnough reports whether something is older than any launch that may still be waited for. It is as old as it has
// been seen where the cloud does not say since when it exists. A time in the future says nothing either: one of the two
// clocks is wrong, or the cloud wrote its local time.
func (c *Controller) oldEnough(id string, created time.Time) bool {
	age := c.clock.Since(created)
	if created.IsZero() || age < 0 {
		if _, seen := c.firstSeen[id]; !seen {
			c.firstSeen[id] = c.clock.Now()
		}
		age = c.clock.Since(c.firstSeen[id])
	}
	return age >= c.config.Settings.Load().GarbageCollectionGrace
}

// suspended reports whether so many orphans have a registered node that lost NodeClaims are more likely than lost
// servers. A node registers only once its NodeClaim holds the server's id; a server that no NodeClaim ever held has
// none, and many of those at once are what an outage leaves behind. Servers whose deletion is under way count no more.
func (c *Controller) suspended(ctx context.Context, found classification) (bool, error) {
	if !found.tooMany(found.orphans) {
		return false, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.apiReader.List(ctx, nodes, client.HasLabels{karpv1.NodeRegisteredLabelKey}); err != nil {
		return false, fmt.Errorf("listing the nodes of servers without a NodeClaim: %w", err)
	}
	registered := sets.New(lo.FilterMap(nodes.Items, func(node corev1.Node, _ int) (string, bool) {
		return node.Spec.ProviderID, node.DeletionTimestamp.IsZero()
	})...)
	return found.tooMany(lo.Filter(found.orphans, func(server *instance.Instance, _ int) bool {
		return !server.Deleting() && registered.Has(providerid.New(server.ID))
	})), nil
}

// tooMany reports whether so many of the servers are doubted.
func (c classification) tooMany(orphans []*instance.Instance) bool {
	return len(orphans) > massCount && float64(len(orphans)) > massShare*float64(len(c.servers.All()))
}
