// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// variable is the value of an environment variable of the controller.
func variable(name, value string) types.GomegaMatcher {
	return WithTransform(func(d appsv1.Deployment) []corev1.EnvVar { return d.Spec.Template.Spec.Containers[0].Env },
		ContainElement(corev1.EnvVar{Name: name, Value: value}))
}

// podField matches a part of the controller's pod.
func podField[T any](field func(corev1.PodSpec) T, matcher types.GomegaMatcher) types.GomegaMatcher {
	return WithTransform(func(d appsv1.Deployment) T { return field(d.Spec.Template.Spec) }, matcher)
}

var _ = Describe("values of the AWS provider's chart", func() {
	// What users of that chart set, as they set it, and what it does to the Deployment.
	DescribeTable("should work unchanged", func(ctx context.Context, setting string, matcher types.GomegaMatcher) {
		deployment := as[appsv1.Deployment](rendered(ctx, defaultValues, "--set", setting)["Deployment/"+chartName])
		Expect(deployment).To(matcher)
	},
		Entry(nil, "settings.clusterName=shop", variable("CLUSTER_NAME", "shop")),
		Entry(nil, "settings.clusterEndpoint=https://api.example.com", variable("CLUSTER_ENDPOINT", "https://api.example.com:443")),
		Entry(nil, "settings.batchMaxDuration=30s", variable("BATCH_MAX_DURATION", "30s")),
		Entry(nil, "settings.batchIdleDuration=3s", variable("BATCH_IDLE_DURATION", "3s")),
		Entry("values without a meaning here, and empty ones as in its defaults", "settings.interruptionQueue=shop,settings.reservedENIs=0,webhook.enabled=false,"+
			"settings.vmMemoryOverheadPercent=0.075,controller.securityContext.seccompProfile=null,settings.isolatedVPC=false",
			podField(func(p corev1.PodSpec) *corev1.SeccompProfile { return p.Containers[0].SecurityContext.SeccompProfile }, BeNil())),
		Entry(nil, "settings.preferencePolicy=Ignore", variable("PREFERENCE_POLICY", "Ignore")),
		Entry(nil, "settings.featureGates.nodeOverlay=true", variable("FEATURE_GATES", "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,"+
			"NodeOverlay=true,StaticCapacity=false,CapacityBuffer=false,TerminateFirstDrift=false,TerminateFirstRepair=false,PodDeletionCostManagement=false")),
		Entry(nil, "controller.image.tag=1.2.3", podField(func(p corev1.PodSpec) string { return p.Containers[0].Image }, HaveSuffix(":1.2.3"))),
		Entry(nil, "controller.resources.requests.cpu=1,controller.resources.limits.memory=2Gi",
			podField(func(p corev1.PodSpec) string { return p.Containers[0].Resources.Limits.Memory().String() }, Equal("2Gi"))),
		Entry(nil, "controller.env[0].name=GOMEMLIMIT,controller.env[0].value=900MiB", variable("GOMEMLIMIT", "900MiB")),
		Entry(nil, "controller.metrics.port=8000", variable("METRICS_PORT", "8000")),
		Entry(nil, "controller.healthProbe.port=8082", variable("HEALTH_PROBE_PORT", "8082")),
		Entry(nil, "logLevel=debug", variable("LOG_LEVEL", "debug")),
		Entry(nil, "logOutputPaths={stdout,/var/log/karpenter}", variable("LOG_OUTPUT_PATHS", "stdout,/var/log/karpenter")),
		Entry(nil, "imagePullSecrets[0].name=registry", podField(func(p corev1.PodSpec) []corev1.LocalObjectReference { return p.ImagePullSecrets },
			Equal([]corev1.LocalObjectReference{{Name: "registry"}}))),
		Entry(nil, "dnsPolicy=ClusterFirst", podField(func(p corev1.PodSpec) corev1.DNSPolicy { return p.DNSPolicy }, Equal(corev1.DNSClusterFirst))),
		Entry(nil, "replicas=1", WithTransform(func(d appsv1.Deployment) int { return int(*d.Spec.Replicas) }, Equal(1))),
		Entry(nil, "schedulerName=other", podField(func(p corev1.PodSpec) string { return p.SchedulerName }, Equal("other"))),
		Entry(nil, "additionalLabels.team=shop", WithTransform(func(d appsv1.Deployment) map[string]string { return d.Labels }, HaveKeyWithValue("team", "shop"))),
		Entry(nil, "additionalAnnotations.team=shop", WithTransform(func(d appsv1.Deployment) map[string]string { return d.Annotations },
			HaveKeyWithValue("team", "shop"))),
		Entry(nil, "priorityClassName=high", podField(func(p corev1.PodSpec) string { return p.PriorityClassName }, Equal("high"))),
		Entry(nil, "controller.containerName=karpenter", podField(func(p corev1.PodSpec) string { return p.Containers[0].Name }, Equal("karpenter"))),
	)
	It("should annotate the ServiceAccount, as that chart's users do", func(ctx context.Context) {
		objects := rendered(ctx, defaultValues, "--set", `serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn`)
		Expect(as[corev1.ServiceAccount](objects["ServiceAccount/"+chartName]).Annotations).To(HaveKeyWithValue("eks.amazonaws.com/role-arn", "arn"))
	})
})

