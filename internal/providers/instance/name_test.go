// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Name", func() {
	DescribeTable("should be a DNS label that begins with the claim's name",
		func(claim, prefix string) {
			name := instance.Name(claim, claimUID, clusterUID, 1)
			Expect(validation.IsDNS1123Label(name)).To(BeEmpty())
			Expect(name).To(MatchRegexp("^" + prefix + "-[0-9a-z]{18}$"))
		},
		Entry("plain", "default-x7k2p", "default-x7k2p"),
		Entry("with dots", "team.a-pool-1", "team-a-pool-1"),
		Entry("as long as it may be", strings.Repeat("a", 44), strings.Repeat("a", 44)),
		Entry("too long", strings.Repeat("a", 200), strings.Repeat("a", 44)),
		Entry("cut at a dash", strings.Repeat("a", 43)+"-bbbb", strings.Repeat("a", 43)),
	)
	It("should be stable", func() {
		Expect(instance.Name(claimName, claimUID, clusterUID, 1)).To(Equal(instance.Name(claimName, claimUID, clusterUID, 1)))
	})
	DescribeTable("should differ",
		func(claim, cluster string, attempt int) {
			Expect(instance.Name(claimName, claim, cluster, attempt)).NotTo(Equal(instance.Name(claimName, claimUID, clusterUID, 1)))
		},
		Entry("for a claim made anew under the same name", "another-claim", clusterUID, 1),
		Entry("for a cluster of the same name", claimUID, "another-cluster", 1),
		Entry("for another attempt", claimUID, clusterUID, 2),
	)
	It("should not repeat itself for many servers of one claim name", func() {
		seen := map[string]bool{}
		for attempt := range 10_000 {
			seen[instance.Name(claimName, claimUID, clusterUID, attempt)] = true
		}
		Expect(seen).To(HaveLen(10_000))
	})
	DescribeTable("should be found in what begins with it", func(text string, found bool) {
		name := instance.Name(claimName, claimUID, clusterUID, 1)
		Expect(instance.ProvenName(clusterUID, name+text)).To(Equal(lo.Ternary(found, name, "")))
		Expect(instance.ProvenName("another-cluster", name+text)).To(BeEmpty())
	},
		Entry("itself", "", true),
		Entry("the name of a node whose server got a code", "-tnnuw4im", true),
		Entry("the name of an interface", "-lan-0", true),
		Entry("the name of a disk", "_rootdisk", true),
		Entry("another name", "x", false),
	)
	It("should prove nothing with the end of another name", func() {
		name := instance.Name(claimName, claimUID, clusterUID, 1)
		Expect(instance.ProvenName(clusterUID, "another-"+name)).To(BeEmpty())
		Expect(instance.ProvenName(clusterUID, "e"+name[1:])).To(BeEmpty())
		Expect(instance.ProvenName("", name)).To(BeEmpty())
	})
	It("should be the server's own as the cloud made it, and not a name that a user made of it", func() {
		w := newWorld(cloud.Options{})
		for suffix, proven := range map[string]bool{
			"": true, "-TNnUw4Im": true, "-Cv4N54hV": true, "-restored": false, "-copy": false, "-copy-of-Nov": false, "x": false,
			"-20261128": false, "-backup01": false, "-clone001": false, "-Backup01": false, "-SNAPSHOT": false, "-COPY2026": false, "-TNnUw4Im-copy": false,
		} {
			server := w.box.AddServer(cloud.ServerSpec{Name: ownName + suffix, Metadata: metadata(clusterUID, claimUID, 1)})
			Expect(w.provider.Get(ctx, server.ID)).To(HaveField("NameProven", proven), suffix)
		}
		named := w.box.AddServer(cloud.ServerSpec{Name: "forensics-of-incident-42", Metadata: metadata(clusterUID, claimUID, 1)})
		Expect(w.provider.Get(ctx, named.ID)).To(HaveField("NameProven", false))
	})
})
