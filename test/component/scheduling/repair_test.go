// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination/terminator"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/garbagecollection"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/reboot"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/protection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// repairCluster is a cluster with core's controllers that repair nodes, and ours that reports the state of servers.
type repairCluster struct {
	*testCluster
	state   *server.Controller
	repairs *disruption.Controller
	queue   *disruption.Queue
	reboots *reboot.Controller
}

func newRepairCluster() *repairCluster {
	c := &repairCluster{testCluster: newTestCluster(0.04),
		state: server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)}
	clk := unit.SteppingClock{FakeClock: env.Clock}
	c.queue = disruption.NewQueue(c.client, env.Recorder, c.cluster, clk, c.provisioner)
	c.repairs = disruption.NewController(ctx, clk, c.client, c.provisioner, env.CloudProvider, env.Recorder, c.cluster, c.queue,
		cost.NewClusterCost(ctx, env.CloudProvider, env.Client))
	c.reboots = reboot.NewController(env.Clock, env.Client, env.CloudProvider,
		terminator.NewTerminator(env.Clock, env.Client, terminator.NewQueue(env.Clock, env.Client, env.Recorder), env.Recorder), env.Recorder)
	return c
}

// populated launches as many nodes as there are pods, one for each.
func (c *repairCluster) populated(count int) {
	GinkgoHelper()
	pods := lo.Times(count, func(int) *corev1.Pod {
		return coretest.UnschedulablePod(coretest.PodOptions{ResourceRequirements: requests("1100m", "512Mi")})
	})
	Expect(c.settle(pods...)).To(BeEmpty())
	Expect(env.Servers()).To(HaveLen(count))
}

// silent is what the node lifecycle controller writes about a kubelet that does not answer.
func (c *repairCluster) silent(nodes ...*corev1.Node) {
	GinkgoHelper()
	for _, node := range nodes {
		c.ready(node, corev1.ConditionUnknown, "NodeStatusUnknown")
	}
}

// ready writes the Ready condition of a Node.
func (h *testCluster) ready(node *corev1.Node, status corev1.ConditionStatus, reason string) {
	GinkgoHelper()
	h.report(node, corev1.NodeReady, status, reason)
}

// report writes a condition of a Node.
func (h *testCluster) report(node *corev1.Node, condition corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	GinkgoHelper()
	live := &corev1.Node{}
	Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(node), live)).To(Succeed())
	changed := live.DeepCopy()
	now := metav1.NewTime(env.Clock.Now())
	changed.Status.Conditions = append(lo.Reject(changed.Status.Conditions, func(c corev1.NodeCondition, _ int) bool { return c.Type == condition }),
		corev1.NodeCondition{Type: condition, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now})
	Expect(env.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(live))).To(Succeed())
}

// set gives the servers of nodes another status, after which their kubelets are silent.
func (c *repairCluster) set(status string, nodes ...*corev1.Node) {
	GinkgoHelper()
	for _, node := range nodes {
		Expect(env.Sandbox.SetServerStatus(serverID(node), status)).To(Succeed())
	}
	Expect(c.guests.Sync(ctx)).To(Succeed())
	c.silent(nodes...)
}

// pass lets a time go by and everything that repairs look once.
func (c *repairCluster) pass(after time.Duration) {
	GinkgoHelper()
	env.Clock.Step(after)
	for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
		Expect(c.state.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
	}
	c.forget()
	Eventually(func() bool { return c.cluster.Synced(ctx) }).Should(BeTrue())
	expectations.ExpectSingletonReconciled(ctx, c.repairs)
	for _, command := range c.queue.GetCommands() {
		for _, replacement := range command.Replacements {
			c.join(replacement.Name)
		}
		for _, candidate := range command.Candidates {
			expectations.ExpectObjectReconciled(ctx, env.Client, c.queue, candidate.NodeClaim)
		}
	}
	for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
		// A cloud that does not answer is the error of a pass and is asked again in the next.
		_, _ = c.reboots.Reconcile(ctx, claim)
	}
	c.terminated()
}

// passes are many of them.
func (c *repairCluster) passes(count int, each time.Duration) {
	GinkgoHelper()
	for range count {
		c.pass(each)
	}
}

func serverID(node *corev1.Node) string { return unit.ServerID(node.Spec.ProviderID) }

func hardReboots() int {
	return lo.CountBy(env.Sandbox.Requests(), func(r cloud.Request) bool { return strings.Contains(string(r.Body), `"hard_reboot"`) })
}

