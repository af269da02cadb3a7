// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
)

// surroundings are what decides whether core disrupts a node.
type surroundings struct {
	now  time.Time
	node *corev1.Node
	// pool is nil where it is not known; nodes is how many nodes it has, and disrupting how many of them core has chosen
	// already.
	pool              *karpv1.NodePool
	nodes, disrupting int
	pods              []corev1.Pod
	budgets           []policyv1.PodDisruptionBudget
}

// readDisruption reads what decides about a node; what cannot be read is noted.
func readDisruption(ctx context.Context, s *connect.Session, claim *karpv1.NodeClaim, node *corev1.Node) surroundings {
	around := surroundings{now: time.Now(), node: node}
	if claim == nil {
		return around
	}
	if name := claim.Labels[karpv1.NodePoolLabelKey]; name != "" {
		pool, members := &karpv1.NodePool{}, &corev1.NodeList{}
		if err := s.Get(ctx, types.NamespacedName{Name: name}, pool); err != nil {
			s.Note("budgets of NodePool %s were not looked at: %s", name, err)
		} else if err := s.List(ctx, members, client.MatchingLabels{karpv1.NodePoolLabelKey: name}); err != nil {
			s.Note("budgets of NodePool %s were not looked at: %s", name, err)
		} else {
			around.pool, around.nodes = pool, len(members.Items)
			around.disrupting = lo.CountBy(members.Items, func(n corev1.Node) bool {
				return tainted(&n) || n.DeletionTimestamp != nil
			})
		}
	}
	if node == nil {
		return around
	}
	pods, budgets := &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	if err := s.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		s.Note("the pods of the node were not looked at: %s", err)
	}
	if err := s.List(ctx, budgets); err != nil {
		s.Note("PodDisruptionBudgets were not looked at: %s", err)
	}
	around.pods, around.budgets = lo.Filter(pods.Items, func(p corev1.Pod, _ int) bool {
		return podutils.IsActive(&p)
	}), budgets.Items
	return around
}

func tainted(node *corev1.Node) bool {
	return lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}

// disruption explains why core replaces or removes the node, or what keeps it from that.
func disruption(claim *karpv1.NodeClaim, around surroundings) string {
	if claim == nil {
		return "Karpenter disrupts only nodes that it launched"
	}
	expired := expiredAt(claim)
	due := !expired.IsZero() && !expired.After(around.now)
	var parts []string
	switch {
	case claim.DeletionTimestamp != nil:
		if due {
			parts = append(parts, expiry(expired))
		}
		return strings.Join(append(parts, draining(around)...), "; ")
	case due:
		return expiry(expired)
	case around.node != nil && tainted(around.node):
		reason := claim.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason)
		return fmt.Sprintf("Karpenter replaces it (%s), and evicts its pods when its replacement is initialized",
			lo.CoalesceOrEmpty(lo.FromPtr(reason).Reason, "for a reason that is not stored"))
	}
	var wanted []karpv1.DisruptionReason
	if drifted := claim.StatusConditions().Get(karpv1.ConditionTypeDrifted); drifted.IsTrue() {
		wanted = append(wanted, karpv1.DisruptionReasonDrifted)
		parts = append(parts, "it has drifted and is to be replaced: "+lo.CoalesceOrEmpty(drifted.Message, drifted.Reason))
	}
	mayConsolidate, because := consolidation(claim, around)
	if because != "" {
		parts = append(parts, because)
	}
	if mayConsolidate {
		wanted = append(wanted, karpv1.DisruptionReasonUnderutilized)
	}
	parts = append(parts, prevented(wanted, around)...)
	if len(parts) == 0 {
		return "nothing marks it for disruption"
	}
	return strings.Join(parts, "; ")
}

// expiredAt is when core deletes the NodeClaim for its age; zero for never.
func expiredAt(claim *karpv1.NodeClaim) time.Time {
	if claim.Spec.ExpireAfter.Duration == nil {
		return time.Time{}
	}
	return claim.CreationTimestamp.Add(*claim.Spec.ExpireAfter.Duration)
}

