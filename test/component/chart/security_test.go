// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

var _ = Describe("the Deployment", func() {
	var pod corev1.PodSpec

	BeforeEach(func(ctx context.Context) {
		deployment := as[appsv1.Deployment](rendered(ctx, defaultValues)["Deployment/"+chartName])
		Expect(*deployment.Spec.Replicas).To(BeEquivalentTo(2))
		pod = deployment.Spec.Template.Spec
	})
	It("should not run where it would drain itself", func() {
		Expect(pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions).To(
			ContainElement(corev1.NodeSelectorRequirement{Key: "karpenter.sh/nodepool", Operator: corev1.NodeSelectorOpDoesNotExist}))
	})
	It("should run on two machines and, where it can, in two zones", func() {
		spread := pod.TopologySpreadConstraints[0]
		apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		Expect(apart.TopologyKey).To(Equal(corev1.LabelHostname))
		Expect(spread.TopologyKey).To(Equal(corev1.LabelTopologyZone))
		Expect(apart.LabelSelector).To(Equal(spread.LabelSelector))
		Expect(spread.LabelSelector.MatchLabels).To(HaveKeyWithValue("app.kubernetes.io/name", chartName))
	})
	It("should start a new version where the old one runs, for clusters of fewer nodes", func() {
		apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		Expect(apart.MatchLabelKeys).To(ConsistOf(appsv1.DefaultDeploymentUniqueLabelKey))
	})
	It("should give a slow cloud the time that the first login may take", func() {
		probe := pod.Containers[0].StartupProbe
		patience := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second
		Expect(patience).To(BeNumerically(">=", 90*time.Second))
		Expect(pod.Containers[0].LivenessProbe.HTTPGet.Path).To(Equal("/healthz"))
		Expect(pod.Containers[0].ReadinessProbe.HTTPGet.Path).To(Equal("/readyz"))
	})
	It("should take the image of the chart's version, or exactly the one that is asked for", func(ctx context.Context) {
		const repository = "cr-hn-1.bizflycloud.vn/31ff9581861a4d0ea4df5e7dda0f665d/karpenter-provider-bizflycloud"
		Expect(pod.Containers[0].Image).To(Equal(repository + ":" + version()))
		pinned := as[appsv1.Deployment](rendered(ctx, fullValues)["Deployment/"+chartName]).Spec.Template.Spec.Containers[0].Image
		Expect(pinned).To(Equal(repository + ":v1.2.3@sha256:" + strings.Repeat("0123456789abcdef", 4)))
	})
	It("should take the image of a release by its digest, unless the values name another", func(ctx context.Context) {
		const digest = "sha256:" + "89abcdef89abcdef89abcdef89abcdef89abcdef89abcdef89abcdef89abcdef"
		dir := filepath.Join(GinkgoT().TempDir(), chartName)
		Expect(os.CopyFS(dir, os.DirFS(chartFile()))).To(Succeed())
		file := lo.Must(os.OpenFile(filepath.Join(dir, "Chart.yaml"), os.O_APPEND|os.O_WRONLY, 0o600))
		// As make package WHAT=charts does: the annotations are the end of the file.
		_, err := file.WriteString("  karpenter.bizflycloud.vn/image-digest: " + digest + "\n")
		Expect(err).ToNot(HaveOccurred())
		Expect(file.Close()).To(Succeed())
		image := func(values ...string) string {
			text, err := helm(ctx, append([]string{"template", releaseName, dir, "--namespace", namespace, "--values", chartFile(defaultValues)},
				settings(values...)...)...)
			Expect(err).ToNot(HaveOccurred())
			return as[appsv1.Deployment](byID(text)["Deployment/"+chartName]).Spec.Template.Spec.Containers[0].Image
		}
		Expect(image()).To(HaveSuffix(":" + version() + "@" + digest))
		Expect(image("controller.image.repository=mirror.example.com/karpenter")).To(Equal("mirror.example.com/karpenter:" + version() + "@" + digest))
		Expect(image("controller.image.tag=dev")).To(HaveSuffix(":dev"))
		other := "sha256:" + strings.Repeat("0", 64)
		Expect(image("controller.image.digest=" + other)).To(HaveSuffix(":" + version() + "@" + other))
	})
	It("should show no hash from which a password could be guessed", func(ctx context.Context) {
		hash := func(args ...string) string {
			GinkgoHelper()
			text, err := render(ctx, fullValues, append([]string{"--set", "providerConfig.create=false,cloud.caBundle=,cloud.rateLimits=null"}, args...)...)
			Expect(err).ToNot(HaveOccurred())
			return as[appsv1.Deployment](byID(text)["Deployment/"+chartName]).Spec.Template.Annotations["checksum/credentials"]
		}
		Expect(hash("--set", "credentials.password=one")).To(And(Not(BeEmpty()), Equal(hash("--set", "credentials.password=two"))))
		generated := []string{"--set", "credentials.method=application_credential,credentials.applicationCredentialID=a"}
		Expect(hash(append(generated, "--set", "credentials.applicationCredentialSecret=one")...)).ToNot(
			Equal(hash(append(generated, "--set", "credentials.applicationCredentialSecret=two")...)), "the cloud has generated it")
	})
	It("should give the token of its ServiceAccount to no other pod", func(ctx context.Context) {
		account := as[corev1.ServiceAccount](rendered(ctx, defaultValues)["ServiceAccount/"+chartName])
		Expect(*account.AutomountServiceAccountToken).To(BeFalse())
		Expect(*pod.AutomountServiceAccountToken).To(BeTrue())
		Expect(pod.ServiceAccountName).To(Equal(account.Name))
	})
})

