// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// changed are the copies of the objects that a remedy changes.
type changed struct {
	pod       *corev1.Pod
	pool      *karpv1.NodePool
	nodeClass *v1alpha1.BizflyNodeClass
	// forget takes what failed lately for available.
	forget bool
}

// remedy is a change that may let a NodePool run a pod, and how a user makes it. The rule that finds an obstacle names
// its remedies, the most likely first.
type remedy struct {
	text  string
	apply func(*changed)
}

// maxTried bounds the simulations of one answer.
const maxTried = 40

// help tries for each NodePool what would let it run the pod, and says what does, the cheapest first.
func (p *Pod) help(ctx context.Context, w *world, pod *corev1.Pod) {
	type proven struct {
		text  string
		price float64
	}
	var all []proven
	tried := 0
	for _, pool := range lo.UniqBy(p.Pools, Pool.Obstacles) {
		failed := lo.Filter(pool.Checks, func(c Check, _ int) bool { return c.failed() })
		for _, combination := range combinations(lo.Map(failed, func(c Check, _ int) []remedy { return c.remedies })) {
			if tried++; len(combination) == 0 || tried > maxTried {
				break
			}
			if price, ok := w.try(ctx, pool.Name, pod, combination); ok {
				text := strings.Join(lo.Map(combination, func(r remedy, _ int) string { return r.text }), "; and ")
				all = append(all, proven{strings.ReplaceAll(text, "NAME", pool.Name), price})
				break
			}
		}
	}
	slices.SortStableFunc(all, func(a, b proven) int { return int(a.price - b.price) })
	for _, of := range all {
		p.Help = append(p.Help, fmt.Sprintf("%s: then for %s VND per hour", of.text, output.VND(of.price)))
	}
}

// combinations has one remedy for each obstacle; none where an obstacle has none.
func combinations(obstacles [][]remedy) [][]remedy {
	all := [][]remedy{{}}
	for _, remedies := range obstacles {
		all = lo.FlatMap(all, func(chosen []remedy, _ int) [][]remedy {
			return lo.Map(remedies, func(r remedy, _ int) []remedy { return append(slices.Clone(chosen), r) })
		})
	}
	return all
}

// try reports whether Karpenter would launch a node of the NodePool for the pod if the remedies were applied, and its
// price.
func (w *world) try(ctx context.Context, poolName string, pod *corev1.Pod, remedies []remedy) (price float64,
	launched bool) {
	pool, _ := lo.Find(memory.Of[*karpv1.NodePool](w.objects), func(p *karpv1.NodePool) bool { return p.Name == poolName })
	nodeClass, found := lo.Find(memory.Of[*v1alpha1.BizflyNodeClass](w.objects), func(n *v1alpha1.BizflyNodeClass) bool {
		return n.Name == lo.FromPtr(lo.FromPtr(pool).Spec.Template.Spec.NodeClassRef).Name
	})
	if !found {
		return 0, false
	}
	c := &changed{pod: pod.DeepCopy(), pool: pool.DeepCopy(), nodeClass: nodeClass.DeepCopy()}
	for _, r := range remedies {
		r.apply(c)
	}
	made, err := w.simulate(ctx, w.objects.With(c.pool, c.nodeClass), !c.forget)
	if err != nil || waitAlone(ctx, made, c.pod) != nil {
		return 0, false
	}
	planned, err := made.Run(ctx)
	if err != nil || len(planned.Unplaced) > 0 || len(planned.Nodes) == 0 || planned.Nodes[0].NodePool != poolName {
		return 0, false
	}
	return planned.Nodes[0].VNDPerHour, true
}

// sizeKeys are the labels of a flavor by which a NodePool limits the size of nodes.
var sizeKeys = []string{corev1.LabelInstanceTypeStable, v1alpha1.LabelInstanceCPU, v1alpha1.LabelInstanceMemory,
	v1alpha1.LabelInstanceFamily, v1alpha1.LabelInstanceCategory, v1alpha1.LabelInstanceGeneration}

