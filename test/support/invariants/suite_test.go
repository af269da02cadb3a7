// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestInvariants(t *testing.T) { suite.Run(t, "Invariants") }

const grace = time.Minute

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func server(id, claim string) cloud.Server {
	return cloud.Server{ID: id, Name: "server-" + id, Status: cloud.StatusActive,
		Metadata: map[string]string{v1alpha1.MetadataNodeClaimUID: claim}, Truth: &cloud.ServerTruth{CreatedAt: now.Add(-time.Hour)}}
}

func nodeClaim(uid, serverID string) karpv1.NodeClaim {
	claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + uid, UID: types.UID(uid)}}
	if serverID != "" {
		claim.Status.ProviderID = providerid.New(serverID)
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
	}
	return claim
}

func node(serverID string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "server-" + serverID, Labels: map[string]string{karpv1.NodeRegisteredLabelKey: "true"}},
		Spec: corev1.NodeSpec{ProviderID: providerid.New(serverID)}}
}

// settled is a cluster of one node with its disk, beside a foreign server and the volume of a pod.
func settled() invariants.Observation {
	return invariants.Observation{At: now,
		Cloud: cloud.State{
			Servers: []cloud.Server{server("1", "a"), {ID: "foreign", Name: "database", Status: cloud.StatusActive, Truth: &cloud.ServerTruth{}}},
			Volumes: []cloud.Volume{{ID: "root", Name: "root", Attachments: []cloud.VolumeAttachment{{ServerID: "1"}}}, {ID: "pvc", Name: "pvc"}},
		},
		Claims: []karpv1.NodeClaim{nodeClaim("a", "1")},
		Nodes:  []corev1.Node{node("1")},
	}
}

