// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	ourevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// limitReached returns what the controller reports of a limit of the whole cluster that holds launches back; empty where none does.
func limitReached(ctx context.Context, s *session.Session) string {
	config := &v1alpha1.ProviderConfig{}
	if err := s.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config); err != nil {
		if !apierrors.IsNotFound(err) && !session.IsMissing(err) {
			s.Note("whether a limit of the cluster holds launches back was not looked at: %s", err)
		}
		return ""
	}
	return falseMessage(config.Status.Conditions, v1alpha1.ConditionTypeWithinSpendingLimits)
}

// launchesHeld returns what holds launches of the NodePool back, by what the controller has stored, and marks a NodeClass unavailable with which they
// pause, as the controller does in its memory.
func launchesHeld(ctx context.Context, simulation *plan.Simulation, pool *karpv1.NodePool, limit string) string {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if simulation.Objects.Get(ctx, types.NamespacedName{Name: lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name}, nodeClass) != nil {
		return limit // the NodePool is not ready then
	}
	paused := falseMessage(nodeClass.Status.Conditions, v1alpha1.ConditionTypeLaunchesSucceeding)
	if paused != "" {
		simulation.Capacity.MarkUnavailable(ctx, capacity.Offering{NodeClass: capacity.NodeClassKey(nodeClass)}, "launches pause", time.Hour)
	}
	return lo.CoalesceOrEmpty(paused, limit)
}

// falseMessage returns the message of a condition that is False, and nothing of any other.
func falseMessage(conditions []status.Condition, conditionType string) string {
	found, _ := lo.Find(conditions, func(c status.Condition) bool { return c.Type == conditionType && c.IsFalse() })
	return found.Message
}

// mark is an offering that a rejected launch has made unavailable, as far as the events tell: the controller keeps its own
// marks in memory.
type mark struct {
	flavor, zone string
	until        time.Time
}

// rejectedOffering is how the controller's events name an offering (internal/events).
var rejectedOffering = regexp.MustCompile(`(?:Insufficient capacity|create request) for (\S+) in (\S+) \(([^)]*)\)`)

// marksFromEvents marks the offerings unavailable that lately were rejected, for as long as a first rejection does: repeated ones last longer.
func marksFromEvents(ctx context.Context, s *session.Session, simulation *plan.Simulation) []mark {
	list := &corev1.EventList{}
	if err := s.List(ctx, list); err != nil {
		s.Note("rejected launches were not looked at: %s", err)
		return nil
	}
	var found []mark
	for i := range list.Items {
		event := &list.Items[i]
		parts := rejectedOffering.FindStringSubmatch(event.Message)
		if parts == nil || event.Reason != ourevents.ReasonOfferingUnavailable && event.Reason != ourevents.ReasonLaunchRejected {
			continue
		}
		scope := capacity.Offering{Flavor: parts[1], Zone: parts[2]}
		if event.Reason == ourevents.ReasonLaunchRejected {
			nodeClass := nodeClassOf(ctx, simulation, event.InvolvedObject.Name)
			if nodeClass == nil {
				continue
			}
			scope.BillingPlan, scope.NodeClass = bizfly.PlanWord(nodeClass.EffectiveBillingPlan()), capacity.NodeClassKey(nodeClass)
		}
		end := lastSeen(event).Add(s.Settings.UnavailableOfferingTTL)
		if left := time.Until(end); left > 0 {
			simulation.Capacity.MarkUnavailable(ctx, scope, parts[3], left)
			found = append(found, mark{flavor: parts[1], zone: parts[2], until: end})
		}
	}
	return found
}

// nodeClassOf returns the NodeClass of a NodeClaim, or the only one, because the NodeClaim of a rejected launch may have ended. It is nil where
// neither shows which it is.
func nodeClassOf(ctx context.Context, simulation *plan.Simulation, name string) *v1alpha1.BizflyNodeClass {
	claim, nodeClasses := &karpv1.NodeClaim{}, &v1alpha1.BizflyNodeClassList{}
	if simulation.Objects.List(ctx, nodeClasses) != nil {
		return nil
	}
	known := simulation.Objects.Get(ctx, types.NamespacedName{Name: name}, claim) == nil
	found, _ := lo.Find(lo.ToSlicePtr(nodeClasses.Items), func(n *v1alpha1.BizflyNodeClass) bool {
		return known && n.Name == lo.FromPtr(claim.Spec.NodeClassRef).Name || !known && len(nodeClasses.Items) == 1
	})
	return found
}

// until says how long an offering is unavailable, where an event tells.
func until(known []mark, e flavor.Explanation) string {
	found, ok := lo.Find(known, func(m mark) bool { return m.flavor == e.Flavor && m.zone == e.Zone })
	if !ok {
		return ""
	}
	return fmt.Sprintf(", until about %s or longer", found.until.Local().Format("15:04:05"))
}
