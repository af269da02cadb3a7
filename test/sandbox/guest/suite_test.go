// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"context"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

func TestGuest(t *testing.T) { suite.Run(t, "Guest") }

var (
	client kubernetes.Interface
	config *rest.Config
)

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Configure().Set("enable-bootstrap-token-auth", "true")
	var err error
	config, err = env.Start()
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(env.Stop)
	config.QPS = -1
	client = kubernetes.NewForConfigOrDie(config)
})

const (
	boot   = 20 * time.Second
	script = "#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"
)

// testCloud is a cloud with a fake clock, and the guests of its servers.
type testCloud struct {
	*cloud.Cloud
	guests *guest.Guests
}

func newTestCloud(opts guest.Options, change ...func(*cloud.Options)) *testCloud {
	GinkgoHelper()
	options := cloud.Options{Clock: clocktesting.NewFakeClock(time.Now()), Boot: boot}
	for _, f := range change {
		f(&options)
	}
	c := cloud.New(options)
	opts.Client = client
	DeferCleanup(func() {
		Expect(client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	})
	return &testCloud{Cloud: c, guests: guest.New(c, opts)}
}

// metadata is what a machine needs to find about itself to join.
func (c *testCloud) metadata() map[string]string {
	bke := c.BKE()
	return map[string]string{
		"bizfly_cloud_service": "kubernetes_engine", "bke_cluster_id": bke.ClusterUID, "bke_cluster_token": bke.ClusterToken,
		"bke_join_endpoint": bke.JoinEndpoint, "kubernetes_version": "v1.35.2",
	}
}

func (c *testCloud) spec(name string) cloud.ServerSpec {
	return cloud.ServerSpec{Name: name, Metadata: c.metadata(), UserData: script}
}

func (c *testCloud) sync() {
	GinkgoHelper()
	Expect(c.guests.Sync(context.Background())).To(Succeed())
}

// start makes a server and lets it boot.
func (c *testCloud) start(spec cloud.ServerSpec) cloud.Server {
	GinkgoHelper()
	server := c.AddServer(spec)
	c.Advance(boot)
	c.sync()
	c.sync() // the second pass is the cloud controller manager's
	return server
}

func (c *testCloud) truth(id string) *cloud.Guest {
	GinkgoHelper()
	for _, s := range c.State().Servers {
		if s.ID == id {
			return s.Truth.Guest
		}
	}
	return nil
}

func node(name string) *corev1.Node {
	GinkgoHelper()
	found, err := client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	Expect(err).ToNot(HaveOccurred())
	return found
}

func nodeNames() []string {
	GinkgoHelper()
	list, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	Expect(err).ToNot(HaveOccurred())
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func taintKeys(n *corev1.Node) []string {
	keys := []string{}
	for _, taint := range n.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}
