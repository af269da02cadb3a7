// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func TestDemo(t *testing.T) { suite.Run(t, "Demo") }

var _ = Describe("The result", func() {
	good := result{pods: 8, podsBound: 8, nodesLaunched: 3}

	It("should be one line that a script can read", func() {
		Expect(good.String()).To(Equal("RESULT pods_bound=8 nodes_launched=3 servers_left=0 volumes_left=0 ports_left=0 foreign_requests=0"))
		Expect(good.check()).To(Succeed())
	})
	DescribeTable("should be a failure when anything is wrong", func(change func(*result), text string) {
		r := good
		change(&r)
		Expect(r.check()).To(MatchError(text))
	},
		Entry("a pod without a node", func(r *result) { r.podsBound = 7 }, "7 of 8 pods were bound"),
		Entry("no node", func(r *result) { r.nodesLaunched = 0 }, "no node was launched"),
		Entry("a server", func(r *result) { r.serversLeft = 1 }, "1 servers are left"),
		Entry("a volume", func(r *result) { r.volumesLeft = 1 }, "1 volumes are left"),
		Entry("a port", func(r *result) { r.portsLeft = 2 }, "2 ports are left"),
		Entry("a node", func(r *result) { r.nodesLeft = 1 }, "1 nodes are left"),
		Entry("a node claim", func(r *result) { r.claimsLeft = 1 }, "1 node claims are left"),
		Entry("a foreign request", func(r *result) { r.foreignRequests = 1 }, "1 requests were meant for other hosts"),
		Entry("nothing at all", func(r *result) { *r = result{} }, "no node was launched"),
	)
})

var _ = Describe("The folder of a sandbox that is kept", func() {
	It("should be taken when it is new, empty or left by a sandbox that is dead", func() {
		dir := filepath.Join(GinkgoT().TempDir(), ".sandbox")
		Expect(claim(dir)).To(Succeed())
		// No process has this number: it is above the highest that Linux gives.
		Expect(os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(1<<22+1)), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "env"), nil, 0o600)).To(Succeed())
		Expect(claim(dir)).To(Succeed())
		Expect(filepath.Join(dir, "env")).NotTo(BeAnExistingFile())
	})
	It("should not be taken from a sandbox that runs", func() {
		dir := GinkgoT().TempDir()
		Expect(claim(dir)).To(Succeed())
		Expect(claim(dir)).To(MatchError(ContainSubstring("already runs")))
	})
	It("should not be taken when it holds what is not ours", func() {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600)).To(Succeed())
		Expect(claim(dir)).To(MatchError(ContainSubstring("not empty")))
	})
})

var _ = Describe("The ground truth", func() {
	It("should be what the sandbox and the API server know, by panel and series", func() {
		const servers = "/iaas-cloud/api/servers"
		f := facts{
			history: newHistory(),
			state:   cloud.State{Servers: []cloud.Server{{ID: "a", ZoneName: "HN1", Flavor: cloud.ServerFlavor{Name: "nix.2c_4g"}}}},
			bill:    cloud.Bill{VNDPerHour: 1500, Lines: []cloud.BillLine{{ID: "a", Open: true, VNDPerHour: 1300}, {ID: "d", Open: true, VNDPerHour: 200}}},
			requests: []cloud.Request{
				{Method: http.MethodPost, Route: servers, Status: 200}, {Method: http.MethodPost, Route: servers, Status: 409, Fault: string(cloud.EffectNoCapacity)},
				{Method: http.MethodPost, Route: servers + "/{id}/action", Status: 200}, {Method: http.MethodDelete, Route: servers + "/{id}", Status: 200},
				{Method: http.MethodDelete, Route: servers + "/{id}", Status: 404}, {Method: http.MethodPost, Route: "/api/token", Status: 401},
			},
		}
		f.remember()
		panels := f.panels()
		Expect(panels).To(And(
			HaveKeyWithValue("Launched", one(1)), HaveKeyWithValue("Failed", one(1)), HaveKeyWithValue("Cost per hour", one(1500)),
			HaveKeyWithValue("Launches by flavor", numbers{"nix.2c_4g HN1": 1}), HaveKeyWithValue("Rejected logins", one(1)),
			HaveKeyWithValue("Deletions by outcome", HaveKeyWithValue("server accepted", 1.0)), HaveKeyWithValue("Without a NodeClaim", one(1)),
			HaveKeyWithValue("Requests by outcome", numbers{"success": 3, "Capacity": 1, "NotFound": 1, "Unauthorized": 1}),
			HaveKeyWithValue("Requests by route", HaveKeyWithValue("POST /servers/{id}/action", 1.0)),
		))
		Expect(panels).NotTo(HaveKey("Available offerings"), "without a NodeClass, nothing is on offer")
	})
	It("should have prices of vCPUs with a share of the disk, and what a rejection marks", func() {
		class := v1alpha1.BizflyNodeClass{}
		for _, condition := range class.StatusConditions().List() {
			class.StatusConditions().SetTrue(condition.Type)
		}
		f := facts{
			classes: []v1alpha1.BizflyNodeClass{class},
			bill:    cloud.Bill{Lines: []cloud.BillLine{{VNDPerHour: 200}}},
			offerings: []cloud.Offering{
				{Flavor: "small", Zone: "HN1", VCPUs: 1, VNDPerHour: 500}, {Flavor: "large", Zone: "HN1", VCPUs: 4, VNDPerHour: 2000},
				{Flavor: "large", Zone: "HN2", VCPUs: 4, VNDPerHour: 2000, Rejected: 1},
			},
		}
		f.bill.Lines[0].State = cloud.BilledDisk
		panels := f.panels()
		Expect(panels["Cheapest vCPU hour by zone"]).To(Equal(numbers{"HN1": 550, "HN2": 550}))
		Expect(panels["The ten cheapest available"]).To(Equal(one(700 + 2200)))
		Expect(panels["Available offerings by zone"]).To(Equal(numbers{"HN1": 2}))
		Expect(panels["Flavors"]).To(Equal(one(2)))
	})
})
