// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// trials is how many random orders of evictions an exchange must survive.
const trials = 3

// trial is a copy of the cluster under core's consolidation.
func (c *computation) trial(ctx context.Context, seed uint64) (*sim.Simulation, error) {
	simulation, err := sim.New(ctx, c.cloud, c.objects)
	if err != nil {
		return nil, err
	}
	return simulation, simulation.Trial(ctx, seed)
}

// confirm tries an exchange, and returns what all nodes cost afterwards in the worst trial, in VND per hour: infinite if a pod was evicted twice or
// fits nowhere.
func (c *computation) confirm(ctx context.Context, found exchange) (float64, error) {
	worst := 0.0
	for seed := range uint64(trials) {
		t, err := c.trial(ctx, c.options.Seed+seed)
		if err != nil {
			return 0, err
		}
		if err := c.carryOut(ctx, t, found); errors.Is(err, sim.ErrNoPlace) {
			return math.Inf(1), nil
		} else if err != nil {
			return 0, fmt.Errorf("trying an exchange: %w", err)
		}
		if lo.ContainsBy(lo.Values(t.Moved), func(times int) bool { return times > 1 }) {
			return math.Inf(1), nil
		}
		_, price, err := t.Nodes(ctx)
		if err != nil {
			return 0, err
		}
		worst = max(worst, price)
	}
	return worst, nil
}

// carryOut adds the nodes and the pods that hold nodes, and lets core consolidate, with these pods and then without them.
func (c *computation) carryOut(ctx context.Context, t *sim.Simulation, found exchange) error {
	run := func(pod *corev1.Pod, node string) error {
		pod.Namespace, pod.Name, pod.Labels = metav1.NamespaceDefault, "hold-"+node, map[string]string{HoldLabel: "trial"}
		return t.RunPod(ctx, pod, node)
	}
	hold := func(node string, rejects []corev1.PodAffinityTerm) error {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: rejecting(rejects)}}
		pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		return run(pod, node)
	}
	moving := found.moving()
	for _, node := range found.added {
		claim := c.claim(node)
		if err := t.Objects.Create(ctx, claim); err != nil {
			return err
		}
		if err := t.Join(ctx, claim.Name, c.daemons); err != nil {
			return err
		}
		if err := hold(claim.Name, rejected(moving, node.pods)); err != nil {
			return err
		}
	}
	for _, m := range c.held(found) {
		if err := hold(m.Node.Name, rejected(moving, found.onto[m.Node.Name])); err != nil {
			return err
		}
	}
	for _, m := range found.replaced {
		gate := &corev1.Pod{Spec: corev1.PodSpec{Affinity: rejecting(everything(namespacesOf(moving)))}}
		gate.OwnerReferences = []metav1.OwnerReference{ownedBy(m.Node)}
		if err := run(gate, m.Node.Name); err != nil {
			return err
		}
	}
	if err := t.Rest(ctx); err != nil {
		return err
	}
	if err := t.EndPods(ctx, func(pod *corev1.Pod) bool { return pod.Labels[HoldLabel] != "" }); err != nil {
		return err
	}
	return t.Rest(ctx)
}
