// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes_test runs the controller as users do, from its image, by its chart, on real nodes: a server of the sandbox is a machine
// that boots, runs the user data that the create request carried, and joins with a real kubelet. `make e2e SUITE=nodes` runs it.
package nodes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

const (
	// patience is how long a launch, a boot or a drain may take on a busy machine.
	patience = 3 * time.Minute

	release   = "karpenter"
	namespace = "karpenter"
	chart     = "charts/karpenter-provider-bizflycloud"
)

func TestNodes(t *testing.T) {
	if os.Getenv("NODES") == "" {
		t.Skip("needs root on Linux, namespaces of its own and minutes: run `make e2e SUITE=nodes`")
	}
	suite.Run(t, "Nodes", Label("nodes"))
}

var (
	ctx = context.Background()
	env *environment.Environment
)

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(patience)
	env = e2e.Start(500*time.Millisecond, environment.Options{
		Latency: time.Second, Machines: true, NoCRDs: true, NoController: true,
	})

	pushController("v1")
	By("starting the nodes that carry the controller")
	for i := range 2 {
		Expect(env.AddNode(ctx, cloud.ServerSpec{Name: fmt.Sprintf("system-%d", i)}, nil)).Error().NotTo(HaveOccurred())
	}
	Eventually(func(g Gomega) {
		nodes := e2e.Listed(g, env, &corev1.NodeList{}).Items
		g.Expect(nodes).To(HaveLen(2))
		for i := range nodes {
			g.Expect(ready(&nodes[i])).To(BeTrue(), nodes[i].Name)
			g.Expect(nodes[i].Spec.Taints).To(BeEmpty(), nodes[i].Name)
		}
	}).Should(Succeed())

	By("installing the charts")
	Expect(env.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	sandbox := env.Sandbox().Env()
	Expect(env.Client().Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bizfly"},
		StringData: map[string]string{
			"application_credential_id": sandbox["BIZFLY_CLOUD_APP_CRED_ID"], "application_credential_secret": sandbox["BIZFLY_CLOUD_APP_CRED_SECRET"],
			"bke_cluster_token": sandbox["BKE_CLUSTER_TOKEN"],
		},
	})).To(Succeed())
	helm("upgrade", "--install", release+"-crd", chart+"-crd", "--namespace", namespace)
	install("v1")
})

// install installs the chart, or upgrades it, with an image.
func install(tag string) {
	GinkgoHelper()
	sandbox := env.Sandbox().Env()
	values, err := yaml.Marshal(map[string]any{
		"settings": map[string]any{
			"clusterName": "sandbox", "featureGates": map[string]any{"nodeRepair": true},
		},
		"cloud":       map[string]any{"allowHTTP": true, "region": sandbox["BIZFLY_CLOUD_REGION"], "endpoint": sandbox["BIZFLY_CLOUD_API_URL"]},
		"credentials": map[string]any{"existingSecret": "bizfly"},
		"bke": map[string]any{
			"clusterID": sandbox["BKE_CLUSTER_ID"], "joinEndpoint": sandbox["BKE_JOIN_ENDPOINT"], "logEndpoint": sandbox["BKE_LOG_ENDPOINT"],
		},
		"joinTokens": map[string]any{"enabled": true},
		"userData":   map[string]any{"lookup": true},
		"controller": map[string]any{"image": map[string]any{"repository": environment.Registry() + "/" + controllerImage, "tag": tag}},
	})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "values.yaml")
	Expect(os.WriteFile(file, values, 0o600)).To(Succeed())
	helm("upgrade", "--install", release, chart, "--namespace", namespace, "--wait", "--timeout", "3m", "--values", file)
}

func helm(args ...string) string {
	GinkgoHelper()
	output, err := env.Helm(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return output
}

var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() || env == nil {
		return
	}
	report1, _ := env.Script(ctx, `set +ex; kubectl get nodes,nodeclaims,pods -A -o wide; kubectl get events -A --sort-by=.lastTimestamp | tail -n 40
kubectl logs -n karpenter -l app.kubernetes.io/instance=karpenter --tail=60 --prefix`)
	GinkgoWriter.Println(report1)
	GinkgoWriter.Println(env.Log("sandbox", 30))
	if state, err := env.Sandbox().State(ctx); err == nil {
		for i := range state.Servers {
			console := strings.Split(env.Console(state.Servers[i].ID), "\n")
			GinkgoWriter.Printf("the console of %s, %s:\n%s\n", state.Servers[i].Name, state.Servers[i].Status,
				strings.Join(console[max(0, len(console)-40):], "\n"))
		}
	}
})

// ready reports whether a node is.
func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// apply creates the objects of a file of config/samples.
func apply(path ...string) {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{env.Root(), "config", "samples"}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		// One of that name may still be on its way out, from a spec before.
		Eventually(func() error { return env.Client().Create(ctx, object) }).Should(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client().Delete(ctx, object))).To(Succeed()) })
	}
}

// read reads the object of a file of config/samples.
func read(object client.Object, path ...string) {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{env.Root(), "config", "samples"}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.Unmarshal(content, object)).To(Succeed())
}

// nodesOf are the pool's Nodes, claimsOf its NodeClaims.
func nodesOf(g Gomega, pool string) []corev1.Node {
	return e2e.Listed(g, env, &corev1.NodeList{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}).Items
}

func claimsOf(g Gomega, pool string) []karpv1.NodeClaim {
	return e2e.Listed(g, env, &karpv1.NodeClaimList{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}).Items
}

// serversOf are the sandbox's servers that were launched for a pool, deleting or not.
func serversOf(g Gomega, pool string) []cloud.Server { return e2e.ServersOf(g, env, pool) }

const controllerImage = "karpenter-provider-bizflycloud"

// pushController pushes the controller's image with a tag, which is also a file in it, so that no two images are the same. It has the
// files of the Dockerfile's last stage.
func pushController(tag string) {
	GinkgoHelper()
	Expect(env.PushImage(ctx, controllerImage, tag, map[string]string{
		"/" + controllerImage: filepath.Join(env.Root(), "bin", controllerImage), "/licenses/LICENSE": filepath.Join(env.Root(), "LICENSE"),
		"/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt", "/" + tag: os.DevNull,
	})).To(Succeed())
}
