// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Reboot", func() {
	const action = "/servers/*/action"
	var w *world
	var server *instance.Instance
	BeforeEach(func() {
		w = newWorld(cloud.Options{})
		server, _ = w.launch()
	})
	reboots := func() int {
		return lo.CountBy(w.bodies(http.MethodPost, "/action"), func(body map[string]any) bool { return body["action"] == "hard_reboot" })
	}
	fault := func(f cloud.Fault) {
		f.Method, f.Path = http.MethodPost, action
		w.box.AddFaults(1, f)
	}

	It("should reset the server once per operation", func() {
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(Succeed())
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(Succeed())
		Expect(reboots()).To(Equal(1))
		Expect(w.provider.Reboot(ctx, server.ID, "two")).To(Succeed())
		Expect(reboots()).To(Equal(2))
	})
	It("should not repeat a reboot whose answer was lost and that shows on the server", func() {
		fault(cloud.Fault{Effect: cloud.EffectLostResponse, Count: 1})
		Expect(w.provider.Reboot(ctx, server.ID, "one")).ToNot(Succeed())
		Expect(w.box.SetServerStatus(server.ID, instance.StatusHardReboot)).To(Succeed())
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(Succeed())
		Expect(reboots()).To(Equal(1))
	})
	It("should repeat one without an answer that does not show on the server", func() {
		fault(cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusInternalServerError, Count: 1})
		Expect(w.provider.Reboot(ctx, server.ID, "one")).ToNot(Succeed())
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(Succeed())
		Expect(reboots()).To(Equal(2))
	})
	It("should not reboot a server that is being rebooted, also after a restart", func() {
		Expect(w.box.SetServerStatus(server.ID, instance.StatusHardReboot)).To(Succeed())
		Expect(w.restart().Reboot(ctx, server.ID, "one")).To(Succeed())
		Expect(reboots()).To(BeZero())
	})
	It("should not wait for a cloud that hangs", func() {
		fault(cloud.Fault{Effect: cloud.EffectDelay, Delay: time.Minute})
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		err := w.provider.Reboot(short, server.ID, "one")
		Expect(err).To(HaveOccurred())
		Expect(err).ToNot(MatchError(instance.ErrRebootRejected))
		Expect(err).ToNot(MatchError(instance.ErrNotFound))
	})
	DescribeTable("should distinguish what a retry cannot change from what it can",
		func(status int, rejected bool, serverStatus string) {
			Expect(w.box.SetServerStatus(server.ID, serverStatus)).To(Succeed())
			fault(cloud.Fault{Effect: cloud.EffectStatus, Status: status, Message: "no", Count: 1})
			err := w.provider.Reboot(ctx, server.ID, "one")
			Expect(err).To(HaveOccurred())
			Expect(err).ToNot(MatchError(instance.ErrNotFound))
			Expect(reboots()).To(Equal(1))
			if rejected {
				Expect(err).To(MatchError(instance.ErrRebootRejected))
				return
			}
			Expect(err).ToNot(MatchError(instance.ErrRebootRejected))
			Expect(w.provider.Reboot(ctx, server.ID, "one")).To(Succeed())
			Expect(reboots()).To(Equal(2), "what is retried is sent again")
		},
		Entry("400", http.StatusBadRequest, true, "ACTIVE"),
		Entry("403", http.StatusForbidden, true, "ACTIVE"),
		Entry("409 while something else happens to it", http.StatusConflict, false, "ACTIVE"),
		Entry("409 of a server that failed", http.StatusConflict, true, "ERROR"),
		Entry("429", http.StatusTooManyRequests, false, "ACTIVE"),
		Entry("500", http.StatusInternalServerError, false, "ACTIVE"),
		Entry("503", http.StatusServiceUnavailable, false, "ACTIVE"),
	)
	It("should find the server gone where the cloud says so, before or after it is asked", func() {
		fault(cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusNotFound, Message: "Instance could not be found", Count: 1})
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(MatchError(instance.ErrNotFound))
		Expect(w.provider.Reboot(ctx, "71b9caeb-0000-4000-8000-000000000000", "one")).To(MatchError(instance.ErrNotFound))
		Expect(w.box.SetServerStatus(server.ID, instance.StatusDeleting)).To(Succeed())
		Expect(w.provider.Reboot(ctx, server.ID, "one")).To(MatchError(instance.ErrNotFound))
		Expect(reboots()).To(Equal(1))
	})
	It("should never reboot a server that is not provably this cluster's", func() {
		foreign := w.box.AddServer(cloud.ServerSpec{Name: server.Name, Metadata: metadata("another-cluster", claimUID, 1)})
		Expect(w.provider.Reboot(ctx, foreign.ID, "one")).To(MatchError(instance.ErrNotFound))
		Expect(reboots()).To(BeZero())
	})
})
