// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// idleNode is what `kubectl bizfly top --idle -o json` says of a node.
type idleNode struct {
	Name, NodePool, Reason, Detail string
	VNDPerHour                     float64
}

// topIdle is the command of the plugin in an environment.
func topIdle(of *environment.Environment) *exec.Cmd {
	plugin := filepath.Join("..", "..", "..", "bin", "kubectl-bizfly")
	command := exec.CommandContext(ctx, plugin, "top", "--idle", "-o", "json",
		"--kubeconfig", of.Kubeconfig())
	command.Env = append(command.Environ(), "BIZFLY_CLOUD_ALLOW_HTTP=true")
	for name, value := range of.Sandbox().Env() {
		command.Env = append(command.Env, name+"="+value)
	}
	return command
}

// idle is its answer: what is paid, and the nodes of each NodePool.
func idle(g Gomega) (vndPerHour float64, nodes map[string][]idleNode) {
	command := topIdle(env)
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred(), said.String())
	var answer struct {
		Nodes      []idleNode
		VNDPerHour float64
	}
	g.Expect(json.Unmarshal(out, &answer)).To(Succeed())
	return answer.VNDPerHour, lo.GroupBy(answer.Nodes, func(n idleNode) string { return n.NodePool })
}

// scene is a node with a pod, which something holds.
type scene struct {
	name string
	// prepare changes the NodePool before it is created, hold makes the situation, and cure does what the line says.
	prepare    func(*karpv1.NodePool)
	hold, cure func(*scene)
	reason     string

	pool *karpv1.NodePool
	web  *appsv1.Deployment
	node *corev1.Node
	pod  corev1.Pod
}

func situation(name string, prepare func(*karpv1.NodePool), hold func(*scene), reason string,
	cure func(*scene)) *scene {
	return &scene{name: name, prepare: prepare, hold: hold, reason: reason, cure: cure}
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

var open = budgets(karpv1.Budget{Nodes: "100%"})

func policy(of karpv1.ConsolidationPolicy) func(*scene) {
	return disruption(func(d *karpv1.Disruption) { d.ConsolidationPolicy = of })
}

func guard(s *scene) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: s.web.Name, Namespace: s.web.Namespace}}
	budget.Spec.Selector, budget.Spec.MaxUnavailable = s.web.Spec.Selector, lo.ToPtr(intstr.FromInt32(0))
	return budget
}

func capacityType(value string) func(*scene) {
	return func(s *scene) {
		changed(s.node, func(n *corev1.Node) {
			if delete(n.Labels, karpv1.CapacityTypeLabelKey); value != "" {
				n.Labels[karpv1.CapacityTypeLabelKey] = value
			}
		})
	}
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
		changed(s.node, func(n *corev1.Node) {
			n.Finalizers = append(lo.Without(n.Finalizers, "example.com/keep"), all...)
		})
	}
}

// requirements adds to what the NodePool demands of its nodes: first is the capacity type, second the zone.
func requirements(all ...karpv1.NodeSelectorRequirementWithMinValues) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, all...)
	}
}

func in(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// demandsOnly leaves the first of the requirements.
func demandsOnly(first int) func(*scene) {
	return func(s *scene) {
		changed(s.pool, func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.Requirements = p.Spec.Template.Spec.Requirements[:first]
		})
	}
}

func limitCPU(cpu string) func(*scene) {
	return func(s *scene) {
		changed(s.pool, func(p *karpv1.NodePool) {
			p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse(cpu)}
		})
	}
}

func scaled(replicas int64) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }
}

func keepNode(value string) func(*scene) {
	return func(s *scene) { annotates(s.node, value) }
}

func stock(flavor string, available int) {
	left := map[string]any{"flavor": flavor, "zone": "HN1", "available": available}
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "stock", left, nil)).To(Succeed())
}

func account(quota cloud.Quota) func(*scene) {
	return func(*scene) { Expect(env.Sandbox().Call(ctx, http.MethodPut, "quota", quota, nil)).To(Succeed()) }
}

