// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ConditionTypes are the conditions that this controller writes, and no other.
var ConditionTypes = []string{v1alpha1.ConditionTypeLaunchesSucceeding}

// updateConditions brings the conditions up to date. Ready depends on none of them.
func (c *Controller) updateConditions(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	updated := nodeClass.DeepCopy()
	conditions := updated.StatusConditions(opstatus.WithClock(c.clock), opstatus.WithObservedOnly())
	ready := conditions.Root()
	c.checkFailures(updated, conditions)
	// Setting one recomputes Ready, which would put "UnhealthyDependents" in the place of the reasons that the status
	// controller has written there, or create it.
	updated.Status.Conditions = lo.FilterMap(updated.Status.Conditions,
		func(condition opstatus.Condition, _ int) (opstatus.Condition, bool) {
			if condition.Type == opstatus.ConditionReady {
				return lo.FromPtr(ready), ready != nil
			}
			return condition, true
		})
	if equality.Semantic.DeepEqual(nodeClass.Status, updated.Status) {
		return nil
	}
	// The status controller writes the same list, hence the lock.
	return c.kubeClient.Status().Patch(ctx, updated, controllers.Locked(nodeClass))
}

// reasonNotPaused says that launches are not paused.
const reasonNotPaused = "LaunchesNotPaused"

// checkFailures reports that launches with the NodeClass pause. Ready does not depend on it: what the NodeClass refers
// to exists, and only another launch shows whether it works again.
func (c *Controller) checkFailures(nodeClass *v1alpha1.BizflyNodeClass, conditions opstatus.ConditionSet) {
	reason, until, cause := c.cloudProvider.Launches.LaunchesPaused(nodeClass)
	if cause == nil {
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeLaunchesSucceeding, reasonNotPaused,
			"launches with this NodeClass are not paused")
		return
	}
	conditions.SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, reason, fmt.Sprintf(
		"launches with this NodeClass fail whatever the offering, and pause until %s. "+
			"Where nodes did not register, one launch at a time is then tried until one does. "+
			"A change of the spec or the image ends the pause. The last failure: %s",
		until.UTC().Format(time.RFC3339), cause))
}
