// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// run runs the commands of a document below their mark: what users copy is what is tested.
func run(document, name string, variables ...string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(env.Root(), document))
	Expect(err).NotTo(HaveOccurred())
	commands, err := environment.Block(string(text), name)
	Expect(err).NotTo(HaveOccurred(), document)
	output, err := env.Script(ctx, commands, variables...)
	GinkgoWriter.Println(output)
	Expect(err).NotTo(HaveOccurred())
}

// definitions are those that we install, and whether they are being deleted.
func definitions(g Gomega) map[string]bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	found := map[string]bool{}
	for _, definition := range e2e.Listed(g, env, list).Items {
		for _, group := range []string{"karpenter.sh", "karpenter.bizflycloud.vn", "autoscaling.x-k8s.io"} {
			if strings.HasSuffix(definition.Name, "."+group) {
				found[definition.Name] = definition.DeletionTimestamp != nil
			}
		}
	}
	return found
}

// expectNothing expects that nothing of ours is left, in the cluster or in the cloud.
func expectNothing() {
	GinkgoHelper()
	ended()
	Eventually(func(g Gomega) {
		g.Expect(definitions(g)).To(BeEmpty())
		g.Expect(nodes(g)).To(BeEmpty())
		g.Expect(e2e.Truth(g, env).Resources()).To(BeEmpty())
	}).Should(Succeed())
}

// administer does what an administrator does before an installation, and takes the Secret back when the spec or container ends that it
// is for. The namespace takes nothing but what is restricted; kubectl delete -k deletes it, and while it ends it takes no Secret.
func administer() {
	GinkgoHelper()
	Eventually(func() error {
		if err := client.IgnoreAlreadyExists(env.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}})); err != nil {
			return err
		}
		return client.IgnoreAlreadyExists(env.Client().Create(ctx, secret()))
	}).Should(Succeed())
	DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client().Delete(ctx, secret()))).To(Succeed()) })
}

// launch makes the installed controller launch servers.
func launch(servers int32) {
	GinkgoHelper()
	for _, object := range []client.Object{nodeClass(), nodePool(), web(servers)} {
		Expect(env.Client().Create(ctx, object)).To(Succeed())
	}
	settled(int(servers))
}