func expiry(at time.Time) string {
	return fmt.Sprintf("it has expired at %s (expireAfter): Karpenter deletes it, which no budget of the NodePool and no "+
		"%s annotation prevents",
		at.Local().Format(time.DateTime), karpv1.DoNotDisruptAnnotationKey)
}

// draining names the pods that a node which is being deleted still waits for.
func draining(around surroundings) []string {
	var parts []string
	for i := range around.pods {
		pod := &around.pods[i]
		if !input.Counts(pod) {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if podutils.IsDoNotDisruptActive(pod, clock.RealClock{}, nil) {
			parts = append(parts, fmt.Sprintf("it waits for pod %s, whose annotation %s keeps it from being evicted", name,
				karpv1.DoNotDisruptAnnotationKey))
		} else if budget := blockingBudget(pod, around.budgets); budget != "" {
			parts = append(parts, fmt.Sprintf("it waits for pod %s, whose PodDisruptionBudget %s allows no eviction now", name,
				budget))
		}
	}
	if len(parts) == 0 {
		return []string{"it is being deleted, and nothing prevents the eviction of its pods"}
	}
	return append(parts, "the terminationGracePeriod of the NodeClaim, if it has one, ends the wait")
}

// consolidation says whether core may consolidate the node, and why not where the NodePool excludes it.
func consolidation(claim *karpv1.NodeClaim, around surroundings) (may bool, because string) {
	movable := lo.CountBy(around.pods, func(pod corev1.Pod) bool { return podutils.IsReschedulable(&pod) })
	if pool := around.pool; pool != nil {
		switch {
		case pool.Spec.Replicas != nil:
			return false, "its NodePool is static, so it is not consolidated"
		case pool.Spec.Disruption.ConsolidateAfter.Duration == nil && pool.Spec.Disruption.ConsolidateAfter.Raw != nil:
			return false, "it is not consolidated: consolidateAfter of NodePool " + pool.Name + " is Never"
		case pool.Spec.Disruption.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty && movable > 0:
			return false, fmt.Sprintf("it is consolidated only when it is empty (consolidationPolicy WhenEmpty of NodePool "+
				"%s), and it has %d pods that would move",
				pool.Name, movable)
		}
	}
	if claim.StatusConditions().Get(karpv1.ConditionTypeConsolidatable).IsTrue() {
		return true, "it may be consolidated, when that makes the cluster cheaper"
	}
	return false, ""
}

// prevented are what keeps core from disrupting the node for the reasons that it has.
func prevented(wanted []karpv1.DisruptionReason, around surroundings) []string {
	var parts []string
	for _, reason := range wanted {
		if around.pool == nil {
			break
		}
		allowed := around.pool.MustGetAllowedDisruptions(clock.RealClock{}, around.nodes, reason)
		if allowed-around.disrupting <= 0 {
			parts = append(parts, fmt.Sprintf("the budgets of NodePool %s allow no disruption for the reason %s now (%d "+
				"allowed, %d under way)", around.pool.Name,
				reason, allowed, around.disrupting))
		}
	}
	if around.node != nil && around.node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		parts = append(parts, "the node's annotation "+karpv1.DoNotDisruptAnnotationKey+" prevents it")
	}
	var holders []string
	for i := range around.pods {
		pod := &around.pods[i]
		name := pod.Namespace + "/" + pod.Name
		if podutils.IsDoNotDisruptActive(pod, clock.RealClock{}, nil) {
			holders = append(holders, name)
		} else if budget := blockingBudget(pod, around.budgets); budget != "" && len(wanted) > 0 {
			parts = append(parts, fmt.Sprintf("PodDisruptionBudget %s allows no eviction of pod %s now, which prevents it",
				budget, name))
		}
	}
	if len(holders) > 0 {
		parts = append(parts, fmt.Sprintf("the annotation %s of pod %s prevents it", karpv1.DoNotDisruptAnnotationKey,
			strings.Join(holders, ", ")))
	}
	return parts
}

// blockingBudget is the PodDisruptionBudget that allows no eviction of the pod; empty where none forbids it.
func blockingBudget(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	budget, _ := lo.Find(budgets, func(b policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		return err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) &&
			b.Status.DisruptionsAllowed == 0
	})
	if budget.Name == "" {
		return ""
	}
	return budget.Namespace + "/" + budget.Name
}
