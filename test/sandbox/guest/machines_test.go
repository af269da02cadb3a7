// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/machine"
)

// switches stands in for real machines, and notes what is done with their power.
type switches struct {
	booted []machine.Spec
	calls  []string
}

func (s *switches) PowerOn(_ context.Context, spec machine.Spec) error {
	s.booted, s.calls = append(s.booted, spec), append(s.calls, "on")
	return nil
}

func (s *switches) PowerOff(string) error {
	s.calls = append(s.calls, "off")
	return nil
}

func (s *switches) Delete(string) error {
	s.calls = append(s.calls, "delete")
	return nil
}

var _ = Describe("Real machines", func() {
	var power *switches
	var c *testCloud
	BeforeEach(func() {
		power = &switches{}
		c = newTestCloud(guest.Options{Machines: power})
	})
	It("should be what their servers are", func() {
		server := c.start(cloud.ServerSpec{Name: "Worker-1", UserData: "#cloud-config\n", RootDiskGiB: 30, Metadata: map[string]string{"bke_cluster_id": "x"}})
		Expect(power.booted).To(HaveLen(1))
		spec := power.booted[0]
		Expect(spec.ID).To(Equal(server.ID))
		Expect(spec.Name).To(Equal("worker-1"))
		Expect(spec.UserData).To(Equal("#cloud-config\n"))
		Expect(spec.Meta).To(HaveKeyWithValue("bke_cluster_id", "x"))
		Expect(spec.Addresses).To(ConsistOf(server.IPAddresses.LAN[0].Addr))
		Expect(spec.CPUs).To(Equal(server.Flavor.VCPUs))
		Expect(spec.VisibleKiB).To(BeNumerically("~", float64(spec.MemoryMiB)*1024*0.96, 4))
		Expect(spec.DiskGiB).To(Equal(30))
	})
	It("should lose and get their power with their servers, and go with them", func() {
		server := c.start(cloud.ServerSpec{Name: "worker-1"})
		Expect(c.SetServerStatus(server.ID, cloud.StatusShutoff)).To(Succeed())
		c.sync()
		Expect(power.calls).To(Equal([]string{"on", "off"}))
		Expect(c.SetServerStatus(server.ID, cloud.StatusActive)).To(Succeed())
		c.Advance(boot)
		c.sync()
		Expect(power.calls).To(Equal([]string{"on", "off", "on"}))
		Expect(c.SetServerStatus(server.ID, cloud.StatusError)).To(Succeed())
		c.sync()
		Expect(c.RemoveServer(server.ID)).To(Succeed())
		c.sync()
		c.sync()
		Expect(power.calls).To(Equal([]string{"on", "off", "on", "off", "delete"}))
	})
})
