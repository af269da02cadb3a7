// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"net/http"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("The bootstrap of a NodeClass", func() {
	It("should name a join endpoint without TLS as a risk, and be ready all the same", func() {
		w := newSetup(nil, func(o *options.Options) { o.BKEJoinEndpoint = "http://engine.example/engine/cluster_join/c" })
		apply("")
		nodeClass, _ := w.look()
		found := condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady)
		Expect(found.IsTrue()).To(BeTrue())
		Expect(found.Message).To(And(HavePrefix("risk: servers join at http://engine.example"), ContainSubstring("BKE_JOIN_ENDPOINT"),
			Not(ContainSubstring(clusterToken))))
	})
	It("should say that spec.kubelet has no effect in BKE's worker image, and not in mode Custom", func() {
		w := newSetup(nil)
		apply("kubelet: {maxPods: 30, kubeReserved: {cpu: 100m}, clusterDNS: [10.96.0.10], cpuCFSQuota: false}")
		nodeClass, _ := w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady).Message).To(And(
			HavePrefix("spec.kubelet changes nothing on nodes in BKE mode"), HaveSuffix("; the other fields have no effect")))
		apply(`kubelet: {maxPods: 30}, bootstrapMode: Custom, userData: "#!/bin/bash"`)
		nodeClass, _ = w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady).Message).To(BeEmpty())
	})
	It("should say where the BKE values were learned", func() {
		w := newSetup(nil, func(o *options.Options) {
			o.BKEClusterToken, o.BKEJoinEndpoint, o.BKELogEndpoint, o.BKEDiscoverFromPool = "", "", "", true
		})
		bke := w.sandbox.BKE()
		addPool(w, cloud.ServerSpec{Metadata: map[string]string{
			"bizfly_cloud_service": "kubernetes_engine", "bke_cluster_token": bke.ClusterToken,
			"bke_join_endpoint": "https://engine.example/engine/cluster_join/" + bke.ClusterUID,
		}})
		apply("")
		nodeClass, _ := w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady).Message).
			To(Equal("BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT learned from the pool server of node pool-1"))
	})
	It("should show and use what a pool's server has, and keep it while it cannot be read", func() {
		w := newSetup(nil, func(o *options.Options) { o.BKEDiscoverFromPool = true })
		firewall := w.sandbox.Options().Catalog.Firewalls[cloud.RegionHN][1]
		addPool(w, cloud.ServerSpec{Firewalls: []string{firewall.ID}})
		hash := apply("").Hash()
		nodeClass, _ := w.look()
		Expect(nodeClass.Status.PoolServer).To(And(HaveField("Node", "pool-1"), HaveField("PublicIPv4", false)))
		Expect(nodeClass.Status.Firewalls).To(ConsistOf(HaveField("Name", firewall.Name)))
		Expect(condition(nodeClass, v1alpha1.ConditionTypeFirewallsReady).Message).To(ContainSubstring("node pool-1"))
		Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("True", "EgressAvailable", "node pool-1"))
		nodeClass.Annotations = map[string]string{v1alpha1.AnnotationNodeClassHash: nodeClass.Hash()}
		Expect(nodeClass.HashDiffers(hash)).To(BeFalse(), "running nodes stay")
		known := nodeClass.Status.PoolServer

		w.lists.flush()
		w.sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		nodeClass, _ = w.look()
		Expect(nodeClass.Status.PoolServer).To(Equal(known))
		Expect(nodeClass.Status.Firewalls).To(HaveLen(1))
		Expect(ready(nodeClass).IsTrue()).To(BeTrue(), "%+v", ready(nodeClass))
	})
	It("should not be ready before a pool's server was read, unless the spec leaves nothing open", func() {
		w := newSetup(nil, func(o *options.Options) { o.BKEDiscoverFromPool = true })
		addPool(w, cloud.ServerSpec{})
		w.sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		apply("")
		nodeClass, _ := w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeNetworksReady)).To(saying("Unknown", "CloudUnavailable", "publicIPv4"))
		Expect(ready(nodeClass).IsTrue()).To(BeFalse())
		apply("networkSelectorTerms: [{name: default}], firewallSelectorTerms: [{name: default}], publicIPv4: true")
		nodeClass, _ = w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeNetworksReady).Reason).ToNot(Equal("CloudUnavailable"))
	})
	It("should leave running servers their firewalls while it is not known which ones a pool's server has", func() {
		w := newSetup(nil, func(o *options.Options) { o.BKEDiscoverFromPool = true })
		addPool(w, cloud.ServerSpec{})
		w.sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		const others = "networkSelectorTerms: [{alias: default}], publicIPv4: true"
		apply(others + ", firewallSelectorTerms: [{name: web}]")
		before, _ := w.look()
		Expect(condition(before, v1alpha1.ConditionTypeFirewallsReady).IsTrue()).To(BeTrue())
		apply(others)
		after, _ := w.look()
		Expect(condition(after, v1alpha1.ConditionTypeFirewallsReady)).To(saying("Unknown", "AwaitingNetworks", "BKE's pools"))
		Expect(after.Status.Firewalls).To(And(HaveLen(1), Equal(before.Status.Firewalls)))
		w.sandbox.ClearFaults()
		after, _ = w.look()
		Expect(condition(after, v1alpha1.ConditionTypeFirewallsReady).IsTrue()).To(BeTrue())
	})
	It("should follow its user data's Secret by hash, and keep the hash while it is unreadable", func() {
		w := newSetup(nil, func(o *options.Options) {
			o.Namespace, o.UserDataSecretNames = metav1.NamespaceDefault, []string{"templates"}
		})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "templates"},
			StringData: map[string]string{"userData": "#!/bin/bash"}}
		Expect(env.Client.Create(ctx, secret)).To(Succeed())
		apply("bootstrapMode: Custom, userDataFrom: {secretKeyRef: {name: templates, key: userData}}, imageSelectorTerms: [{name: golden-node}]")
		first, result := w.look()
		Expect(first.Status.UserDataHash).ToNot(BeEmpty())
		Expect(w.reads).To(Equal(1), "of the Secret")
		Expect(result.RequeueAfter).To(Equal(time.Minute))

		secret.StringData = map[string]string{"userData": "#!/bin/sh"}
		Expect(env.Client.Update(ctx, secret)).To(Succeed())
		second, _ := w.look()
		Expect(second.Status.UserDataHash).ToNot(Or(BeEmpty(), Equal(first.Status.UserDataHash)))

		Expect(env.Client.Delete(ctx, secret)).To(Succeed())
		third, _ := w.look()
		Expect(condition(third, v1alpha1.ConditionTypeBootstrapReady).Reason).To(Equal("UserDataSourceUnusable"))
		Expect(third.Status.UserDataHash).To(Equal(second.Status.UserDataHash), "running nodes are compared with it")
	})
	It("should say where pods may reach the metadata service all the same, and stay ready", func() {
		content := cloud.DefaultCatalog()
		flatcar, _ := lo.Find(content.Versions, func(v cloud.KubernetesVersion) bool { return v.KubernetesVersion == "v1.35.4.flatcar" })
		w := newSetup(content)
		look := func(spec string) *opstatus.Condition {
			GinkgoHelper()
			apply(spec)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue(), "%+v", ready(nodeClass))
			return condition(nodeClass, v1alpha1.ConditionTypePodAccessEnforced)
		}
		Expect(look("")).To(saying("True", "PodAccessEnforced", ""))
		Expect(look("metadataOptions: {podAccess: Allowed}")).To(saying("True", "NotApplicable", "podAccess is Allowed"))
		Expect(look("imageSelectorTerms: [{id: " + flatcar.WorkerImageID + "}]")).To(
			saying("False", "ImageTakesOneScript", "apply config/samples/metadata-block/cilium.yaml"))
		agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium"}}
		pods := map[string]string{"k8s-app": "cilium"}
		agents.Labels, agents.Spec.Template.Labels, agents.Spec.Selector = pods, pods, &metav1.LabelSelector{MatchLabels: pods}
		agents.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "cilium"}}
		Expect(env.Client.Create(ctx, agents)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(ctx, agents)).To(Succeed()) })
		Eventually(look).WithArguments("").Should(saying("Unknown", "CiliumMayBypass", "DaemonSet kube-system/cilium"))
	})
	It("should have no hash where there is no template", func() {
		w := newSetup(nil)
		apply("")
		nodeClass, _ := w.look()
		Expect(nodeClass.Status.UserDataHash).To(BeEmpty())
	})
	It("should reject join tokens that the controller may not create", func() {
		w := newSetup(nil)
		apply(`bootstrapMode: Custom, userData: "{{ .JoinToken }}", joinToken: {}`)
		nodeClass, _ := w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady).Reason).To(Equal("JoinTokensDisabled"))
	})
})

// addPool adds a node of a pool of BKE with this server.
func addPool(w *setup, server cloud.ServerSpec) {
	GinkgoHelper()
	server.Name = "pool-1"
	server.Metadata = lo.Assign(map[string]string{"bke_cluster_id": w.sandbox.BKE().ClusterUID}, server.Metadata)
	Expect(env.Client.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Labels: map[string]string{"bke.bizflycloud.vn/node-id": "pool-1"}},
		Spec:       corev1.NodeSpec{ProviderID: providerid.New(w.sandbox.AddServer(server).ID)},
	})).To(Succeed())
	DeferCleanup(func() { Expect(env.Client.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed()) })
}