var _ = Describe("the pods", func() {
	It("should run an image with a tag of digits alone, as the pages set it", func(ctx context.Context) {
		tagged := as[appsv1.Deployment](rendered(ctx, defaultValues, "--set-string", "controller.image.tag=20261128")["Deployment/"+chartName])
		Expect(tagged.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(":20261128"))
		for _, page := range []string{"docs/how-to/upgrade-and-remove.md", "charts/" + chartName + "/README.md"} {
			text := lo.Must(os.ReadFile(filepath.Join(root, page)))
			Expect(string(text)).To(ContainSubstring(`--set-string controller.image.tag="$TAG"`), page)
		}
	})
	It("should have everything that can be added to them", func(ctx context.Context) {
		pod := as[appsv1.Deployment](rendered(ctx, fullValues)["Deployment/"+chartName]).Spec.Template.Spec
		Expect(pod.HostAliases).To(HaveLen(1))
		Expect(pod.DNSConfig.Options).To(HaveLen(1))
		Expect(pod.InitContainers).To(HaveLen(1))
		Expect(pod.Containers).To(HaveLen(2))
		Expect(lo.Map(pod.Containers[1].VolumeMounts, func(m corev1.VolumeMount, _ int) string { return m.MountPath })).To(Equal([]string{"/extra", "/more"}))
	})
	It("should have each label and annotation once, and be selected whatever the values say", func(ctx context.Context) {
		objects := rendered(ctx, fullValues, settings(`additionalLabels.app\.kubernetes\.io/name=other`, // an error where a key stands twice
			`additionalLabels.app\.kubernetes\.io/part-of=platform`, "additionalLabels.team=shop", "podLabels.team=cluster",
			"serviceMonitor.additionalLabels.team=monitoring", `podAnnotations.kubectl\.kubernetes\.io/default-container=sidecar`)...)
		monitor := objects["ServiceMonitor/"+chartName]
		Expect(monitor.GetLabels()).To(HaveKeyWithValue("team", "monitoring"))
		deployment := as[appsv1.Deployment](objects["Deployment/"+chartName])
		Expect(deployment.Labels).To(And(HaveKeyWithValue("app.kubernetes.io/name", chartName), HaveKeyWithValue("app.kubernetes.io/part-of", "platform"),
			HaveKeyWithValue("team", "shop")))
		template := deployment.Spec.Template
		Expect(template.Labels).To(And(HaveKeyWithValue("app.kubernetes.io/name", chartName), HaveKeyWithValue("team", "cluster"),
			Not(HaveKey("helm.sh/chart"))))
		Expect(template.Annotations).To(HaveKeyWithValue("kubectl.kubernetes.io/default-container", "sidecar"))
		Expect(as[corev1.Pod](objects["Pod/"+chartName+"-preflight"]).Labels).To(HaveKeyWithValue("app.kubernetes.io/name", chartName+"-preflight"))
	})
	It("should reach the API server without the proxy", func(ctx context.Context) {
		proxied := as[appsv1.Deployment](rendered(ctx, fullValues)["Deployment/"+chartName])
		Expect(proxied).To(And(variable("HTTPS_PROXY", "http://proxy.example.com:3128"), variable("HTTP_PROXY", "http://proxy.example.com:3128"),
			variable("NO_PROXY", "$(KUBERNETES_SERVICE_HOST),.example.com")))
		Expect(environment(ctx, defaultValues)).ToNot(HaveKey("NO_PROXY"))
	})
	It("should join BKE at its own endpoints for the cluster, unless these are given or learned", func(ctx context.Context) {
		const token, id = "bke.clusterID=zdckkshu1he44fsb", "zdckkshu1he44fsb"
		derived := environment(ctx, defaultValues, "--set", token)
		Expect(derived).To(HaveKeyWithValue("BKE_JOIN_ENDPOINT", "http://engine.api.k8saas.bizflycloud.vn/engine/cluster_join/"+id))
		Expect(derived).To(HaveKeyWithValue("BKE_LOG_ENDPOINT", "http://engine.api.k8saas.bizflycloud.vn/engine/cluster_log/"+id))
		Expect(environment(ctx, defaultValues, "--set", token, "--set", "bke.joinEndpoint=https://a.example")).
			To(HaveKeyWithValue("BKE_JOIN_ENDPOINT", "https://a.example"))
		Expect(environment(ctx, defaultValues, "--set", "bke.discoverFromPool=true")).To(And(
			HaveKeyWithValue("BKE_DISCOVER_FROM_POOL", "true"), Not(HaveKey("BKE_JOIN_ENDPOINT")), Not(HaveKey("BKE_CLUSTER_ID"))))
	})
})

