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

// Package usage shows on a BizflyNodeClass what its NodeClaims and NodePools reveal about it: whether a node of this spec and
// image has ever registered, whether launches keep failing, whether its billing plan suits them, and whether the cluster may
// have another node. Ready depends on none of them, and no request to the cloud is needed.
package usage

import (
	"context"
	"fmt"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Failures knows which NodeClasses pause; *cloudprovider.Outcomes is one.
type Failures interface {
	// LaunchesBlocked returns the reason and the cause of the pause, from when on one launch at a time is tried, and a nil
	// cause without a pause.
	LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error)
}

// Controller writes the conditions.
type Controller struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
	catalog    Catalog
	failures   Failures
}

// NewController returns a Controller. The client is the manager's, whose cache has NodeClaims and NodePools by NodeClass.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock, known Catalog, failures Failures) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk, catalog: known, failures: failures}
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
	c.checkFailures(updated, conditions)
	for _, check := range []func(context.Context, *v1alpha1.BizflyNodeClass, opstatus.ConditionSet) error{c.checkLaunch, c.checkBillingPlan, c.checkPackage} {
		if err := check(ctx, updated, conditions); err != nil {
			return reconcile.Result{}, err
		}
	}
	updated.Status.Conditions = merged(nodeClass.Status.Conditions, updated.Status.Conditions)
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return reconcile.Result{RequeueAfter: ttl.NodeClassConditions}, nil
	}
	// The status controller writes the same list, hence the lock.
	result, err := controllers.Patched(c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(nodeClass)))
	if err != nil {
		return result, fmt.Errorf("patching the status: %w", err)
	}
	return reconcile.Result{RequeueAfter: lo.CoalesceOrEmpty(result.RequeueAfter, ttl.NodeClassConditions)}, nil
}

// own are the conditions of this controller.
var own = []string{
	v1alpha1.ConditionTypeLaunchVerified, v1alpha1.ConditionTypeBillingPlanSuitable, v1alpha1.ConditionTypePackageRoomAvailable,
	v1alpha1.ConditionTypeLaunchesSucceeding,
}

// merged returns the stored conditions with this controller's own of the updated ones. To set one computes Ready anew, which
// would put "UnhealthyDependents" in the place of the reasons that the status controller has written there.
func merged(stored, updated []opstatus.Condition) []opstatus.Condition {
	ours := lo.PickByKeys(lo.KeyBy(updated, func(c opstatus.Condition) string { return c.Type }), own)
	var all []opstatus.Condition
	// Each keeps its place, or this and a client that sorts them would take turns indefinitely.
	for _, condition := range stored {
		changed, isOurs := ours[condition.Type]
		switch {
		case isOurs:
			all = append(all, changed)
			delete(ours, condition.Type)
		case !lo.Contains(own, condition.Type): // ours that is missing was cleared
			all = append(all, condition)
		}
	}
	return append(all, lo.Values(ours)...)
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		// Hundreds of nodes register, and only the first one of a spec and an image changes anything; Reconcile knows which, and
		// lists no NodeClaims once it is verified.
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(nodeClassOf), builder.WithPredicates(registering())).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(nodeClassOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.everyNodeClass), builder.WithPredicates(counted())).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// nodeClassOf maps a NodeClaim or NodePool to its NodeClass, and to none where that is another provider's.
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

// registering passes NodeClaims whose node registers, and those whose node had when this process started.
func registering() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return registered(e.Object.(*karpv1.NodeClaim)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return registered(e.ObjectNew.(*karpv1.NodeClaim)) && !registered(e.ObjectOld.(*karpv1.NodeClaim))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// counted passes nodes that are created and deleted.
func counted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

func registered(claim *karpv1.NodeClaim) bool {
	return controllers.IsTrue(claim, karpv1.ConditionTypeRegistered)
}
