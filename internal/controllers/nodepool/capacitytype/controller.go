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

// Package capacitytype reports a NodePool that allows only capacity types that BizFly Cloud does not offer, before a pod waits
// for it in vain: by an event, and by a condition that stays as long as that is so.
package capacitytype

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
)

// ConditionTypeCapacityTypeSupported is False on a NodePool whose capacity types are not offered, and absent otherwise.
// It is no part of the NodePool's Ready, which is core's.
const ConditionTypeCapacityTypeSupported = "CapacityTypeSupported"

// concurrency is enough, since NodePools are few and change seldom.
const concurrency = 2

// Controller checks NodePools.
type Controller struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodepool.capacitytype" }

// Reconcile reports whether the NodePool can ever launch anything.
func (c *Controller) Reconcile(ctx context.Context, pool *karpv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if len(controllers.NodeClassOf(ctx, pool)) == 0 || !pool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	allowed := requirements.Get(karpv1.CapacityTypeLabelKey)
	updated := pool.DeepCopy()
	if allowed.Has(karpv1.CapacityTypeOnDemand) {
		if pool.StatusConditions().Get(ConditionTypeCapacityTypeSupported) == nil {
			return reconcile.Result{}, nil
		}
		if err := updated.StatusConditions(status.WithClock(c.clock)).Clear(ConditionTypeCapacityTypeSupported); err != nil {
			return reconcile.Result{}, fmt.Errorf("clearing the condition %s: %w", ConditionTypeCapacityTypeSupported, err)
		}
		return controllers.Patched(c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(pool)))
	}
	c.recorder.Publish(events.NodePoolCapacityTypeUnsupported(pool, allowed.String()))
	if !updated.StatusConditions(status.WithClock(c.clock)).SetFalse(ConditionTypeCapacityTypeSupported,
		events.ReasonCapacityTypeUnsupported, events.CapacityTypeAdvice(allowed.String())) {
		return reconcile.Result{}, nil
	}
	// Core writes other conditions of the same list, hence the lock.
	return controllers.Patched(c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(pool)))
}

// Register adds the controller to the manager.
func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodePool{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return len(controllers.NodeClassOf(ctx, o)) > 0
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
