// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var _ = Describe("A server of a pool", func() {
	var (
		nodes     []corev1.Node
		nodesErr  error
		nodeClass *v1alpha1.BizflyNodeClass
	)
	startIn := func(modes ...string) {
		GinkgoHelper()
		sandbox = cloud.Start(cloud.Options{Modes: modes})
		client := connect.Client(ctx, sandbox)
		known := connect.Catalog(ctx, client, func(config *catalog.Config) { config.BKEClusterID = sandbox.BKE().ClusterUID })
		lists = cache.New(cache.NoExpiration, 0)
		nodes, nodesErr, nodeClass = nil, nil, &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "general", UID: "1"}}
		provider = network.NewDefaultProvider(client, known, lists, func(context.Context) ([]corev1.Node, error) { return nodes, nodesErr })
	}
	addNode := func(name string, server cloud.Server) {
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerid.New(server.ID)}})
	}
	learn := func() *v1alpha1.PoolServerStatus {
		GinkgoHelper()
		lists.Flush()
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).ToNot(HaveOccurred())
		nodeClass.Status.PoolServer = found
		return found
	}
	named := func() []string {
		GinkgoHelper()
		found, err := provider.Firewalls(ctx, nodeClass)
		Expect(err).ToNot(HaveOccurred())
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
		}
		return names
	}

	DescribeTable("should be what new servers are like, where the spec leaves it open", func(modes ...string) {
		startIn(append(modes, "pool-firewall")...)
		addNode("pool-1", sandbox.AddPool("workers"))
		found := learn()
		Expect(found).To(And(HaveField("Node", "pool-1"), HaveField("Networks", HaveLen(1)), HaveField("Firewalls", HaveLen(1)), HaveField("PublicIPv4", false)))
		Expect(named()).To(Equal([]string{"kubernetes-nodes"}))
		Expect(provider.Networks(ctx, nodeClass)).To(ConsistOf(HaveField("ID", found.Networks[0])))
		Expect(nodeClass.EffectivePublicIPv4()).To(BeFalse())
	},
		Entry("where interfaces are listed with a type"),
		Entry("and where they are not", "interfaces-without-type"),
	)
	It("should have a public server's private networks alone, although no interface has a type", func() {
		startIn("interfaces-without-type", "public-pools")
		addNode("pool-1", sandbox.AddPool("workers"))
		Expect(learn()).To(And(HaveField("PublicIPv4", true), HaveField("Networks", ConsistOf(sandbox.BKE().NetworkID))))
	})
	DescribeTable("should be an error where its addresses leave its networks open", func(addresses, message string) {
		startIn()
		server := sandbox.AddPool("workers")
		addNode("pool-1", server)
		known := learn()
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers/*", Effect: cloud.EffectBody,
			Body: fmt.Sprintf(`{"id": %q, "name": "pool-1", "ip_addresses": %s}`, server.ID, addresses)})
		for _, status := range []*v1alpha1.PoolServerStatus{nil, known} {
			nodeClass.Status.PoolServer = status
			found, err := provider.PoolServer(ctx, nodeClass)
			Expect(err).To(MatchError(And(ContainSubstring("node pool-1"), ContainSubstring(message))))
			Expect(found).To(Equal(status), "what is known stays")
		}
	},
		Entry("none", `{}`, "without addresses"),
		Entry("one of no interface", `{"LAN": [{"addr": "10.99.0.1"}]}`, `no interface of its server with the address "10.99.0.1"`),
	)
	It("should be another one where what one has cannot be read", func() {
		startIn()
		first := sandbox.AddPool("workers")
		addNode("pool-1", first)
		addNode("pool-2", sandbox.AddPool("others"))
		addNode("pool-3", first)
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers/" + first.ID, Effect: cloud.EffectStatus, Status: http.StatusNotFound})
		Expect(learn()).To(HaveField("Node", "pool-2"))

		By("keeping what is known where that cannot be read once")
		sandbox.ClearFaults()
		nodes, nodeClass.Status.PoolServer = nodes[:1], nil
		known := learn()
		Expect(known).To(HaveField("Node", "pool-1"))
		addNode("public", sandbox.AddServer(cloud.ServerSpec{Name: "public", Wan: true}))
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers/" + first.ID, Effect: cloud.EffectStatus, Status: http.StatusBadGateway})
		nodeClass.Generation = 2
		lists.Flush()
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).To(HaveOccurred())
		Expect(found).To(Equal(known))
	})
	It("should be what most nodes have, since a Node that a user creates may name any server", func() {
		startIn()
		private, public := sandbox.AddServer(cloud.ServerSpec{Name: "private"}), sandbox.AddServer(cloud.ServerSpec{Name: "public", Wan: true})
		addNode("rogue", public)
		addNode("pool-1", private)
		addNode("pool-2", sandbox.AddServer(cloud.ServerSpec{Name: "another"}))
		Expect(learn()).To(And(HaveField("Node", "pool-1"), HaveField("PublicIPv4", false)))

		By("nothing where no more than half agree")
		nodes, nodeClass.Status.PoolServer = nodes[:2], nil
		lists.Flush()
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).To(MatchError(ContainSubstring("nodes rogue, pool-1 of BKE's pools have different networks, firewalls or public addresses")))
		Expect(found).To(BeNil())
	})
	DescribeTable("should be nothing while a node that cannot be read could change what most have", func(fault func(string) cloud.Fault) {
		startIn()
		private := sandbox.AddPool("workers")
		addNode("rogue", sandbox.AddServer(cloud.ServerSpec{Name: "public", Wan: true}))
		addNode("pool-1", private)
		sandbox.AddFaults(1, fault(private.ID))
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).To(MatchError(ContainSubstring("reading what node pool-1 has")))
		Expect(found).To(BeNil())
	},
		Entry("because the API fails", func(id string) cloud.Fault {
			return cloud.Fault{Method: http.MethodGet, Path: "/servers/" + id, Effect: cloud.EffectStatus, Status: http.StatusBadGateway}
		}),
		Entry("because no interface is listed yet", func(string) cloud.Fault {
			return cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectBody, Body: "[]"}
		}),
	)
	It("should not override what the spec sets", func() {
		startIn("pool-firewall")
		addNode("pool-1", sandbox.AddPool("workers"))
		public := true
		nodeClass.Spec.FirewallSelectorTerms, nodeClass.Spec.PublicIPv4 = []v1alpha1.FirewallSelectorTerm{{Name: "web"}}, &public
		learn()
		Expect(named()).To(Equal([]string{"web"}))
		Expect(nodeClass.EffectivePublicIPv4()).To(BeTrue())
	})
	It("should not lose a firewall that new servers have to a list that lacks it", func() {
		startIn("pool-firewall")
		addNode("pool-1", sandbox.AddPool("workers"))
		learn()
		nodeClass.Status.Firewalls, _ = provider.Firewalls(ctx, nodeClass)
		lists.Flush()
		sandbox.AddFaults(1, cloud.Fault{Path: "/firewalls", Effect: cloud.EffectBody, Body: `[{"id": "1", "name": "default"}]`})
		_, err := provider.Firewalls(ctx, nodeClass)
		Expect(err).To(MatchError(ContainSubstring(nodeClass.Status.Firewalls[0].ID+" (that of node pool-1)")), "running servers would get the default one")
	})
	It("should name no firewall where it has the one that the cloud attaches anyway", func() {
		startIn()
		addNode("pool-1", sandbox.AddPool("workers"))
		Expect(learn().Firewalls).To(HaveLen(1))
		Expect(named()).To(BeEmpty())
	})
	It("should stay while it cannot be read, or is none any more", func() {
		startIn()
		addNode("pool-1", sandbox.AddPool("workers"))
		known := learn()

		nodesErr = errors.New("the API server is away")
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).To(MatchError(ContainSubstring("the API server is away")))
		Expect(found).To(Equal(known))

		nodesErr = nil
		lists.Flush()
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		found, err = provider.PoolServer(ctx, nodeClass)
		Expect(err).To(HaveOccurred())
		Expect(found).To(Equal(known))

		sandbox.ClearFaults()
		nodes = nil
		Expect(learn()).To(Equal(known))
	})
	It("should be looked for in a list that is read now", func() {
		startIn()
		Expect(provider.PoolServer(ctx, nodeClass)).To(BeNil())
		addNode("private", sandbox.AddServer(cloud.ServerSpec{Name: "private"}))
		Expect(provider.PoolServer(ctx, nodeClass)).To(HaveField("PublicIPv4", false))
	})
	It("should stay as long as any pool has such servers, whatever the order of nodes", func() {
		startIn()
		private := sandbox.AddServer(cloud.ServerSpec{Name: "private"})
		public := sandbox.AddServer(cloud.ServerSpec{Name: "public", Wan: true})
		addNode("private", private)
		Expect(learn().PublicIPv4).To(BeFalse())
		nodes = nil
		addNode("public", public)
		addNode("private", private)
		Expect(learn().Node).To(Equal("private"))
		nodes = nodes[:1]
		Expect(learn()).To(And(HaveField("Node", "public"), HaveField("PublicIPv4", true)))
	})
	It("should stay for the spec that was resolved with it, whatever lists and pools have later", func() {
		startIn()
		addNode("private", sandbox.AddServer(cloud.ServerSpec{Name: "private"}))
		known := learn()
		nodeClass.Generation = 1
		nodeClass.StatusConditions().SetTrue(v1alpha1.ConditionTypeNetworksReady)
		nodes = nil
		addNode("public", sandbox.AddServer(cloud.ServerSpec{Name: "public", Wan: true}))
		Expect(learn()).To(Equal(known))
		nodeClass.Generation = 2
		Expect(learn()).To(HaveField("Node", "public"))
	})
	It("should not be what an interface of no server has, where a node has no provider ID", func() {
		startIn()
		nodes = []corev1.Node{{}}
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectBody, Body: `[{"id": "free"}]`})
		found, err := provider.PoolServer(ctx, nodeClass)
		Expect(err).To(MatchError(ContainSubstring("is not an id")))
		Expect(found).To(BeNil())
	})
	It("should stay what was learned when learning is switched off, also for another spec", func() {
		startIn()
		addNode("pool-1", sandbox.AddPool("workers"))
		known := learn()
		nodeClass.Generation = 1
		nodeClass.StatusConditions().SetTrue(v1alpha1.ConditionTypeNetworksReady)
		provider = network.NewDefaultProvider(nil, nil, lists, nil)
		Expect(learn()).To(Equal(known))
		nodeClass.Generation = 2
		Expect(learn()).To(Equal(known))
	})
	It("should be nothing without a node of a pool, and cost no request", func() {
		startIn()
		Expect(learn()).To(BeNil())
		Expect(reads("/network-interfaces")).To(BeZero())
	})
	It("should be nothing where nothing is to be learned, and where no server exists", func() {
		startIn("pool-servers-elsewhere")
		addNode("pool-1", sandbox.AddPool("workers"))
		Expect(learn()).To(BeNil())
		provider = network.NewDefaultProvider(nil, nil, lists, nil)
		Expect(provider.PoolServer(ctx, nodeClass)).To(BeNil())
	})
})
