// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// pool is the NodePool of the sample.
const pool = "kubeadm"

// workload is a Deployment for the sample's pool.
func workload(name string, replicas int32, changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	return environment.Deployment(name, replicas, append([]func(*corev1.PodSpec){environment.OnPool(pool), tolerant}, changes...)...)
}

// tolerant lets pods run on nodes of the sample.
func tolerant(spec *corev1.PodSpec) {
	spec.Tolerations = []corev1.Toleration{{Key: "example.com/kubeadm", Operator: corev1.TolerationOpExists}}
}

// runningOf are the pods of a workload that are ready.
func runningOf(g Gomega, name string) []corev1.Pod {
	pods := e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(corev1.NamespaceDefault), client.MatchingLabels{"app": name}).Items
	return lo.Filter(pods, func(pod corev1.Pod, _ int) bool { return pod.DeletionTimestamp == nil && podReady(pod) })
}

func podReady(pod corev1.Pod) bool {
	return lo.ContainsBy(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func create(objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(env.Client().Create(ctx, object)).To(Succeed())
	}
}

func scale(name string, replicas int) {
	GinkgoHelper()
	Expect(env.Scale(ctx, types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: name}, replicas)).To(Succeed())
}

// took reports how long something took, in the report of the suite.
func took(what string, began time.Time) {
	AddReportEntry(what, time.Since(began).Round(100*time.Millisecond).String())
}

// expectNothingLeft waits until nothing of the pool is left, in the cluster or in the cloud.
func expectNothingLeft() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(claimsOf(g, pool)).To(BeEmpty())
		g.Expect(nodesOf(g, pool)).To(BeEmpty())
		g.Expect(serversOf(g, pool)).To(BeEmpty())
	}).Should(Succeed())
}

func idOf(claim karpv1.NodeClaim) string {
	GinkgoHelper()
	id, ok := providerid.Parse(claim.Status.ProviderID)
	Expect(ok).To(BeTrue())
	return id
}

func node(g Gomega, name string) *corev1.Node {
	found := &corev1.Node{}
	g.Expect(env.Client().Get(ctx, client.ObjectKey{Name: name}, found)).To(Succeed())
	return found
}