var _ = Describe("the preflight of helm test", func() {
	It("should be the controller with its configuration and rights, and no pod of the Deployment", func(ctx context.Context) {
		objects := rendered(ctx, fullValues)
		pod, deployment := as[corev1.Pod](objects["Pod/"+chartName+"-preflight"]), as[appsv1.Deployment](objects["Deployment/"+chartName])
		theirs := deployment.Spec.Template.Spec
		Expect(pod.Annotations).To(HaveKeyWithValue("helm.sh/hook", "test"))
		Expect(pod.Spec.Containers).To(HaveLen(1))
		Expect(pod.Spec.Containers[0].Args).To(Equal([]string{"preflight"}))
		Expect(pod.Spec.Containers[0].Env).To(Equal(theirs.Containers[0].Env))
		Expect(pod.Spec.Containers[0].Image).To(Equal(theirs.Containers[0].Image))
		Expect(pod.Spec.ServiceAccountName).To(Equal(theirs.ServiceAccountName))
		Expect(pod.Labels).ToNot(HaveKeyWithValue("app.kubernetes.io/name", deployment.Spec.Selector.MatchLabels["app.kubernetes.io/name"]))
	})
	It("should evict no pod to get its place", func(ctx context.Context) {
		objects := rendered(ctx, fullValues)
		Expect(as[appsv1.Deployment](objects["Deployment/"+chartName]).Spec.Template.Spec.PriorityClassName).To(Equal("system-cluster-critical"))
		spec := as[corev1.Pod](objects["Pod/"+chartName+"-preflight"]).Spec
		Expect(spec.PriorityClassName).To(BeEmpty())
		Expect(spec.Containers[0].Resources.Requests.Cpu().MilliValue()).To(BeNumerically("<=", 10))
		Expect(spec.Containers[0].Resources.Requests.Memory().Value()).To(BeNumerically("<=", 64<<20))
		Expect(spec.Containers[0].Resources.Limits.Memory().String()).To(Equal("1Gi"))
	})
})

var _ = Describe("names", func() {
	names := func(ctx context.Context, release string, args ...string) []string {
		GinkgoHelper()
		text, err := helm(ctx, append([]string{"template", release, chartFile(), "--namespace", namespace, "--values", chartFile(fullValues), "--set",
			"fullnameOverride="}, args...)...)
		Expect(err).ToNot(HaveOccurred())
		return lo.Keys(byID(text))
	}

	DescribeTable("should be the release's", func(ctx context.Context, release, expected string, args ...string) {
		shared := []string{"ProviderConfig/default", "NodePool/", "BizflyNodeClass/", "ConfigMap/" + release + "-extra", "PodDisruptionBudget/one-at-a-time"}
		own := lo.Reject(names(ctx, release, args...), func(name string, _ int) bool {
			return lo.SomeBy(shared, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		})
		Expect(own).ToNot(BeEmpty())
		Expect(own).To(HaveEach(MatchRegexp("/%s[^/]*$", regexp.QuoteMeta(expected))))
	},
		Entry("and say which Karpenter it is", "karpenter", "karpenter-bizflycloud"),
		Entry("alone where it says that already", "bizflycloud", "bizflycloud"),
		Entry("another release's are others", "provider", "provider-bizflycloud"),
		Entry("or what is asked for", "karpenter", "karpenter-other", "--set", "nameOverride=other"),
		Entry("in full", "karpenter", "mine", "--set", "fullnameOverride=mine"),
		Entry("without the dots, which a Service's may not have", "karpenter", "mine-hn", "--set", "fullnameOverride=mine.hn"),
		Entry("without those of the release", "my.karpenter", "my-karpenter-bizflycloud"),
	)
	It("should leave the label by which kubectl bizfly and the runbooks find the controller", func(ctx context.Context) {
		text, err := helm(ctx, "template", "karpenter", chartFile(), "--namespace", namespace, "--values", chartFile(fullValues), "--set", "fullnameOverride=",
			"--set", "nameOverride=other")
		Expect(err).ToNot(HaveOccurred())
		deployment := as[appsv1.Deployment](byID(text)["Deployment/karpenter-other"])
		for _, labels := range []map[string]string{deployment.Labels, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels} {
			Expect(labels).To(HaveKeyWithValue("app.kubernetes.io/name", chartName))
		}
	})
	It("should leave it as a dependency of another chart, with a condition and an alias", func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		dependencies := []map[string]string{}
		values := map[string]any{}
		for name, alias := range map[string]string{chartName: "autoscaler", chartName + "-crd": "definitions"} {
			Expect(os.CopyFS(filepath.Join(dir, "charts", name), os.DirFS(filepath.Join(root, "charts", name)))).To(Succeed())
			dependencies = append(dependencies, map[string]string{"name": name, "version": version(), "alias": alias, "condition": alias + ".enabled"})
			values[alias] = map[string]any{"enabled": true}
		}
		write := func(file string, content any) {
			text := lo.Must(yaml.Marshal(content))
			Expect(os.WriteFile(filepath.Join(dir, file), text, 0o600)).To(Succeed())
		}
		write("Chart.yaml", map[string]any{"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": dependencies})
		write("values.yaml", values)
		text, err := helm(ctx, "template", "platform", dir, "--namespace", namespace, "--set",
			"autoscaler.settings.clusterName=shop,autoscaler.cloud.region=HN,autoscaler.credentials.existingSecret=cloud")
		Expect(err).ToNot(HaveOccurred())
		objects := byID(text)
		Expect(objects).To(HaveKey("CustomResourceDefinition/nodepools.karpenter.sh"))
		deployment := as[appsv1.Deployment](objects["Deployment/platform-bizflycloud"])
		Expect(deployment.Labels).To(HaveKeyWithValue("helm.sh/chart", chartName+"-"+version()))
		Expect(deployment.Spec.Template.Labels).To(HaveKeyWithValue("app.kubernetes.io/name", chartName))
	})
	It("should allow another name for the disruption budget", func(ctx context.Context) {
		Expect(as[policyv1.PodDisruptionBudget](rendered(ctx, fullValues)["PodDisruptionBudget/one-at-a-time"]).Spec.MaxUnavailable.IntValue()).To(Equal(1))
	})
	It("should not take the Lease of another Karpenter", func(ctx context.Context) {
		Expect(environment(ctx, defaultValues)).To(HaveKeyWithValue("LEADER_ELECTION_NAME", "karpenter-bizflycloud-leader-election"))
	})
})

