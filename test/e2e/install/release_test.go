// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// chartValues writes the sandbox's values for a chart into a file.
func chartValues(path string) string {
	GinkgoHelper()
	e := env.Sandbox().Env()
	values := map[string]any{
		"settings":    map[string]any{"clusterName": "sandbox"},
		"cloud":       map[string]any{"allowHTTP": true, "region": e["BIZFLY_CLOUD_REGION"], "endpoint": e["BIZFLY_CLOUD_API_URL"]},
		"credentials": map[string]any{"existingSecret": "bizfly"},
		"bke":         map[string]any{"clusterID": e["BKE_CLUSTER_ID"], "joinEndpoint": e["BKE_JOIN_ENDPOINT"], "logEndpoint": e["BKE_LOG_ENDPOINT"]},
	}
	source, err := os.ReadFile(filepath.Join(env.Root(), path, "values.yaml"))
	if filepath.IsAbs(path) {
		source, err = os.ReadFile(filepath.Join(path, "values.yaml"))
	}
	Expect(err).NotTo(HaveOccurred())
	if strings.Contains(string(source), "\nclusterName:") {
		// A chart before its values were named as those of the AWS provider's.
		values["clusterName"] = "sandbox"
		delete(values, "settings")
	}
	content := lo.Must(yaml.Marshal(values))
	file := filepath.Join(GinkgoT().TempDir(), "values.yaml")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

// install installs or upgrades a chart with the sandbox's values.
func install(path string, more ...string) {
	GinkgoHelper()
	args := []string{"upgrade", "--install", release, path, "--namespace", namespace, "--wait", "--timeout", "3m", "--values", chartValues(path)}
	Expect(env.Helm(ctx, append(args, more...)...)).Error().NotTo(HaveOccurred())
	started()
}

// started waits until the release's two pods are ready.
func started() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		processes, err := kubelet.Processes()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(processes).To(HaveLen(2))
		for _, p := range processes {
			g.Expect(p.Ready(ctx)).To(BeTrue(), "%s: %s", p.Pod, env.Log("pod-"+p.Pod, 5))
		}
	}).Should(Succeed())
}

// ended waits until no process of the release runs.
func ended() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(kubelet.Processes()).To(BeEmpty())
	}).Should(Succeed())
}

// uninstall removes the release.
func uninstall() {
	GinkgoHelper()
	began := time.Now()
	Expect(env.Helm(ctx, "uninstall", release, "--namespace", namespace, "--wait")).Error().NotTo(HaveOccurred())
	ended()
	uninstalls = append(uninstalls, [2]time.Time{began, time.Now()})
}

// secret is what an administrator makes before the chart is installed.
func secret() *corev1.Secret {
	e := env.Sandbox().Env()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bizfly"},
		StringData: map[string]string{
			"application_credential_id": e["BIZFLY_CLOUD_APP_CRED_ID"], "application_credential_secret": e["BIZFLY_CLOUD_APP_CRED_SECRET"],
			"bke_cluster_token": e["BKE_CLUSTER_TOKEN"],
		},
	}
}

// previous unpacks the charts of the commit before this one; empty outside of a repository or where that has none.
func previous() string {
	dir := GinkgoT().TempDir()
	script := exec.CommandContext(ctx, "sh", "-c", `git archive HEAD~1 charts | tar -x -C "$0"`, dir)
	script.Dir = env.Root()
	if script.Run() != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, chart, "Chart.yaml")); err != nil {
		return ""
	}
	return dir
}

func nodeClass() *v1alpha1.BizflyNodeClass {
	return &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
}

func nodePool() *karpv1.NodePool { return environment.NodePool("default", "default") }

// web returns a Deployment of pods that each need a node of their own.
func web(replicas int32) *appsv1.Deployment {
	return environment.Deployment("web", replicas, environment.OnPool("default"), environment.Apart)
}

// running are the pods of web that run.
func running(g Gomega) []corev1.Pod {
	pods := e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(corev1.NamespaceDefault), client.MatchingLabels{"app": "web"})
	return lo.Filter(pods.Items, func(p corev1.Pod, _ int) bool {
		return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	})
}

// nodes are the names of the nodes that Karpenter has made.
func nodes(g Gomega) []string {
	list := e2e.Listed(g, env, &corev1.NodeList{}, client.HasLabels{karpv1.NodePoolLabelKey})
	return lo.Map(list.Items, func(n corev1.Node, _ int) string { return n.Name })
}

func settled(replicas int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(running(g)).To(HaveLen(replicas))
		g.Expect(nodes(g)).To(HaveLen(replicas))
		g.Expect(e2e.Truth(g, env).Servers).To(HaveLen(replicas))
		g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}).Items).To(HaveLen(replicas))
	}).Should(Succeed())
}

