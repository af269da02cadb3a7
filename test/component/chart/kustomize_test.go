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
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("config", func() {
	It("should install what the chart installs", func(ctx context.Context) {
		// These lines mean something to Helm alone.
		helmOnly := regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^ +annotations:\n +helm\.sh/resource-policy: keep\n`)
		chart := lo.Must(render(ctx, defaultValues, "--skip-tests"))
		kustomized := lo.Must(kustomize(ctx, "default"))
		ofHelm, ofKubectl := byID(helmOnly.ReplaceAllString(chart, "")), byID(kustomized)
		Expect(ofKubectl).To(HaveKey("Namespace/" + namespace))
		delete(ofKubectl, "Namespace/"+namespace) // Helm makes it by an argument
		Expect(lo.Keys(ofKubectl)).To(ConsistOf(lo.Keys(ofHelm)), "run `make generate`")
		for name, object := range ofHelm {
			Expect(ofKubectl[name].Object).To(Equal(object.Object), "%s: run `make generate`", name)
		}
	})
	It("should explain why each right is needed, without Helm", func() {
		for _, file := range []string{"clusterrole.yaml", "role.yaml"} {
			text := lo.Must(os.ReadFile(filepath.Join(root, "config", "rbac", file)))
			Expect(string(text)).To(ContainSubstring("# internal/"))
			Expect(string(text)).ToNot(ContainSubstring("elm"))
		}
	})
	It("should be taken over by Helm with what the page adds, so that one controller is left", func(ctx context.Context) {
		c, kubeconfig := startAPIServer(ctx)
		kustomized := lo.Must(kustomize(ctx, "default"))
		for name, object := range byID(kustomized) {
			Expect(client.IgnoreAlreadyExists(c.Create(ctx, &object))).To(Succeed(), name)
		}
		page := lo.Must(os.ReadFile(filepath.Join(root, "docs", "how-to", "upgrade-and-remove.md")))
		_, section, _ := strings.Cut(string(page), "\n## Install and upgrade with kubectl\n")
		section, _, _ = strings.Cut(section, "\n## ")
		args := []string{"install", releaseName, chartFile(), "--kubeconfig", kubeconfig, "--namespace", namespace, "--values", chartFile(defaultValues),
			"--set", "fullnameOverride="}
		for _, added := range regexp.MustCompile("`(--[^`]+)`").FindAllStringSubmatch(section, -1) {
			args = append(args, strings.Fields(added[1])...)
		}
		Expect(helm(ctx, args...)).Error().ToNot(HaveOccurred())
		deployments := &appsv1.DeploymentList{}
		Expect(c.List(ctx, deployments)).To(Succeed())
		Expect(deployments.Items).To(HaveLen(1))
		Expect(deployments.Items[0].Annotations).To(HaveKeyWithValue("meta.helm.sh/release-name", releaseName))
	})
	It("should be an example of an overlay that sets what every cluster must", func(ctx context.Context) {
		text := lo.Must(kustomize(ctx, "samples", "overlay"))
		objects := byID(text)
		container := as[appsv1.Deployment](objects["Deployment/"+chartName]).Spec.Template.Spec.Containers[0]
		Expect(container.Image).To(Equal("registry.example.com/team/karpenter-provider-bizflycloud:dev"))
		Expect(container.Env).To(ContainElements(corev1.EnvVar{Name: "CLUSTER_NAME", Value: "prod"}, corev1.EnvVar{Name: "BIZFLY_CLOUD_REGION", Value: "HN"}))
		Expect(objects).ToNot(HaveKey(HavePrefix("Secret/")), "an overlay belongs in git")
		Expect(objects["ProviderConfig/default"].Object["spec"]).To(HaveKeyWithValue("region", "HN"))
	})
})
