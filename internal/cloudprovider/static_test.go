// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/deprovisioning"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
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
		Entry("with no node, before the catalog was read", func(*karpv1.NodePool) { forgetCatalog() }, true, 0),
		Entry("with no node, until the last change of its NodeClass is resolved", func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Requirements[0].Values = []string{"nix.2c_2g"}
			class := &v1alpha1.BizflyNodeClass{}
			Expect(env.Client.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
			class.Spec.Zones = []string{"HN2"}
			Expect(env.Client.Update(ctx, class)).To(Succeed())
		}, true, 0),
		Entry("and not reported where it lacks none", func(pool *karpv1.NodePool) {
			pool.Spec.Replicas = lo.ToPtr(int64(0))
		}, true, 0),
		Entry("and not reported where its limit allows none", func(pool *karpv1.NodePool) {
			pool.Spec.Limits = karpv1.Limits{resources.Node: resource.MustParse("0")}
		}, true, 0),
		Entry("as it is, where it is not static", func(pool *karpv1.NodePool) { pool.Spec.Replicas = nil }, false, 0),
	)

	// 7 of 20 nodes run when replicas becomes 2, and core remembers 13 more NodeClaims.
	DescribeTable("should keep its replicas while NodeClaims without a server",
		func(end func(*karpv1.NodeClaim)) {
			nodeClass()
			pool := unit.NodePool()
			pool.Spec.Replicas, pool.Spec.Weight, pool.Spec.Limits = lo.ToPtr(int64(2)), nil, nil
			Expect(env.Client.Create(ctx, pool)).To(Succeed())
			cluster := state.NewCluster(env.Clock, env.Client, env.CloudProvider)
			for i := range 20 {
				claim := nodeClaim(pool)
				cluster.UpdateNodeClaim(claim)
				if i >= 7 {
					end(claim)
					continue
				}
				claim.Status.ProviderID = fmt.Sprint("bizflycloud://HN1/", i)
				Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
				cluster.UpdateNodeClaim(claim)
			}
			Expect(cloudprovider.CountedPools(env.Client, cluster).Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			Expect(static.NewController(env.Client, cluster, env.CloudProvider, env.Clock, env.Recorder).Reconcile(ctx, pool)).
				Error().ToNot(HaveOccurred())
			claims := &karpv1.NodeClaimList{}
			Expect(env.Client.List(ctx, claims)).To(Succeed())
			Expect(lo.Filter(claims.Items, func(claim karpv1.NodeClaim, _ int) bool { return claim.DeletionTimestamp.IsZero() })).
				To(And(HaveLen(2), HaveEach(HaveField("Status.ProviderID", Not(BeEmpty())))))
		},
		Entry("are there", func(*karpv1.NodeClaim) {}),
		Entry("are being deleted", func(claim *karpv1.NodeClaim) { Expect(env.Client.Delete(ctx, claim)).To(Succeed()) }),
		Entry("are gone", func(claim *karpv1.NodeClaim) {
			claim.Finalizers = nil
			Expect(env.Client.Update(ctx, claim)).To(Succeed())
			Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		}),
	)
})
