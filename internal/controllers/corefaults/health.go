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

package corefaults

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"
)

// The fault (fixed in v1.14.3): core's node repair looks at a node when it is created and when its conditions change. A
// node gets the label by which core knows it only when it registers. One that is unhealthy by then and stays so is never
// looked at. The cure: show core's own controller each node as it gets that label.

// LateNodes shows core's node repair the nodes that it has missed.
type LateNodes struct {
	health        reconcile.ObjectReconciler[*corev1.Node]
	cloudProvider cloudprovider.CloudProvider
}

// NewLateNodes makes the controller, which is of use only where core's NodeRepair gate is on.
func NewLateNodes(kubeClient client.Client, cloudProvider cloudprovider.CloudProvider, clk clock.Clock, recorder karpevents.Recorder) *LateNodes {
	return &LateNodes{health: health.NewController(kubeClient, cloudProvider, clk, recorder), cloudProvider: cloudProvider}
}

// Name is the controller's name, which core's controllers must not share.
func (c *LateNodes) Name() string { return "corefaults.latenodes.bizflycloud" }

// Reconcile lets core judge the node.
func (c *LateNodes) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	return c.health.Reconcile(ctx, node)
}

// Arrived says whether the node has just become one that core knows as ours.
func (c *LateNodes) Arrived(before, after *corev1.Node) bool {
	return !nodeutils.IsManaged(before, c.cloudProvider) && nodeutils.IsManaged(after, c.cloudProvider)
}

// Register adds the controller to the manager.
func (c *LateNodes) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return c.Arrived(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
			},
		})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