var _ = Describe("an uninstallation", func() {
	It("should keep what nodes and their servers hang on, and run no hook", func(ctx context.Context) {
		kept, seen := []string{"ProviderConfig", "BizflyNodeClass", "NodePool"}, map[string]bool{}
		for name, object := range rendered(ctx, fullValues) {
			annotations := object.GetAnnotations()
			if annotations["helm.sh/hook"] == "test" {
				continue // created by helm test alone
			}
			Expect(annotations).ToNot(HaveKey(HavePrefix("helm.sh/hook")), name)
			if slices.Contains(kept, object.GetKind()) {
				seen[object.GetKind()] = true
				Expect(annotations).To(HaveKeyWithValue("helm.sh/resource-policy", "keep"), name)
			} else {
				Expect(annotations).ToNot(HaveKey("helm.sh/resource-policy"), name)
			}
		}
		Expect(lo.Keys(seen)).To(ConsistOf(kept))
	})
	It("should keep the definitions, which are those of config/crd", func(ctx context.Context) {
		text := lo.Must(helm(ctx, "template", "crd", filepath.Join(root, "charts", chartName+"-crd")))
		inChart := byID(text)
		files := lo.Must(filepath.Glob(filepath.Join(root, "config", "crd", "*_*.yaml")))
		Expect(files).ToNot(BeEmpty())
		Expect(inChart).To(HaveLen(len(files)))
		for _, path := range files {
			source := lo.Must(os.ReadFile(path))
			for name, definition := range byID(string(source)) {
				annotations := definition.GetAnnotations()
				annotations["helm.sh/resource-policy"] = "keep"
				definition.SetAnnotations(annotations)
				Expect(inChart).To(HaveKeyWithValue(name, definition))
			}
		}
	})
})

