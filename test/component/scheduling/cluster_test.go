// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	coremetrics "sigs.k8s.io/karpenter/pkg/metrics"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"
	"sigs.k8s.io/karpenter/pkg/test/expectations"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/nodesize"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

// testCluster is a cluster whose nodes are the guests of the sandbox's servers: they see less memory than is advertised, read
// their own user data and register themselves. Core's lifecycle controller launches, registers and initialises.
type testCluster struct {
	*planner
	guests    *guest.Guests
	lifecycle *lifecycle.Controller
	sizes     *nodesize.Controller
}

func newTestCluster(memoryOverhead float64) *testCluster {
	planner := newPlanner(env.CloudProvider)
	return &testCluster{
		planner: planner,
		guests: guest.New(env.Sandbox.Cloud, guest.Options{
			Client: kubernetes.NewForConfigOrDie(env.Environment.Environment.Config), MemoryOverhead: memoryOverhead, Ready: true, NodeSilence: -1,
		}),
		lifecycle: lifecycle.NewController(env.Clock, env.Client, env.CloudProvider, env.Recorder, planner.cluster, nodepoolhealth.NewState(), nil),
		sizes:     nodesize.NewController(env.Client, env.Flavors, env.Recorder),
	}
}

// settle does what a cluster does until every pod runs or nothing more happens, and returns the pods that wait. After
// so many rounds it would go on indefinitely.
func (h *testCluster) settle(pods ...*corev1.Pod) []*corev1.Pod {
	GinkgoHelper()
	for _, p := range pods {
		expectations.ExpectApplied(ctx, env.Client, p)
	}
	for range 5 {
		if pods = h.bind(pods); len(pods) == 0 {
			return nil
		}
		results := lo.Must(h.provisioner.Schedule(ctx))
		if len(results.NewNodeClaims) == 0 {
			return pods
		}
		names, err := h.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims, provisioning.WithReason(coremetrics.ProvisionedReason))
		Expect(err).ToNot(HaveOccurred())
		for _, name := range names {
			h.join(name)
		}
	}
	return pods
}

// atPresent sets a clock that is far ahead to the present, and returns what sets it back. The API server writes its own time, by which a
// claim would have waited too long already.
func atPresent() (back func()) {
	ahead := env.Clock.Now()
	if time.Until(ahead) <= time.Minute {
		return func() {}
	}
	env.Clock.SetTime(time.Now())
	return func() { env.Clock.SetTime(ahead) }
}

// join lets a claim be launched and its node join.
func (h *testCluster) join(name string) {
	GinkgoHelper()
	defer atPresent()()
	claim := &karpv1.NodeClaim{}
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		g.Expect(h.lifecycle.Reconcile(ctx, claim.DeepCopy())).Error().ToNot(HaveOccurred())
		g.Expect(h.guests.Sync(ctx)).To(Succeed())
		g.Expect(removeNotReadyTaints()).To(Succeed())
		g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: name}, claim)).To(Succeed())
		g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()).To(BeTrue(), "%v", claim.Status.Conditions)
	}).Should(Succeed())
	h.cluster.UpdateNodeClaim(claim)
	node := &corev1.Node{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node)).To(Succeed())
	Expect(h.cluster.UpdateNode(ctx, node)).To(Succeed())
	Expect(h.sizes.Reconcile(ctx, claim)).To(BeZero())
}

// removeNotReadyTaints is a node lifecycle controller: it takes away the taint with which the API server admits every node.
func removeNotReadyTaints() error {
	nodes := &corev1.NodeList{}
	if err := env.APIReader.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		kept := lo.Reject(node.Spec.Taints, func(t corev1.Taint, _ int) bool { return t.Key == corev1.TaintNodeNotReady })
		if len(kept) == len(node.Spec.Taints) {
			continue
		}
		node.Spec.Taints = kept
		if err := env.APIReader.Update(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// bind is a kube-scheduler that knows resources and nothing else. It returns the pods that fit nowhere.
func (h *testCluster) bind(pods []*corev1.Pod) (waiting []*corev1.Pod) {
	GinkgoHelper()
	nodes := expectations.ExpectNodes(ctx, env.Client)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range pods {
		node, fits := lo.Find(nodes, func(n *corev1.Node) bool {
			here := append(podsOn(ctx, n), p)
			return resources.Fits(resources.RequestsForPods(here...), n.Status.Allocatable)
		})
		if !fits {
			waiting = append(waiting, p)
			continue
		}
		expectations.ExpectManualBinding(ctx, bindingClient{env.Client}, p, node)
		Expect(h.cluster.UpdatePod(ctx, p)).To(Succeed())
	}
	return waiting
}

func podsOn(ctx context.Context, node *corev1.Node) []*corev1.Pod {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(env.Client.List(ctx, pods)).To(Succeed())
	return lo.FilterMap(pods.Items, func(p corev1.Pod, _ int) (*corev1.Pod, bool) { return &p, p.Spec.NodeName == node.Name })
}