var _ = Describe("A cluster of kubeadm", Ordered, func() {
	BeforeAll(func() {
		apply("kubeadm", "nodeclass.yaml")
		apply("kubeadm", "nodepool.yaml")
	})
	// Each spec begins without nodes: there is not room for those of all.
	AfterEach(func() {
		Expect(env.Client().DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
		Expect(env.Client().DeleteAllOf(ctx, &policyv1.PodDisruptionBudget{}, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
		Expect(env.Client().DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool})).To(Succeed())
		expectNothingLeft()
	})
	It("should run pending pods on a server that joined by the sample's user data", func() {
		watched := watchNodes()
		began := time.Now()
		create(workload("web", 3))
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "web")).To(HaveLen(3)) }).Should(Succeed())
		took("three pods from pending to ready", began)

		nodes := nodesOf(Default, pool)
		Expect(nodes).To(HaveLen(1))
		Expect(nodes[0].Labels).To(And(
			HaveKeyWithValue(karpv1.NodeRegisteredLabelKey, "true"), HaveKeyWithValue(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand),
			HaveKeyWithValue(corev1.LabelInstanceTypeStable, serversOf(Default, pool)[0].Flavor.Name)))
		Expect(nodes[0].Status.NodeInfo.ContainerRuntimeVersion).To(HavePrefix("containerd://2."))

		By("having no moment in which the node could take a pod before its NodeClaim expects it")
		Expect(watched.taints(nodes[0].Name)).To(ContainElements(
			HaveField("Key", karpv1.UnregisteredTaintKey), HaveField("Key", "example.com/kubeadm"),
			HaveField("Key", "node.cloudprovider.kubernetes.io/uninitialized")))

		By("having the certificate that its token asked for, and the NodeClass's kubelet settings")
		listed := e2e.Listed(Default, env, &certificatesv1.CertificateSigningRequestList{}).Items
		requests := lo.Filter(listed, func(r certificatesv1.CertificateSigningRequest, _ int) bool {
			return r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && !r.CreationTimestamp.Time.Before(began.Truncate(time.Second))
		})
		Expect(requests).To(HaveLen(1))
		Expect(requests[0].Spec.Username).To(And(HavePrefix("system:bootstrap:"), Not(HaveSuffix(environment.JoinToken[:6]))))
		Expect(requests[0].Status.Conditions).To(ContainElement(HaveField("Type", certificatesv1.CertificateApproved)))
		Expect(requests[0].Status.Certificate).NotTo(BeEmpty())
		Expect(nodes[0].Status.Capacity.Pods().Value()).To(BeEquivalentTo(60), "maxPods of the sample")

		By("revoking the token with which it joined")
		Eventually(func(g Gomega) {
			secrets := e2e.Listed(g, env, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem)).Items
			tokens := lo.Filter(secrets, func(s corev1.Secret, _ int) bool { return s.Type == corev1.SecretTypeBootstrapToken })
			g.Expect(lo.Map(tokens, func(s corev1.Secret, _ int) string { return s.Name })).To(ConsistOf("bootstrap-token-" + environment.JoinToken[:6]))
		}).Should(Succeed())
	})
	It("should pass the chart's own tests", func() {
		Expect(helm("test", release, "--namespace", namespace, "--timeout", "2m")).To(ContainSubstring("Succeeded"))
	})
	It("should drain a node as budget and grace allow, and delete its server", func() {
		By("having three nodes, and a budget that lets one pod go at a time")
		slow := workload("slow", 3, environment.Apart, func(spec *corev1.PodSpec) {
			spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
			spec.Containers[0].Args = []string{"--grace=3s"}
		})
		slow.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = slow.Spec.Selector
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "slow"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: slow.Spec.Selector, MaxUnavailable: ptr.To(intstr.FromInt32(1))},
		}
		create(slow, budget)
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "slow")).To(HaveLen(3)) }).Should(Succeed())

		By("deleting two of them at once")
		old := claimsOf(Default, pool)
		evicted := lo.FilterMap(runningOf(Default, "slow"), func(pod corev1.Pod, _ int) (string, bool) {
			return pod.Name, pod.Spec.NodeName == old[0].Status.NodeName || pod.Spec.NodeName == old[1].Status.NodeName
		})
		Expect(evicted).To(HaveLen(2))
		ends := watchEnds()
		began := time.Now()
		for i := range old[:2] {
			Expect(env.Client().Delete(ctx, &old[i])).To(Succeed())
		}
		Eventually(func(g Gomega) {
			if len(runningOf(g, "slow")) < 2 {
				StopTrying("the budget was overrun").Now()
			}
			names := lo.Map(claimsOf(g, pool), func(c karpv1.NodeClaim, _ int) string { return c.Name })
			g.Expect(names).NotTo(Or(ContainElement(old[0].Name), ContainElement(old[1].Name)))
			g.Expect(runningOf(g, "slow")).To(HaveLen(3))
		}).Should(Succeed())
		took("two nodes drained one pod at a time, replaced and deleted", began)
		for _, name := range evicted {
			Expect(ends.of(name)).To(HaveValue(HaveField("ExitCode", BeZero())), "%s did not end by itself before its server was gone", name)
		}
		ids := lo.Map(serversOf(Default, pool), func(s cloud.Server, _ int) string { return s.ID })
		Expect(ids).NotTo(Or(ContainElement(idOf(old[0])), ContainElement(idOf(old[1]))))
	})
	It("should lose no launch when the chart is upgraded, and when the leader is killed", func() {
		apart := workload("apart", 2, environment.Apart)
		apart.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = apart.Spec.Selector
		create(apart)
		pushController("v2")
		install("v2")
		Eventually(func(g Gomega) {
			pods := e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(namespace)).Items
			g.Expect(pods).To(HaveLen(2))
			for i := range pods {
				g.Expect(pods[i].Spec.Containers[0].Image).To(HaveSuffix(":v2"))
				g.Expect(podReady(pods[i])).To(BeTrue())
			}
			g.Expect(runningOf(g, "apart")).To(HaveLen(2))
		}).Should(Succeed())

		By("killing the pod that holds the lease while it launches")
		scale("apart", 4)
		lease := &coordinationv1.Lease{}
		Expect(env.Client().Get(ctx, types.NamespacedName{Namespace: namespace, Name: "karpenter-bizflycloud-leader-election"}, lease)).To(Succeed())
		leader, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
		Expect(env.Client().Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leader}},
			client.GracePeriodSeconds(0))).To(Succeed())
		began := time.Now()
		Eventually(func(g Gomega) {
			g.Expect(runningOf(g, "apart")).To(HaveLen(4))
			ids := lo.Map(claimsOf(g, pool), func(c karpv1.NodeClaim, _ int) string { return idOf(c) })
			servers := lo.Map(serversOf(g, pool), func(s cloud.Server, _ int) string { return s.ID })
			g.Expect(servers).To(ConsistOf(ids), "a server without a NodeClaim, or the other way round")
		}).Should(Succeed())
		took("two more nodes after the leader was killed", began)
	})
	It("should show on the console why a template failed", func() {
		class, np := &v1alpha1.BizflyNodeClass{}, &karpv1.NodePool{}
		Expect(env.Client().Get(ctx, client.ObjectKey{Name: pool}, class)).To(Succeed())
		Expect(env.Client().Get(ctx, client.ObjectKey{Name: pool}, np)).To(Succeed())
		class = &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: class.Spec}
		class.Spec.UserData = ptr.To("#!/bin/bash\necho the disk of {{ .NodeName }} is missing >&2\nexit 7\n")
		class.Spec.JoinToken = nil
		np = &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: np.Spec}
		np.Spec.Template.Spec.NodeClassRef.Name = "broken"
		create(class, np)
		DeferCleanup(func() {
			Expect(env.Client().Delete(ctx, np)).To(Succeed())
			Expect(client.IgnoreNotFound(env.Client().Delete(ctx, class))).To(Succeed())
		})
		broken := environment.Deployment("broken", 1, environment.OnPool("broken"), tolerant)
		create(broken)
		Eventually(func(g Gomega) {
			servers := serversOf(g, "broken")
			g.Expect(servers).NotTo(BeEmpty())
			g.Expect(env.Console(servers[0].ID)).To(And(
				ContainSubstring("the disk of "+servers[0].Name+" is missing"), ContainSubstring("Failed to run module scripts-user")))
		}).Should(Succeed())
	})
	It("should reboot a node whose kubelet hangs, and replace one whose server is stopped", func() {
		stays := workload("stays", 2, environment.Apart, func(spec *corev1.PodSpec) {
			spec.Tolerations = append(spec.Tolerations,
				corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		})
		stays.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = stays.Spec.Selector
		create(stays)
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "stays")).To(HaveLen(2)) }).Should(Succeed())
		var claims []karpv1.NodeClaim
		for _, pod := range runningOf(Default, "stays") {
			claims = append(claims, lo.Filter(claimsOf(Default, pool), func(c karpv1.NodeClaim, _ int) bool { return c.Status.NodeName == pod.Spec.NodeName })...)
		}
		Expect(claims).To(HaveLen(2))
		hung, stopped := claims[0], claims[1]
		before := node(Default, hung.Status.NodeName)

		By("stopping the kubelet of one")
		signal(idOf(hung), "kubelet.service", syscall.SIGSTOP)
		outlast(before.Name, corev1.NodeReady, corev1.ConditionUnknown)
		began := time.Now()
		Eventually(func(g Gomega) {
			after := node(g, before.Name)
			g.Expect(after.UID).To(Equal(before.UID))
			g.Expect(after.Status.NodeInfo.BootID).NotTo(Equal(before.Status.NodeInfo.BootID))
			g.Expect(ready(after)).To(BeTrue())
			g.Expect(runningOf(g, "stays")).To(HaveLen(2))
		}).WithTimeout(tolerated + patience).Should(Succeed())
		took("a hung node from its repair to ready", began)

		By("stopping the server of another")
		Expect(env.Sandbox().Call(ctx, http.MethodPatch, "servers/"+idOf(stopped), map[string]string{"status": "SHUTOFF"}, nil)).To(Succeed())
		outlast(stopped.Status.NodeName, corev1.NodeReady, corev1.ConditionUnknown)
		Eventually(func(g Gomega) {
			ids := lo.Map(serversOf(g, pool), func(s cloud.Server, _ int) string { return s.ID })
			g.Expect(ids).To(ContainElements(idOf(hung), idOf(stopped)))
			g.Expect(ready(node(g, stopped.Status.NodeName))).To(BeTrue(), "the reboot has started it")
			g.Expect(runningOf(g, "stays")).To(HaveLen(2))
		}).WithTimeout(tolerated + patience).Should(Succeed())
	})
	It("should delete everything when it is scaled down to nothing", func() {
		create(workload("web", 2))
		Eventually(func(g Gomega) { g.Expect(runningOf(g, "web")).To(HaveLen(2)) }).Should(Succeed())
		began := time.Now()
		scale("web", 0)
		expectNothingLeft()
		took("scaled down to nothing left", began)
	})
})

