// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/flavors"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// written writes a file of the spec.
func written(name, text string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

var _ = Describe("flavors", func() {
	It("should list every flavor and zone with size, price and availability", func() {
		rows := answer[[]flavors.Row](f, "flavors")
		Expect(rows).ToNot(BeEmpty())
		row, ok := lo.Find(rows, func(r flavors.Row) bool { return r.Flavor == "p2.2c_4g" && r.Zone == "HN1" })
		Expect(ok).To(BeTrue())
		Expect(row.Available).To(BeTrue())
		Expect(row.NodeMemoryMiB).To(BeNumerically("<", row.MemoryMiB))
		Expect(row.Allocatable.Memory().Value() >> 20).To(BeNumerically("<", row.NodeMemoryMiB))
		Expect(row.VNDPerMonth).To(BeNumerically("~", row.VNDPerHour*720, 0.01))
	})

	It("should say which zone is closed", func() {
		f.Edit(func(c *cloud.Catalog) { c.Regions[0].Zones[0].Active = false })
		rows := answer[[]flavors.Row](f, "flavors", "--requirements", "flavor=p2.2c_4g")
		closed, _ := lo.Find(rows, func(r flavors.Row) bool { return r.Zone == "HN1" })
		Expect(closed.Available).To(BeFalse())
		Expect(closed.Reason).To(ContainSubstring("closed the zone"))
	})

	It("should call no offering available whose launch has lately failed, as why does not", func() {
		f.apply(pools)
		event("e", events.OfferingUnavailable(claimNamed("default-x7k2p"), "p2.2c_4g", "HN1", "NoHost", errors.New("no")), time.Minute)(f)
		for _, args := range [][]string{{"flavors"}, {"flavors", "--nodepool", "default"}} {
			Expect(answer[[]flavors.Row](f, args...)).To(ContainElement(And(HaveField("Flavor", "p2.2c_4g"), HaveField("Zone", "HN1"),
				HaveField("Available", false), HaveField("Reason", ContainSubstring("marked unavailable after a failed launch")))))
		}
	})

	It("should filter like a NodePool's requirements", func() {
		rows := answer[[]flavors.Row](f, "flavors", "--requirements", "category in (basic,premium),cpu>3,memory<16384,zone=HN2,!gpu-count")
		Expect(rows).ToNot(BeEmpty())
		for _, row := range rows {
			Expect(row.CPU).To(BeNumerically(">", 3))
			Expect(row.MemoryMiB).To(BeNumerically("<", 16384))
			Expect(row.Zone).To(Equal("HN2"))
			Expect(row.Category).To(BeElementOf("basic", "premium"))
		}
	})

	It("should give the reason for every exclusion by a NodePool", func() {
		f.apply(pools)
		rows := answer[[]flavors.Row](f, "flavors", "--nodepool", "default")
		excluded, available := lo.FilterReject(rows, func(r flavors.Row, _ int) bool { return !r.Available })
		Expect(available).ToNot(BeEmpty())
		Expect(excluded).ToNot(BeEmpty())
		for _, row := range excluded {
			Expect(row.Reason).ToNot(BeEmpty(), row.Flavor)
		}
		Expect(excluded).To(ContainElement(HaveField("Reason", ContainSubstring("instance-category In [premium], and it has basic"))))
	})

	It("should reject requirements that cannot be read, with an example", func() {
		Expect(f.run("flavors", "--requirements", "cpu in 4")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("write for example"))
	})

	It("should reject a key that no flavor has, and a NodePool together with a NodeClass", func() {
		f.apply(pools)
		Expect(f.run("flavors", "--requirements", "cpus>3")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring(`no flavor has the label "cpus"`), ContainSubstring("category, cpu, flavor")))
		Expect(f.run("flavors", "--nodepool", "default", "--nodeclass", "default")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("nodeclass nodepool"))
	})

	It("should print a table for people", func() {
		Expect(f.run("flavors")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("VND/MONTH"))
		Expect(f.out).To(MatchRegexp(`p2\.2c_4g +HN1 +premium +2 +4Gi`))
	})
})