var _ = Describe("rights", func() {
	clusterRole := func(ctx context.Context, values string, args ...string) []rbacv1.PolicyRule {
		GinkgoHelper()
		return as[rbacv1.ClusterRole](rendered(ctx, values, args...)["ClusterRole/"+chartName]).Rules
	}
	resources := func(rules []rbacv1.PolicyRule) []string {
		var names []string
		for _, rule := range rules {
			names = append(names, rule.Resources...)
		}
		return names
	}

	It("should have a reason each", func() {
		for _, file := range []string{"role.yaml", "clusterrole.yaml", "clusterrole-users.yaml"} {
			source := lo.Must(os.ReadFile(chartFile("templates", file)))
			explained, before := false, ""
			for line := range strings.Lines(string(source)) {
				trimmed := strings.TrimSpace(line)
				switch {
				case strings.HasPrefix(trimmed, "#"):
					explained = true
				case strings.HasPrefix(trimmed, "resources:"):
					// The status of what the rule before is about needs no reason of its own.
					about, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(trimmed, "resources:"), `[ "]`), "/")
					Expect(explained || strings.Contains(before, `"`+about+`"`)).To(BeTrue(), "%s: %s", file, trimmed)
					before = trimmed
				case strings.HasPrefix(trimmed, "verbs:"):
					explained = false
				}
			}
			Expect(before).ToNot(BeEmpty(), file)
		}
	})
	It("should know no wildcard", func(ctx context.Context) {
		roles := 0
		for _, object := range rendered(ctx, fullValues) {
			if !strings.HasSuffix(object.GetKind(), "Role") {
				continue
			}
			roles++
			for _, rule := range as[rbacv1.ClusterRole](object).Rules {
				for _, words := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
					Expect(words).ToNot(ContainElement(ContainSubstring("*")), object.GetName())
				}
			}
		}
		Expect(roles).To(BeNumerically(">=", 3))
	})
	It("should name their Secrets, ConfigMaps and Leases, all in the controller's namespace", func(ctx context.Context) {
		named := []string{"secrets", "configmaps", "leases"}
		Expect(resources(clusterRole(ctx, fullValues))).ToNot(ContainElement(BeElementOf(named)))
		role := as[rbacv1.Role](rendered(ctx, fullValues)["Role/"+chartName])
		Expect(role.Namespace).To(Equal(namespace))
		for _, rule := range role.Rules {
			Expect(named).To(ContainElements(rule.Resources))
			// A create cannot be limited to a name.
			if !slices.Equal(rule.Verbs, []string{"create"}) {
				Expect(rule.ResourceNames).ToNot(BeEmpty(), "%v", rule)
			}
		}
	})
	It("should reach beyond that namespace only where that is switched on", func(ctx context.Context) {
		Expect(rendered(ctx, defaultValues)).ToNot(HaveKey(ContainSubstring("/Role")))
		objects := rendered(ctx, fullValues)
		Expect(as[rbacv1.Role](objects["kube-system/Role/"+chartName+"-join-tokens"]).Rules).To(ConsistOf(
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete"}}))
		Expect(as[rbacv1.Role](objects["kube-public/Role/"+chartName+"-lookup"]).Rules).To(ConsistOf(
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"cluster-info"}, Verbs: []string{"get"}}))
		Expect(as[rbacv1.Role](objects["kube-system/Role/"+chartName+"-lookup"]).Rules).To(ConsistOf(
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"kube-dns"}, Verbs: []string{"get"}}))
		for _, name := range []string{"kube-system/RoleBinding/" + chartName + "-join-tokens", "kube-public/RoleBinding/" + chartName + "-lookup",
			"kube-system/RoleBinding/" + chartName + "-lookup"} {
			binding := as[rbacv1.RoleBinding](objects[name])
			Expect(binding.RoleRef.Name).To(Equal(binding.Name))
			Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Name: chartName, Namespace: namespace}))
		}
	})
	It("should come with the gates that need them", func(ctx context.Context) {
		byDefault := resources(clusterRole(ctx, defaultValues))
		Expect(byDefault).ToNot(ContainElement(BeElementOf("nodeoverlays", "capacitybuffers", "podtemplates", "deployments", "resourceclaims")))
		Expect(resources(clusterRole(ctx, defaultValues, "--set", "settings.featureGates.nodeOverlay=true"))).
			To(ContainElements("nodeoverlays", "nodeoverlays/status"))
		Expect(resources(clusterRole(ctx, defaultValues, "--set", "settings.featureGates.capacityBuffer=true"))).
			To(ContainElements("capacitybuffers", "capacitybuffers/status", "podtemplates", "deployments"))
		patches := func(rules []rbacv1.PolicyRule) []string {
			return resources(slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.Verbs, "patch") }))
		}
		Expect(patches(clusterRole(ctx, defaultValues))).ToNot(ContainElement(BeElementOf("nodes/status", "pods")))
		Expect(patches(clusterRole(ctx, defaultValues, "--set", "settings.featureGates.podDeletionCostManagement=true"))).To(ContainElement("pods"))
		Expect(resources(clusterRole(ctx, defaultValues, "--set", "settings.ignoreDRARequests=false"))).
			To(ContainElements("resourceclaims", "resourceslices", "deviceclasses"))
	})
	It("should follow the names of a release, wherever it is", func(ctx context.Context) {
		text, err := helm(ctx, "template", "other", chartFile(), "--namespace", "elsewhere", "--values", chartFile(fullValues),
			"--set", "fullnameOverride=k", "--set", "serviceAccount.name=robot", "--set", "settings.leaderElectionName=lead")
		Expect(err).ToNot(HaveOccurred())
		objects := byID(text)
		Expect(as[corev1.ServiceAccount](objects["elsewhere/ServiceAccount/robot"]).Name).To(Equal("robot"))
		var named []string
		for _, rule := range as[rbacv1.Role](objects["elsewhere/Role/k"]).Rules {
			named = append(named, rule.ResourceNames...)
		}
		Expect(named).To(ConsistOf("k", "k-tuning", "templates", "scripts", "lead"))
		Expect(objects).To(HaveKey("elsewhere/Secret/k"))
		Expect(objects).To(HaveKey("elsewhere/ConfigMap/k-tuning"))
		Expect(objects["ProviderConfig/default"].Object["spec"]).To(And(
			HaveKeyWithValue("secretRef", map[string]any{"name": "k"}), HaveKeyWithValue("tuningConfigMapRef", map[string]any{"name": "k-tuning"})))
		for name, object := range objects {
			if !strings.HasSuffix(object.GetKind(), "Binding") || !strings.HasPrefix(object.GetAPIVersion(), "rbac.") {
				continue
			}
			binding := as[rbacv1.RoleBinding](object)
			role := strings.Replace(name, object.GetKind()+"/"+object.GetName(), binding.RoleRef.Kind+"/"+binding.RoleRef.Name, 1)
			Expect(objects).To(HaveKey(role))
			Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: "elsewhere"}), name)
		}
	})
	It("should let administrators of workloads write CapacityBuffers only with gate and value", func(ctx context.Context) {
		const gate, value = "settings.featureGates.capacityBuffer=true", "rbac.aggregateCapacityBuffers=true"
		admin := func(values ...string) []string {
			role := as[rbacv1.ClusterRole](rendered(ctx, defaultValues, settings(values...)...)["ClusterRole/"+chartName+"-admin"])
			Expect(role.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-admin", "true"))
			return resources(role.Rules)
		}
		for _, values := range [][]string{nil, {gate}, {value}} {
			Expect(admin(values...)).To(And(ContainElement("nodepools"), Not(ContainElement("capacitybuffers"))), "%v", values)
		}
		Expect(admin(gate, value)).To(ContainElement("capacitybuffers"))
	})
	It("should allow only the controller to create or change NodeClaims", func(ctx context.Context) {
		granted := 0
		for name, object := range rendered(ctx, fullValues) {
			labels := strings.Join(lo.Keys(object.GetLabels()), " ")
			if object.GetKind() != "ClusterRole" || !strings.Contains(labels, "aggregate-to-") {
				continue
			}
			for _, rule := range as[rbacv1.ClusterRole](object).Rules {
				if slices.Contains(rule.Resources, "nodeclaims") {
					granted++
					Expect([]string{"get", "list", "watch", "delete", "deletecollection"}).To(ContainElements(rule.Verbs), name)
				}
			}
		}
		Expect(granted).To(BeNumerically(">", 0))
	})
	It("should not show a credential to viewers, nor the user data in which one may be", func(ctx context.Context) {
		role := as[rbacv1.ClusterRole](rendered(ctx, fullValues)["ClusterRole/"+chartName+"-view"])
		Expect(role.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-view", "true"))
		Expect(resources(role.Rules)).To(And(Not(BeEmpty()), Not(ContainElement(BeElementOf("secrets", "bizflynodeclasses")))))
		for _, rule := range role.Rules {
			Expect([]string{"get", "list", "watch"}).To(ContainElements(rule.Verbs))
		}
	})
})