var _ = Describe("Node repair", func() {
	before := ctx
	AfterEach(func() { ctx = before }) //nolint:fatcontext // back to what it was
	var c *repairCluster
	var nodes []*corev1.Node
	var ids []string
	// cluster is one of so many nodes.
	cluster := func(count int, gate bool) {
		GinkgoHelper()
		gates := coretest.OptionsFields{FeatureGates: coretest.FeatureGates{NodeRepair: &gate}}
		ctx = coreoptions.ToContext(before, coretest.Options(gates)) //nolint:fatcontext // replaced, not nested
		pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"))
		pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		ready(pool)
		c = newRepairCluster()
		c.populated(count)
		nodes = expectations.ExpectNodes(ctx, env.Client)
		ids = lo.Map(env.Servers(), func(s cloud.Server, _ int) string { return s.ID })
	}
	alive := func() []string { return lo.Map(env.Servers(), func(s cloud.Server, _ int) string { return s.ID }) }
	live := func(node *corev1.Node) *corev1.Node {
		GinkgoHelper()
		found := &corev1.Node{}
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(node), found)).To(Succeed())
		return found
	}
	rejected := func(status int) {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers/*/action", Effect: cloud.EffectStatus, Status: status, Message: "no"})
	}

	DescribeTable("should start a server that does not run, with its disk, and not within five minutes",
		func(status string) {
			cluster(3, true)
			c.set(status, nodes[0])
			c.pass(0)
			c.pass(4 * time.Minute)
			Expect(hardReboots()).To(BeZero())
			c.pass(2 * time.Minute)
			Expect(hardReboots()).To(Equal(1))
			Eventually(func() string { return env.Server(nodes[0].Spec.ProviderID).Status }).Should(Equal("ACTIVE"))
			Expect(alive()).To(ConsistOf(ids))
		},
		Entry("stopped", "SHUTOFF"), Entry("failed", "ERROR"),
	)
	It("should replace the node of a server that is suspended, whose reboot the cloud rejects", func() {
		cluster(3, true)
		c.set("SUSPENDED", nodes[0])
		c.pass(0)
		c.pass(6 * time.Minute)
		c.pass(15 * time.Second)
		Expect(alive()).To(HaveLen(3))
		Expect(alive()).ToNot(ContainElement(serverID(nodes[0])))
	})
	It("should act on what a condition says, and never on its reason alone", func() {
		cluster(3, true)
		for _, policy := range env.CloudProvider.RepairPolicies() {
			if policy.ConditionType != corev1.NodeReady {
				c.report(nodes[0], policy.ConditionType, corev1.ConditionFalse, lo.Ternary(policy.ConditionType == "ReadonlyFilesystem", "FilesystemIsReadOnly", "Broken"))
			}
		}
		c.passes(3, 10*time.Minute)
		Expect(alive()).To(ConsistOf(ids))
		Expect(hardReboots()).To(BeZero())
		c.report(nodes[0], "ContainerRuntimeUnhealthy", corev1.ConditionTrue, "")
		c.passes(2, 4*time.Minute)
		c.pass(2 * time.Minute)
		Expect(hardReboots()).To(Equal(1))
		Expect(alive()).To(ConsistOf(ids))
	})
	It("should do nothing while the gate is off", func() {
		cluster(2, false)
		c.set("SHUTOFF", nodes[0])
		c.passes(5, 10*time.Minute)
		Expect(alive()).To(ConsistOf(ids))
	})
	It("should delete nothing when all servers stop at once, and when they are started again", func() {
		cluster(20, true)
		c.set("SHUTOFF", nodes...)
		c.passes(10, 10*time.Minute)
		Expect(alive()).To(ConsistOf(ids), "20 of 20 servers are still there")
		Expect(expectations.ExpectNodeClaims(ctx, env.Client)).To(HaveLen(20))
		Expect(env.Recorder.Calls("NodeRepairBlocked")).To(BeNumerically(">", 0))
		env.Clock.Step(time.Minute)
		for _, node := range nodes {
			Expect(env.Sandbox.SetServerStatus(serverID(node), "ACTIVE")).To(Succeed())
			c.ready(node, corev1.ConditionTrue, "KubeletReady")
		}
		c.passes(2, 10*time.Minute)
		Expect(alive()).To(ConsistOf(ids))
		Expect(hardReboots()).To(BeZero())
	})
	DescribeTable("should delete nothing where an unpaid account stops all servers, and start them later",
		func(count int, gate bool) {
			cluster(count, gate)
			pool := &karpv1.NodePool{}
			Expect(env.Client.Get(ctx, client.ObjectKey{Name: nodes[0].Labels[karpv1.NodePoolLabelKey]}, pool)).To(Succeed())
			pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
			// Of a share, nodes that are not ready use up all.
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1000"}}
			Expect(env.Client.Update(ctx, pool)).To(Succeed())
			accounts := protection.NewController(env.Client, env.Clock, env.Account, env.Instances, env.Recorder)
			look := func() {
				GinkgoHelper()
				env.Clock.Step(ttl.Account)
				for _, node := range nodes {
					_, err := accounts.Reconcile(ctx, live(node))
					Expect(err).ToNot(HaveOccurred())
				}
			}
			disks := len(env.Sandbox.State().Volumes)
			env.Sandbox.SetQuota(cloud.Quota{Suspended: true})
			Expect(c.guests.Sync(ctx)).To(Succeed())
			c.silent(nodes...)
			look()
			By("pods that are evicted, so that the nodes are empty")
			for _, node := range nodes {
				for _, pod := range podsOn(ctx, node) {
					expectations.ExpectDeleted(ctx, env.Client, pod)
					c.cluster.DeletePod(client.ObjectKeyFromObject(pod))
				}
			}
			for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
				claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
				expectations.ExpectApplied(ctx, env.Client, claim)
			}
			for range 3 {
				c.pass(10 * time.Minute)
				look()
			}
			Expect(alive()).To(ConsistOf(ids))
			Expect(env.Sandbox.State().Volumes).To(HaveLen(disks))
			Expect(expectations.ExpectNodeClaims(ctx, env.Client)).To(And(HaveLen(count), HaveEach(HaveField("DeletionTimestamp", BeNil()))))
			Expect(hardReboots()).To(BeZero())
			By("a NodeClaim that expires, whose server waits")
			expired := expectations.ExpectNodeClaims(ctx, env.Client)[0]
			err := env.CloudProvider.Delete(ctx, expired)
			Expect(err).To(MatchError(ContainSubstring("the account's balance is negative")))
			Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeFalse(), "the server exists")
			Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(Equal(1))
			Expect(alive()).To(ConsistOf(ids))

			env.Sandbox.SetQuota(cloud.Quota{})
			look()
			Expect(hardReboots()).To(Equal(count))
			Eventually(func() []string {
				return lo.Map(env.Servers(), func(s cloud.Server, _ int) string { return s.Status })
			}).Should(HaveEach("ACTIVE"))
			Expect(live(nodes[0]).Annotations).ToNot(Or(HaveKey(karpv1.DoNotRepairAnnotationKey), HaveKey(karpv1.DoNotDisruptAnnotationKey)))
			Expect(alive()).To(ConsistOf(ids))
		},
		Entry("one node, with node repair", 1, true), Entry("one node, without it", 1, false),
		Entry("many nodes, with node repair", 8, true), Entry("many nodes, without it", 8, false),
	)
	It("should leave a node whose server is missing to core, which spares a live kubelet", func() {
		cluster(3, true)
		Expect(env.Sandbox.RemoveServer(serverID(nodes[0]))).To(Succeed())
		collector := garbagecollection.NewController(env.Clock, env.Client, env.CloudProvider)
		Expect(collector.Reconcile(ctx)).Error().ToNot(HaveOccurred())
		Expect(lo.CountBy(expectations.ExpectNodeClaims(ctx, env.Client), func(n *karpv1.NodeClaim) bool { return !n.DeletionTimestamp.IsZero() })).To(BeZero())
		c.silent(nodes[0])
		for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
			Expect(c.state.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		}
		Expect(collector.Reconcile(ctx)).Error().ToNot(HaveOccurred())
		c.terminated()
		Expect(alive()).To(HaveLen(3))
		Expect(alive()).To(ContainElements(lo.Without(ids, serverID(nodes[0]))))
	})

	Describe("by a reboot", func() {
		var hung *corev1.Node
		BeforeEach(func() {
			cluster(3, true)
			hung = nodes[0]
			c.silent(hung)
		})
		claimOf := func(node *corev1.Node) *karpv1.NodeClaim {
			claim, _ := lo.Find(expectations.ExpectNodeClaims(ctx, env.Client), func(n *karpv1.NodeClaim) bool { return n.Status.ProviderID == node.Spec.ProviderID })
			return claim
		}
		// back lets the server boot and its kubelet report.
		back := func() {
			GinkgoHelper()
			env.Clock.Step(time.Minute)
			Eventually(func(g Gomega) {
				g.Expect(c.guests.Sync(ctx)).To(Succeed())
				g.Expect(live(hung).Status.NodeInfo.BootID).ToNot(Equal(hung.Status.NodeInfo.BootID))
			}).Should(Succeed())
			c.ready(hung, corev1.ConditionTrue, "KubeletReady")
		}
		issued := func() {
			GinkgoHelper()
			c.pass(4 * time.Minute)
			Expect(hardReboots()).To(BeZero())
			c.pass(2 * time.Minute)
			Expect(hardReboots()).To(Equal(1))
			Expect(claimOf(hung).StatusConditions().Get(karpv1.ConditionTypeRebooting).Reason).To(Equal(karpv1.RebootReasonIssued))
		}

		It("should bring a hung node back with its server, its pods and its NodeClaim", func() {
			issued()
			back()
			c.pass(15 * time.Second)
			rebooting := claimOf(hung).StatusConditions().Get(karpv1.ConditionTypeRebooting)
			Expect(rebooting.Reason).To(Equal(karpv1.RebootReasonSucceeded))
			Expect(alive()).To(ConsistOf(ids))
			Expect(podsOn(ctx, hung)).To(HaveLen(1))
			Expect(hardReboots()).To(Equal(1))
		})
		It("should replace the node when the server never comes back", func() {
			issued()
			c.pass(21 * time.Minute)
			c.pass(15 * time.Second)
			Expect(alive()).To(HaveLen(3))
			Expect(alive()).ToNot(ContainElement(serverID(hung)))
		})
		It("should replace the node when the server is gone while it is rebooted", func() {
			issued()
			Expect(env.Sandbox.RemoveServer(serverID(hung))).To(Succeed())
			_, err := garbagecollection.NewController(env.Clock, env.Client, env.CloudProvider).Reconcile(ctx)
			Expect(err).ToNot(HaveOccurred())
			c.terminated()
			Expect(alive()).To(HaveLen(3))
			Expect(alive()).To(ContainElements(lo.Without(ids, serverID(hung))))
		})
		It("should replace a node that hangs again after two reboots", func() {
			for range 2 {
				hung = live(hung)
				c.silent(hung)
				c.pass(6 * time.Minute)
				back()
				c.pass(15 * time.Second)
			}
			Expect(alive()).To(ConsistOf(ids))
			Expect(hardReboots()).To(Equal(2))
			makeInitialized(c, hung)
			c.silent(hung)
			c.pass(6 * time.Minute)
			Expect(alive()).ToNot(ContainElement(serverID(hung)))
			Expect(hardReboots()).To(Equal(2))
		})
		DescribeTable("should replace the node at once where the cloud rejects the reboot for good",
			func(status int) {
				rejected(status)
				c.pass(6 * time.Minute)
				c.pass(15 * time.Second)
				Expect(alive()).To(HaveLen(3))
				Expect(alive()).ToNot(ContainElement(serverID(hung)))
				Expect(hardReboots()).To(Equal(1))
			},
			Entry("403", http.StatusForbidden), Entry("404", http.StatusNotFound), Entry("400", http.StatusBadRequest),
		)
		DescribeTable("should retry a reboot for five minutes, and then replace the node",
			func(fault cloud.Fault) {
				fault.Method, fault.Path = http.MethodPost, "/servers/*/action"
				env.Sandbox.AddFaults(1, fault)
				c.pass(6 * time.Minute)
				c.pass(2 * time.Minute)
				Expect(alive()).To(ConsistOf(ids))
				Expect(hardReboots()).To(BeNumerically(">", 1))
				c.pass(4 * time.Minute)
				c.pass(15 * time.Second)
				Expect(alive()).To(HaveLen(3))
				Expect(alive()).ToNot(ContainElement(serverID(hung)))
			},
			Entry("409", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusConflict, Message: "no"}),
			Entry("500", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusInternalServerError}),
			Entry("no answer", cloud.Fault{Effect: cloud.EffectReset}),
		)
	})
})

// makeInitialized is what core's lifecycle controller does once a node has come back from a reboot.
func makeInitialized(c *repairCluster, node *corev1.Node) {
	GinkgoHelper()
	for _, claim := range expectations.ExpectNodeClaims(ctx, env.Client) {
		if claim.Status.ProviderID == node.Spec.ProviderID {
			Expect(c.lifecycle.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		}
	}
}