// overlay is a copy of config/samples/overlay with the sandbox's values.
func overlay() string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	base, err := filepath.Rel(dir, filepath.Join(env.Root(), "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	e := env.Sandbox().Env()
	sample, err := os.ReadFile(filepath.Join(env.Root(), "config", "samples", "overlay", "kustomization.yaml"))
	Expect(err).NotTo(HaveOccurred())
	overlay := string(sample)
	variables := "- {name: BIZFLY_CLOUD_ALLOW_HTTP, value: \"true\"}\n"
	for _, name := range []string{"BIZFLY_CLOUD_API_URL", "BKE_CLUSTER_ID", "BKE_CLUSTER_TOKEN", "BKE_JOIN_ENDPOINT", "BKE_LOG_ENDPOINT"} {
		variables += fmt.Sprintf("                  - {name: %s, value: %q}\n", name, e[name])
	}
	for _, change := range [][2]string{
		{"- ../../default", "- " + base},
		{"value: HN", "value: " + e["BIZFLY_CLOUD_REGION"]},
		{"value: prod", "value: sandbox"},
		// The sandbox's address, and, as its cluster has no pool to learn them from, what nodes join with.
		{"patches:\n", "patches:\n  - target: {kind: ProviderConfig, name: default}\n    patch: '[{\"op\": \"add\", \"path\": \"/spec/endpoint\", \"value\": \"" +
			e["BIZFLY_CLOUD_API_URL"] + "\"}]'\n"},
		{"- name: BKE_DISCOVER_FROM_POOL\n                    value: \"true\"\n", variables},
	} {
		Expect(overlay).To(ContainSubstring(change[0]))
		overlay = strings.ReplaceAll(overlay, change[0], change[1])
	}
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
	return dir
}

var _ = Describe("Removal", Ordered, func() {
	installDefinitions := func() {
		GinkgoHelper()
		Expect(env.Helm(ctx, "upgrade", "--install", release+"-crd", chartCRD, "--namespace", namespace)).Error().NotTo(HaveOccurred())
	}
	installCharts := func(more ...string) {
		GinkgoHelper()
		administer()
		installDefinitions()
		install(chart, more...)
	}
	removeDefinitions := func() {
		GinkgoHelper()
		run("docs/how-to/upgrade-and-remove.md", "remove definitions with helm")
		expectNothing()
	}
	AfterEach(func() {
		Expect(client.IgnoreNotFound(env.Client().Delete(ctx, &appsv1.Deployment{ObjectMeta: web(0).ObjectMeta}))).To(Succeed())
	})
	It("should leave nothing in the documented order with Helm", func() {
		installCharts()
		launch(1)
		run("charts/karpenter-provider-bizflycloud/README.md", "remove with helm")
		removeDefinitions()
	})
	It("should leave nothing in the documented order with kubectl, and roll no node in an upgrade", func() {
		administer()
		dir := overlay()
		variable := "OVERLAY=" + dir
		e := env.Sandbox().Env()
		run("docs/how-to/upgrade-and-remove.md", "create the secret", "CREDENTIAL_ID="+e["BIZFLY_CLOUD_APP_CRED_ID"],
			"CREDENTIAL_SECRET="+e["BIZFLY_CLOUD_APP_CRED_SECRET"])
		run("docs/how-to/upgrade-and-remove.md", "apply with kubectl", variable)
		started()
		launch(1)
		before := e2e.Truth(Default, env).Servers

		By("changing the tag of the image")
		file := filepath.Join(dir, "kustomization.yaml")
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring("newTag: dev\n"))
		Expect(os.WriteFile(file, []byte(strings.Replace(string(text), "newTag: dev\n", "newTag: dev-2\n", 1)), 0o600)).To(Succeed())
		run("docs/how-to/upgrade-and-remove.md", "apply with kubectl", variable)
		Eventually(func(g Gomega) {
			deployment := &appsv1.Deployment{}
			g.Expect(env.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "karpenter-provider-bizflycloud"}, deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(":dev-2"))
			g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
			g.Expect([]int32{deployment.Status.UpdatedReplicas, deployment.Status.Replicas}).To(HaveEach(int32(2)))
		}).Should(Succeed())
		started()
		settled(1)
		Expect(e2e.Truth(Default, env).Servers).To(HaveExactElements(HaveField("ID", before[0].ID)))

		run("docs/how-to/upgrade-and-remove.md", "remove with kubectl", variable)
		run("docs/how-to/upgrade-and-remove.md", "remove definitions with kubectl")
		expectNothing()
	})
	It("should be recoverable when the definitions went while there was no controller", func() {
		installCharts()
		launch(1)
		_, err := env.Script(ctx, `helm uninstall karpenter --namespace karpenter --wait; kubectl delete -k config/crd --wait=false`)
		Expect(err).NotTo(HaveOccurred())
		ended()
		Eventually(definitions).Should(Equal(map[string]bool{
			"nodeclaims.karpenter.sh": true, "bizflynodeclasses.karpenter.bizflycloud.vn": true,
		}), "the objects that have finalizers hold their definitions")
		Expect(e2e.Truth(Default, env).Servers).To(HaveLen(1))
		run("docs/how-to/upgrade-and-remove.md", "recover", "VALUES="+chartValues(chart),
			"PROJECT_ID="+env.Sandbox().Env()["BIZFLY_CLOUD_PROJECT_ID"])
		removeDefinitions()
	})
	It("should keep servers, nodes and pods when all but NodeClaims is restored", func() {
		installCharts("--set", "settings.launchTimeout=20s,settings.garbageCollectionGrace=21s,tuning.data.garbageCollectionInterval=1s")
		launch(6)
		launched := time.Now()
		id := func(server cloud.Server, _ int) string { return server.ID }
		before, servers := nodes(Default), lo.Map(e2e.Truth(Default, env).Servers, id)
		backup := []client.Object{}
		for _, list := range []client.ObjectList{&v1alpha1.ProviderConfigList{}, &v1alpha1.BizflyNodeClassList{}, &karpv1.NodePoolList{}} {
			for _, object := range lo.Must(meta.ExtractList(e2e.Listed(Default, env, list))) {
				backup = append(backup, object.(client.Object)) //nolint:forcetypeassert // they were listed
			}
		}
		controller := types.NamespacedName{Namespace: namespace, Name: release + "-bizflycloud"}
		Expect(env.Scale(ctx, controller, 0)).To(Succeed())
		ended()
		run("docs/operate/troubleshooting.md", "keep nodes without NodeClaims")
		_, err := env.Script(ctx, `kubectl delete -k config/crd --wait=false
			kubectl get nodeclaims,bizflynodeclasses -o name | xargs -n 1 kubectl patch --type=merge --patch '{"metadata":{"finalizers":null}}'`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(definitions).Should(BeEmpty())
		installDefinitions()
		for _, object := range backup {
			object.SetResourceVersion("")
			object.SetUID("")
			Eventually(func() error { return env.Client().Create(ctx, object) }).Should(Succeed())
		}
		Eventually(func() time.Duration { return time.Since(launched) }).Should(BeNumerically(">", 21*time.Second), "or it would see some before others")
		Expect(env.Scale(ctx, controller, 2)).To(Succeed())
		started()
		Expect(env.Scale(ctx, client.ObjectKeyFromObject(web(0)), 7)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(running(g)).To(HaveLen(7))
			g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}).Items).To(HaveLen(1))
			events := e2e.Listed(g, env, &corev1.EventList{}, client.MatchingFields{"reason": "GarbageCollectionSuspended"})
			g.Expect(events.Items).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(nodes(Default)).To(ContainElements(before))
		Expect(e2e.Truth(Default, env).Servers).To(HaveLen(7))
		Expect(lo.Map(e2e.Truth(Default, env).Servers, id)).To(ContainElements(servers))
		Expect(env.Scale(ctx, client.ObjectKeyFromObject(web(0)), 0)).To(Succeed())
		Expect(env.Script(ctx, "kubectl wait --for=delete pod --selector app=web --timeout=3m")).Error().NotTo(HaveOccurred())
		Expect(env.Sandbox().Call(ctx, http.MethodDelete, "servers/"+servers[0], nil, nil)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(nodes(g)).To(BeEmpty())
			g.Expect(e2e.Truth(g, env).Resources()).To(BeEmpty())
		}).Should(Succeed())
		run("docs/how-to/upgrade-and-remove.md", "remove with helm")
		removeDefinitions()
	})
	It("should be recoverable without a controller, by hand", func() {
		installCharts()
		Expect(env.Client().Create(ctx, nodeClass())).To(Succeed())
		Eventually(func(g Gomega) {
			object := nodeClass()
			g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.Finalizers).NotTo(BeEmpty())
		}).Should(Succeed())
		_, err := env.Script(ctx, `helm uninstall karpenter --namespace karpenter --wait; kubectl delete -k config/crd --wait=false`)
		Expect(err).NotTo(HaveOccurred())
		ended()
		Eventually(definitions).Should(Equal(map[string]bool{"bizflynodeclasses.karpenter.bizflycloud.vn": true}))
		run("docs/how-to/upgrade-and-remove.md", "recover by hand")
		removeDefinitions()
	})
	It("should allow to install again over what it left", func() {
		installCharts()
		launch(1)
		before := nodes(Default)
		_, err := env.Script(ctx, `helm uninstall karpenter --namespace karpenter --wait; helm uninstall karpenter-crd --namespace karpenter`)
		Expect(err).NotTo(HaveOccurred())
		ended()
		installCharts()
		settled(1)
		Expect(nodes(Default)).To(Equal(before))
		Expect(e2e.Listed(Default, env, &karpv1.NodePoolList{}).Items).To(HaveLen(1))
		run("docs/how-to/upgrade-and-remove.md", "remove with helm")
		removeDefinitions()
	})
})