var _ = Describe("the network policy", func() {
	egress := func(policy networkingv1.NetworkPolicy) map[string][]string {
		ports := map[string][]string{}
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				ports[port.Port.String()] = lo.Map(rule.To, func(p networkingv1.NetworkPolicyPeer, _ int) string { return p.IPBlock.CIDR })
			}
		}
		return ports
	}

	It("should match its description", func(ctx context.Context) {
		policy := as[networkingv1.NetworkPolicy](rendered(ctx, defaultValues, "--set", "networkPolicy.enabled=true")["NetworkPolicy/"+chartName])
		Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
		Expect(egress(policy)).To(Equal(map[string][]string{"53": {}, "443": {}, "6443": {}}))
		Expect(policy.Spec.Ingress).To(HaveLen(2))
		for i, port := range []string{"http-metrics", "http"} {
			Expect(policy.Spec.Ingress[i].Ports).To(HaveLen(1))
			Expect(policy.Spec.Ingress[i].Ports[0].Port.String()).To(Equal(port))
			Expect(policy.Spec.Ingress[i].From).To(BeEmpty())
		}
	})
	It("should be limited to addresses and to who scrapes", func(ctx context.Context) {
		policy := as[networkingv1.NetworkPolicy](rendered(ctx, fullValues)["NetworkPolicy/"+chartName])
		cidrs := []string{"192.0.2.0/24", "2001:db8::/32"}
		Expect(egress(policy)).To(Equal(map[string][]string{"53": {}, "443": cidrs, "6443": cidrs, "3128": {}}))
		Expect(policy.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels).To(HaveKeyWithValue("kubernetes.io/metadata.name", "monitoring"))
	})
})

