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
	"cmp"
	"context"
	"errors"
	"fmt"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

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

// judgeRoom says whether the package of the BKE cluster has room for another node. It stops nobody, since it is not
// documented which nodes count; ENFORCE_CLUSTER_MAX_NODES does.
func (c *Controller) judgeRoom(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) error {
	snapshot, err := c.catalog.Snapshot()
	if errors.Is(err, catalog.ErrNotReady) {
		return nil // what was known before the process started stays
	}
	if err != nil {
		return fmt.Errorf("reading what the package allows, %w", err)
	}
	mode := cmp.Or(lo.FromPtr(nodeClass.Spec.Bootstrap).Mode, v1alpha1.BootstrapModeBKE)
	if limit := snapshot.MaxNodes; limit <= 0 || mode != v1alpha1.BootstrapModeBKE {
		return conditions.Clear(v1alpha1.ConditionTypePackageRoomAvailable)
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

// everyNodeClass is each of them: a node that comes or goes is counted for all.
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
