// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerid_test

import (
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

func TestProviderID(t *testing.T) { suite.Run(t, "ProviderID") }

var _ = Describe("A provider ID", func() {
	const server = "366d5fa3-49d2-4c0d-bde5-f542bddb212a"

	It("should be the cloud controller manager's, byte for byte", func() {
		Expect(providerid.New(server)).To(Equal("bizflycloud://366d5fa3-49d2-4c0d-bde5-f542bddb212a"))
	})
	It("should give back the server", func() {
		id, ok := providerid.Parse(providerid.New(server))
		Expect(ok).To(BeTrue())
		Expect(id).To(Equal(server))
	})
	DescribeTable("should not be", func(foreign string) {
		id, ok := providerid.Parse(foreign)
		Expect(ok).To(BeFalse())
		Expect(id).To(BeEmpty(), "some callers use what is returned without asking whether it is one")
	},
		Entry("empty", ""),
		Entry("a prefix without a server", "bizflycloud://"),
		Entry("a bare server id", server),
		Entry("one with three slashes", "bizflycloud:///"+server),
		Entry("another cloud's", "aws:///ap-southeast-1a/i-0123456789abcdef0"),
		Entry("one in other letters", "BizflyCloud://"+server),
		Entry("one with a path", "bizflycloud://HN1/"+server),
		Entry("one that climbs", "bizflycloud://.."),
		Entry("one that is escaped", "bizflycloud://a%2fb"),
		Entry("one with a query", "bizflycloud://"+server+"?all=1"),
		Entry("one with a blank", "bizflycloud://"+server+" "),
		Entry("one that begins with a dash", "bizflycloud://-a"),
		Entry("one that is too long", "bizflycloud://"+strings.Repeat("a", 129)),
	)
})
