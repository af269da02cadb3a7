// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// idleNode is what `kubectl bizfly top --idle -o json` says of a node.
type idleNode struct {
	Name, NodePool, Reason, Detail string
	VNDPerHour                     float64
}

// idleNodes are the nodes of a NodePool, as the plugin sees them.
func idleNodes(g Gomega, pool string) []idleNode {
	command := exec.CommandContext(ctx, filepath.Join("..", "..", "..", "bin", "kubectl-bizfly"), "top", "--idle", "-o", "json", "--kubeconfig", env.Kubeconfig())
	command.Env = append(command.Environ(), "BIZFLY_CLOUD_ALLOW_HTTP=true")
	for name, value := range env.Sandbox().Env() {
		command.Env = append(command.Env, name+"="+value)
	}
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred(), said.String())
	var idle struct {
		Nodes      []idleNode
		VNDPerHour float64
	}
	g.Expect(json.Unmarshal(out, &idle)).To(Succeed())
	g.Expect(lo.SumBy(idle.Nodes, func(n idleNode) float64 { return n.VNDPerHour })).To(BeNumerically("~", idle.VNDPerHour, 0.01))
	return lo.Filter(idle.Nodes, func(n idleNode, _ int) bool { return n.NodePool == pool })
}

// scene is a node with a pod.
type scene struct {
	pool *karpv1.NodePool
	web  *appsv1.Deployment
	node *corev1.Node
	pod  corev1.Pod
}

// changed patches an object as it is now.
func changed[T client.Object](object T, change func(T)) {
	GinkgoHelper()
	Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	stored := object.DeepCopyObject().(T)
	change(object)
	Expect(env.Client().Patch(ctx, object, client.MergeFrom(stored))).To(Succeed())
}

// annotates sets an annotation, and removes an empty one.
func annotates(object client.Object, value string) {
	changed(object, func(o client.Object) {
		annotations := lo.OmitByKeys(o.GetAnnotations(), []string{karpv1.DoNotDisruptAnnotationKey})
		if value != "" {
			annotations[karpv1.DoNotDisruptAnnotationKey] = value
		}
		o.SetAnnotations(annotations)
	})
}

// disruption changes what the NodePool says of disruption.
func disruption(change func(*karpv1.Disruption)) func(*scene) {
	return func(s *scene) { changed(s.pool, func(p *karpv1.NodePool) { change(&p.Spec.Disruption) }) }
}

func consolidateAfter(value string) func(*scene) {
	return disruption(func(d *karpv1.Disruption) { d.ConsolidateAfter = karpv1.MustParseNillableDuration(value) })
}

func budgets(all ...karpv1.Budget) func(*scene) {
	return disruption(func(d *karpv1.Disruption) { d.Budgets = all })
}

func policy(of karpv1.ConsolidationPolicy) func(*scene) {
	return disruption(func(d *karpv1.Disruption) { d.ConsolidationPolicy = of })
}

func guard(s *scene) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: s.web.Name, Namespace: s.web.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: s.web.Spec.Selector, MaxUnavailable: lo.ToPtr(intstr.FromInt32(0))}}
}

func deleteNode(s *scene) {
	Expect(env.Client().Delete(ctx, &claims(Default, s.pool)[0])).To(Succeed())
}

func nothing(*scene) {}

// then does one thing after another.
func then(all ...func(*scene)) func(*scene) {
	return func(s *scene) {
		for _, do := range all {
			do(s)
		}
	}
}

func keepPod(s *scene)  { annotates(&s.pod, "true") }
func freePod(s *scene)  { annotates(&s.pod, "") }
func guardPod(s *scene) { Expect(env.Client().Create(ctx, guard(s))).To(Succeed()) }
func unguard(s *scene) {
	Expect(client.IgnoreNotFound(env.Client().Delete(ctx, guard(s)))).To(Succeed())
}
func endPods(s *scene) { Expect(env.Client().Delete(ctx, s.web)).To(Succeed()) }

func finalizer(all ...string) func(*scene) {
	return func(s *scene) {
		for _, claim := range claims(Default, s.pool) {
			changed(&claim, func(c *karpv1.NodeClaim) { c.Finalizers = append(lo.Without(c.Finalizers, "example.com/keep"), all...) })
		}
	}
}

