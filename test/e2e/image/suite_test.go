// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image_test starts the controller out of its image and looks whether it works: what is missing in an image shows
// only where nothing else is there. hack/release/image-check.sh builds the image and runs it.
package image_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// user is the number of the image's user.
const user = "65532"

func TestImage(t *testing.T) {
	if os.Getenv("IMAGE_CHECK") == "" {
		t.Skip("needs the image: run `make e2e SUITE=image`")
	}
	suite.Run(t, "Image")
}

var env *environment.Environment

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	var err error
	// It returns once /readyz answers.
	env, err = environment.Start(ctx, environment.Options{
		Latency: time.Second, Boot: time.Second, Progress: func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
})

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() && env != nil {
		GinkgoWriter.Printf("the last lines of the controller:\n%s\n", env.Log("controller", 40))
	}
})

// status is the kernel's status of the one process of ours that runs the image's binary.
func status() (map[string]string, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		// A process may end meanwhile: it is not the one.
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		content, _ := os.ReadFile(filepath.Join(folder, "status"))
		fields := map[string]string{}
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		if strings.HasPrefix(string(command), "/karpenter-provider-bizflycloud\x00") && fields["PPid"] == strconv.Itoa(os.Getpid()) {
			return fields, nil
		}
	}
	return nil, fmt.Errorf("none of %d processes runs the image's binary", len(folders))
}

func get(ctx context.Context, url string) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.StatusCode).To(Equal(http.StatusOK))
	return string(body)
}

var _ = Describe("The image", func() {
	It("should run without any privilege", func() {
		fields, err := status()
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(fields["Uid"])).To(HaveEach(user))
		Expect(strings.Fields(fields["Gid"])).To(HaveEach(user))
		Expect(strings.Trim(fields["CapEff"], "0")).To(BeEmpty(), "no capability of root's")
		Expect(fields["NoNewPrivs"]).To(Equal("1"))
	})
	It("should answer its probes, and report its version and commit in metric and log", func(ctx SpecContext) {
		Expect(get(ctx, env.Controller().HealthURL()+"healthz")).To(Equal("ok"))
		Expect(get(ctx, env.Controller().HealthURL()+"readyz")).To(Equal("ok"))
		version, commit := os.Getenv("IMAGE_VERSION"), os.Getenv("IMAGE_COMMIT")
		Expect(get(ctx, env.Controller().MetricsURL())).To(MatchRegexp(
			`(?m)^karpenter_bizfly_build_info{commit=%q,goversion="go1\.[^"]+",version=%q} 1$`, commit, version))
		Expect(env.Log("controller", 1000)).To(And(ContainSubstring(`"version":%q`, version), ContainSubstring(`"revision":%q`, commit)))
	}, SpecTimeout(time.Minute))
	It("should launch a server that joins", func(ctx SpecContext) {
		pool := environment.NodePool("default", "default")
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: corev1.NamespaceDefault},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
			}}},
		}
		class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		Expect(env.Client().Create(ctx, class)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
			g.Expect(class.StatusConditions().Root().IsTrue()).To(BeTrue(), "%+v", class.Status.Conditions)
		}).Should(Succeed())
		Expect(env.Client().Create(ctx, pool)).To(Succeed())
		Expect(env.Client().Create(ctx, pod)).To(Succeed())
		Eventually(func(g Gomega) {
			claims := &karpv1.NodeClaimList{}
			g.Expect(env.Client().List(ctx, claims)).To(Succeed())
			g.Expect(claims.Items).To(HaveLen(1))
			g.Expect(claims.Items[0].StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()).To(BeTrue(), "%+v", claims.Items[0].Status.Conditions)
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})
