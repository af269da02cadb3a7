// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/pdb"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// idleFacts are those of a node that core may consolidate, and of which it has said nothing.
func idleFacts() *nodeFacts {
	at := time.Now()
	labels := map[string]string{corev1.LabelInstanceTypeStable: "large", corev1.LabelTopologyZone: "HN1",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand}
	f := &nodeFacts{stoppedClock: stoppedClock{now: at}, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}},
		claim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x", Finalizers: []string{karpv1.TerminationFinalizer}}},
		pool:  &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, members: 2,
		pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
		flavors: map[string]*corecloudprovider.InstanceType{"large": flavor("large", 200), "small": flavor("small", 100)},
	}
	f.week = func(reason karpv1.DisruptionReason) []Window { return week(f.pool, f.members, reason, f.now) }
	f.pool.Spec.Disruption = karpv1.Disruption{ConsolidateAfter: karpv1.MustParseNillableDuration("0s"),
		ConsolidationPolicy: karpv1.ConsolidationPolicyBalanced, Budgets: []karpv1.Budget{{Nodes: "100%"}}}
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized,
		karpv1.ConditionTypeConsolidatable} {
		f.claim.StatusConditions().SetTrue(condition)
	}
	return f
}

func flavor(name string, price float64) *corecloudprovider.InstanceType {
	return &corecloudprovider.InstanceType{Name: name,
		Requirements: scheduling.NewLabelRequirements(map[string]string{corev1.LabelInstanceTypeStable: name}),
		Capacity:     corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}, Overhead: &corecloudprovider.InstanceTypeOverhead{},
		Offerings: corecloudprovider.Offerings{{Price: price, Requirements: scheduling.NewLabelRequirements(map[string]string{
			corev1.LabelTopologyZone: "HN1", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand})}},
	}
}

// coreSays lets core have said something about the node, some time ago.
func coreSays(reason, message string, ago time.Duration) func(*nodeFacts) {
	return func(f *nodeFacts) {
		f.said = append(f.said, corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(f.now.Add(-ago))})
	}
}

func annotated(key, value string, more ...string) func(*nodeFacts) {
	return func(f *nodeFacts) {
		f.node.Annotations = map[string]string{key: value}
		for i := 0; i < len(more); i += 2 {
			f.node.Annotations[more[i]] = more[i+1]
		}
	}
}

func deletes(f *nodeFacts) { f.claim.DeletionTimestamp = lo.ToPtr(metav1.Now()) }

func guarded(f *nodeFacts) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	f.limits = lo.Must(pdb.NewLimits(context.Background(), memory.New([]client.Object{budget})))
}

func keepsPod(f *nodeFacts) {
	f.pods[0].Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
}

func drifts(f *nodeFacts) {
	f.claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "ImageDrift", "the image has changed")
}

func driftForbidden(f *nodeFacts) {
	drift := []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}
	f.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: drift}, {Nodes: "100%"}}
}

func together(changes ...func(*nodeFacts)) func(*nodeFacts) {
	return func(f *nodeFacts) {
		for _, change := range changes {
			change(f)
		}
	}
}

const (
	keptFor   = "karpenter.bizflycloud.vn/do-not-disrupt-reason"
	noCheaper = "Can't replace with a cheaper node"
	candidate = "Consolidation candidate: replace"
)

// asIf answers with facts of which all could be read, without those that are named.
func asIf(missing ...need) *reading {
	r := newReading(nil)
	for _, rule := range slices.Concat(stateRules, poolRules, drainRules, idleRules) {
		for _, n := range rule.needs {
			r.facts[n.called()] = read{err: lo.Ternary(lo.Contains(missing, n), errors.New("forbidden"), nil)}
		}
	}
	return r
}