var _ = Describe("further objects", func() {
	It("should be templates", func(ctx context.Context) {
		Expect(as[corev1.ConfigMap](rendered(ctx, fullValues)["ConfigMap/karpenter-extra"]).Data).To(Equal(map[string]string{"cluster": "shop"}))
	})
	It("should be rules of the ClusterRole", func(ctx context.Context) {
		Expect(as[rbacv1.ClusterRole](rendered(ctx, fullValues)["ClusterRole/"+chartName]).Rules).To(ContainElement(
			rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get"}}))
	})
	It("should be a PodMonitor instead of a ServiceMonitor", func(ctx context.Context) {
		objects := rendered(ctx, defaultValues, "--set", "podMonitor.enabled=true", "--set", "podMonitor.endpointConfig.interval=10s")
		Expect(objects).ToNot(HaveKey("ServiceMonitor/" + chartName))
		Expect(objects["PodMonitor/"+chartName].Object["spec"]).To(HaveKeyWithValue("podMetricsEndpoints", ConsistOf(
			And(HaveKeyWithValue("interval", "10s"), HaveKeyWithValue("scrapeTimeout", "10s"), HaveKeyWithValue("port", "http-metrics")))))
	})
	It("should leave CapacityBuffers to who has installed them", func(ctx context.Context) {
		text, err := helm(ctx, "template", "crd", filepath.Join(root, "charts", chartName+"-crd"), "--set", "capacityBuffers.enabled=false")
		Expect(err).ToNot(HaveOccurred())
		Expect(text).ToNot(ContainSubstring("capacitybuffers"))
		Expect(text).To(ContainSubstring("nodepools.karpenter.sh"))
	})
})

var _ = Describe("What Artifact Hub shows of the chart", func() {
	It("should describe each of our definitions", func() {
		content, err := os.ReadFile(chartFile("Chart.yaml"))
		Expect(err).ToNot(HaveOccurred())
		var chart struct {
			Annotations map[string]string `json:"annotations"`
		}
		Expect(yaml.Unmarshal(content, &chart)).To(Succeed())
		var described []struct{ Kind, Version, Name string }
		Expect(yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/crds"]), &described)).To(Succeed())
		files, err := filepath.Glob(filepath.Join(root, "pkg/apis/crds/*.yaml"))
		Expect(err).ToNot(HaveOccurred())
		Expect(described).To(And(Not(BeEmpty()), HaveLen(len(files))))
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).ToNot(HaveOccurred())
			var crd apiextensionsv1.CustomResourceDefinition
			Expect(yaml.Unmarshal(content, &crd)).To(Succeed())
			Expect(described).To(ContainElement(And(HaveField("Name", crd.Name), HaveField("Kind", crd.Spec.Names.Kind),
				HaveField("Version", crd.Spec.Versions[len(crd.Spec.Versions)-1].Name))), file)
		}
	})
})
