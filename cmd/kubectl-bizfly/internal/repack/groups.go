// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
)

// groups are the selectors by which pods keep apart on nodes.
type groups struct {
	names []string
	// members reports whether a pod is selected.
	members map[string]func(*corev1.Pod) bool
}

// constraint is one limit of a pod, by the term that selects those it is about.
type constraint struct {
	term corev1.PodAffinityTerm
	most int
}

// constraintsOf are the limits of a pod for nodes: required anti-affinity, and spreading over nodes, of which a new one has none of its kind.
func constraintsOf(pod *corev1.Pod) []constraint {
	var found []constraint
	for _, term := range plan.AntiAffinity(pod) {
		if term.TopologyKey == corev1.LabelHostname {
			found = append(found, constraint{term, lo.Ternary(plan.Selects(pod.Namespace, term, pod), 1, 0)})
		}
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if spread.TopologyKey == corev1.LabelHostname && spread.WhenUnsatisfiable == corev1.DoNotSchedule {
			found = append(found, constraint{corev1.PodAffinityTerm{LabelSelector: spread.LabelSelector}, int(spread.MaxSkew)})
		}
	}
	return found
}

// key names the group of a constraint.
func (c constraint) key(namespace string) string {
	return fmt.Sprintf("%s %v %t %s", namespace, c.term.Namespaces, c.term.NamespaceSelector != nil, metav1.FormatLabelSelector(c.term.LabelSelector))
}

func newGroups(pods []*corev1.Pod) *groups {
	g := &groups{members: map[string]func(*corev1.Pod) bool{}}
	for _, pod := range pods {
		for _, c := range constraintsOf(pod) {
			g.members[c.key(pod.Namespace)] = func(other *corev1.Pod) bool { return plan.Selects(pod.Namespace, c.term, other) }
		}
	}
	g.names = lo.Keys(g.members)
	slices.Sort(g.names)
	return g
}

// item is a pod for the packing.
func (g *groups) item(pod *corev1.Pod) packing.Item {
	item := packing.Item{Name: pod.Namespace + "/" + pod.Name, Requests: resources.RequestsForPods(pod)}
	item.Groups = lo.Filter(g.names, func(name string, _ int) bool { return g.members[name](pod) })
	for _, c := range constraintsOf(pod) {
		item.Limits = append(item.Limits, packing.Limit{Group: c.key(pod.Namespace), Max: c.most})
	}
	return item
}
