// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("config", func() {
	// copied is a copy of config/ in a workspace of its own.
	copied := func() *workspace {
		GinkgoHelper()
		dir := filepath.Join(GinkgoT().TempDir(), "config")
		Expect(os.CopyFS(dir, os.DirFS(w.config))).To(Succeed())
		return &workspace{root: w.root, config: dir}
	}
	replace := func(path, old, replacement string) {
		GinkgoHelper()
		text, err := os.ReadFile(path)
		Expect(err).ToNot(HaveOccurred())
		Expect(string(text)).To(ContainSubstring(old))
		Expect(os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600)).To(Succeed())
	}

	It("should install what the chart installs", func(ctx context.Context) {
		Expect(compare(ctx, w)).To(Succeed())
	})
	It("should be found out when it does not", func(ctx context.Context) {
		other := copied()
		replace(filepath.Join(other.config, "manager", "deployment.yaml"), "replicas: 2", "replicas: 3")
		replace(filepath.Join(other.config, "rbac", "kustomization.yaml"), "  - role.yaml\n", "")
		Expect(compare(ctx, other)).To(MatchError(And(
			ContainSubstring("Deployment/"+chartName+" differs"), ContainSubstring("Role/"+chartName+" is in the chart and not in config/default"),
			ContainSubstring("make generate"))))
	})
	It("should be put right by writing it anew, without what the chart no longer has", func(ctx context.Context) {
		other := copied()
		replace(filepath.Join(other.config, "manager", "deployment.yaml"), "replicas: 2", "replicas: 3")
		stale := filepath.Join(other.config, "rbac", "stale.yaml")
		Expect(os.WriteFile(stale, nil, 0o600)).To(Succeed())
		Expect(writeKustomize(ctx, other)).To(Succeed())
		Expect(compare(ctx, other)).To(Succeed())
		Expect(stale).ToNot(BeAnExistingFile())
	})
	It("should explain why each right is needed, without Helm", func() {
		for _, file := range []string{"clusterrole.yaml", "role.yaml"} {
			text, err := os.ReadFile(filepath.Join(w.config, "rbac", file))
			Expect(err).ToNot(HaveOccurred())
			Expect(string(text)).To(ContainSubstring("# internal/"))
			Expect(string(text)).ToNot(ContainSubstring("elm"))
		}
	})
	It("should be taken over by Helm with what the page adds, so that one controller is left", func(ctx context.Context) {
		c, kubeconfig := startAPIServer(ctx)
		kustomized, err := w.kustomize(ctx, filepath.Join(w.config, "default"))
		Expect(err).ToNot(HaveOccurred())
		for name, object := range byID(kustomized) {
			Expect(client.IgnoreAlreadyExists(c.Create(ctx, &object))).To(Succeed(), name)
		}
		page, err := os.ReadFile(filepath.Join(w.root, "docs", "how-to", "upgrade-and-remove.md"))
		Expect(err).ToNot(HaveOccurred())
		_, section, _ := strings.Cut(string(page), "\n## Install and upgrade with kubectl\n")
		section, _, _ = strings.Cut(section, "\n## ")
		args := []string{"install", releaseName, w.chart(), "--kubeconfig", kubeconfig, "--namespace", namespace, "--values", w.chart(defaultValues),
			"--set", "fullnameOverride="}
		for _, added := range regexp.MustCompile("`(--[^`]+)`").FindAllStringSubmatch(section, -1) {
			args = append(args, strings.Fields(added[1])...)
		}
		_, err = w.helm(ctx, args...)
		Expect(err).ToNot(HaveOccurred())
		deployments := &appsv1.DeploymentList{}
		Expect(c.List(ctx, deployments)).To(Succeed())
		Expect(deployments.Items).To(HaveLen(1))
		Expect(deployments.Items[0].Annotations).To(HaveKeyWithValue("meta.helm.sh/release-name", releaseName))
	})
	It("should be an example of an overlay that sets what every cluster must", func(ctx context.Context) {
		text, err := w.kustomize(ctx, filepath.Join(w.config, "samples", "overlay"))
		Expect(err).ToNot(HaveOccurred())
		objects := byID(text)
		container := as[appsv1.Deployment](objects["Deployment/"+chartName]).Spec.Template.Spec.Containers[0]
		Expect(container.Image).To(Equal("registry.example.com/team/karpenter-provider-bizflycloud:dev"))
		Expect(container.Env).To(ContainElements(corev1.EnvVar{Name: "CLUSTER_NAME", Value: "prod"}, corev1.EnvVar{Name: "BIZFLY_CLOUD_REGION", Value: "HN"}))
		Expect(objects).ToNot(HaveKey(HavePrefix("Secret/")), "an overlay belongs in git")
		Expect(objects["ProviderConfig/default"].Object["spec"]).To(HaveKeyWithValue("region", "HN"))
	})
})