var _ = Describe("What holds the bill", func() {
	large := func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
			Key: v1alpha1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpIn, Values: []string{"8"}})
	}
	tainted := func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}}
	}
	DescribeTable("should be named within a minute, and end by what the line says:", func(prepare func(*karpv1.NodePool), hold func(*scene), reason string, cure func(*scene)) {
		s := &scene{pool: readyPool()}
		changed(s.pool, func(p *karpv1.NodePool) {
			p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
			p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
			if prepare != nil {
				prepare(p)
			}
		})
		s.web = deployment(s.pool, 1)
		Expect(env.Client().Create(ctx, s.web)).To(Succeed())
		DeferCleanup(func() {
			unguard(s)
			Expect(client.IgnoreNotFound(env.Client().Delete(ctx, s.web))).To(Succeed())
		})
		Eventually(func(g Gomega) {
			all := claims(g, s.pool)
			g.Expect(all).To(HaveLen(1))
			g.Expect(all[0].Status.NodeName).NotTo(BeEmpty())
			s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: all[0].Status.NodeName}}
			if len(all[0].Spec.StartupTaints) == 0 {
				pods := running(g, s.web)
				g.Expect(pods).To(HaveLen(1))
				s.pod = pods[0]
			}
		}).Should(Succeed())
		hold(s)
		names := func(g Gomega) []string {
			return lo.Map(idleNodes(g, s.pool.Name), func(n idleNode, _ int) string { return n.Reason })
		}
		Eventually(func(g Gomega) { g.Expect(names(g)).To(ContainElement(reason)) }).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())
		cure(s)
		Eventually(func(g Gomega) { g.Expect(names(g)).NotTo(ContainElement(reason)) }).WithPolling(time.Second).Should(Succeed())
	},
		Entry("consolidateAfter Never", nil, consolidateAfter("Never"), "ConsolidationOff", consolidateAfter("0s")),
		Entry("consolidateAfter", nil, consolidateAfter("1h"), "ConsolidateAfter", consolidateAfter("0s")),
		Entry("the policy WhenEmpty", nil, policy(karpv1.ConsolidationPolicyWhenEmpty), "OnlyWhenEmpty", policy(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized)),
		Entry("the Node's do-not-disrupt", nil, func(s *scene) { annotates(s.node, "true") }, "DoNotDisruptNode", func(s *scene) { annotates(s.node, "") }),
		Entry("a pod's do-not-disrupt", nil, keepPod, "DoNotDisruptPod", freePod),
		Entry("a PodDisruptionBudget", nil, guardPod, "PodDisruptionBudget", unguard),
		Entry("a budget of 0", nil, budgets(karpv1.Budget{Nodes: "0"}), "DisruptionBudget", budgets(karpv1.Budget{Nodes: "100%"})),
		Entry("a budget of 0 in a window", nil, budgets(karpv1.Budget{Nodes: "0", Schedule: lo.ToPtr("* * * * *"), Duration: &metav1.Duration{Duration: time.Hour}}),
			"DisruptionBudget", budgets(karpv1.Budget{Nodes: "100%"})),
		Entry("a budget of 0 for what is empty", nil, then(budgets(karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}}), endPods),
			"DisruptionBudget", budgets(karpv1.Budget{Nodes: "100%"})),
		Entry("a label without which there is no price", nil, func(s *scene) {
			changed(s.node, func(n *corev1.Node) { delete(n.Labels, karpv1.CapacityTypeLabelKey) })
		}, "PriceUnknown", func(s *scene) {
			changed(s.node, func(n *corev1.Node) { n.Labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand })
		}),
		Entry("flavors that leave no cheaper one", large, nothing, "NoCheaperOffering", func(s *scene) {
			changed(s.pool, func(p *karpv1.NodePool) { p.Spec.Template.Spec.Requirements = p.Spec.Template.Spec.Requirements[:1] })
		}),
		Entry("its pods, for which limits leave no other node", func(p *karpv1.NodePool) {
			large(p)
			p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("8")}
		}, nothing, "Needed", endPods),
		Entry("a startup taint", tainted, nothing, "StartupTaint", func(s *scene) {
			changed(s.node, func(n *corev1.Node) {
				n.Spec.Taints = lo.Reject(n.Spec.Taints, func(t corev1.Taint, _ int) bool { return t.Key == "example.com/agent" })
			})
		}),
		Entry("a finalizer", nil, then(finalizer("example.com/keep"), deleteNode), "HeldByFinalizer", finalizer()),
		Entry("a pod that is not evicted", nil, then(keepPod, deleteNode), "DoNotDisruptPod", freePod),
		Entry("a PodDisruptionBudget that allows no drain", nil, then(guardPod, deleteNode), "PodDisruptionBudget", unguard),
	)
})