var _ = Describe("plan", func() {
	It("should plan manifests with the NodePools of the cluster", func() {
		f.apply(pools)
		p := answer[plan.Plan](f, "plan", "-f", written("web.yaml", web))
		Expect(p.Pods).To(Equal(6))
		Expect(p.Unplaced).To(BeEmpty())
		Expect(lo.SumBy(p.Nodes, func(n sim.Node) int { return len(n.Pods) })).To(Equal(6))
		Expect(p.VNDPerHour).To(BeNumerically("~", lo.SumBy(p.Nodes, func(n sim.Node) float64 { return n.VNDPerHour }), 0.01))
		Expect(p.Nodes[0].Used[corev1.ResourceCPU]).To(And(BeNumerically(">", 0), BeNumerically("<=", 1)))
		Expect(p.Nodes[0].LimitedBy).ToNot(BeEmpty())
	})

	It("should plan Helm's output from the standard input without a cluster", func() {
		f.reader, f.stdin = nil, "# Source: shop/templates/web.yaml\n"+pools+"---\n"+web
		p := answer[plan.Plan](f, "plan", "-f", "-")
		Expect(p.Unplaced).To(BeEmpty())
		Expect(p.Nodes).ToNot(BeEmpty())
		Expect(f.err).To(ContainSubstring("planned without a cluster"))
	})

	It("should plan a table of pods", func() {
		f.apply(pools)
		p := answer[plan.Plan](f, "plan", "-f", written("pods.csv", "name,count,cpu,memory,zone\napi,3,500m,1Gi,HN2\n"))
		Expect(p.Pods).To(Equal(3))
		Expect(p.Nodes).To(HaveEach(HaveField("Zone", "HN2")))
	})

	It("should place a pod in the zone of its volume", func() {
		f.apply(pools + "---\n" + web)
		useVolume(f, "HN2")
		p := answer[plan.Plan](f, "plan")
		Expect(p.Unplaced).To(BeEmpty())
		Expect(p.Nodes).To(ContainElement(And(HaveField("Zone", "HN2"), HaveField("Pods", ContainElement(HaveSuffix("web-0"))))))
	})

	It("should leave capacity for DaemonSets on every node", func() {
		f.apply(pools)
		file := written("web.yaml", web)
		before := answer[plan.Plan](f, "plan", "-f", file)
		agent := strings.NewReplacer("kind: Deployment", "kind: DaemonSet", "  replicas: 6\n", "", "name: web", "name: agent", "app: web", "app: agent",
			`cpu: "1", memory: 2Gi`, `cpu: "900m", memory: 1Gi`).Replace(web)
		after := answer[plan.Plan](f, "plan", "-f", written("both.yaml", web+"---\n"+agent))
		Expect(after.Pods).To(Equal(before.Pods))
		requested := func(p plan.Plan) float64 {
			return lo.SumBy(p.Nodes, func(n sim.Node) float64 { return n.Used[corev1.ResourceCPU] })
		}
		Expect(requested(after) > requested(before) || after.VNDPerHour > before.VNDPerHour).To(BeTrue())
	})

	It("should say of a pod that fits nowhere why, and fail if it is asked to", func() {
		f.apply(pools)
		file := written("pods.csv", "name,cpu,memory\nhuge,500,1Ti\n")
		p := answer[plan.Plan](f, "plan", "-f", file)
		Expect(p.Unplaced).To(HaveLen(1))
		Expect(p.Unplaced[0].Reason).ToNot(BeEmpty())
		Expect(f.run("plan", "-f", file, "--fail-on-unplaced")).To(Equal(cli.ExitFindings))
	})

	It("should not plan with a NodePool whose name is no label of NodeClaims, nor should doctor pass it", func() {
		f.install()
		f.apply(pools + "---\n" + web)
		pool := get[karpv1.NodePool](f, "", "default") // it is older than the admission policy
		Expect(f.objects.Delete(context.Background(), pool)).To(Succeed())
		long := strings.Repeat("a", 64)
		pool.Name = long
		f.put(pool)
		reason := "no NodeClaim of it can be created: metadata.name: Invalid value: "
		p := answer[plan.Plan](f, "plan")
		Expect(p.Unplaced).To(HaveLen(6))
		Expect(p.Notes).To(ContainElement(ContainSubstring(long + " is left out: " + reason)))
		why := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(fmt.Sprint(why.Pools[0].Checks)).To(ContainSubstring("it is not ready: " + reason))
		Expect(answer[rules.Report](f, "doctor").Findings).To(ContainElement(And(HaveField("Code", "NodePoolNotReady"),
			HaveField("What", ContainSubstring(reason)))))
	})

	It("should not fail for a pod that must not run on Karpenter's nodes, as the controller's", func() {
		f.apply(pools + "---\n" + web)
		changePod(f, keptOff)
		Expect(f.run("plan", "--fail-on-unplaced")).To(Equal(cli.ExitOK), f.out)
		Expect(f.out).To(And(ContainSubstring("\n5 pods on "), Not(ContainSubstring("without a place")),
			ContainSubstring("may not run on Karpenter's nodes (shop/web-0)")))
		why := answer[rules.Pod](f, "why", "web-0", "-n", "shop")
		Expect(why.Outcome).To(HavePrefix("Karpenter cannot place it: configured to not run on a Karpenter"))
	})

	It("should compare with the nodes that stay, for such pods or as those of the control plane", func() {
		f.apply(pools + "---\n" + web)
		for name, role := range map[string]string{"control-plane": "control-plane", "pool-1": "worker", "pool-2": "worker"} {
			f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelInstanceTypeStable: "nix.8c_16g", "node-role.kubernetes.io/" + role: "",
			}}})
		}
		changePod(f, func(pod *corev1.Pod) {
			pod.Spec.NodeName = "pool-1"
			keptOff(pod)
		})
		p := answer[plan.Plan](f, "plan")
		Expect(p.Today.Staying).To(Equal(2))
		Expect(p.Today.StayingVNDPerHour).To(BeNumerically("~", p.Today.VNDPerHour*2/3))
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring(fmt.Sprintf("the plan with 2 nodes that stay costs %+.0f%%",
			((p.VNDPerHour+p.Today.StayingVNDPerHour)/(p.Today.VNDPerHour+p.Today.AddedVNDPerHour)-1)*100)))
	})

	It("should plan the workloads of the cluster from empty and compare with what runs today", func() {
		f.apply(pools + "---\n" + web)
		for i := range 4 {
			f.put(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%d", i),
					Labels: map[string]string{corev1.LabelInstanceTypeStable: "nix.8c_16g", corev1.LabelTopologyZone: "HN1"}},
				Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("bizflycloud://%d", i)},
			})
		}
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(string(phase)), Namespace: "shop"},
				Spec: corev1.PodSpec{NodeName: "pool-0"}, Status: corev1.PodStatus{Phase: phase}})
		}
		p := answer[plan.Plan](f, "plan")
		Expect(p.Pods).To(Equal(6), "what has ended needs no node")
		Expect(p.Today).ToNot(BeNil())
		Expect(p.Today.Nodes).To(Equal(4))
		Expect(p.Today.Unpriced).To(BeZero())
		Expect(p.VNDPerHour).To(BeNumerically("<", p.Today.VNDPerHour))
		Expect(p.Today.Waiting).To(Equal(6), "no pod is bound")
	})

	It("should compare with no sum that leaves out nodes of an unknown flavor", func() {
		f.apply(pools + "---\n" + web)
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelInstanceTypeStable: "nix.8c_16g"}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{corev1.LabelInstanceTypeStable: "other"}}})
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("without 1 node whose price is not known"), Not(ContainSubstring("the plan costs"))))
	})

	It("should leave out nodes of static NodePools, and the pods on them", func() {
		f.apply(pools + "---\n" + web)
		base := get[karpv1.NodePool](f, "", "default")
		base.Name, base.UID, base.Spec.Replicas = "base", "", lo.ToPtr(int64(2))
		f.put(base)
		room := corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("8")), corev1.ResourceMemory: lo.Must(parse("16Gi")),
			corev1.ResourcePods: lo.Must(parse("110"))}
		for _, name := range []string{"base-1", "base-2"} {
			f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				karpv1.NodePoolLabelKey: "base", corev1.LabelInstanceTypeStable: "p2.8c_16g", corev1.LabelTopologyZone: "HN1",
			}}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + name}, Status: corev1.NodeStatus{Allocatable: room, Capacity: room}},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: name}})
		}
		static := "NodePool base is static (spec.replicas: 2): no plan launches, removes or counts its nodes, and the pods on them stay there"
		for _, p := range append(answer[[]plan.Plan](f, "plan", "compare", written("other.yaml", pools)), answer[plan.Plan](f, "plan")) {
			Expect(p.Pods).To(Equal(6))
			Expect(p.Today.Nodes).To(BeZero())
			Expect(p.Today.VNDPerHour).To(BeZero())
			Expect(p.Today.AddedVNDPerHour).To(Equal(p.VNDPerHour), "the pods without a node are not on them either")
			Expect(p.Notes).To(ContainElement(static))
		}
		Expect(f.objects.DeleteAllOf(context.Background(), &corev1.Node{})).To(Succeed())
		for _, args := range [][]string{{"plan"}, {"plan", "--pending"}, {"plan", "-f", written("web.yaml", web)}, {"plan", "suggest"}} {
			Expect(f.run(args...)).To(Equal(cli.ExitOK), f.err)
			Expect(f.err).To(ContainSubstring(static), "%s, while it has no node", args)
		}
	})

	It("should compare with nothing while pods have no place, and name what helps", func() {
		f.apply(web)
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Labels: map[string]string{corev1.LabelInstanceTypeStable: "nix.8c_16g"}}})
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("Today: 1 node,"), ContainSubstring("6 pods without a place"), Not(ContainSubstring("the plan costs"))))
		Expect(f.err).To(And(ContainSubstring("plan compare FILE"), ContainSubstring("plan -f FILE --offline")))
	})

	It("should count today's NodeClaims whose nodes have not joined as top does", func() {
		f.apply(pools + "---\n" + web)
		f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x", Labels: map[string]string{
			karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "p2.2c_4g", corev1.LabelTopologyZone: "HN1",
		}}, Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://1"}})
		p := answer[plan.Plan](f, "plan")
		Expect(p.Today.Nodes).To(Equal(1))
		Expect(p.Today.VNDPerHour).To(And(BeNumerically(">", 0), BeNumerically("~", answer[top.Cluster](f, "top").VNDPerHour, 0.01)))
	})

	It("should add to today what the pods without a node would cost beside its nodes", func() {
		f.apply(pools + "---\n" + web)
		p := answer[plan.Plan](f, "plan")
		Expect(p.Today.Nodes).To(BeZero())
		Expect(p.Today.AddedNodes).To(Equal(len(p.Nodes)))
		Expect(p.Today.AddedVNDPerHour).To(Equal(p.VNDPerHour), "today and the plan are of the same pods")
	})

	It("should compare with nothing while today's nodes use up what the pods without a node need", func() {
		f.apply(pools + "  limits: {cpu: 8}\n---\n" + web)
		size := corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("8")), corev1.ResourceMemory: lo.Must(parse("1Gi"))}
		labels := map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "p2.8c_16g",
			corev1.LabelTopologyZone: "HN1"}
		f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: labels},
			Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://1", NodeName: "full", Capacity: size, Allocatable: size}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://1"},
				Status: corev1.NodeStatus{Capacity: size, Allocatable: size}})
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("with 0 more nodes for the 6 pods without a node, 6 of which fit nowhere,"),
			Not(ContainSubstring("without a place")), Not(ContainSubstring("the plan costs"))))
	})

	It("should compare alternatives, and keep the cluster's NodeClass where a file has none", func() {
		f.apply(pools + "---\n" + web)
		basic := written("basic.yaml", strings.Split(strings.ReplaceAll(pools, "[premium]", "[basic]"), "---\n")[1])
		premium := written("premium.yaml", pools)
		plans := answer[[]plan.Plan](f, "plan", "compare", basic, premium)
		Expect(plans).To(HaveLen(2))
		Expect(plans[0].Name).To(Equal("basic"))
		Expect(plans[0].Nodes).To(HaveEach(HaveField("Flavor", HavePrefix("b2."))))
		// The scheduler finds fewer and fuller nodes among the premium flavors.
		Expect(plans[1].VNDPerHour).To(BeNumerically("<", plans[0].VNDPerHour))
		Expect(f.run("plan", "compare", basic, premium)).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(MatchRegexp(`premium .*cheapest`))
		Expect(f.run("plan", basic)).To(Equal(cli.ExitFailure))
	})

	It("should compare alternatives for the same pods, and say which of their objects change nothing", func() {
		f.apply(pools + "---\n" + web)
		other := written("other.yaml", strings.ReplaceAll(strings.Split(pools, "---\n")[0], "{name: default}", "{name: other}")+"---\n"+
			strings.Replace(web, "name: web,", "name: more,", 1))
		plans := answer[[]plan.Plan](f, "plan", "compare", other, written("same.yaml", pools))
		Expect(plans).To(HaveEach(HaveField("Pods", 6)))
		Expect(f.err).To(And(ContainSubstring("of 1 BizflyNodeClass, 6 Pod, only NodePools"),
			ContainSubstring("no NodePool uses BizflyNodeClass other, so it changes nothing"), Not(ContainSubstring("BizflyNodeClass default"))))
	})

	It("should not plan pods that a scheduling gate holds back, and say so", func() {
		f.apply(pools)
		gated := strings.Replace(web, "      containers:", "      schedulingGates: [{name: queue}]\n      containers:", 1)
		p := answer[plan.Plan](f, "plan", "-f", written("gated.yaml", gated), "-f", written("pods.csv", "name,cpu,memory\napi,1,1Gi\n"))
		Expect([]int{p.Pods, len(p.Nodes), len(p.Unplaced)}).To(Equal([]int{1, 1, 0}))
		Expect(p.Notes).To(ContainElement(HavePrefix("not planned: 6 pods held back by scheduling gates")))
		f.apply(gated)
		Expect(answer[plan.Plan](f, "plan").Today.Waiting).To(BeZero())
	})

	It("should count pods that fit on nodes of any kind that exist", func() {
		f.apply(pools + "---\n" + web)
		room := corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("16")), corev1.ResourceMemory: lo.Must(parse("32Gi")),
			corev1.ResourcePods: lo.Must(parse("110"))}
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1"}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://1"},
			Status: corev1.NodeStatus{Allocatable: room, Capacity: room}})
		p := answer[plan.Plan](f, "plan", "--pending")
		Expect([]int{p.Pods, p.OnExisting, len(p.Nodes)}).To(Equal([]int{6, 6, 0}))
		Expect(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Outcome).To(HavePrefix("it fits on a node that exists"))
	})

	It("should send nothing but logins and reads to the cloud, and write nothing to the cluster", func() {
		f.install()
		f.apply(pools + "---\n" + web)
		for _, args := range [][]string{{"plan"}, {"flavors"}, {"doctor"}, {"top"}, {"why", "web-0", "-n", "shop"}} {
			f.run(args...)
		}
		for _, request := range f.Requests() {
			Expect(request.Method == http.MethodGet || strings.HasSuffix(request.Path, "/token")).To(BeTrue(), "%s %s", request.Method, request.Path)
		}
		Expect(f.Servers()).To(BeEmpty())
		nodeClass := get[v1alpha1.BizflyNodeClass](f, "", "default")
		Expect(nodeClass.Status.Conditions).To(BeEmpty())
	})

	It("should plan pending pods without those of nodes that are being deleted", func() {
		f.apply(pools + "---\n" + web)
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "leaving", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"},
			Finalizers: []string{karpv1.TerminationFinalizer}}, Status: karpv1.NodeClaimStatus{ProviderID: "bizflycloud://1", NodeName: "leaving"}}
		for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
			claim.StatusConditions().SetTrue(condition)
		}
		room := corev1.ResourceList{
			corev1.ResourceCPU: lo.Must(parse("16")), corev1.ResourceMemory: lo.Must(parse("32Gi")), corev1.ResourcePods: lo.Must(parse("110")),
		}
		f.put(claim,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "leaving", Labels: map[string]string{karpv1.NodePoolLabelKey: "default",
				karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"}}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://1"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "staying", Labels: map[string]string{"role": "other"}},
				Spec:   corev1.NodeSpec{ProviderID: "bizflycloud://2", Taints: []corev1.Taint{{Key: "role", Effect: corev1.TaintEffectNoSchedule}}},
				Status: corev1.NodeStatus{Allocatable: room, Capacity: room}})
		before, outcome := answer[plan.Plan](f, "plan", "--pending"), answer[rules.Pod](f, "why", "web-0", "-n", "shop").Outcome
		for name, spec := range map[string]corev1.PodSpec{
			"onto-staying": {NodeSelector: map[string]string{"role": "other"}, Tolerations: []corev1.Toleration{{Key: "role", Operator: corev1.TolerationOpExists}}},
			"onto-new": {Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, TopologyKey: corev1.LabelHostname},
			}}}},
		} {
			spec.NodeName, spec.Containers = "leaving", []corev1.Container{{Name: "c", Image: "c",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: lo.Must(parse("12"))}}}}
			f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: spec})
		}
		Expect(f.objects.Delete(context.Background(), claim)).To(Succeed())
		after := answer[plan.Plan](f, "plan", "--pending")
		Expect([]any{after.Pods, after.OnExisting, len(after.Nodes), after.Unplaced}).To(Equal([]any{6, 0, len(before.Nodes), before.Unplaced}))
		Expect(after.VNDPerHour).To(Equal(before.VNDPerHour))
		Expect(answer[rules.Pod](f, "why", "web-0", "-n", "shop").Outcome).To(Equal(outcome))
	})

	It("should compute with the settings of the controller in the cluster", func() {
		f.apply(pools)
		file := written("web.yaml", web)
		before := answer[plan.Plan](f, "plan", "-f", file)
		f.put(f.controller(corev1.EnvVar{Name: "VM_MEMORY_OVERHEAD_PERCENT", Value: "0.2"}))
		after := answer[plan.Plan](f, "plan", "-f", file)
		Expect(after.Nodes[0].Used[corev1.ResourceMemory]).ToNot(BeNumerically("~", before.Nodes[0].Used[corev1.ResourceMemory], 0.001))
	})

	It("should not wait for devices that no controller counts here", NodeTimeout(time.Minute), func(SpecContext) {
		f.apply(pools)
		f.put(f.controller(corev1.EnvVar{Name: "IGNORE_DRA_REQUESTS", Value: "false"}))
		Expect(answer[plan.Plan](f, "plan", "-f", written("web.yaml", web)).Unplaced).To(BeEmpty())
		Expect(f.err).To(ContainSubstring("IGNORE_DRA_REQUESTS=false is computed as true"))
	})

	It("should say that CapacityBuffers are not planned where the controller looks at them", func() {
		f.apply(pools + "---\n" + web)
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).ToNot(ContainSubstring("CapacityBuffers"))
		buffers(f)
		Expect(f.run("plan")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("CapacityBuffers are not planned"))
	})

	It("should plan without the limits of the whole cluster, which count servers", func() {
		f.apply(pools)
		file := written("web.yaml", web)
		before := answer[plan.Plan](f, "plan", "-f", file)
		f.put(f.controller(corev1.EnvVar{Name: "MAX_SERVERS", Value: "1"}, corev1.EnvVar{Name: "MAX_VND_PER_HOUR", Value: "1"}))
		Expect(answer[plan.Plan](f, "plan", "-f", file).VNDPerHour).To(Equal(before.VNDPerHour))
	})
})

