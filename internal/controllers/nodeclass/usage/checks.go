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

package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/lookup"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the condition LaunchVerified.
const (
	// reasonNodeRegistered says that a node of this spec and image has registered.
	reasonNodeRegistered = "NodeRegistered"
	// reasonUnknownUntilFirstLaunch says that no node has registered yet, and only that shows whether servers boot and join.
	reasonUnknownUntilFirstLaunch = "UnknownUntilFirstLaunch"
)

// verifyLaunch reports whether a node that was launched with this spec and image has registered. The status keeps it when the
// last node is gone.
func (c *Controller) verifyLaunch(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	image := nodeClass.Status.Image()
	if image == nil {
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch, "unknown until first launch, for which there is no image yet")
		return nil
	}
	current := v1alpha1.VerifiedLaunchStatus{Hash: nodeClass.Hash(), ImageID: image.ID}
	if lo.FromPtr(nodeClass.Status.VerifiedLaunch) != current {
		claims := &karpv1.NodeClaimList{}
		if err := c.kubeClient.List(ctx, claims, nodeclaimutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing NodeClaims, %w", err)
		}
		if !lo.ContainsBy(claims.Items, func(claim karpv1.NodeClaim) bool { return verifies(&claim, current) }) {
			conditions.SetUnknownWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonUnknownUntilFirstLaunch, fmt.Sprintf(
				"unknown until first launch: no node of this spec and image %s (%s) has registered yet, and only that shows that the image boots, that its user data joins, and that flavors can be had with these disks",
				image.Name, image.ID))
			return nil
		}
		nodeClass.Status.VerifiedLaunch = &current
	}
	conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchVerified, reasonNodeRegistered,
		fmt.Sprintf("a node of this spec and image %s (%s) has registered", image.Name, image.ID))
	return nil
}

// verifies reports whether the NodeClaim was launched with this spec and image and its node has registered. Hashes of another
// version say nothing.
func verifies(claim *karpv1.NodeClaim, current v1alpha1.VerifiedLaunchStatus) bool {
	return claim.Annotations[v1alpha1.AnnotationNodeClassHashVersion] == v1alpha1.NodeClassHashVersion &&
		claim.Annotations[v1alpha1.AnnotationNodeClassHash] == current.Hash &&
		claim.Status.ImageID == current.ImageID && registered(claim)
}

// Reasons of the condition BillingPlanSuitable.
const (
	// reasonStaticNodePools says that every NodePool of the NodeClass has spec.replicas, so that its nodes stay.
	reasonStaticNodePools = "StaticNodePools"
	// reasonSavingPlanDynamicNodePool says that a NodePool without spec.replicas buys and forfeits saving plans all day.
	reasonSavingPlanDynamicNodePool = "SavingPlanOnDynamicNodePool"
)

// checkPlan warns of a saving plan for nodes that are created and deleted all the time: each is prepaid when it is created and
// forfeited when it is deleted, so that every consolidation, which saves by the price per hour, costs money.
func (c *Controller) checkPlan(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	if nodeClass.EffectiveBillingPlan() != v1alpha1.BillingPlanSavingPlan {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ReasonNotApplicable, "servers are paid for on demand")
		return nil
	}
	pools := &karpv1.NodePoolList{}
	if err := c.kubeClient.List(ctx, pools, nodepoolutils.ForNodeClass(nodeClass), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	dynamic := lo.FilterMap(pools.Items, func(pool karpv1.NodePool, _ int) (string, bool) {
		return pool.Name, pool.Spec.Replicas == nil && pool.DeletionTimestamp.IsZero()
	})
	if len(dynamic) == 0 {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeBillingPlanSuitable, reasonStaticNodePools, "no NodePool creates and deletes nodes by itself")
		return nil
	}
	slices.Sort(dynamic)
	if conditions.SetFalse(v1alpha1.ConditionTypeBillingPlanSuitable, reasonSavingPlanDynamicNodePool, fmt.Sprintf(
		"spec.billingPlan is %s, which is prepaid at each create and forfeited at each delete, but NodePools %v create and delete nodes as pods come and go; "+
			"use %s for them, or give them spec.replicas, whose nodes stay", v1alpha1.BillingPlanSavingPlan, lookup.Shorten(dynamic), v1alpha1.BillingPlanOnDemand)) {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypeBillingPlanSuitable)))
	}
	return nil
}

// Reasons of the condition PackageRoomAvailable.
const (
	// reasonPackageHasRoom says that the package of the BKE cluster allows more nodes than there are.
	reasonPackageHasRoom = "PackageHasRoom"
	// reasonPackageLimit says that there are as many nodes as the package of the BKE cluster allows.
	reasonPackageLimit = "PackageLimitReached"
)

// Catalog is what this controller reads of the catalog, which asks the cloud by itself. *catalog.DefaultProvider is one.
type Catalog interface {
	// Snapshot returns the last good snapshot, or catalog.ErrNotReady while there is none.
	Snapshot() (*catalog.Snapshot, error)
}

// checkPackage reports whether the package of the BKE cluster allows another node. It stops no launch, since it is not
// documented which nodes count; ENFORCE_CLUSTER_MAX_NODES does.
func (c *Controller) checkPackage(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	snapshot, err := c.catalog.Snapshot()
	if errors.Is(err, catalog.ErrNotReady) {
		return nil // what was known before the process started stays
	}
	if err != nil {
		return fmt.Errorf("reading what the package allows, %w", err)
	}
	if snapshot.MaxNodes <= 0 || nodeClass.EffectiveBootstrapMode() != v1alpha1.BootstrapModeBKE {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypePackageRoomAvailable, v1alpha1.ReasonNotApplicable,
			"no package of a BKE cluster is known to limit the nodes")
		return nil
	}
	count, err := cloudprovider.CountNodes(ctx, c.kubeClient, "")
	if err != nil {
		return err
	}
	if count < snapshot.MaxNodes {
		// Without their number, or every node that comes or goes would be a write.
		conditions.SetTrueWithReason(v1alpha1.ConditionTypePackageRoomAvailable, reasonPackageHasRoom,
			fmt.Sprintf("the cluster has fewer nodes than the %d that the package of the BKE cluster allows", snapshot.MaxNodes))
		return nil
	}
	known := conditions.Get(v1alpha1.ConditionTypePackageRoomAvailable).IsFalse()
	conditions.SetFalse(v1alpha1.ConditionTypePackageRoomAvailable, reasonPackageLimit, fmt.Sprintf(
		"the cluster has %d nodes and the package of the BKE cluster allows %d, so that another server may cost money and never join; "+
			"choose a bigger package in BizFly's console, or keep NodePools below it with spec.limits", count, snapshot.MaxNodes))
	if !known {
		c.recorder.Publish(events.NodeClassNotReady(nodeClass, *conditions.Get(v1alpha1.ConditionTypePackageRoomAvailable)))
	}
	return nil
}

// everyNodeClass maps any Node event to all NodeClasses, because the package limit counts all nodes.
func (c *Controller) everyNodeClass(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.BizflyNodeClassList{}
	if err := c.kubeClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).V(1).Info("listing NodeClasses to count nodes for", "error", err.Error())
		return nil
	}
	return lo.Map(list.Items, func(nodeClass v1alpha1.BizflyNodeClass, _ int) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&nodeClass)}
	})
}
