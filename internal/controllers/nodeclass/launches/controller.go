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

// Package launches shows on a NodeClass that launches with it keep failing. Ready does not depend on it: what the
// NodeClass refers to exists, and only trying again tells whether it works by now.
package launches

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// lookInterval is how often the memory of the failures is looked at; it costs nothing.
	lookInterval = 10 * time.Second
	// reasonNotPaused says that launches are not paused.
	reasonNotPaused = "LaunchesNotPaused"
)

// Failures knows which NodeClasses pause; *cloudprovider.CloudProvider is one.
type Failures interface {
	// LaunchesBlocked returns the reason and the cause of the pause, from when on one launch at a time is tried, and a nil
	// cause without a pause.
	LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error)
}

// Controller writes the condition.
type Controller struct {
	kubeClient client.Client
	failures   Failures
	clock      clock.Clock
}

// NewController makes a Controller.
func NewController(kubeClient client.Client, failures Failures, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, failures: failures, clock: clk}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclass.launches" }

// Reconcile brings the condition up to date.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	updated := nodeClass.DeepCopy()
	conditions := updated.StatusConditions(status.WithClock(c.clock))
	reason, until, cause := c.failures.LaunchesBlocked(nodeClass)
	changed := false
	switch {
	case cause != nil:
		changed = conditions.SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, reason, fmt.Sprintf(
			"launches keep failing for a reason other than capacity: they pause until %s, and then one at a time is tried until one succeeds. A change of the spec or the image ends the pause. The last failure: %s",
			until.UTC().Format(time.RFC3339), cause))
	case !conditions.Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsTrue():
		changed = conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchesSucceeding, reasonNotPaused, "launches with this NodeClass are not paused")
	}
	if changed {
		updated.Status.Conditions = with(nodeClass.Status.Conditions, *conditions.Get(v1alpha1.ConditionTypeLaunchesSucceeding))
		// The status controller writes the same list, hence the lock.
		err := c.kubeClient.Status().Patch(ctx, updated, client.MergeFromWithOptions(nodeClass, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing condition %s: %w", v1alpha1.ConditionTypeLaunchesSucceeding, err)
		}
	}
	return reconcile.Result{RequeueAfter: lookInterval}, nil
}

// with returns the stored conditions with this one, each where it was. To set one computes Ready anew, which would put
// "UnhealthyDependents" in the place of the reasons that the status controller has written there.
func with(stored []status.Condition, changed status.Condition) []status.Condition {
	merged := slices.Clone(stored)
	i := slices.IndexFunc(merged, func(c status.Condition) bool { return c.Type == changed.Type })
	if i < 0 {
		return append(merged, changed)
	}
	merged[i] = changed
	return merged
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.BizflyNodeClass{}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