var _ = Describe("limits that the largest flavor would use up", func() {
	It("should not keep pods from the nodes that later batches launch", func() {
		f := newFixture()
		f.apply(pools + "  limits: {cpu: 16}\n")
		apart := "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [" +
			"{labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}]}}\n      containers:"
		p := answer[plan.Plan](f, "plan", "-f", written("web.yaml", strings.Replace(web, "containers:", apart, 1)))
		Expect(p.Unplaced).To(BeEmpty())
		Expect(p.Nodes).To(HaveLen(6))
	})
})

var _ = Describe("the time of a plan", Label("benchmark"), func() {
	BeforeEach(func() {
		if os.Getenv("PLUGIN_BENCH") == "" {
			Skip("a measurement: set PLUGIN_BENCH=true")
		}
	})
	measured := func(f *fixture, args ...string) plan.Plan {
		began := time.Now()
		p := answer[plan.Plan](f, append([]string{"plan"}, args...)...)
		took := time.Since(began)
		AddReportEntry(CurrentSpecReport().LeafNodeText, fmt.Sprintf("%s, %d nodes", took.Round(time.Millisecond), len(p.Nodes)))
		Expect(p.Unplaced).To(BeEmpty())
		Expect(took).To(BeNumerically("<", time.Minute))
		return p
	}

	It("should plan 5,000 pods", func() {
		f.apply(pools)
		var table strings.Builder
		table.WriteString("name,count,cpu,memory\n")
		for i := range 250 {
			_, _ = fmt.Fprintf(&table, "app-%d,20,%dm,%dMi\n", i, 100+i%10*150, 128+i%7*400)
		}
		measured(f, "-f", written("pods.csv", table.String()))
	})

	It("should plan pods for 200 nodes that run 5,000 pods", func() {
		f.apply(pools)
		for i := range 200 {
			node := fmt.Sprintf("node-%d", i)
			f.put(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelInstanceTypeStable: "nix.8c_16g", corev1.LabelTopologyZone: "HN1"}},
				Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("bizflycloud://%d", i)},
			})
			for j := range 25 {
				f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("pod-%d-%d", i, j)}, Spec: corev1.PodSpec{NodeName: node}})
			}
		}
		Expect(measured(f, "--pending", "-f", written("web.yaml", web)).Nodes).ToNot(BeEmpty())
	})
})