var _ = Describe("A release", Ordered, func() {
	deployment := types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "web"}
	controller := types.NamespacedName{Namespace: namespace, Name: release + "-bizflycloud"}
	var user string
	var rights map[right][]string
	var began time.Time
	BeforeAll(administer)

	It("should be installed, from the charts of the commit before this one where there are any", func() {
		dir := previous()
		// The definitions first, as an upgrade goes: the binary is this commit's, whatever the chart.
		for _, path := range []string{filepath.Join(dir, chartCRD), chartCRD} {
			_, err := env.Helm(ctx, "upgrade", "--install", release+"-crd", path, "--namespace", namespace)
			Expect(err).NotTo(HaveOccurred())
		}
		began = time.Now()
		install(filepath.Join(dir, chart))
		list := e2e.Listed(Default, env, &appsv1.DeploymentList{}, client.InNamespace(namespace))
		Expect(list.Items).To(HaveLen(1))
		controller.Name = list.Items[0].Name
		user = serviceAccount()
	})

	It("should launch servers", func() {
		Expect(env.Client().Create(ctx, nodeClass())).To(Succeed())
		Expect(env.Client().Create(ctx, nodePool())).To(Succeed())
		Expect(env.Client().Create(ctx, web(3))).To(Succeed())
		settled(3)
	})

	It("should roll no node when it is upgraded to charts with another hash version", func() {
		before := nodes(Default)
		Expect(env.Scale(ctx, controller, 0)).To(Succeed())
		ended()
		// What a release with another hash function has left behind.
		stamp := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationNodeClassHash+`":"123","`+
			v1alpha1.AnnotationNodeClassHashVersion+`":"v0"}}}`))
		// The admission policy allows only the controller to write these annotations.
		asController := impersonate(user)
		Expect(asController.Patch(ctx, nodeClass(), stamp)).To(Succeed())
		for _, claim := range e2e.Listed(Default, env, &karpv1.NodeClaimList{}).Items {
			Expect(asController.Patch(ctx, &claim, stamp)).To(Succeed())
		}
		install(chart, "--set", "logLevel=debug", "--set", "tuning.data.unavailableOfferingTTL=2m")
		Eventually(func(g Gomega) {
			for _, claim := range e2e.Listed(g, env, &karpv1.NodeClaimList{}).Items {
				g.Expect(claim.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHashVersion, v1alpha1.NodeClassHashVersion))
				g.Expect(claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue()).To(BeFalse())
			}
		}).Should(Succeed())
		Expect(nodes(Default)).To(ConsistOf(before))
		settled(3)
		// The chart of the commit before may have named it otherwise.
		user, rights = serviceAccount(), granted()
	})

	It("should replace nodes that have drifted", func() {
		before := nodes(Default)
		Expect(env.Client().Patch(ctx, nodeClass(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tags":{"team":"platform"}}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(lo.Intersect(nodes(g), before)).To(BeEmpty())
		}).WithTimeout(2 * patience).Should(Succeed())
		settled(3)
	})

	It("should pass helm test, and fail it while something is not ready", func() {
		_, err := env.Helm(ctx, "test", release, "--namespace", namespace, "--timeout", "2m")
		Expect(err).NotTo(HaveOccurred(), env.Log("pod-"+controller.Name+"-preflight", 30))
		broken := nodeClass()
		broken.Name, broken.Spec.Zones = "broken", []string{"NO-SUCH-ZONE"}
		Expect(env.Client().Create(ctx, broken)).To(Succeed())
		// Helm prints the release even so.
		_, err = env.Helm(ctx, "test", release, "--namespace", namespace, "--timeout", "2m")
		Expect(err).To(HaveOccurred())
		Expect(env.Log("pod-"+release+"-bizflycloud-preflight", 100)).To(ContainSubstring("BizflyNodeClass broken"))
		Expect(env.Client().Delete(ctx, broken)).To(Succeed())
	})

	It("should keep its servers when it is uninstalled, and find them again", func() {
		uninstall()
		before := nodes(Default)
		settled(3)
		install(chart)
		settled(3)
		Expect(nodes(Default)).To(ConsistOf(before))
	})

	It("should remove nodes that are not needed", func() {
		Expect(env.Scale(ctx, deployment, 1)).To(Succeed())
		settled(1)
	})

	It("should leave nothing behind when NodePools go first and the release after them", func() {
		Expect(env.Client().Delete(ctx, web(0))).To(Succeed())
		Expect(env.Client().Delete(ctx, nodePool())).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}).Items).To(BeEmpty()) }).Should(Succeed())
		Expect(env.Client().Delete(ctx, nodeClass())).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(e2e.Listed(g, env, &v1alpha1.BizflyNodeClassList{}).Items).To(BeEmpty()) }).Should(Succeed())
		uninstall()
		Expect(e2e.Truth(Default, env).Resources()).To(BeEmpty())
		// The definitions stay, and with them what other releases have made.
		Expect(e2e.Listed(Default, env, &karpv1.NodePoolList{}).Items).To(BeEmpty())
	})

	It("should have requested nothing ungranted, and been granted nothing needless", func() {
		expectLeastPrivilege(user, rights, began)
	})
})

// impersonate returns a client that acts as the service account.
func impersonate(user string) client.Client {
	GinkgoHelper()
	config := lo.Must(clientcmd.BuildConfigFromFlags("", env.Kubeconfig()))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return lo.Must(client.New(config, client.Options{Scheme: env.Client().Scheme()}))
}
