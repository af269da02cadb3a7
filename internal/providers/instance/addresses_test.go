// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Addresses", func() {
	left := func(w *world) []string {
		state := w.box.State()
		return append(lo.Map(state.WanIPs, func(ip cloud.WanIP, _ int) string { return ip.ID }),
			lo.Map(state.NetworkInterfaces, func(port cloud.NetworkInterface, _ int) string { return port.ID })...)
	}
	recorded := func(w *world, id string) []string {
		GinkgoHelper()
		ports, err := w.provider.Ports(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		return ports.Of(id)
	}

	It("should be those that are attached to the server, private and public", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.UID = "another" })
		Expect(recorded(w, server.ID)).To(HaveLen(2))
		Expect(recorded(w, "")).To(BeEmpty())
	})
	It("should be released by garbage collection, without a record, although the server was deleted by hand", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		Expect(w.box.PayForAddresses(server.ID)).To(HaveLen(2))
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		w.deletedWithLeftovers(w.restart(), instance.DeleteRequest{ID: server.ID})
		Expect(left(w)).To(BeEmpty())
	})
	It("should stay where a user attached them later, or gave them to another server", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		other, _ := w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.UID = "another" })
		paid := w.box.PayForAddresses(server.ID)
		bought := w.box.AddWanIP(server.ID, "of the customer")
		w.box.MovePort(paid[0], other.ID)
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(left(w)).To(ContainElements(bought, paid[0]))
		Expect(left(w)).NotTo(ContainElement(paid[1]))
		Expect(w.count("DELETE /iaas-cloud/api/wanips/{id}") + w.count("DELETE /iaas-cloud/api/network-interfaces/{id}")).To(Equal(1))
	})
	It("should be released where the cloud named them after the server, and no others", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		w.box.PayForAddresses(server.ID)
		bought := w.box.AddWanIP(server.ID, "of the customer")
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(left(w)).To(Equal([]string{bought}))
	})
})
