// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("An upgrade", func() {
	It("should release the lease, so that the next replica leads at once", func() {
		elected := map[string]string{"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": metav1.NamespaceSystem}
		holder := func(g Gomega) string {
			lease := &coordinationv1.Lease{}
			g.Expect(env.Client().Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "karpenter-leader-election"}, lease)).To(Succeed())
			return lo.FromPtr(lease.Spec.HolderIdentity)
		}
		first := restartController(elected)
		var before string
		Eventually(func(g Gomega) {
			before = holder(g)
			g.Expect(before).NotTo(BeEmpty())
		}).Should(Succeed())

		Expect(first.Stop()).To(Succeed())
		Expect(holder(Default)).To(BeEmpty())
		Expect(env.StartController(ctx, elected)).Error().NotTo(HaveOccurred())
		Eventually(holder).Should(And(Not(BeEmpty()), Not(Equal(before))))
	})
})
