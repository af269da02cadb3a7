// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install_test installs the charts with real Helm into a real control plane and runs the controller as its pods
// say, with the chart's own service account: what a platform team does, and what their security review asks. It is slow,
// and so it only runs when it is asked to: `make e2e`.
package install_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	// patience is how long a launch, a removal or a roll-out may take on a busy machine.
	patience = 3 * time.Minute

	release   = "karpenter"
	namespace = "karpenter"
)

// The charts, from the folder of INSTALL_CHARTS where a release is checked.
var (
	chart    = filepath.Join(cmp.Or(os.Getenv("INSTALL_CHARTS"), "charts"), "karpenter-provider-bizflycloud")
	chartCRD = filepath.Join(cmp.Or(os.Getenv("INSTALL_CHARTS"), "charts"), "karpenter-provider-bizflycloud-crd")
)

func TestInstall(t *testing.T) {
	if os.Getenv("E2E") == "" {
		t.Skip("needs the whole control plane, Helm and minutes: run `make e2e`")
	}
	suite.Run(t, "Install", Label("e2e", "install"))
}

var (
	ctx = context.Background()
	env *environment.Environment
	// kubelet runs the controller's pods.
	kubelet *environment.Kubelet
)

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(patience)
	env = e2e.Start(500*time.Millisecond, environment.Options{
		Latency: time.Second, Boot: time.Second, Audit: true, NoCRDs: true, NoController: true,
	})

	Expect(env.CreateStaticPool(ctx)).To(Succeed())
	var err error
	kubelet, err = env.StartKubelet(namespace, map[string]string{"app.kubernetes.io/instance": release})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kubelet.Stop()).To(Succeed()) })
})

var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() || kubelet == nil {
		return
	}
	classes, pools := &v1alpha1.BizflyNodeClassList{}, &karpv1.NodePoolList{}
	_, _ = env.Client().List(ctx, classes), env.Client().List(ctx, pools)
	for i := range classes.Items {
		GinkgoWriter.Printf("BizflyNodeClass %s: %+v\n", classes.Items[i].Name, classes.Items[i].Status)
	}
	for i := range pools.Items {
		GinkgoWriter.Printf("NodePool %s: %+v\n", pools.Items[i].Name, pools.Items[i].Status)
	}
	processes, err := kubelet.Processes()
	GinkgoWriter.Printf("the controller's processes: %v\n", err)
	for name := range processes {
		GinkgoWriter.Printf("the last lines of %s:\n%s\n", name, env.Log("pod-"+name, 30))
	}
})