var _ = Describe("files of the chart", func() {
	// copied is the chart without its alerts and dashboards.
	copied := func() string {
		GinkgoHelper()
		dir := filepath.Join(GinkgoT().TempDir(), chartName)
		Expect(os.CopyFS(dir, os.DirFS(chartFile()))).To(Succeed())
		Expect(os.Remove(filepath.Join(dir, "files", "alerts.yaml"))).To(Succeed())
		Expect(os.RemoveAll(filepath.Join(dir, "files", "dashboards"))).To(Succeed())
		return dir
	}
	template := func(ctx context.Context, dir string) string {
		GinkgoHelper()
		text, err := helm(ctx, "template", releaseName, dir, "--namespace", namespace, "--values", chartFile(fullValues))
		Expect(err).ToNot(HaveOccurred())
		return text
	}

	It("should become alerts and dashboards, word for word", func(ctx context.Context) {
		dir := copied()
		Expect(os.MkdirAll(filepath.Join(dir, "files", "dashboards"), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "files", "alerts.yaml"),
			[]byte("# Alerts.\ngroups:\n  - name: a\n    rules:\n      - alert: A\n        annotations: {summary: \"{{ $labels.zone }}\"}\n"), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "files", "dashboards", "fleet.json"), []byte("{\"title\": \"{{ zone }}\"}\n"), 0o600)).To(Succeed())
		objects := byID(template(ctx, dir))
		Expect(objects["PrometheusRule/"+chartName].Object["spec"]).To(Equal(map[string]any{"groups": []any{map[string]any{
			"name": "a", "rules": []any{map[string]any{"alert": "A", "annotations": map[string]any{"summary": "{{ $labels.zone }}"}}},
		}}}))
		dashboard := as[corev1.ConfigMap](objects["ConfigMap/"+chartName+"-fleet"])
		Expect(dashboard.Data).To(Equal(map[string]string{"fleet.json": "{\"title\": \"{{ zone }}\"}\n"}))
		Expect(dashboard.Labels).To(HaveKeyWithValue("grafana_dashboard", "1"))
	})
	It("should be files that a Prometheus and a Grafana can read", func(ctx context.Context) {
		files := lo.Must(filepath.Glob(chartFile("files", "dashboards", "*.json")))
		Expect(files).ToNot(BeEmpty())
		objects := rendered(ctx, fullValues)
		for _, path := range files {
			name := strings.TrimSuffix(filepath.Base(path), ".json")
			dashboard := as[corev1.ConfigMap](objects["ConfigMap/"+chartName+"-"+name])
			Expect(json.Valid([]byte(dashboard.Data[name+".json"]))).To(BeTrue(), path)
		}
		Expect(objects["PrometheusRule/"+chartName].Object["spec"]).To(HaveKeyWithValue("groups", Not(BeEmpty())))
	})
	It("should leave nothing where there are none", func(ctx context.Context) {
		Expect(template(ctx, copied())).ToNot(Or(ContainSubstring("kind: PrometheusRule"), ContainSubstring("grafana_dashboard")))
	})
})
