// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package flavor_test

import (
	"bytes"
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("Flavors that are not for us", func() {
	It("should be logged once with the reason, however often the catalog is read", func(ctx context.Context) {
		said := &bytes.Buffer{}
		ctx = log.IntoContext(ctx, zap.New(zap.WriteTo(said)))
		source := newHandmade(newFlavor("p2.2c_4g"), newFlavor("2c_2g_vps"), newFlavor("broken", withSize(0, 0)))
		r := newRoom(source, env.Client)
		for range 3 {
			for _, nodeClass := range []*v1alpha1.BizflyNodeClass{newNodeClass("HN1"), newNodeClass("HN2")} {
				Expect(r.List(ctx, nodeClass)).Error().NotTo(HaveOccurred())
			}
			source.change(func(*catalog.Snapshot) {})
		}
		Expect(strings.Split(strings.TrimSpace(said.String()), "\n")).To(ConsistOf(
			And(ContainSubstring("2c_2g_vps"), ContainSubstring("another product")),
			And(ContainSubstring("broken"), ContainSubstring("no CPU or no memory")),
		))
	})
})