// unpaid waits until the controller has asked for the account, which it does once a minute.
func unpaid(s *scene) {
	Eventually(func(g Gomega) {
		g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(s.node), s.node)).To(Succeed())
		g.Expect(s.node.Annotations).To(HaveKey(v1alpha1.AnnotationDoNotRepairReason))
	}).Should(Succeed())
}

// tuned sets the keys of the tuning ConfigMap.
func tuned(data map[string]string) func(*scene) {
	return func(*scene) {
		tuning := &corev1.ConfigMap{ObjectMeta: metaOf("karpenter-provider-bizflycloud-tuning")}
		tuning.Namespace = controllerNamespace
		Expect(controllerutil.CreateOrUpdate(ctx, env.Client(), tuning, func() error {
			tuning.Data = data
			return nil
		})).Error().NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			config := providerConfig(g)
			config.Spec.TuningConfigMapRef = &v1alpha1.ConfigMapReference{}
			g.Expect(env.Client().Update(ctx, config)).To(Succeed())
		}).Should(Succeed())
	}
}

// begin launches the nodes of scenes.
func begin(scenes ...*scene) {
	GinkgoHelper()
	class := readyClass()
	for _, s := range scenes {
		s.pool = nodePool(class, in(corev1.LabelTopologyZone, "HN1"))
		s.pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		s.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		// Core counts pods that are pending, and repeats what it says of a node after 15 minutes: it looks when all run.
		s.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		if s.prepare != nil {
			s.prepare(s.pool)
		}
		create(s.pool)
		s.web = deployment(s.pool, 1)
		Expect(env.Client().Create(ctx, s.web)).To(Succeed())
		DeferCleanup(func() {
			unguard(s)
			Expect(client.IgnoreNotFound(env.Client().Delete(ctx, s.web))).To(Succeed())
		})
	}
	for _, s := range scenes {
		Eventually(func(g Gomega) {
			all := claims(g, s.pool)
			g.Expect(all).To(HaveLen(1), s.name)
			g.Expect(all[0].Status.NodeName).NotTo(BeEmpty(), s.name)
			s.node = &corev1.Node{ObjectMeta: metaOf(all[0].Status.NodeName)}
			if len(all[0].Spec.StartupTaints) == 0 {
				g.Expect(all[0].StatusConditions().Root().IsTrue()).To(BeTrue(), s.name)
				pods := running(g, s.web)
				g.Expect(pods).To(HaveLen(1), s.name)
				s.pod = pods[0]
			}
		}).Should(Succeed())
	}
}

// prove makes the situations, waits until the plugin names each, does what it says, and waits until that ends them.
func prove(scenes ...*scene) {
	GinkgoHelper()
	named := func(g Gomega, s *scene, nodes map[string][]idleNode) bool {
		return lo.ContainsBy(nodes[s.pool.Name], func(n idleNode) bool { return n.Reason == s.reason })
	}
	for _, s := range scenes {
		open(s)
		s.hold(s)
		DeferCleanup(func() { // after a failure, before the NodePool is deleted
			if CurrentSpecReport().Failed() {
				s.cure(s)
			}
		})
	}
	Eventually(func(g Gomega) {
		vndPerHour, nodes := idle(g)
		g.Expect(lo.FilterMap(scenes, func(s *scene, _ int) (string, bool) {
			return fmt.Sprintf("%s is not %s: %+v", s.name, s.reason, nodes[s.pool.Name]), !named(g, s, nodes)
		})).To(BeEmpty())
		if scenes[0].reason == "AccountPaused" {
			return // top shows what a server costs that runs, and one that is stopped costs less
		}
		var bill cloud.Bill
		g.Expect(env.Sandbox().Call(ctx, http.MethodGet, "bill", nil, &bill)).To(Succeed())
		g.Expect(vndPerHour).To(BeNumerically("~", bill.VNDPerHour, bill.VNDPerHour/100), "the bill")
	}).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())
	for _, s := range scenes {
		s.cure(s)
	}
	Eventually(func(g Gomega) {
		_, nodes := idle(g)
		g.Expect(lo.FilterMap(scenes, func(s *scene, _ int) (string, bool) {
			return fmt.Sprintf("%s is still %s: %+v", s.name, s.reason, nodes[s.pool.Name]), named(g, s, nodes)
		})).To(BeEmpty())
	}).WithTimeout(afterOutage).WithPolling(time.Second).Should(Succeed())
}