var _ = Describe("The invariants", func() {
	var checker *invariants.Checker
	BeforeEach(func() {
		checker = invariants.NewChecker()
		checker.AddForeignServers(settled().Cloud.Servers[1])
		checker.AddForeignVolume("pvc", "pvc", now.Add(-time.Second))
		Expect(checker.Violations(settled())).To(BeEmpty())
	})
	It("should hold in a settled cluster", func() {
		Expect(checker.Unsettled(settled())).To(BeEmpty())
		Expect(checker.Orphans(settled(), grace)).To(BeEmpty())
		Expect(checker.Created()).To(Equal(1))
	})
	DescribeTable("should be violated by", func(change func(*invariants.Observation), expected string) {
		seen := settled()
		change(&seen)
		Expect(checker.Violations(seen)).To(ContainElement(ContainSubstring(expected)))
	},
		Entry("a foreign server that is deleted", func(o *invariants.Observation) { o.Cloud.Servers = o.Cloud.Servers[:1] }, "foreign server database"),
		Entry("a foreign server that is stopped", func(o *invariants.Observation) { o.Cloud.Servers[1].Status = cloud.StatusShutoff }, "foreign server database"),
		Entry("a foreign server whose metadata changes", func(o *invariants.Observation) {
			o.Cloud.Servers[1].Metadata = map[string]string{"a": "b"}
		}, "foreign server database"),
		Entry("a volume of a PersistentVolume that is deleted", func(o *invariants.Observation) { o.Cloud.Volumes = o.Cloud.Volumes[:1] }, "volume pvc (pvc)"),
		Entry("a second server for one NodeClaim", func(o *invariants.Observation) {
			o.Cloud.Servers = append(o.Cloud.Servers, server("2", "a"))
		}, "2 servers were created for NodeClaim a"),
		Entry("a second server that is created after the first is gone", func(o *invariants.Observation) {
			o.Cloud.Servers[0] = server("2", "a")
		}, "2 servers were created for NodeClaim a"),
		Entry("two registered servers of one NodeClaim", func(o *invariants.Observation) {
			o.Cloud.Servers, o.Nodes = append(o.Cloud.Servers, server("2", "a")), append(o.Nodes, node("2"))
		}, "two servers are registered"),
		Entry("a NodeClaim that changes its server", func(o *invariants.Observation) { o.Claims[0] = nodeClaim("a", "2") }, "NodeClaim claim-a had server"),
		Entry("a NodeClaim that loses its server", func(o *invariants.Observation) { o.Claims[0] = nodeClaim("a", "") }, "NodeClaim claim-a had server"),
		Entry("two NodeClaims with one server", func(o *invariants.Observation) { o.Claims = append(o.Claims, nodeClaim("b", "1")) }, "have the same server"),
	)
	It("should allow a second server that the test itself created, until it registers", func() {
		checker.AddDuplicate("server-2")
		seen := settled()
		seen.Cloud.Servers = append(seen.Cloud.Servers, server("2", "a"))
		Expect(checker.Violations(seen)).To(BeEmpty())
		seen.Nodes = append(seen.Nodes, node("2"))
		Expect(checker.Violations(seen)).ToNot(BeEmpty())
	})
	DescribeTable("should know the servers that a pass of the garbage collector must delete", func(change func(*invariants.Observation), expected ...string) {
		seen := settled()
		change(&seen)
		Expect(lo.Map(checker.Orphans(seen, grace), func(s cloud.Server, _ int) string { return s.ID })).To(ConsistOf(expected))
	},
		Entry("of no NodeClaim", func(o *invariants.Observation) { o.Claims = nil }, "1"),
		Entry("of a NodeClaim that has another server", func(o *invariants.Observation) { o.Claims[0] = nodeClaim("a", "2") }, "1"),
		Entry("but not of a NodeClaim that waits for its server", func(o *invariants.Observation) { o.Claims[0] = nodeClaim("a", "") }),
		Entry("but not within the grace period", func(o *invariants.Observation) { o.Claims, o.Cloud.Servers[0].Truth.CreatedAt = nil, now.Add(-grace) }),
		Entry("but not those that are being deleted", func(o *invariants.Observation) { o.Claims, o.Cloud.Servers[0].Truth.Deleting = nil, true }),
	)
	DescribeTable("should know what is not settled", func(change func(*invariants.Observation), expected ...string) {
		seen := settled()
		change(&seen)
		Expect(checker.Unsettled(seen)).To(HaveExactElements(lo.Map(expected, func(text string, _ int) any { return ContainSubstring(text) })...))
	},
		Entry("a NodeClaim without a server", func(o *invariants.Observation) { o.Claims = append(o.Claims, nodeClaim("b", "")) }, "claim-b has no server"),
		Entry("a NodeClaim that is being deleted", func(o *invariants.Observation) { o.Claims[0].DeletionTimestamp = lo.ToPtr(metav1.Now()) }, "is being deleted"),
		Entry("a server that does not run", func(o *invariants.Observation) { o.Cloud.Servers[0].Status = cloud.StatusError }, "is ERROR"),
		Entry("a NodeClaim that is not registered", func(o *invariants.Observation) {
			o.Claims[0].StatusConditions().SetFalse(karpv1.ConditionTypeRegistered, "Waiting", "")
		}, "is not registered"),
		Entry("a server with its disk and Node, without a NodeClaim", func(o *invariants.Observation) { o.Claims = nil },
			"Node server-1 has no NodeClaim", "disk root is left", "server server-1 (ACTIVE) has no NodeClaim"),
		Entry("a network interface", func(o *invariants.Observation) {
			o.Cloud.NetworkInterfaces = append(o.Cloud.NetworkInterfaces, cloud.NetworkInterface{Name: "port", DeviceID: "gone"})
		}, "network interface port is left"),
		Entry("an address", func(o *invariants.Observation) {
			o.Cloud.WanIPs = append(o.Cloud.WanIPs, cloud.WanIP{NetworkInterface: cloud.NetworkInterface{IPAddress: "192.0.2.1", DeviceID: "gone"}})
		}, "address 192.0.2.1 is left"),
	)
})
