// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Data disks without a record", func() {
	DescribeTable("should not outlive a launch that fails",
		func(options cloud.Options, fault cloud.Fault) {
			w := newWorld(options)
			fault.Method, fault.Path = "POST", "/servers"
			w.box.AddFaults(1, fault)
			request, _ := w.request(withDataDisks)
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			collectAll(w)
		},
		Entry("with a server in ERROR", cloud.Options{}, cloud.Fault{Effect: cloud.EffectErrorServer}),
		Entry("for want of capacity", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true}),
		Entry("with disks and no server", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectTaskFailed, Orphan: true}),
	)
})