// What may remove an obstacle. NAME is the NodePool's.
var (
	makeReady = remedy{"make NodePool NAME ready (kubectl describe nodepool NAME)", func(c *changed) {
		c.pool.Status.Conditions, c.nodeClass.Status.Conditions = nil, nil
	}}
	raiseReplicas = remedy{"raise spec.replicas of NodePool NAME (kubectl edit nodepool NAME), or let the pod run on " +
		"another NodePool", func(c *changed) { c.pool.Spec.Replicas = nil }}
	raiseLimits = remedy{"raise spec.limits of NodePool NAME (kubectl edit nodepool NAME), or let other pods of it end",
		func(c *changed) { c.pool.Spec.Limits = nil }}
	freeLaunches = remedy{"remove what holds launches of NodePool NAME back (kubectl describe " +
		"providerconfig,bizflynodeclass)", func(c *changed) { c.forget = true }}
	tolerateTaints = remedy{"add a toleration for the taints of NodePool NAME to the pod (kubectl get nodepool NAME -o " +
		"jsonpath='{.spec.template.spec.taints}')", func(c *changed) {
		c.pod.Spec.Tolerations = append(c.pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	}}
	awaitCapacity = remedy{"wait for capacity, or allow more zones, categories or sizes in NodePool NAME: kubectl " +
		"bizfly flavors --nodepool NAME", func(c *changed) { c.forget = true }}
	lowerMinValues = remedy{"lower minValues in the requirements of NodePool NAME (kubectl edit nodepool NAME)",
		func(c *changed) {
			for i := range c.pool.Spec.Template.Spec.Requirements {
				c.pool.Spec.Template.Spec.Requirements[i].MinValues = nil
			}
		}}
	relaxZone = remedy{"relax its zone; the BizflyNodeClass and the requirements of NodePool NAME decide which zones " +
		"there are (kubectl bizfly flavors --nodepool NAME)", func(c *changed) { dropKey(c.pod, corev1.LabelTopologyZone) }}
	allowLarger = remedy{"allow larger flavors in NodePool NAME: kubectl bizfly flavors --nodepool NAME",
		func(c *changed) { dropRequirements(c.pool, sizeKeys...) }}
	requestLess = remedy{"request less in the pod than what NodePool NAME leaves", func(c *changed) {
		for i := range c.pod.Spec.Containers {
			c.pod.Spec.Containers[i].Resources.Requests = corev1.ResourceList{}
		}
	}}
)

func changeRequirement(key string) remedy {
	return remedy{"change the pod's requirement " + key + ", or let NodePool NAME allow it", func(c *changed) {
		dropKey(c.pod, key)
	}}
}

func relaxRequirement(key string) remedy {
	return remedy{"relax " + key + " of the pod or of NodePool NAME: kubectl bizfly flavors --nodepool NAME names what " +
		"excludes each flavor", func(c *changed) {
		dropKey(c.pod, key)
		dropRequirements(c.pool, key)
	}}
}

// enlargeDisk takes a root disk that is a part larger than what is requested of it, in tens of GiB.
func enlargeDisk(requested resource.Quantity, percent int64) remedy {
	size := resource.NewQuantity((requested.Value()*percent/100>>30+10)/10*10<<30, resource.BinarySI)
	return remedy{"raise spec.rootDisk.size of the BizflyNodeClass of NodePool NAME to " + size.String() +
		", which replaces its nodes", func(c *changed) {
		c.nodeClass.Spec.RootDisk = lo.ToPtr(lo.FromPtr(c.nodeClass.Spec.RootDisk))
		c.nodeClass.Spec.RootDisk.Size = size
		c.nodeClass.Generation++
	}}
}

// dropKey takes a key from what the pod requires of its node.
func dropKey(pod *corev1.Pod, key string) {
	delete(pod.Spec.NodeSelector, key)
	sim.DropNodeAffinity(pod, key)
}

// dropRequirements takes keys from what a NodePool requires of its nodes.
func dropRequirements(pool *karpv1.NodePool, keys ...string) {
	pool.Spec.Template.Spec.Requirements = lo.Reject(pool.Spec.Template.Spec.Requirements,
		func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool { return lo.Contains(keys, r.Key) })
}
