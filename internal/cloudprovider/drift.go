// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Reasons of drift.
const (
	NodeClassDrift   cloudprovider.DriftReason = "NodeClassDrift"   // a field changed that cannot change on a running server
	ImageDrift       cloudprovider.DriftReason = "ImageDrift"       // new servers boot another image
	FlavorDrift      cloudprovider.DriftReason = "FlavorDrift"      // the server was resized outside Karpenter
	UserDataDrift    cloudprovider.DriftReason = "UserDataDrift"    // new servers get user data of other templates
	ZoneDrift        cloudprovider.DriftReason = "ZoneDrift"        // the server was moved to another zone
	NetworkDrift     cloudprovider.DriftReason = "NetworkDrift"     // new servers are in other VPC networks
	DiskDrift        cloudprovider.DriftReason = "DiskDrift"        // a disk was changed or detached outside Karpenter
	BillingPlanDrift cloudprovider.DriftReason = "BillingPlanDrift" // the billing plan of the server was changed
)

// IsDrifted compares the NodeClaim with its NodeClass, from caches alone: core asks on every event of every pod on the
// node. API errors never cause drift.
func (c *CloudProvider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	nodeClass, err := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		return "", client.IgnoreNotFound(fmt.Errorf("resolving the NodeClass: %w", err))
	}
	if !IsResolved(nodeClass) {
		return "", nil
	}
	found := c.drift(claim, nodeClass)
	if found.reason != "" && !c.replaceable(ctx, claim, nodeClass) {
		return "", nil
	}
	if found.reason != "" {
		c.config.Recorder.Publish(events.ServerDrifted(claim, string(found.reason), found.got, found.wanted))
	}
	return found.reason, nil
}

// replaceable reports whether a drifted node can be replaced now. Core looks for an offering first, but not for a
// static NodePool: it would create a NodeClaim that ends at once, again and again, and schedule nothing for anyone
// meanwhile (kubernetes-sigs/karpenter#3198).
func (c *CloudProvider) replaceable(ctx context.Context, claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) bool {
	pool := &karpv1.NodePool{}
	name := client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}
	if err := c.config.KubeClient.Get(ctx, name, pool); err != nil || pool.Spec.Replicas == nil {
		return true
	}
	types, err := c.config.Flavors.List(ctx, nodeClass)
	return err == nil && flavor.CanLaunch(ctx, pool, types)
}

// IsResolved reports whether the status of a NodeClass follows from its present spec, so that it is known what a new
// server would be: one that is being deleted, not ready, or whose last change was not resolved yet changes no server.
func IsResolved(nodeClass *v1alpha1.BizflyNodeClass) bool {
	// Not by the set of conditions, which is built for each call: this runs on every event of every pod.
	return nodeClass.DeletionTimestamp.IsZero() && slices.ContainsFunc(nodeClass.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == status.ConditionReady && condition.IsTrue() && condition.ObservedGeneration == nodeClass.Generation
	})
}

// drifted is what differs, described for users.
type drifted struct {
	reason      cloudprovider.DriftReason
	got, wanted string
}

func (c *CloudProvider) drift(claim *karpv1.NodeClaim, nodeClass *v1alpha1.BizflyNodeClass) drifted {
	if launch.SpecChanged(claim, nodeClass) {
		return drifted{NodeClassDrift, "an earlier spec of BizflyNodeClass " + nodeClass.Name, "the current one"}
	}
	l := liveServer{flavors: c.config.Flavors, catalog: c.config.Catalog, claim: claim, nodeClass: nodeClass}
	if servers, ports := c.config.Instances.Last(ttl.ListedServers); servers != nil {
		id, _ := providerid.Parse(claim.Status.ProviderID)
		l.server, l.ports = servers.Get(id), ports
	}
	if found := l.image(); found.reason != "" || l.server == nil {
		return found
	}
	l.delivered = launch.DeliveredOf(claim)
	for _, check := range serverChecks {
		if found := check(&l); found.reason != "" {
			return found
		}
	}
	return drifted{}
}

// liveServer is a server as it is, beside what was delivered and what new ones are.
//
// What was delivered is compared where a change of the NodeClass is detected by its hash: then an upgrade that changes
// a default replaces nothing, and only changes made outside Karpenter count. Values that the API does not return, or
// that are unknown to the catalog, have not drifted: a replacement would not differ, and be replaced indefinitely.
type liveServer struct {
	flavors   *flavor.DefaultProvider
	catalog   catalog.Provider
	claim     *karpv1.NodeClaim
	nodeClass *v1alpha1.BizflyNodeClass
	// server is nil when it is not in the last list.
	server *instance.Instance
	// ports is nil when no list of network interfaces is young enough.
	ports     *instance.Ports
	delivered launch.Delivered
}

