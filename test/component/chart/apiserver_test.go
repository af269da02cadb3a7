// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	testenv "github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// startAPIServer starts a real API server with the definitions of the chart and with the namespace of config/default. Its
// client lets no unknown field pass. The kubeconfig is for Helm.
func startAPIServer(ctx context.Context) (c client.Client, kubeconfig string) {
	GinkgoHelper()
	text, err := helm(ctx, "template", "crd", filepath.Join(root, "charts", chartName+"-crd"))
	Expect(err).ToNot(HaveOccurred())
	suite.UseControlPlane()
	server := &envtest.Environment{}
	for _, definition := range byID(text) {
		typed := as[apiextensionsv1.CustomResourceDefinition](definition)
		server.CRDInstallOptions.CRDs = append(server.CRDInstallOptions.CRDs, &typed)
	}
	config, err := server.Start()
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(server.Stop)
	c, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	Expect(err).ToNot(HaveOccurred())
	c = client.WithFieldValidation(c, metav1.FieldValidationStrict)
	kustomized, err := kustomize(ctx, "default")
	Expect(err).ToNot(HaveOccurred())
	ns := byID(kustomized)["Namespace/"+namespace]
	Expect(c.Create(ctx, &ns)).To(Succeed())
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, server.KubeConfig, 0o600)).To(Succeed())
	return c, kubeconfig
}

// pool is a NodePool without a fault; a change of its template makes one.
func pool(change string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.UnmarshalStrict([]byte(`
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  generateName: pool-
spec:
  template:
    metadata: {}
    spec:
      nodeClassRef: {group: karpenter.bizflycloud.vn, kind: BizflyNodeClass, name: default}
      requirements: []
`), &object.Object)).To(Succeed())
	changes := map[string]any{}
	Expect(yaml.UnmarshalStrict([]byte(change), &changes)).To(Succeed())
	for path, value := range changes {
		Expect(unstructured.SetNestedField(object.Object, value, append([]string{"spec", "template"}, strings.Split(path, ".")...)...)).To(Succeed())
	}
	return object
}

