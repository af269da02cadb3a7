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

// Package memory learns from registered nodes how much memory the servers of a flavor really see, tells the flavor
// provider, and records it on the NodeClass for the next process.
package memory

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// retry is how soon a NodeClass that has changed meanwhile is written again.
const retry = time.Second

// Learner is told what nodes report; flavor.DefaultProvider is one.
type Learner interface {
	// SeeMemory takes over what a node of the flavor, made from the image, reports, and returns it in KiB, or false when
	// it is not credible.
	SeeMemory(ctx context.Context, image, flavor string, advertisedMiB int, reported resource.Quantity) (kibibytes int64, credible bool)
}

// Controller learns from nodes.
type Controller struct {
	kubeClient client.Client
	learner    Learner
}

// NewController makes a Controller.
func NewController(kubeClient client.Client, learner Learner) *Controller {
	return &Controller{kubeClient: kubeClient, learner: learner}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.memory.bizflycloud" }

// Reconcile learns from the node of a registered claim. It runs for each of them when the controller starts, too, so that
// what was not recorded in time is learned again.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !tells(claim) {
		return reconcile.Result{}, nil
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	record, err := flavor.ParseMemoryRecord(nodeClass)
	if err != nil {
		log.FromContext(ctx).WithValues("BizflyNodeClass", nodeClass.Name).Error(err, "beginning the record anew")
	}
	image, name := claim.Status.ImageID, claim.Labels[corev1.LabelInstanceTypeStable]
	// An image that nothing is made from any more teaches nothing, and would push out of the record what is of use.
	if (nodeClass.Status.Image == nil || nodeClass.Status.Image.ID != image) && !record.Has(image) {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	advertised, err := strconv.Atoi(claim.Labels[v1alpha1.LabelInstanceMemory])
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // a claim of somebody's own making; there is nothing to compare with
	}
	reported := node.Status.Capacity[corev1.ResourceMemory]
	least, credible := c.learner.SeeMemory(ctx, image, name, advertised, reported)
	if !credible {
		log.FromContext(ctx).WithValues("Node", node.Name, "flavor", name, "advertised-mib", advertised, "reported", reported.String()).
			Info("not believing how much memory a node reports")
		return reconcile.Result{}, nil
	}
	return c.record(ctx, nodeClass, record, image, name, least)
}

// record writes the report on the NodeClass if it is the least.
func (c *Controller) record(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, record flavor.MemoryRecord, image, name string, least int64) (reconcile.Result, error) {
	record, changed := record.With(image, name, least)
	if !changed {
		return reconcile.Result{}, nil
	}
	updated := nodeClass.DeepCopy()
	updated.Annotations = lo.Assign(updated.Annotations, map[string]string{v1alpha1.AnnotationMemorySeen: record.String()})
	// The record is one text: what another flavor's node has added since would be lost without the lock.
	err := c.kubeClient.Patch(ctx, updated, client.MergeFromWithOptions(nodeClass, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retry}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("recording how much memory nodes see on BizflyNodeClass %s: %w", nodeClass.Name, err)
	}
	return reconcile.Result{}, nil
}

// tells says whether the claim has a node from which something can be learned.
func tells(claim *karpv1.NodeClaim) bool {
	return cloudprovider.IsManaged(claim) && claim.DeletionTimestamp.IsZero() && claim.Status.NodeName != "" && claim.Status.ImageID != "" &&
		claim.Labels[corev1.LabelInstanceTypeStable] != "" && claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
}

// Register adds the controller to the manager. One at a time is enough, since only the first node of a flavor has
// anything new to say, and does not conflict with itself.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return tells(o.(*karpv1.NodeClaim))
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