var _ = ginkgo.Describe("the reason why a node is still there", func() {
	ginkgo.DescribeTable("should be the first that holds:", func(change func(*nodeFacts), code string, detail types.GomegaMatcher) {
		f := idleFacts()
		change(f)
		got, why := reasonFor(context.Background(), asIf(), f)
		Expect(got.code).To(Equal(code), why.detail)
		Expect(why.detail).To(detail)
		_, explained := lo.Find(Reasons(), func(d Described) bool { return d.Code == code && d.About != "" && d.Why != "" })
		Expect(explained).To(BeTrue())
	},
		ginkgo.Entry("a pod that keeps it from draining", together(deletes, keepsPod), "DoNotDisruptPod", Equal("pod shop/web")),
		ginkgo.Entry("a pod whose wait ends", together(deletes, keepsPod, func(f *nodeFacts) {
			ends := f.now.Add(time.Hour).Format(time.RFC3339)
			f.claim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: ends}
		}), "DoNotDisruptPod", MatchRegexp(`^pod shop/web, until \d\d:\d\d at the latest$`)),
		ginkgo.Entry("nothing, where core does not drain the pod", together(deletes, keepsPod, func(f *nodeFacts) {
			f.pods[0].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), "Deleting", HavePrefix("its pods are evicted")),
		ginkgo.Entry("a PodDisruptionBudget that does so", together(deletes, guarded), "PodDisruptionBudget",
			Equal("pod shop/web (PodDisruptionBudget shop/web)")),
		ginkgo.Entry("a finalizer", func(f *nodeFacts) {
			f.node.DeletionTimestamp, f.node.Labels[karpv1.NodePoolLabelKey] = lo.ToPtr(metav1.Now()), "default"
			f.node.Finalizers = []string{"example.com/keep"}
		}, "HeldByFinalizer", Equal("example.com/keep of the Node, whose server is deleted")),
		ginkgo.Entry("its deletion", together(deletes, func(f *nodeFacts) { f.notGone = "Server x still exists" }), "Deleting", HavePrefix("Server x")),
		ginkgo.Entry("a worker pool", func(f *nodeFacts) { f.claim = nil }, "NotKarpenters", Equal("no NodeClaim has this node")),
		ginkgo.Entry("a server that boots", func(f *nodeFacts) {
			f.node = nil
			f.claim.StatusConditions().SetUnknown(karpv1.ConditionTypeRegistered)
		}, "Joining", HavePrefix("the server is launched")),
		ginkgo.Entry("a startup taint", func(f *nodeFacts) {
			f.node.Spec.Taints = []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoSchedule}}
			f.claim.Spec.StartupTaints = f.node.Spec.Taints
		}, "StartupTaint", Equal("taint cni:NoSchedule")),
		ginkgo.Entry("resources that are not reported", func(f *nodeFacts) { f.claim.StatusConditions().SetUnknown(karpv1.ConditionTypeInitialized) },
			"NotInitialized", HavePrefix("the node has joined, and is not initialized")),
		ginkgo.Entry("an account that rejects its replacement", together(coreSays("ConsolidationCandidate", candidate, 0),
			func(f *nodeFacts) { f.paused = "no balance" }), "AccountPaused", Equal("no balance")),
		ginkgo.Entry("an account that rejects what replaces a drifted node", together(drifts, func(f *nodeFacts) {
			f.paused = "no balance"
		}), "AccountPaused", Equal("no balance")),
		ginkgo.Entry("an account that is unpaid", annotated(v1alpha1.AnnotationDoNotRepairReason, karpv1.DoNotDisruptAnnotationKey),
			"AccountPaused", HavePrefix("it was unpaid")),
		ginkgo.Entry("a replacement on its way", func(f *nodeFacts) { f.node.Spec.Taints = []corev1.Taint{karpv1.DisruptedNoScheduleTaint} },
			"Replacing", HavePrefix("Karpenter has chosen it")),
		ginkgo.Entry("a static NodePool, whatever else keeps it", together(keepsPod, func(f *nodeFacts) { f.pool.Spec.Replicas = lo.ToPtr[int64](3) }),
			"StaticNodePool", HavePrefix("NodePool default keeps 3 nodes")),
		ginkgo.Entry("consolidateAfter Never", func(f *nodeFacts) {
			f.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		},
			"ConsolidationOff", HavePrefix("consolidateAfter of NodePool default")),
		ginkgo.Entry("the policy WhenEmpty", func(f *nodeFacts) { f.pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty },
			"OnlyWhenEmpty", ContainSubstring("pods run on the node")),
		ginkgo.Entry("an hour that is paid", annotated(karpv1.DoNotDisruptAnnotationKey, "true", keptFor, "HourPaid: until 2026-11-28T09:50:00Z"),
			"HourPaid", MatchRegexp(`^until .*\d\d:50$`)),
		ginkgo.Entry("a closed zone", annotated(karpv1.DoNotDisruptAnnotationKey, "true", keptFor, "ZoneClosed: HN1"), "ZoneClosed", Equal("HN1")),
		ginkgo.Entry("the Node's own annotation", annotated(karpv1.DoNotDisruptAnnotationKey, "true"), "DoNotDisruptNode",
			Equal("annotation karpenter.sh/do-not-disrupt")),
		ginkgo.Entry("a pod's annotation", keepsPod, "DoNotDisruptPod", Equal("pod shop/web")),
		ginkgo.Entry("a PodDisruptionBudget", guarded, "PodDisruptionBudget",
			Equal("pod shop/web (PodDisruptionBudget shop/web)")),
		ginkgo.Entry("consolidateAfter", func(f *nodeFacts) {
			f.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1h")
			f.claim.Status.LastPodEventTime = metav1.NewTime(f.now.Add(-time.Minute))
		}, "ConsolidateAfter", MatchRegexp(`^until \d\d:\d\d, 1h0m0s after`)),
		ginkgo.Entry("a budget of 0", func(f *nodeFacts) { f.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} },
			"DisruptionBudget", Equal("NodePool default allows 0 (Underutilized)")),
		ginkgo.Entry("a budget of 0 that ends", func(f *nodeFacts) {
			f.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Schedule: new("@daily"), Duration: &metav1.Duration{Duration: 23 * time.Hour}}}
			f.now = time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)
		}, "DisruptionBudget", MatchRegexp(`allows 0 \(Underutilized\) until .*:00$`)),
		ginkgo.Entry("a budget that others use", func(f *nodeFacts) {
			f.pool.Spec.Disruption.Budgets, f.disrupting = []karpv1.Budget{{Nodes: "1"}}, 1
		}, "DisruptionBudget", HaveSuffix("and 1 are under way or not ready, as this one")),
		ginkgo.Entry("budgets of both reasons", together(drifts, func(f *nodeFacts) {
			f.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}), "DisruptionBudget", Equal("NodePool default allows 0 (Drifted)")),
		ginkgo.Entry("a budget of drift, where nothing else ends it", together(drifts, driftForbidden, func(f *nodeFacts) {
			f.pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		}), "DisruptionBudget", Equal("NodePool default allows 0 (Drifted)")),
		ginkgo.Entry("what consolidation waits for, where a budget forbids drift", together(drifts, driftForbidden,
			coreSays("Unconsolidatable", noCheaper, 0)), "NoCheaperOffering", HavePrefix(noCheaper)),
		ginkgo.Entry("drift, whatever consolidation waits for", together(drifts, func(f *nodeFacts) {
			f.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		}, coreSays("DisruptionBlocked", "no place for pod shop/web.", 0)), "Drifted",
			HavePrefix("the image has changed; no place for pod shop/web (")),
		ginkgo.Entry("a pod of a node that has drifted", together(drifts, keepsPod), "DoNotDisruptPod",
			Equal("pod shop/web")),
		ginkgo.Entry("drift, for which a terminationGracePeriod ends pods", together(drifts, keepsPod, func(f *nodeFacts) {
			f.claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
		}), "Drifted", Equal("the image has changed")),
		ginkgo.Entry("a label without which there is no price", func(f *nodeFacts) { delete(f.node.Labels, karpv1.CapacityTypeLabelKey) },
			"PriceUnknown", Equal("the Node has no label karpenter.sh/capacity-type")),
		ginkgo.Entry("a zone that its flavor has not", func(f *nodeFacts) { f.node.Labels[corev1.LabelTopologyZone] = "HN9" },
			"PriceUnknown", HavePrefix("flavor large has no price")),
		ginkgo.Entry("a cheaper offering that lately failed", together(coreSays("Unconsolidatable", noCheaper, 0), func(f *nodeFacts) {
			f.unavailable = []unavailableOffering{
				{Offering: capacity.Offering{Flavor: "large", Zone: "HN1"}, until: f.now.Add(time.Minute)},
				{Offering: capacity.Offering{Flavor: "small"}, until: f.now.Add(time.Minute)}}
		}), "CheaperUnavailable", HavePrefix("small in HN1, until about")),
		ginkgo.Entry("a cheaper offering that failed long ago", together(coreSays("Unconsolidatable", noCheaper, 0), func(f *nodeFacts) {
			f.unavailable = []unavailableOffering{{Offering: capacity.Offering{Flavor: "small"}, until: f.now.Add(-time.Minute)}}
		}), "NoCheaperOffering", HavePrefix(noCheaper)),
		ginkgo.Entry("its pods", coreSays("Unconsolidatable", "Can't remove without creating 2 candidates", 0), "Needed", HavePrefix("Can't remove without")),
		ginkgo.Entry("a pod that comes", together(coreSays("DisruptionBlocked", "Node is nominated for a pending pod", 0),
			coreSays("Unconsolidatable", noCheaper, time.Hour)), "NoCheaperOffering", HavePrefix(noCheaper)),
		ginkgo.Entry("a pod that comes to an empty one", together(coreSays("DisruptionBlocked", "Node is nominated for a pending pod", 0),
			func(f *nodeFacts) { f.empty = true }), "Needed", Equal("a pending pod is planned on it")),
		ginkgo.Entry("Balanced", coreSays("ConsolidationRejected", "Consolidation rejected: replace", 0), "NotWorthIt", HavePrefix("Consolidation rejected")),
		ginkgo.Entry("launches that fail", together(coreSays("ConsolidationCandidate", candidate, 0), func(f *nodeFacts) {
			f.failed = []corev1.Event{{Message: "no"}, {Message: "did not register"}}
		}), "ReplacementFailed", And(HavePrefix("2 launches of NodePool default failed"), HaveSuffix("did not register"))),
		ginkgo.Entry("launches that fail, of what replaces a drifted node", together(drifts, func(f *nodeFacts) {
			f.failed = []corev1.Event{{Message: "no", LastTimestamp: metav1.NewTime(f.now.Add(time.Minute))}}
		}), "ReplacementFailed", HaveSuffix(": no")),
		ginkgo.Entry("drift, where launches failed before", together(drifts, func(f *nodeFacts) {
			f.failed = []corev1.Event{{Message: "no", LastTimestamp: metav1.NewTime(f.now.Add(-time.Minute))}}
		}), "Drifted", Equal("the image has changed")),
		ginkgo.Entry("drift, where a node has registered since launches failed", together(drifts, func(f *nodeFacts) {
			f.failed = []corev1.Event{{Message: "no", LastTimestamp: metav1.NewTime(f.now.Add(time.Minute))}}
			f.registered = f.now.Add(2 * time.Minute)
		}), "Drifted", Equal("the image has changed")),
		ginkgo.Entry("launches that failed, of a NodePool that is gone", together(coreSays("ConsolidationCandidate", candidate, 0), func(f *nodeFacts) {
			f.failed, f.pool = []corev1.Event{{Message: "no"}}, nil
		}), "NotKnown", HavePrefix("Karpenter may consolidate it since")),
		ginkgo.Entry("another NodePool", func(f *nodeFacts) {
			for i := range f.claim.Status.Conditions {
				f.claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(f.now.Add(-time.Hour))
			}
			f.others = map[string]int{"batch": 7, "web": 2}
		}, "Starved", HavePrefix("by NodePool batch: Karpenter looked at 7")),
		ginkgo.Entry("nothing of a pod whose time is over", func(f *nodeFacts) {
			f.pods[0].Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "30m"}
			f.pods[0].Status.StartTime = lo.ToPtr(metav1.NewTime(f.now.Add(-time.Hour)))
		}, "NotKnown", HavePrefix("Karpenter may consolidate it since")),
		ginkgo.Entry("nothing that is known", func(*nodeFacts) {}, "NotKnown", HavePrefix("Karpenter may consolidate it since")),
		ginkgo.Entry("what core said of a state that is over", coreSays("Unconsolidatable", `NodePool "default" has consolidation disabled`, 0),
			"NotKnown", HavePrefix("Karpenter may consolidate it since")),
	)

	ginkgo.It("should not be known where a fact is missing, unless an earlier one decides", func(ctx context.Context) {
		rule, why := reasonFor(ctx, asIf(factPDBs), idleFacts())
		Expect([]string{rule.code, why.detail}).To(Equal([]string{"NotKnown", "PodDisruptionBudgets: forbidden"}))
		rule, why = reasonFor(ctx, asIf(factProviderConfig), idleFacts())
		Expect([]string{rule.code, why.detail}).To(Equal([]string{"NotKnown", "ProviderConfig: forbidden"}))
		f := idleFacts()
		keepsPod(f)
		rule, _ = reasonFor(ctx, asIf(factCoreEvents), f)
		Expect(rule.code).To(Equal("DoNotDisruptPod"))
	})
})