// serverChecks are what is compared, in this order.
var serverChecks = []func(*liveServer) drifted{
	(*liveServer).userData, (*liveServer).flavor, (*liveServer).zone, (*liveServer).networks, (*liveServer).disks, (*liveServer).billingPlan,
}

// image compares the image of the server with that of new servers, while that is known.
func (l *liveServer) image() drifted {
	wanted, got := l.nodeClass.Status.ImageID(), l.claim.Status.ImageID
	if l.server != nil {
		got = lo.CoalesceOrEmpty(l.server.ImageID, got)
	}
	if wanted == "" || got == "" || wanted == got {
		return drifted{}
	}
	return drifted{ImageDrift, "image " + got, "image " + wanted}
}

// userData compares the hashes of templates, where both are known. Templates that are in the NodeClass itself are part
// of its own hash too; those in a Secret are not.
func (l *liveServer) userData() drifted {
	got, wanted := l.server.UserDataHash, l.nodeClass.Status.UserDataHash
	if got == "" || wanted == "" || got == wanted {
		return drifted{}
	}
	return drifted{UserDataDrift, "user data of earlier templates", "user data of the current ones"}
}

// flavor compares the label by which pods were placed. The API also knows flavors by names without their family: only
// another flavor of the catalog is another flavor, and one that was delisted is none.
func (l *liveServer) flavor() drifted {
	wanted, got := l.claim.Labels[corev1.LabelInstanceTypeStable], l.server.Flavor
	if _, known := l.flavors.Category(got); !known || wanted == "" || wanted == got || strings.HasSuffix(wanted, "."+got) {
		return drifted{}
	}
	return drifted{FlavorDrift, "flavor " + got, "flavor " + wanted}
}

// zone compares the label by which pods were placed.
func (l *liveServer) zone() drifted {
	wanted, got := l.claim.Labels[corev1.LabelTopologyZone], l.server.Zone
	if wanted == "" || wanted == got || !launch.InCatalog(l.catalog, got) {
		return drifted{}
	}
	return drifted{ZoneDrift, "zone " + got, "zone " + wanted}
}

// networks compares the networks of the server's interfaces with those that it was launched with, and with those of its
// first interfaces that were listed. What the terms select later moves no server, since anyone in the project can
// create a network; only a change of the terms does, by the hash.
func (l *liveServer) networks() drifted {
	if l.ports == nil || l.server.Status != instance.StatusActive {
		return drifted{}
	}
	got := l.ports.Networks(l.server.ID)
	if len(got) == 0 || lo.ElementsMatch(got, l.delivered.Networks) {
		return drifted{}
	}
	wanted := launch.IntentOf(l.claim).Networks
	if len(wanted) == 0 || lo.ElementsMatch(got, lo.Uniq(wanted)) {
		return drifted{}
	}
	return drifted{NetworkDrift, "networks " + strings.Join(got, ", "), "networks " + strings.Join(wanted, ", ")}
}

// disks compares the disks that are recorded as the server's own. A list that lacks the root disk is not complete.
func (l *liveServer) disks() drifted {
	if !lo.SomeBy(l.server.Volumes, func(v instance.Volume) bool { return v.Root }) {
		return drifted{}
	}
	attached := lo.KeyBy(l.server.Volumes, func(v instance.Volume) string { return v.ID })
	for _, id := range slices.Sorted(maps.Keys(l.delivered.Disks)) {
		was := l.delivered.Disks[id]
		is, found := attached[id]
		if !found {
			return drifted{DiskDrift, "no disk " + id, was.String()}
		}
		now := launch.DiskOf(is)
		if now.GiB > 0 && was.GiB > 0 && now.GiB != was.GiB || now.Medium != "" && was.Medium != "" && now.Medium != was.Medium {
			return drifted{DiskDrift, now.String(), was.String()}
		}
	}
	return drifted{}
}

// billingPlan compares the billing plan of the server with that at its launch. A saving plan that has ended, or that a
// user has ended, is no drift: it would be prepaid once more for every server, which the user did not ask for.
func (l *liveServer) billingPlan() drifted {
	wanted, got := l.delivered.BillingPlan, l.server.BillingPlan
	onDemand, savingPlan := bizfly.PlanWord(v1alpha1.BillingPlanOnDemand), bizfly.PlanWord(v1alpha1.BillingPlanSavingPlan)
	known := got == onDemand || got == savingPlan
	if wanted == "" || wanted == savingPlan || !known || wanted == got {
		return drifted{}
	}
	return drifted{BillingPlanDrift, "billing plan " + got, "billing plan " + wanted}
}