var _ = Describe("a real API server", Ordered, func() {
	var c client.Client
	var kubeconfig string

	BeforeAll(func(ctx context.Context) { c, kubeconfig = startAPIServer(ctx) })

	It("should know every field of every object", func(ctx context.Context) {
		foreign := map[string]bool{"ServiceMonitor": true, "PrometheusRule": true} // of the Prometheus Operator
		for name, object := range rendered(ctx, fullValues) {
			if foreign[object.GetKind()] {
				continue
			}
			By(name)
			// Not there afterwards: the policy that only warns would be in the way of the one that denies.
			Eventually(func(g Gomega) {
				g.Expect(c.Create(ctx, object.DeepCopy(), client.DryRunAll)).To(Succeed())
			}).Should(Succeed())
		}
	})
	It("should let the pods into a namespace of the restricted standard", func(ctx context.Context) {
		template := as[appsv1.Deployment](rendered(ctx, defaultValues)["Deployment/"+chartName]).Spec.Template
		meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}
		// system-cluster-critical is there soon after the start.
		Eventually(func(g Gomega) {
			g.Expect(c.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}, client.DryRunAll)).To(Succeed())
		}).Should(Succeed())
		worse := template.DeepCopy()
		worse.Spec.SecurityContext.SeccompProfile = nil
		Expect(c.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: worse.Spec}, client.DryRunAll)).To(MatchError(ContainSubstring("restricted")))
	})
	It("should accept the samples of kubectl apply -k", func(ctx context.Context) {
		text, err := kustomize(ctx, "samples")
		Expect(err).ToNot(HaveOccurred())
		objects := byID(text)
		Expect(objects).To(HaveLen(2))
		for name, object := range objects {
			Expect(c.Create(ctx, &object, client.DryRunAll)).To(Succeed(), name)
		}
	})
	It("should accept what the notes ask to apply", func(ctx context.Context) {
		text, err := helm(ctx, "install", releaseName, chartFile(), "--kubeconfig", kubeconfig, "--namespace", namespace, "--values", chartFile(defaultValues),
			"--dry-run=server")
		Expect(err).ToNot(HaveOccurred())
		manifests, notes, _ := strings.Cut(text, "NOTES:\n")
		Expect(manifests).To(ContainSubstring("kind: ValidatingAdmissionPolicyBinding"), "this API server has policies")
		_, manifest, _ := strings.Cut(notes, "<<END\n")
		manifest, _, found := strings.Cut(manifest, "     END\n")
		Expect(found).To(BeTrue(), notes)
		objects := byID(strings.ReplaceAll("\n"+manifest, "\n     ", "\n"))
		Expect(objects).To(HaveLen(2))
		for name, object := range objects {
			Expect(c.Create(ctx, &object, client.DryRunAll)).To(Succeed(), name)
		}
	})

	It("should go back to the defaults where an earlier release has left its tuning", func(ctx context.Context) {
		kept := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{
			Region: "HN", TuningConfigMapRef: &v1alpha1.ConfigMapReference{Name: "gone"}}}
		Expect(c.Create(ctx, kept)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, kept)).To(Succeed()) })
		text, err := helm(ctx, "install", releaseName, chartFile(), "--kubeconfig", kubeconfig, "--namespace", namespace,
			"--values", chartFile(defaultValues), "--take-ownership", "--dry-run=server", "--hide-notes")
		Expect(err).ToNot(HaveOccurred())
		_, manifests, _ := strings.Cut(text, "MANIFEST:\n")
		objects := byID(manifests)
		Expect(objects["ProviderConfig/default"].Object["spec"]).To(HaveKeyWithValue("tuningConfigMapRef",
			HaveKeyWithValue("name", chartName+"-tuning")))
		Expect(as[corev1.ConfigMap](objects["ConfigMap/"+chartName+"-tuning"]).Data).To(BeEmpty())
	})

	// test/e2e/install runs the commands of the documents, each of one document.
	It("should be removed by the same commands in all documents and in the notes", func(ctx context.Context) {
		block := func(document, name string) string {
			GinkgoHelper()
			text, err := os.ReadFile(filepath.Join(root, document))
			Expect(err).ToNot(HaveOccurred())
			commands, err := testenv.Block(string(text), name)
			Expect(err).ToNot(HaveOccurred(), document)
			return commands
		}
		text, err := helm(ctx, "install", releaseName, chartFile(), "--kubeconfig", kubeconfig, "--dry-run=server", "--namespace", namespace, "--values",
			chartFile(defaultValues))
		Expect(err).ToNot(HaveOccurred())
		notes := strings.ReplaceAll(text, "\n     ", "\n")
		readme, err := os.ReadFile(filepath.Join(root, "README.md"))
		Expect(err).ToNot(HaveOccurred())
		for _, name := range []string{"remove with helm", "remove definitions with helm"} {
			commands := block("docs/how-to/upgrade-and-remove.md", name)
			Expect(block("charts/"+chartName+"/README.md", name)).To(Equal(commands))
			Expect(string(readme)).To(ContainSubstring("\n" + commands + "```\n"))
			Expect(notes).To(ContainSubstring(commands))
		}
	})
	It("should let the controller write its own bootstrap tokens, and no other Secret there", func(ctx context.Context) {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		Expect(err).ToNot(HaveOccurred())
		account := ""
		for name, object := range rendered(ctx, fullValues) {
			if strings.Contains(name, "join-tokens") {
				Expect(c.Create(ctx, &object)).To(Succeed(), name)
			}
			if object.GetKind() == "ServiceAccount" {
				account = object.GetName()
			}
		}
		config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + account
		controller, err := client.New(config, client.Options{})
		Expect(err).ToNot(HaveOccurred())
		secret := func(name string, kind corev1.SecretType) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Type: kind}
		}
		theirs := secret("theirs", corev1.SecretTypeOpaque)
		Expect(c.Create(ctx, theirs)).To(Succeed())
		rejected := MatchError(ContainSubstring("bootstrap tokens, and no other Secret"))
		// The API server learns of it a moment later.
		Eventually(func() error { return controller.Delete(ctx, theirs, client.DryRunAll) }).Should(rejected)
		Expect(controller.Create(ctx, secret("other", corev1.SecretTypeOpaque))).To(rejected)
		Expect(controller.Create(ctx, secret("bootstrap-token-abcdef", corev1.SecretTypeOpaque))).To(rejected)
		Expect(controller.Create(ctx, secret("abcdef", corev1.SecretTypeBootstrapToken))).ToNot(Succeed())

		By("the tokens that the controller issues")
		groups := []string{"system:bootstrappers:karpenter"} // those of the values
		provider := jointoken.NewDefaultProvider(controller, clock.RealClock{}, groups)
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-abcde", UID: "6f2d2b7e-0c51-4d8e-9f55-0d3b8f5a1c11"}}
		_, err = provider.Issue(ctx, jointoken.Request{NodeClaim: claim, NodeName: "default-abcde-0a1b2c3d", Attempt: 1, TTL: 30 * time.Minute})
		Expect(err).ToNot(HaveOccurred())
		Expect(provider.Revoke(ctx, claim.UID)).To(Succeed())

		By("tokens that last for ever or become another node")
		token := func(change func(data map[string]string)) *corev1.Secret {
			object := secret("bootstrap-token-abcdef", corev1.SecretTypeBootstrapToken)
			object.Labels = map[string]string{"app.kubernetes.io/managed-by": "karpenter"}
			object.StringData = map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
				"expiration": "2030-01-01T00:00:00Z", "auth-extra-groups": groups[0]}
			change(object.StringData)
			return object
		}
		expires, grouped := MatchError(ContainSubstring("needs an expiration")), MatchError(ContainSubstring("must be "+groups[0]+", the chart's value"))
		Expect(controller.Create(ctx, token(func(data map[string]string) { delete(data, "expiration") }))).To(expires)
		Expect(controller.Create(ctx, token(func(data map[string]string) { data["expiration"] = "" }))).To(expires)
		Expect(controller.Create(ctx, token(func(data map[string]string) { clear(data) }))).To(MatchError(ContainSubstring("denied")))
		Expect(controller.Create(ctx, token(func(data map[string]string) { delete(data, "auth-extra-groups") }))).To(grouped)
		for _, other := range []string{"system:bootstrappers:kubeadm:default-node-token", groups[0] + ",system:bootstrappers:kubeadm:default-node-token"} {
			Expect(controller.Create(ctx, token(func(data map[string]string) { data["auth-extra-groups"] = other }))).To(grouped)
		}

		By("a token of an administrator")
		foreign := token(func(map[string]string) {})
		foreign.Labels = nil
		Expect(c.Create(ctx, foreign)).To(Succeed())
		Expect(controller.Delete(ctx, foreign)).To(MatchError(ContainSubstring("may delete only bootstrap tokens that it created")))
		Expect(c.Delete(ctx, foreign)).To(Succeed())
	})
	It("should let only the controller record on NodeClaims what it launched", func(ctx context.Context) {
		account, policy := "", map[string]unstructured.Unstructured{}
		for name, object := range rendered(ctx, fullValues, "--set", "admissionPolicies.enabled=false") {
			switch {
			case strings.HasPrefix(name, "ValidatingAdmissionPolicy") && strings.HasSuffix(name, "-nodeclaims"):
				policy[name] = object
			case object.GetKind() == "ServiceAccount":
				account = object.GetName()
			}
		}
		Expect(policy).To(HaveLen(2), "whatever admissionPolicies says")
		as := func(user string) client.Client {
			GinkgoHelper()
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			Expect(err).ToNot(HaveOccurred())
			config.Impersonate.UserName, config.Impersonate.Groups = user, []string{"system:masters"}
			other, err := client.New(config, client.Options{})
			Expect(err).ToNot(HaveOccurred())
			return other
		}
		controller, admin := as("system:serviceaccount:"+namespace+":"+account), as("administrator")
		claim := func(annotations map[string]string) *unstructured.Unstructured {
			object := &unstructured.Unstructured{}
			Expect(yaml.UnmarshalStrict([]byte(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  generateName: default-
spec:
  nodeClassRef: {group: karpenter.bizflycloud.vn, kind: BizflyNodeClass, name: default}
  requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
`), &object.Object)).To(Succeed())
			object.SetAnnotations(annotations)
			return object
		}
		patched := func(of *unstructured.Unstructured, change func(map[string]string)) *unstructured.Unstructured {
			object := of.DeepCopy()
			annotations := object.GetAnnotations()
			change(annotations)
			object.SetAnnotations(annotations)
			return object
		}
		recorded := map[string]string{v1alpha1.AnnotationLaunchIntent: "{}", v1alpha1.AnnotationDelivered: "a"}
		object := claim(recorded)
		Expect(controller.Create(ctx, object)).To(Succeed())
		for _, object := range policy {
			Expect(c.Create(ctx, &object)).To(Succeed())
			DeferCleanup(func(ctx context.Context) error { return c.Delete(ctx, &object) })
		}
		denied := func(key string) types.GomegaMatcher {
			return MatchError(ContainSubstring("only the Karpenter controller may set, change or remove " + key))
		}
		// The API server learns of it a moment later.
		Eventually(func() error { return admin.Create(ctx, claim(recorded), client.DryRunAll) }).Should(denied(v1alpha1.AnnotationLaunchIntent))
		for _, key := range []string{v1alpha1.AnnotationDelivered, v1alpha1.AnnotationLaunchIntent} {
			changed := patched(object, func(a map[string]string) { a[key] = "golden-image-of-the-database" })
			Expect(admin.Patch(ctx, changed, client.MergeFrom(object), client.DryRunAll)).To(denied(key))
			Expect(controller.Patch(ctx, changed, client.MergeFrom(object), client.DryRunAll)).To(Succeed())
		}
		Expect(admin.Patch(ctx, patched(object, func(a map[string]string) { delete(a, v1alpha1.AnnotationDelivered) }), client.MergeFrom(object))).
			To(denied(v1alpha1.AnnotationDelivered))
		copied := pool("metadata.annotations: {" + v1alpha1.AnnotationDelivered + ": stolen}")
		Expect(admin.Create(ctx, copied, client.DryRunAll)).To(denied(v1alpha1.AnnotationDelivered))

		Expect(admin.Create(ctx, claim(nil), client.DryRunAll)).To(Succeed())
		added := claim(map[string]string{"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"})
		added.SetLabels(map[string]string{"karpenter.sh/nodepool": "default", "repack.bizflycloud.vn/node": "abc-1"})
		Expect(admin.Create(ctx, added, client.DryRunAll)).To(Succeed(), "kubectl bizfly repack creates such")
		Expect(admin.Create(ctx, pool("metadata.annotations: {example.com/team: shop}"), client.DryRunAll)).To(Succeed())
		Expect(admin.Patch(ctx, patched(object, func(a map[string]string) { a["karpenter.sh/do-not-disrupt"] = "true" }), client.MergeFrom(object))).To(Succeed())

		By("the server that is deleted with it")
		launched := func(by client.Client, of *unstructured.Unstructured, id string) error {
			changed := of.DeepCopy()
			Expect(unstructured.SetNestedField(changed.Object, id, "status", "providerID")).To(Succeed())
			return by.Status().Patch(ctx, changed, client.MergeFrom(of), client.DryRunAll)
		}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(launched(admin, object, "bizflycloud://ours")).To(Succeed(), "a backup restores it")
		Expect(unstructured.SetNestedField(object.Object, "bizflycloud://ours", "status", "providerID")).To(Succeed())
		Expect(controller.Status().Update(ctx, object)).To(Succeed())
		for _, id := range []string{"bizflycloud://theirs", ""} {
			Expect(launched(admin, object, id)).To(MatchError(ContainSubstring("may change status.providerID")))
			Expect(launched(controller, object, id)).To(Succeed())
		}
		other := object.DeepCopy()
		Expect(unstructured.SetNestedField(other.Object, "image", "status", "imageID")).To(Succeed())
		Expect(admin.Status().Patch(ctx, other, client.MergeFrom(object))).To(Succeed(), "the rest of the status is not theirs to break")
		Expect(admin.Delete(ctx, object)).To(Succeed())
	})
	Describe("with the admission policy", Ordered, func() {
		var before *unstructured.Unstructured

		BeforeAll(func(ctx context.Context) {
			before = pool("spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [ondemand]}]")
			Expect(c.Create(ctx, before)).To(Succeed(), "before there is a policy")
			for name, object := range rendered(ctx, defaultValues) {
				if strings.HasPrefix(name, "ValidatingAdmissionPolicy") {
					Expect(c.Create(ctx, &object)).To(Succeed())
				}
			}
			// The API server learns of it a moment later.
			bad := pool("spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [ondemand]}]")
			Eventually(func() error { return c.Create(ctx, bad.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("denied")))
		})
		DescribeTable("should reject, and name what to write instead", func(ctx context.Context, change string, words ...string) {
			err := c.Create(ctx, pool(change), client.DryRunAll)
			for _, word := range words {
				Expect(err).To(MatchError(ContainSubstring(word)))
			}
		},
			Entry("a capacity type with a slip of the pen", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [ondemand, on-demand]}]",
				"there is no karpenter.sh/capacity-type ondemand: write on-demand"),
			Entry("one that is excluded with a slip of the pen", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: NotIn, values: [Spot]}]",
				"there is no karpenter.sh/capacity-type Spot"),
			Entry("an unknown one as a label", "metadata.labels: {karpenter.sh/capacity-type: preemptible}",
				"there is no karpenter.sh/capacity-type preemptible", "write on-demand"),
			Entry("spot alone", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot, reserved]}]",
				"leaves out on-demand", "add on-demand"),
			Entry("spot alone as a label", "metadata.labels: {karpenter.sh/capacity-type: spot}", "leaves out on-demand"),
			Entry("all but on-demand", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: NotIn, values: [on-demand]}]", "leaves out on-demand"),
			Entry("no capacity type", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: DoesNotExist}]", "leaves out on-demand"),
			Entry("an annotation that no NodeClaim can have", `metadata.annotations: {"my team": a, example.com/team: b}`,
				"no NodeClaim can have the annotation my team of spec.template.metadata: write a key"),
			Entry("core's taint as a startup taint", "spec.startupTaints: [{key: karpenter.sh/unregistered, effect: NoExecute}]",
				"startupTaints may not have karpenter.sh/unregistered", "remove them", "for example node.cilium.io/agent-not-ready"),
			Entry("core's other taint", "spec.startupTaints: [{key: karpenter.sh/disrupted, effect: NoSchedule}]", "karpenter.sh/disrupted"),
			Entry("taints of Kubernetes",
				"spec.startupTaints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: node.cilium.io/agent-not-ready, effect: NoExecute}, {key: "+
					"node.cloudprovider.kubernetes.io/uninitialized, effect: NoSchedule}]",
				"startupTaints may not have node.kubernetes.io/not-ready, node.cloudprovider.kubernetes.io/uninitialized:"),
			Entry("a requirement that no flavor can meet", "spec.requirements: [{key: karpenter.bizflycloud.vn/instance-local-nvme, operator: Exists}]",
				"no flavor of BizFly Cloud has the label karpenter.bizflycloud.vn/instance-local-nvme", "write one of karpenter.bizflycloud.vn/instance-category, ",
				"karpenter.bizflycloud.vn/instance-memory"),
			Entry("a label of one's own in our domain", "metadata.labels: {karpenter.bizflycloud.vn/team: shop}",
				"no flavor of BizFly Cloud has the label karpenter.bizflycloud.vn/team", "use a key outside karpenter.bizflycloud.vn"),
			Entry("a requirement of another provider", "spec.requirements: [{key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}]",
				"requirements may not have karpenter.k8s.aws/instance-category", "write one of karpenter.bizflycloud.vn/instance-category, "),
			Entry("one of the older provider", "spec.requirements: [{key: karpenter.bizflycloud.com/node-category, operator: In, values: [premium]}]",
				"requirements may not have karpenter.bizflycloud.com/node-category"),
			Entry("a zone's ID on AWS", "spec.requirements: [{key: topology.k8s.aws/zone-id, operator: In, values: [apse1-az1]}]",
				"requirements may not have topology.k8s.aws/zone-id"),
			Entry("a zone of another cloud's volumes", "spec.requirements: [{key: topology.ebs.csi.aws.com/zone, operator: In, values: [ap-southeast-1a]}]",
				"requirements may not have topology.ebs.csi.aws.com/zone"),
			Entry("a label of EKS", "spec.requirements: [{key: eks.amazonaws.com/instance-cpu, operator: In, values: [\"4\"]}]",
				"requirements may not have eks.amazonaws.com/instance-cpu"),
			Entry("a label of Google Cloud's provider", "spec.requirements: [{key: karpenter.k8s.gcp/instance-family, operator: In, values: [n2]}]",
				"requirements may not have karpenter.k8s.gcp/instance-family"),
			Entry("arm64 alone", "spec.requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]", "all nodes are amd64 with Linux"),
			Entry("no Linux", "spec.requirements: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]", "all nodes are amd64 with Linux"),
			Entry("a generation as a number", "spec.requirements: [{key: karpenter.bizflycloud.vn/instance-generation, operator: Gt, values: [\"1\"]}]",
				"not all values of karpenter.bizflycloud.vn/instance-generation are numbers", "write In or NotIn"),
			Entry("a size as a number", "spec.requirements: [{key: karpenter.bizflycloud.vn/instance-size, operator: Lte, values: [\"8\"]}]",
				"not all values of karpenter.bizflycloud.vn/instance-size are numbers"),
			Entry("a NodeClass of another kind", "spec.nodeClassRef: {group: karpenter.bizflycloud.vn, kind: EC2NodeClass, name: default}",
				"there is no kind EC2NodeClass in karpenter.bizflycloud.vn: write BizflyNodeClass"),
			Entry("one below our domain", "metadata.labels: {shop.karpenter.bizflycloud.vn/team: a}", "shop.karpenter.bizflycloud.vn/team"),
		)

		It("should reject a name that is no label of NodeClaims", func(ctx context.Context) {
			long := pool("{}")
			long.SetName(strings.Repeat("a", 64))
			Expect(c.Create(ctx, long, client.DryRunAll)).To(MatchError(ContainSubstring("at most 63 characters, and this one has 64")))
		})

		DescribeTable("should let pass", func(ctx context.Context, change string) {
			Expect(c.Create(ctx, pool(change), client.DryRunAll)).To(Succeed())
		},
			Entry("a pool that asks for nothing", "{}"),
			Entry("on-demand", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]"),
			Entry("capacity types of other clouds too", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand, reserved]}]"),
			Entry("all but spot", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}]"),
			Entry("any capacity type", "spec.requirements: [{key: karpenter.sh/capacity-type, operator: Exists}]"),
			Entry("numbers compared", "spec.requirements: [{key: karpenter.bizflycloud.vn/instance-cpu, operator: Gt, values: [\"1\"]}, "+
				"{key: karpenter.bizflycloud.vn/instance-memory, operator: Lt, values: [\"32769\"]}, "+
				"{key: karpenter.bizflycloud.vn/instance-gpu-count, operator: Gte, values: [\"1\"]}]"),
			Entry("on-demand as a label", "metadata.labels: {karpenter.sh/capacity-type: on-demand, example.com/team: shop}"),
			Entry("labels of one's own, also below a domain like those of providers", "spec.requirements: [{key: karpenter.example.com/team, operator: In, "+
				"values: [a]}, {key: my-eks.amazonaws.company.com/team, operator: Exists}, {key: topology.kubernetes.io/zone, operator: In, values: [HN1]}]"),
			Entry("several architectures", "spec.requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64, amd64]}, "+
				"{key: kubernetes.io/os, operator: Exists}]"),
			Entry("the taint of an agent that must start first", "spec.startupTaints: [{key: node.cilium.io/agent-not-ready, value: \"true\", effect: NoExecute}]"),
			Entry("another provider's pool, whatever is in it",
				"{spec.nodeClassRef: {group: karpenter.example.com, kind: OtherNodeClass, name: a}, metadata.labels: {karpenter.bizflycloud.vn/team: shop}}"),
		)
		It("should accept every label that flavors have, and name no other", func(ctx context.Context) {
			err := c.Create(ctx, pool("metadata.labels: {karpenter.bizflycloud.vn/team: shop}"), client.DryRunAll)
			Expect(err).To(HaveOccurred())
			_, list, _ := strings.Cut(err.Error(), "write one of ")
			list, _, _ = strings.Cut(list, ", or use")
			Expect(strings.Split(list, ", ")).To(ConsistOf(sets.List(v1alpha1.InstanceTypeLabels)))
			requirements := []any{}
			for label := range v1alpha1.InstanceTypeLabels {
				requirements = append(requirements, map[string]any{"key": label, "operator": "Exists"})
			}
			object := pool("{}")
			Expect(unstructured.SetNestedSlice(object.Object, requirements, "spec", "template", "spec", "requirements")).To(Succeed())
			Expect(c.Create(ctx, object, client.DryRunAll)).To(Succeed())
		})
		It("should let pass every NodePool of the samples", func(ctx context.Context) {
			seen := 0
			Expect(filepath.WalkDir(filepath.Join(root, "config", "samples"), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
					return err
				}
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				for _, object := range byID(string(text)) {
					if object.GetKind() == "NodePool" {
						seen++
						Expect(c.Create(ctx, &object, client.DryRunAll)).To(Succeed(), path)
					}
				}
				return nil
			})).To(Succeed())
			Expect(seen).To(BeNumerically(">", 1))
		})
		It("should let what was there before be labelled, but not be changed for the worse", func(ctx context.Context) {
			labelled := before.DeepCopy()
			labelled.SetLabels(map[string]string{"example.com/seen": "true"})
			Expect(c.Patch(ctx, labelled, client.MergeFrom(before))).To(Succeed())
			changed := labelled.DeepCopy()
			Expect(unstructured.SetNestedField(changed.Object, int64(7), "spec", "weight")).To(Succeed())
			Expect(c.Patch(ctx, changed, client.MergeFrom(labelled))).To(MatchError(ContainSubstring("write on-demand")))
			Expect(unstructured.SetNestedSlice(changed.Object, []any{}, "spec", "template", "spec", "requirements")).To(Succeed())
			Expect(c.Patch(ctx, changed, client.MergeFrom(labelled))).To(Succeed())
			Expect(c.Delete(ctx, changed)).To(Succeed())
		})
	})
})
