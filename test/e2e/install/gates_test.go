// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"net/http"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// capacityBuffer reserves capacity for pods, without core's type, which is not in the scheme of this suite.
func capacityBuffer(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
		"metadata": map[string]any{"name": name, "namespace": corev1.NamespaceDefault}, "spec": spec,
	}}
}

var _ = Describe("A release with every feature gate", Ordered, func() {
	overlay := &karpv1alpha1.NodeOverlay{
		ObjectMeta: metav1.ObjectMeta{Name: "more-expensive"},
		Spec: karpv1alpha1.NodeOverlaySpec{
			Requirements:    []karpv1alpha1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpExists}},
			PriceAdjustment: ptr.To("+1%"),
		},
	}
	template := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "spare", Namespace: corev1.NamespaceDefault},
		Template:   web(0).Spec.Template,
	}
	buffers := []*unstructured.Unstructured{
		capacityBuffer("template", map[string]any{"podTemplateRef": map[string]any{"name": "spare"}, "replicas": int64(1)}),
		capacityBuffer("workload", map[string]any{"scalableRef": map[string]any{"kind": "Deployment", "name": "web"}, "replicas": int64(1)}),
	}
	fixed := nodePool()
	fixed.Name, fixed.Spec.Replicas, fixed.Spec.Disruption = "fixed", ptr.To[int64](1), karpv1.Disruption{
		ConsolidateAfter: karpv1.MustParseNillableDuration("Never"),
	}

	var began time.Time
	// Objects of dynamic resource allocation came with Kubernetes 1.34.
	var devices bool
	BeforeAll(func() {
		version := lo.Must(env.KubernetesVersion())
		devices = version.AtLeast(utilversion.MustParseSemantic("1.34.0"))
	})
	BeforeAll(administer)

	It("should be granted what they need", func() {
		_, err := env.Helm(ctx, "upgrade", "--install", release+"-crd", chartCRD, "--namespace", namespace)
		Expect(err).NotTo(HaveOccurred())
		if !devices {
			_, err = env.Helm(ctx, "upgrade", "--install", release, chart, "--namespace", namespace, "--values", chartValues(chart),
				"--set", "settings.ignoreDRARequests=false")
			Expect(err).To(MatchError(ContainSubstring("has no resource.k8s.io/v1")))
			said, err := env.RunController(ctx, map[string]string{"IGNORE_DRA_REQUESTS": "false"})
			Expect(err).To(HaveOccurred())
			Expect(said).To(ContainSubstring("cannot start: IGNORE_DRA_REQUESTS is false"))
		}
		began = time.Now()
		install(chart, "--set", "settings.featureGates.nodeRepair=true,settings.featureGates.nodeOverlay=true,settings.featureGates.staticCapacity=true,"+
			"settings.featureGates.capacityBuffer=true,settings.ignoreDRARequests="+strconv.FormatBool(!devices)+","+
			"settings.featureGates.terminateFirstDrift=true,settings.featureGates.terminateFirstRepair=true,settings.featureGates.podDeletionCostManagement=true",
			"--set-json", `settings.schedulerConfig="{\"podTopologySpread\": {\"defaultConstraints\": [`+
				`{\"maxSkew\": 5, \"topologyKey\": \"topology.kubernetes.io/zone\", \"whenUnsatisfiable\": \"ScheduleAnyway\"}]}}"`)
		for _, object := range []client.Object{nodeClass(), nodePool(), fixed, overlay, template, buffers[0], buffers[1], web(1)} {
			Expect(env.Client().Create(ctx, object)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			g.Expect(running(g)).To(HaveLen(1))
			// One of the fixed size, and at least one for the pod and for the reserved capacity.
			g.Expect(len(nodes(g))).To(BeNumerically(">=", 2))
			live := overlay.DeepCopy()
			g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(overlay), live)).To(Succeed())
			g.Expect(live.StatusConditions().Root().IsTrue()).To(BeTrue())
			for _, buffer := range buffers {
				g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(buffer), buffer)).To(Succeed())
				g.Expect(buffer.Object).To(HaveKeyWithValue("status", HaveKey("conditions")))
			}
		}).Should(Succeed())
	})

	It("should have asked for nothing ungranted, and have used what comes with the gates", func() {
		events := lo.Must(env.AuditEvents(serviceAccount()))
		// What was asked while an earlier release was taken away is another spec's matter.
		events = lo.Filter(events, func(e environment.AuditEvent, _ int) bool { return e.ReceivedAt.After(began) })
		forbidden := lo.Filter(events, func(e environment.AuditEvent, _ int) bool { return e.ResponseStatus.Code == http.StatusForbidden })
		Expect(lo.Uniq(lo.Map(forbidden, func(e environment.AuditEvent, _ int) string { return e.Verb + " " + e.RequestURI }))).To(BeEmpty())
		Expect(asked(events)).To(And(
			HaveKey(right{"karpenter.sh", "nodeoverlays", "watch"}), HaveKey(right{"karpenter.sh", "nodeoverlays/status", "patch"}),
			HaveKey(right{"autoscaling.x-k8s.io", "capacitybuffers", "watch"}), HaveKey(right{"autoscaling.x-k8s.io", "capacitybuffers/status", "patch"}),
			HaveKey(right{"", "podtemplates", "watch"}), HaveKey(right{"apps", "deployments", "watch"})))
		if devices {
			Expect(asked(events)).To(And(
				HaveKey(right{"resource.k8s.io", "resourceclaims", "watch"}), HaveKey(right{"resource.k8s.io", "resourceslices", "watch"})))
		}
	})

	It("should leave nothing behind", func() {
		for _, object := range []client.Object{&appsv1.Deployment{ObjectMeta: web(0).ObjectMeta}, buffers[0], buffers[1], template, fixed, nodePool(), overlay} {
			Expect(client.IgnoreNotFound(env.Client().Delete(ctx, object))).To(Succeed())
		}
		Eventually(func(g Gomega) { g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}).Items).To(BeEmpty()) }).Should(Succeed())
		Expect(env.Client().Delete(ctx, nodeClass())).To(Succeed())
		uninstall()
		Expect(e2e.Truth(Default, env).Servers).To(BeEmpty())
	})
})
