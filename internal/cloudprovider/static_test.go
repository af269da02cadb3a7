// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("A static NodePool, while one of its flavors is unavailable,", func() {
	DescribeTable("should be shown to core, and reported:", func(change func(*karpv1.NodePool), held bool, reports int) {
		nodeClass()
		env.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: "nix.2c_4g"}, capacity.ReasonInsufficientCapacity,
			time.Hour)
		pool := unit.NodePool(unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g"))
		pool.Spec.Replicas, pool.Spec.Weight, pool.Spec.Limits = lo.ToPtr(int64(1)), nil, nil
		change(pool)
		Expect(env.Client.Create(ctx, pool)).To(Succeed())
		shown := &karpv1.NodePool{}
		Expect(env.CloudProvider.LaunchablePools(env.Client).Get(ctx, client.ObjectKeyFromObject(pool), shown)).To(Succeed())
		limit, limited := shown.Spec.Limits[resources.Node]
		Expect(limited && limit.IsZero()).To(Equal(held))
		Expect(env.Recorder.Calls(events.ReasonStaticNodePoolWaits)).To(Equal(reports))
	},
		Entry("with no node, where it allows no other", func(*karpv1.NodePool) {}, true, 1),
		Entry("as it is, where it allows another", func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Requirements[0].Values = []string{"nix.2c_4g", "nix.2c_2g"}
		}, false, 0),
		Entry("with no node, where minValues wants both", func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Requirements[0].Values = []string{"nix.2c_4g", "nix.2c_2g"}
			pool.Spec.Template.Spec.Requirements[0].MinValues = lo.ToPtr(2)
		}, true, 1),
		Entry("and not reported where it lacks none", func(pool *karpv1.NodePool) {
			pool.Spec.Replicas = lo.ToPtr(int64(0))
		}, true, 0),
		Entry("and not reported where its limit allows none", func(pool *karpv1.NodePool) {
			pool.Spec.Limits = karpv1.Limits{resources.Node: resource.MustParse("0")}
		}, true, 0),
		Entry("as it is, where it is not static", func(pool *karpv1.NodePool) { pool.Spec.Replicas = nil }, false, 0),
	)
})