var _ = ginkgo.DescribeTable("the nodes that count for budgets", func(change func(*top.Node), members, disrupting int) {
	f := idleFacts()
	f.node.Labels = map[string]string{karpv1.NodePoolLabelKey: "default", karpv1.NodeInitializedLabelKey: "true",
		karpv1.NodeRegisteredLabelKey: "true"}
	f.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	row := top.Node{Object: f.node, Claim: f.claim}
	change(&row)
	all, chosen := countForBudgets(&top.Cluster{Nodes: []top.Node{row}})
	Expect([]int{all["default"], chosen["default"]}).To(Equal([]int{members, disrupting}))
},
	ginkgo.Entry("should be those that are initialized", func(*top.Node) {}, 1, 0),
	ginkgo.Entry("should not be those that are not", func(n *top.Node) {
		delete(n.Object.Labels, karpv1.NodeInitializedLabelKey)
	}, 0, 0),
	ginkgo.Entry("should not be those of a worker pool", func(n *top.Node) { n.Claim = nil }, 0, 0),
	ginkgo.Entry("should be disrupted if core has chosen them", func(n *top.Node) {
		n.Object.Spec.Taints = []corev1.Taint{karpv1.DisruptedNoScheduleTaint}
	}, 1, 1),
	ginkgo.Entry("should be disrupted if they are not ready", func(n *top.Node) {
		n.Object.Status.Conditions = nil
	}, 1, 1),
)

var _ = ginkgo.Describe("the week of a NodePool", func() {
	ginkgo.It("should have the windows of its budgets by the minute", func() {
		pool := idleFacts().pool
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "50%"},
			{Nodes: "0", Schedule: new("0 1 * * 1-5"), Duration: &metav1.Duration{Duration: 9 * time.Hour},
				Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}}}
		sunday := time.Date(2026, 11, 29, 12, 0, 30, 0, time.UTC)
		Expect(week(pool, 3, karpv1.DisruptionReasonEmpty, sunday)).To(HaveExactElements(HaveField("Allowed", 2)))
		drifted := week(pool, 3, karpv1.DisruptionReasonDrifted, sunday)
		Expect(drifted).To(HaveLen(11))
		Expect(drifted[1]).To(Equal(Window{From: sunday.Truncate(time.Hour).Add(13 * time.Hour), To: sunday.Truncate(time.Hour).Add(22 * time.Hour)}))
	})
})
