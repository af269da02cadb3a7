// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Changing servers in place", func() {
	var sandbox *cloud.Sandbox
	var client *bizfly.Client
	BeforeEach(func() {
		sandbox = startSandbox(cloud.Options{})
		client = lo.Must(newClient(sandboxConfig(sandbox)))
		sandbox.AddServer(cloud.ServerSpec{Name: "node-1", Wan: true})
	})
	firewall := func(name string) string {
		found, _ := lo.Find(sandbox.Options().Catalog.Firewalls["HN"], func(f cloud.Firewall) bool { return f.Name == name })
		return found.ID
	}
	It("should add firewalls to interfaces of both kinds and take off only those that it names", func(ctx SpecContext) {
		ports := lo.Must(client.ListNetworkInterfaces(ctx))
		Expect(ports).To(HaveLen(2))
		for range 2 {
			for _, port := range ports {
				Expect(client.AddFirewalls(ctx, port.ID, []string{firewall("web"), firewall("kubernetes-nodes")})).To(Succeed())
				Expect(client.RemoveFirewalls(ctx, port.ID, []string{firewall("web")})).To(Succeed())
			}
		}
		ports = lo.Must(client.ListNetworkInterfaces(ctx))
		Expect(ports).To(HaveEach(HaveField("SecurityGroups", ConsistOf(firewall("default"), firewall("kubernetes-nodes")))))
	})
	It("should say what is wrong", func(ctx SpecContext) {
		Expect(bizfly.IsNotFound(client.AddFirewalls(ctx, "71b9caeb", []string{firewall("web")}))).To(BeTrue())
		Expect(bizfly.IsInvalid(client.AddFirewalls(ctx, sandbox.State().NetworkInterfaces[0].ID, []string{"unknown"}))).To(BeTrue())
	})
	It("should send nothing that makes no sense", func(ctx SpecContext) {
		sandbox.ResetRequests()
		for _, err := range []error{
			client.AddFirewalls(ctx, "", []string{"f"}), client.AddFirewalls(ctx, "../volumes", []string{"f"}),
		} {
			Expect(bizfly.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
		}
		Expect(sandbox.Requests()).To(BeEmpty())
	})
})
