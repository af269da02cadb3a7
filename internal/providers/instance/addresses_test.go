// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"time"

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
		return ports.Of(id, time.Time{})
	}

	It("should be those that are attached to the server, private and public", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.UID = "another" })
		Expect(recorded(w, server.ID)).To(HaveLen(2))
		Expect(recorded(w, "")).To(BeEmpty())
	})
	It("should be deleted with the server by the cloud", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(left(w)).To(BeEmpty())
	})
	It("should be kept after a user made it permanent", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		paid := w.box.PayForAddresses(server.ID)
		bought := w.box.AddWanIP(server.ID, "of the customer")
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(left(w)).To(ConsistOf(bought, paid[0], paid[1]))
	})
})
