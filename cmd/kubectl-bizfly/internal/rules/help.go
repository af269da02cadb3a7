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
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// remedy is a change that may let a NodePool run a pod, and how a user makes it.
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
		for _, combination := range combinations(lo.Map(failed, func(c Check, _ int) []remedy {
			return remediesOf(pool.Name, pod, c)
		})) {
			if tried++; len(combination) == 0 || tried > maxTried {
				break
			}
			if price, ok := w.try(ctx, pool.Name, pod, combination); ok {
				all = append(all, proven{strings.Join(lo.Map(combination, func(r remedy, _ int) string { return r.text }),
					"; and "), price})
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
	pool, found := lo.Find(memory.Of[*karpv1.NodePool](w.objects),
		func(p *karpv1.NodePool) bool { return p.Name == poolName })
	if !found {
		return 0, false
	}
	c := &changed{pod: pod.DeepCopy(), pool: pool.DeepCopy()}
	others := []client.Object{c.pool}
	if nodeClass := w.nodeClassOf(pool); nodeClass != nil {
		c.nodeClass = nodeClass.DeepCopy()
		others = append(others, c.nodeClass)
	}
	for _, r := range remedies {
		r.apply(c)
	}
	made, err := w.simulate(ctx, w.objects.With(others...), !c.forget)
	if err != nil || waitAlone(ctx, made, c.pod) != nil {
		return 0, false
	}
	planned, err := made.Run(ctx)
	if err != nil || len(planned.Unplaced) > 0 || len(planned.Nodes) == 0 || planned.Nodes[0].NodePool != poolName {
		return 0, false
	}
	return planned.Nodes[0].VNDPerHour, true
}

func (w *world) nodeClassOf(pool *karpv1.NodePool) *v1alpha1.BizflyNodeClass {
	nodeClass, _ := lo.Find(memory.Of[*v1alpha1.BizflyNodeClass](w.objects), func(n *v1alpha1.BizflyNodeClass) bool {
		return n.Name == lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
	})
	return nodeClass
}

// sizeKeys are the labels of a flavor by which a NodePool limits the size of nodes.
var sizeKeys = []string{corev1.LabelInstanceTypeStable, v1alpha1.LabelInstanceCPU, v1alpha1.LabelInstanceMemory,
	v1alpha1.LabelInstanceFamily,
	v1alpha1.LabelInstanceCategory, v1alpha1.LabelInstanceGeneration}

// remediesOf are what may remove an obstacle, the most likely first.
func remediesOf(pool string, pod *corev1.Pod, obstacle Check) []remedy {
	sprintf := func(format string) string { return fmt.Sprintf(format, pool) }
	switch obstacle.Name {
	case "ready":
		return []remedy{{sprintf("make NodePool %[1]s ready (kubectl describe nodepool %[1]s)"), func(c *changed) {
			c.pool.Status.Conditions = nil
			if c.nodeClass != nil {
				c.nodeClass.Status.Conditions = nil
			}
		}}}
	case "static":
		return []remedy{{sprintf("raise spec.replicas of NodePool %[1]s (kubectl edit nodepool %[1]s), or let the pod run " +
			"on another NodePool"),
			func(c *changed) { c.pool.Spec.Replicas = nil }}}
	case "limits":
		return []remedy{{sprintf("raise spec.limits of NodePool %[1]s (kubectl edit nodepool %[1]s), or let other pods of " +
			"it end"),
			func(c *changed) { c.pool.Spec.Limits = nil }}}
	case "launches":
		return []remedy{{sprintf("remove what holds launches of NodePool %[1]s back (kubectl describe " +
			"providerconfig,bizflynodeclass)"),
			func(c *changed) { c.forget = true }}}
	case "taints":
		return []remedy{{sprintf("add a toleration for the taints of NodePool %[1]s to the pod (kubectl get " +
			"nodepool %[1]s -o jsonpath='{.spec.template.spec.taints}')"), func(c *changed) {
			c.pod.Spec.Tolerations = append(c.pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}}}
	case "offerings":
		return []remedy{{sprintf("wait for capacity, or allow more zones, categories or sizes in NodePool %[1]s: kubectl " +
			"bizfly flavors --nodepool %[1]s"),
			func(c *changed) { c.forget = true }}}
	case "minValues":
		return []remedy{{sprintf("lower minValues in the requirements of NodePool %[1]s (kubectl edit nodepool %[1]s)"),
			func(c *changed) {
				for i := range c.pool.Spec.Template.Spec.Requirements {
					c.pool.Spec.Template.Spec.Requirements[i].MinValues = nil
				}
			}}}
	case "zone":
		return []remedy{{sprintf("relax its zone; the BizflyNodeClass and the requirements of NodePool %[1]s decide which " +
			"zones there are " +
			"(kubectl bizfly flavors --nodepool %[1]s)"), func(c *changed) { dropKey(c.pod, corev1.LabelTopologyZone) }}}
	case "flavors":
		return labelRemedies(pool, obstacle)
	case "size":
		return sizeRemedies(pool, pod, obstacle)
	}
	if key, ok := strings.CutPrefix(obstacle.Name, "requirement "); ok {
		return []remedy{{fmt.Sprintf("change the pod's requirement %s, or let NodePool %s allow it", key, pool),
			func(c *changed) { dropKey(c.pod, key) }}}
	}
	return nil
}

// labelRemedies relax each label that the obstacle names.
func labelRemedies(pool string, obstacle Check) []remedy {
	var remedies []remedy
	for _, key := range append(slices.Clone(sizeKeys), corev1.LabelTopologyZone, corev1.LabelArchStable,
		corev1.LabelOSStable,
		v1alpha1.LabelInstanceGPUName, v1alpha1.LabelInstanceGPUCount, karpv1.CapacityTypeLabelKey) {
		if strings.Contains(obstacle.Detail, key+" ") {
			remedies = append(remedies, remedy{fmt.Sprintf("relax %s of the pod or of NodePool %s: kubectl bizfly "+
				"flavors --nodepool %[2]s names what excludes each flavor", key, pool), func(c *changed) {
				dropKey(c.pod, key)
				dropRequirements(c.pool, key)
			}})
		}
	}
	return remedies
}

// sizeRemedies make the disk or the flavors larger, or the pod smaller.
func sizeRemedies(pool string, pod *corev1.Pod, obstacle Check) []remedy {
	var remedies []remedy
	switch {
	case strings.Contains(obstacle.Detail, "no flavor has "):
		return nil
	case strings.Contains(obstacle.Detail, "spec.rootDisk.size"):
		requested := resource.Quantity{}
		for i := range pod.Spec.Containers {
			requested.Add(*pod.Spec.Containers[i].Resources.Requests.StorageEphemeral())
		}
		for _, percent := range []int64{125, 150} {
			size := resource.NewQuantity((requested.Value()*percent/100>>30+10)/10*10<<30, resource.BinarySI)
			remedies = append(remedies, remedy{fmt.Sprintf("raise spec.rootDisk.size of the BizflyNodeClass of NodePool %s to "+
				"%s, which replaces its nodes", pool, size),
				func(c *changed) {
					if c.nodeClass != nil {
						c.nodeClass.Spec.RootDisk = lo.ToPtr(lo.FromPtr(c.nodeClass.Spec.RootDisk))
						c.nodeClass.Spec.RootDisk.Size = size
						c.nodeClass.Generation++
					}
				}})
		}
		return remedies
	}
	return append(remedies, remedy{fmt.Sprintf("allow larger flavors in NodePool %[1]s: kubectl bizfly flavors "+
		"--nodepool %[1]s", pool),
		func(c *changed) { dropRequirements(c.pool, sizeKeys...) }},
		remedy{fmt.Sprintf("request less in the pod than what NodePool %s leaves", pool), func(c *changed) {
			for i := range c.pod.Spec.Containers {
				c.pod.Spec.Containers[i].Resources.Requests = corev1.ResourceList{}
			}
		}})
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
