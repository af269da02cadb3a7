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

// Package usage reports on a BizflyNodeClass what follows from its NodeClaims and NodePools: whether a node of this spec and
// image has ever registered, whether its billing plan suits them, and whether the cluster may have another node. Ready
// depends on none of them. It asks the cloud nothing.
package usage

import (
	"context"
	"fmt"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// requeueConflict is a moment, in which the write that came between reaches the cache.
	requeueConflict = time.Second
	// lookAgain is how soon a package that was changed, and a server that became no node, is seen.
	lookAgain = 2 * time.Minute
)

// Controller writes the conditions.
type Controller struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
	catalog    Catalog
}

// NewController makes a Controller. The client is the manager's, whose cache has NodeClaims and NodePools by NodeClass.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock, known Catalog) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk, catalog: known}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.usage" }

// Reconcile brings the conditions up to date.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodeClass.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	updated := nodeClass.DeepCopy()
	conditions := updated.StatusConditions(opstatus.WithClock(c.clock))
	if err := c.verifyLaunch(ctx, updated, conditions); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.checkPlan(ctx, updated, conditions); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.checkPackage(ctx, updated, conditions); err != nil {
		return reconcile.Result{}, err
	}
	updated.Status.Conditions = only(nodeClass.Status.Conditions, updated.Status.Conditions)
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	// The status controller writes the same list, hence the lock.
	err := c.kubeClient.Status().Patch(ctx, updated, client.MergeFromWithOptions(nodeClass, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueConflict}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("patching the status, %w", err)
	}
	return reconcile.Result{RequeueAfter: lookAgain}, nil
}

// only returns the stored conditions with this controller's own of the updated ones. To set one computes Ready anew, which
// would put "UnhealthyDependents" in the place of the reasons that the status controller has written there.
func only(stored, updated []opstatus.Condition) []opstatus.Condition {
	types := []string{v1alpha1.ConditionTypeLaunchVerified, v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ConditionTypePackageRoomAvailable}
	ours := lo.PickByKeys(lo.KeyBy(updated, func(c opstatus.Condition) string { return c.Type }), types)
	var merged []opstatus.Condition
	// Each where it was, or this controller and the status controller would reorder them in turns indefinitely.
	for _, condition := range stored {
		if changed, isOurs := ours[condition.Type]; isOurs {
			condition = changed
			delete(ours, condition.Type)
		}
		merged = append(merged, condition)
	}
	return append(merged, lo.Values(ours)...)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		// Nodes register by the hundred, and only a first one of a spec and an image is news; but which that is only
		// Reconcile knows, and it lists no claims once it is verified.
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(nodeClassOf), builder.WithPredicates(registering())).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(nodeClassOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.everyNodeClass), builder.WithPredicates(counted())).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// nodeClassOf is the NodeClass of a NodeClaim or NodePool, and none where that is another provider's.
func nodeClassOf(_ context.Context, object client.Object) []reconcile.Request {
	var ref *karpv1.NodeClassReference
	switch object := object.(type) {
	case *karpv1.NodeClaim:
		ref = object.Spec.NodeClassRef
	case *karpv1.NodePool:
		ref = object.Spec.Template.Spec.NodeClassRef
	}
	if ref == nil || ref.Group != v1alpha1.Group {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: ref.Name}}}
}

// registering passes NodeClaims whose node registers, and those whose node had registered when this process started.
func registering() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return registered(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return registered(e.ObjectNew) && !registered(e.ObjectOld) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// counted passes nodes that are created and deleted.
func counted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// registered reports whether the node of a NodeClaim has registered. It reads the list itself, since the claim is the cache's and
// its set of conditions would fill in what is missing.
func registered(object client.Object) bool {
	claim, ok := object.(*karpv1.NodeClaim)
	return ok && lo.ContainsBy(claim.Status.Conditions, func(condition opstatus.Condition) bool {
		return condition.Type == karpv1.ConditionTypeRegistered && condition.IsTrue()
	})
}