// tolerated is what the repair policy tolerates of a silent kubelet or a stopped server.
const tolerated = 5 * time.Minute

// outlast waits for a condition of a node, and lets it have lasted for as long as the repair policy tolerates.
func outlast(name string, condition corev1.NodeConditionType, status corev1.ConditionStatus) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found := node(g, name)
		_, i, _ := lo.FindIndexOf(found.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition })
		g.Expect(i).To(BeNumerically(">=", 0))
		g.Expect(found.Status.Conditions[i].Status).To(Equal(status))
		found.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-tolerated))
		g.Expect(env.Client().Status().Update(ctx, found)).To(Succeed())
	}).Should(Succeed())
}

// signal sends a signal to the processes of a service of a machine, which its control group lists.
func signal(serverID, unit string, number syscall.Signal) {
	GinkgoHelper()
	groups, err := filepath.Glob("/sys/fs/cgroup/*/bizfly-sandbox/*/" + serverID + "/system.slice/" + unit + "/cgroup.procs")
	Expect(err).NotTo(HaveOccurred())
	more, _ := filepath.Glob("/sys/fs/cgroup/bizfly-sandbox/*/" + serverID + "/system.slice/" + unit + "/cgroup.procs") // of version 2
	sent := 0
	for _, group := range append(groups, more...) {
		content := lo.Must(os.ReadFile(group))
		for line := range strings.Lines(string(content)) {
			var pid int
			Expect(fmt.Sscan(line, &pid)).Error().NotTo(HaveOccurred())
			Expect(syscall.Kill(pid, number)).To(Succeed())
			sent++
		}
	}
	Expect(sent).To(BeNumerically(">", 0), "no process of %s", unit)
}