var _ = Describe("What holds the bill", func() {
	large := requirements(in(v1alpha1.LabelInstanceCPU, "8"))
	isAgent := func(t corev1.Taint, _ int) bool { return t.Key == "example.com/agent" }
	agent := corev1.Taint{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}
	It("should be named within a minute, and end by what the line says", func() {
		restartController(map[string]string{"FEATURE_GATES": "StaticCapacity=true"})
		stock("e2.2c_4g", 0)
		DeferCleanup(stock, "e2.2c_4g", -1)
		lookedAt := []*scene{
			situation("flavors that leave no cheaper one", large, nothing, "NoCheaperOffering", demandsOnly(1)),
			situation("a cheaper flavor without stock", requirements(in(v1alpha1.LabelInstanceCategory, "enterprise")), nothing,
				"CheaperUnavailable", demandsOnly(1)),
			situation("its pods, for which limits leave no other node", nil, limitCPU("500m"), "Needed", endPods),
		}
		hour := karpv1.Budget{Nodes: "0", Schedule: lo.ToPtr("* * * * *"), Duration: &metav1.Duration{Duration: time.Hour}}
		empty := karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty}}
		seen := []*scene{
			situation("a static NodePool", scaled(1), nothing, "StaticNodePool", func(s *scene) { changed(s.pool, scaled(0)) }),
			situation("consolidateAfter Never", nil, consolidateAfter("Never"), "ConsolidationOff", consolidateAfter("0s")),
			situation("consolidateAfter", nil, consolidateAfter("1h"), "ConsolidateAfter", consolidateAfter("0s")),
			situation("the policy WhenEmpty", nil, policy(karpv1.ConsolidationPolicyWhenEmpty), "OnlyWhenEmpty",
				policy(karpv1.ConsolidationPolicyBalanced)),
			situation("the Node's do-not-disrupt", nil, keepNode("true"), "DoNotDisruptNode", keepNode("")),
			situation("a pod's do-not-disrupt", nil, keepPod, "DoNotDisruptPod", freePod),
			situation("a PodDisruptionBudget", nil, guardPod, "PodDisruptionBudget", unguard),
			situation("a budget of 0", nil, budgets(karpv1.Budget{Nodes: "0"}), "DisruptionBudget", open),
			situation("a budget of 0 in a window", nil, budgets(hour), "DisruptionBudget", open),
			situation("a budget of 0 for what is empty", nil, then(budgets(empty), endPods), "DisruptionBudget", open),
			situation("a label without which there is no price", nil, capacityType(""), "PriceUnknown",
				capacityType(karpv1.CapacityTypeOnDemand)),
			situation("a startup taint", func(p *karpv1.NodePool) {
				p.Spec.Template.Spec.StartupTaints = []corev1.Taint{agent}
			}, nothing, "StartupTaint", func(s *scene) {
				changed(s.node, func(n *corev1.Node) { n.Spec.Taints = lo.Reject(n.Spec.Taints, isAgent) })
			}),
			situation("a finalizer", nil, then(finalizer("example.com/keep"), deleteNode), "HeldByFinalizer", finalizer()),
			situation("a pod that is not evicted", nil, then(keepPod, deleteNode), "DoNotDisruptPod", freePod),
			situation("a PodDisruptionBudget without a drain", nil, then(guardPod, deleteNode), "PodDisruptionBudget", unguard),
		}
		begin(slices.Concat(lookedAt, seen)...)
		prove(lookedAt...)
		prove(seen...)
	})
	var behave func()
	DescribeTable("should be named where it holds more than its node, and end so:", func(s *scene) {
		begin(s)
		prove(s)
	},
		func(s *scene) string { return s.name },
		Entry(nil, situation("an hour that is paid", nil, tuned(map[string]string{"billingPeriod": "1h"}), "HourPaid",
			tuned(map[string]string{"billingPeriod": "1s"}))),
		Entry(nil, situation("a closed zone", nil, tuned(map[string]string{"closedZones": "HN1"}), "ZoneClosed", tuned(nil))),
		Entry(nil, situation("an unpaid account", nil, then(account(cloud.Quota{Suspended: true}), unpaid), "AccountPaused",
			account(cloud.Quota{}))),
		// Core looks at no other node while it tries to replace the first one again and again.
		Entry(nil, situation("a replacement that is rejected", large, func(s *scene) {
			behave = misbehave(cloud.Fault{Method: http.MethodPost, Path: "/servers", Contains: s.pool.Name,
				Effect: cloud.EffectStatus, Status: http.StatusBadRequest})
			demandsOnly(2)(s)
		}, "ReplacementFailed", func(*scene) { behave() })),
	)
	It("should take at most twice as long as kubectl takes for 500 nodes and their pods", func() {
		many := lo.Must(environment.Start(ctx, environment.Options{NoController: true, Seed: GinkgoRandomSeed()}))
		DeferCleanup(many.Stop)
		config := lo.Must(clientcmd.BuildConfigFromFlags("", many.Kubeconfig()))
		config.QPS = -1
		fast := lo.Must(client.New(config, client.Options{Scheme: many.Client().Scheme()}))
		pool, web := environment.NodePool("default", "default"), environment.Deployment("web", 1)
		Expect(fast.Create(ctx, pool)).To(Succeed())
		workqueue.ParallelizeUntil(ctx, 20, 500, func(i int) {
			defer GinkgoRecover()
			name := fmt.Sprintf("node-%d", i)
			labels := map[string]string{karpv1.NodePoolLabelKey: pool.Name, corev1.LabelInstanceTypeStable: "p2.4c_8g",
				corev1.LabelTopologyZone: "HN1", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand,
				karpv1.NodeInitializedLabelKey: "true"}
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			claim.Spec.NodeClassRef = pool.Spec.Template.Spec.NodeClassRef
			claim.Spec.Requirements = pool.Spec.Template.Spec.Requirements
			Expect(fast.Create(ctx, claim)).To(Succeed())
			claim.Status.NodeName, claim.Status.ProviderID = name, providerid.New(name)
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
			Expect(fast.Status().Update(ctx, claim)).To(Succeed())
			Expect(fast.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}})).To(Succeed())
			for j := range 10 {
				pod := &corev1.Pod{ObjectMeta: metaOf(fmt.Sprintf("%s-%d", name, j)), Spec: *web.Spec.Template.Spec.DeepCopy()}
				pod.Namespace, pod.Spec.NodeName = web.Namespace, name
				Expect(fast.Create(ctx, pod)).To(Succeed())
			}
		})
		kubectl := func() *exec.Cmd {
			binary := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
			return exec.CommandContext(ctx, binary, "get", "nodes,pods", "-A", "-o", "json",
				"--kubeconfig", many.Kubeconfig())
		}
		fastest := func(command func() *exec.Cmd) time.Duration {
			return lo.Min(lo.Times(3, func(int) time.Duration {
				began, run := time.Now(), command()
				out, err := run.Output()
				Expect(err).NotTo(HaveOccurred())
				Expect(strings.Count(string(out), `"node-499"`)).To(BeNumerically(">", 0))
				return time.Since(began)
			}))
		}
		took, reference := fastest(func() *exec.Cmd { return topIdle(many) }), fastest(kubectl)
		AddReportEntry("top --idle, and kubectl get", fmt.Sprint(took, ", ", reference))
		Expect(took).To(BeNumerically("<=", 2*reference))
	})
})
