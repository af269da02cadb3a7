// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bke_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

const clusterToken = "s3cr3t-cluster-token"

var (
	ctx  = context.Background()
	kube client.Client
)

func TestBKE(t *testing.T) { suite.Run(t, "BKE") }

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	env := &envtest.Environment{CRDs: apis.CRDs}
	config := lo.Must(env.Start())
	DeferCleanup(env.Stop)
	kube = lo.Must(client.New(config, client.Options{}))
})

// counting counts the servers that are read.
type counting struct {
	bke.API
	mu   sync.Mutex
	read int
	// notSent is whether there is no login yet.
	notSent bool
	// elsewhere is how many pools of servers elsewhere the cluster has before the others.
	elsewhere int
	// others are clusters of the project beside that of the sandbox.
	others []string
	// configuration replaces the metadata of each launch configuration.
	configuration map[string]string
}

func (c *counting) GetLaunchConfigurationMetadata(ctx context.Context, id string) (map[string]string, error) {
	if c.configuration != nil {
		return c.configuration, nil
	}
	return c.API.GetLaunchConfigurationMetadata(ctx, id)
}

func (c *counting) GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error) {
	if slices.Contains(c.others, uid) {
		return &gobizfly.FullCluster{}, nil
	}
	cluster, err := c.API.GetCluster(ctx, uid)
	if err == nil {
		cluster.WorkerPools = append(make([]gobizfly.ExtendedWorkerPool, c.elsewhere), cluster.WorkerPools...)
	}
	return cluster, err
}

func (c *counting) GetServerMetadata(ctx context.Context, id string) (map[string]string, error) {
	if c.notSent {
		return nil, &bizfly.APIError{Operation: "GetServerMetadata", Class: bizfly.ClassAuth, NotSent: true, Message: "no configuration is active"}
	}
	c.mu.Lock()
	c.read++
	c.mu.Unlock()
	return c.API.GetServerMetadata(ctx, id)
}

func (c *counting) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

var _ = Describe("The values with which nodes join BKE", func() {
	var (
		sandbox *cloud.Sandbox
		api     *counting
		clk     *clocktesting.FakeClock
		config  bke.Config
	)
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{ClusterToken: clusterToken})
		DeferCleanup(sandbox.Close)
		api, clk, config = &counting{API: connect.Client(ctx, sandbox)}, clocktesting.NewFakeClock(time.Now()), bke.Config{Discover: true}
		DeferCleanup(func() { Expect(kube.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed()) })
	})
	provider := func() *bke.DefaultProvider { return bke.NewDefaultProvider(config, kube, api, clk) }
	metadata := func(changes ...string) map[string]string {
		known := sandbox.BKE()
		all := map[string]string{
			"bizfly_cloud_service": "kubernetes_engine", "bke_cluster_id": known.ClusterUID, "bke_cluster_token": known.ClusterToken,
			"bke_join_endpoint": known.JoinEndpoint, "bke_log_endpoint": known.LogEndpoint,
		}
		for i := 0; i+1 < len(changes); i += 2 {
			all[changes[i]] = changes[i+1]
		}
		return all
	}
	node := func(name string, labels, metadata map[string]string) {
		GinkgoHelper()
		server := sandbox.AddServer(cloud.ServerSpec{Name: name, Metadata: metadata})
		Expect(kube.Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + server.ID},
		})).To(Succeed())
	}
	created := func(name string) time.Time {
		GinkgoHelper()
		found := &corev1.Node{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: name}, found)).To(Succeed())
		return found.CreationTimestamp.Time
	}
	pool := func(name string) map[string]string { return map[string]string{"bke.bizflycloud.vn/node-id": name} }

	It("should be those of the environment, without a request", func() {
		config.Values = bke.Values{ClusterID: "c", Token: clusterToken, JoinEndpoint: "http://e/engine/cluster_join/c"}
		Expect(provider().Values(ctx)).To(Equal(config.Values))
		Expect(api.read).To(BeZero())
	})
	It("should not be learned where that is not allowed", func() {
		config.Discover = false
		node("pool-1", pool("pool-1"), metadata())
		Expect(provider().Values(ctx)).To(Equal(bke.Values{}))
	})
	It("should be learned from a pool server, once, and report it", func() {
		node("pool-1", pool("pool-1"), metadata())
		learner := provider()
		Expect(learner.Known()).To(Equal(bke.Values{}))
		values := lo.Must(learner.Values(ctx))
		known := sandbox.BKE()
		Expect(values).To(Equal(bke.Values{
			ClusterID: known.ClusterUID, Token: clusterToken, JoinEndpoint: known.JoinEndpoint, LogEndpoint: known.LogEndpoint,
			Learned: "BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT, BKE_LOG_ENDPOINT learned from the pool server of node pool-1",
		}))
		Expect(learner.Known()).To(Equal(values))
		Expect(learner.Values(ctx)).Error().ToNot(HaveOccurred())
		Expect(api.read).To(Equal(1))
	})
	It("should be learned again when old, without holding up a launch, and stay while that fails", func() {
		node("pool-1", pool("pool-1"), metadata())
		learner := provider()
		first := lo.Must(learner.Values(ctx))
		clk.Step(9 * time.Minute)
		Expect(learner.Values(ctx)).To(Equal(first))
		Expect(api.reads()).To(Equal(1))

		By("a server that has no values")
		Expect(kube.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1"}})).To(Succeed())
		node("pool-3", pool("pool-3"), metadata("bke_cluster_token", ""))
		clk.Step(2 * time.Minute)
		Expect(learner.Values(ctx)).To(Equal(first))
		Eventually(api.reads).Should(Equal(2))
		Expect(learner.Values(ctx)).To(Equal(first))

		By("a token that was rotated, although a server joined with the old one")
		node("pool-2", pool("pool-2"), metadata())
		node("pool-1", pool("pool-1"), metadata("bke_cluster_token", "rotated-token")) // the first by name, if all are of one second
		Eventually(func() (string, error) {
			clk.Step(time.Minute) // each time, as the try before may still be under way, and the next is due a while after its end
			values, err := learner.Values(ctx)
			return values.Token, err
		}).Should(Equal("rotated-token"))
	})
	It("should only be learned where they are not set", func() {
		config.Values = bke.Values{ClusterID: sandbox.BKE().ClusterUID, JoinEndpoint: sandbox.BKE().JoinEndpoint}
		node("pool-1", pool("pool-1"), metadata("bke_log_endpoint", ""))
		values := lo.Must(provider().Values(ctx))
		Expect(values.Token).To(Equal(clusterToken))
		Expect(values.Learned).To(Equal("BKE_CLUSTER_TOKEN learned from the pool server of node pool-1"))
	})
	It("should not be learned from a node of Karpenter's", func() {
		node("mine", map[string]string{"bke.bizflycloud.vn/node-id": "x", "karpenter.sh/nodepool": "general"}, metadata())
		node("mine-too", pool("y"), metadata("bizfly-karpenter-managed", "true"))
		node("older", pool("y"), metadata("karpenter-managed", "true"))
		_, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("node mine-too: its server was launched by Karpenter"),
			ContainSubstring("node older: its server was launched by Karpenter"), Not(ContainSubstring("node mine:")))))
	})
	DescribeTable("should be rejected where they are not consistent, without the token", func(set func(), changes []string, says string) {
		set()
		node("pool-1", pool("pool-1"), metadata(changes...))
		values, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring(says), ContainSubstring("pool-1"), Not(ContainSubstring(clusterToken)))))
		Expect(values).To(Equal(config.Values))
	},
		Entry("without a token", func() {}, []string{"bke_cluster_token", ""}, "lacks bke_cluster_id, bke_cluster_token"),
		Entry("with another cluster than is configured", func() { config.Values.ClusterID = "another" }, nil, `is not BKE_CLUSTER_ID "another"`),
		Entry("with an endpoint that is no URL", func() {}, []string{"bke_join_endpoint", "engine"}, "not an http or https URL"),
		Entry("with an endpoint of another cluster", func() {}, []string{"bke_join_endpoint", "http://e/engine/cluster_join/zzzz"},
			"is not where nodes join cluster"),
		Entry("with a cluster that is not this project's", func() {},
			[]string{"bke_cluster_id", "zzzz", "bke_join_endpoint", "http://e/engine/cluster_join/zzzz", "bke_log_endpoint", ""},
			"reading cluster zzzz, which the pool server of node pool-1 names"),
	)
	// later waits until a node that is created now is newer than this one: creation times are in seconds.
	later := func(name string) {
		GinkgoHelper()
		Eventually(func() int64 { return time.Now().Unix() }).Should(BeNumerically(">", created(name).Unix()))
	}
	const otherToken = "the-token-of-another-cluster"
	// elsewhere is the metadata of another cluster of the project.
	elsewhere := func() map[string]string {
		api.others = []string{"prodprodprodprod"}
		return metadata("bke_cluster_id", "prodprodprodprod", "bke_cluster_token", otherToken,
			"bke_join_endpoint", "http://engine.example/engine/cluster_join/prodprodprodprod")
	}
	DescribeTable("should not be those of another cluster, which Nodes of anybody's making name", func(rogues int, configure func()) {
		for i := range 20 {
			node(fmt.Sprintf("pool-%02d", i), pool("x"), metadata())
		}
		later("pool-19")
		for i := range rogues {
			node(fmt.Sprintf("rogue-%d", i), pool("x"), elsewhere())
		}
		configure()
		values := lo.Must(provider().Values(ctx))
		known := sandbox.BKE()
		Expect(values).To(And(HaveField("ClusterID", known.ClusterUID), HaveField("Token", clusterToken), HaveField("JoinEndpoint", known.JoinEndpoint)))
		Expect(values.Learned).To(And(HaveSuffix("; node rogue-0 is ignored, since its server is of cluster prodprodprodprod"), Not(ContainSubstring(otherToken))))
		Expect(provider().PoolNodes(ctx)).To(And(Not(BeEmpty()), HaveEach(HaveField("Name", HavePrefix("pool-")))))
	},
		Entry("where most pool servers are of this one", 1, func() {}),
		Entry("where the name of the API server says which it is", 1, func() {
			config.APIServer = "https://" + sandbox.BKE().ClusterUID + ".api.k8saas.bizflycloud.vn"
		}),
	)
	It("should stay those of the cluster that NodeClaims have joined, whatever Nodes name", func() {
		joined := sandbox.AddServer(cloud.ServerSpec{Name: "mine", Metadata: metadata("bizfly-karpenter-managed", "true")})
		claim := func(name, server string) {
			GinkgoHelper()
			claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: karpv1.NodeClaimSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
			}}
			Expect(kube.Create(ctx, claim)).To(Succeed())
			DeferCleanup(func() { Expect(kube.Delete(ctx, claim)).To(Succeed()) })
			claim.Status.ProviderID = "bizflycloud://" + server
			Expect(kube.Status().Update(ctx, claim)).To(Succeed())
		}
		for i := range 5 {
			claim(fmt.Sprintf("gone-%d", i), fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i))
		}
		claim("mine", joined.ID)
		for i := range 3 {
			node(fmt.Sprintf("rogue-%d", i), pool("x"), elsewhere())
		}
		_, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring(`node rogue-0: its server's metadata bke_cluster_id `+
			`"prodprodprodprod" is not that of NodeClaims' servers %q`, sandbox.BKE().ClusterUID), Not(ContainSubstring(otherToken)))))
		Expect(provider().PoolNodes(ctx)).To(BeEmpty())

		By("one node of this cluster among them")
		node("pool-1", pool("x"), metadata())
		Expect(provider().Values(ctx)).To(HaveField("Token", clusterToken))
	})
	It("should be those that the older ones of as many Nodes name", func() {
		node("pool-1", pool("x"), metadata())
		later("pool-1")
		node("rogue", pool("x"), elsewhere())
		Expect(provider().Values(ctx)).To(HaveField("Token", clusterToken))
	})
	It("should be learned again of the same cluster alone", func() {
		node("pool-1", pool("x"), metadata())
		learner := provider()
		Expect(learner.Values(ctx)).To(HaveField("Token", clusterToken))
		node("rogue-1", pool("x"), elsewhere())
		node("rogue-2", pool("x"), elsewhere())
		clk.Step(11 * time.Minute)
		Expect(learner.Values(ctx)).Error().ToNot(HaveOccurred())
		Eventually(learner.Known).Should(And(HaveField("Learned", ContainSubstring("node rogue-1 is ignored")), HaveField("Token", clusterToken)))
	})
	It("should not be those that several Nodes of anybody's making name by one server", func() {
		node("pool-1", pool("x"), metadata())
		later("pool-1")
		node("rogue-0", pool("x"), elsewhere())
		rogue := &corev1.Node{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "rogue-0"}, rogue)).To(Succeed())
		for i := range 2 {
			rogue.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("rogue-%d", i+1), Labels: pool("x")}
			Expect(kube.Create(ctx, rogue)).To(Succeed())
		}
		Expect(provider().Values(ctx)).To(HaveField("Token", clusterToken))
	})
	It("should not be those of another cluster while servers of this one cannot be read", func() {
		node("pool-1", pool("x"), metadata())
		found := &corev1.Node{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "pool-1"}, found)).To(Succeed())
		sandbox.AddFaults(1, cloud.Fault{Path: "/servers/" + strings.TrimPrefix(found.Spec.ProviderID, "bizflycloud://"), Effect: cloud.EffectStatus,
			Status: http.StatusBadGateway})
		later("pool-1")
		node("rogue", pool("x"), elsewhere())
		Expect(provider().Values(ctx)).Error().To(MatchError(ContainSubstring("node pool-1: reading server")))
		Expect(provider().PoolNodes(ctx)).Error().To(HaveOccurred())
	})
	It("should not be learned from servers that are of no cluster, nor their interfaces", func() {
		node("bastion", pool("x"), nil)
		_, err := provider().Values(ctx)
		Expect(err).To(MatchError(ContainSubstring("node bastion: its server's metadata lacks bke_cluster_id")))
		Expect(provider().PoolNodes(ctx)).To(BeEmpty())
	})
	It("should leave it open which nodes are of a pool while no server can be read", func() {
		node("pool-1", pool("x"), metadata())
		sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusBadGateway})
		Expect(provider().PoolNodes(ctx)).Error().To(MatchError(ContainSubstring("node pool-1: reading server")))
	})
	It("should be looked for again a minute later, and not before", func() {
		learner := provider()
		Expect(learner.Values(ctx)).Error().To(MatchError(ContainSubstring("needs BKE_CLUSTER_ID")))
		node("pool-1", pool("pool-1"), metadata())
		Expect(learner.Values(ctx)).Error().To(HaveOccurred())
		clk.Step(time.Minute)
		values := lo.Must(learner.Values(ctx))
		Expect(values.Complete()).To(BeTrue())
	})
	It("should be looked for at once after the login, before which no request is sent", func() {
		node("pool-1", pool("pool-1"), metadata())
		api.notSent = true
		learner := provider()
		_, err := learner.Values(ctx)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		api.notSent = false
		values := lo.Must(learner.Values(ctx))
		Expect(values.Complete()).To(BeTrue())
	})
	It("should be looked for again a minute later where the service that has them is missing", func() {
		sandbox = cloud.Start(cloud.Options{ClusterToken: clusterToken, Modes: []string{"pool-metadata-without-token"}, OmitServices: []string{"auto_scaling"}})
		DeferCleanup(sandbox.Close)
		api.API = connect.Client(ctx, sandbox)
		server := sandbox.AddPool("workers")
		Expect(kube.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "workers-1", Labels: pool("workers-1")},
			Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + server.ID}})).To(Succeed())
		learner := provider()
		for range 10 {
			Expect(learner.Values(ctx)).Error().To(MatchError(ContainSubstring("auto_scaling")))
		}
		Expect(api.reads()).To(Equal(1))
		clk.Step(time.Minute)
		Expect(learner.Values(ctx)).Error().To(HaveOccurred())
		Expect(api.reads()).To(Equal(2))
	})
	It("should be learned from a pool's server among hundreds of nodes labelled alike", func() {
		for i := range 150 {
			node(fmt.Sprintf("default-%03d", i), map[string]string{"bke.bizflycloud.vn/node-id": "x", "karpenter.sh/nodepool": "general"}, metadata())
		}
		node("pool-1", pool("pool-1"), metadata())
		Expect(provider().Values(ctx)).To(HaveField("Learned", ContainSubstring("node pool-1")))
	})
	It("should be those of the newest server of a pool with hundreds", func() {
		for i := range 110 {
			node(fmt.Sprintf("pool-%03d", i), pool("x"), metadata("bke_cluster_token", "old-token"))
		}
		later("pool-109")
		node("pool-999", pool("x"), metadata())
		Expect(provider().Values(ctx)).To(HaveField("Token", clusterToken))
	})
	It("should be looked for every minute until they are found", func() {
		learner := provider()
		Expect(learner.Values(ctx)).Error().To(HaveOccurred())
		node("hidden", pool("hidden"), metadata("bke_cluster_token", ""))
		for tries := range 30 {
			clk.Step(time.Minute - time.Second)
			Expect(learner.Values(ctx)).Error().To(HaveOccurred())
			Expect(api.reads()).To(Equal(tries), "just before the next try")
			clk.Step(time.Second)
			Expect(learner.Values(ctx)).Error().To(HaveOccurred())
			Expect(api.reads()).To(Equal(tries + 1))
		}
		node("pool-1", pool("pool-1"), metadata())
		clk.Step(time.Minute)
		Expect(learner.Values(ctx)).To(HaveField("Token", clusterToken))
	})
	DescribeTable("should be learned where servers of pools do not have them all", func(mode string, configure func(), learned string) {
		sandbox = cloud.Start(cloud.Options{ClusterToken: clusterToken, Modes: []string{mode}})
		DeferCleanup(sandbox.Close)
		api.API = connect.Client(ctx, sandbox)
		server := sandbox.AddPool("workers")
		Expect(kube.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "workers-1", Labels: pool("workers-1")},
			Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + server.ID}})).To(Succeed())
		configure()
		values := lo.Must(provider().Values(ctx))
		known := sandbox.BKE()
		Expect(values).To(And(HaveField("ClusterID", known.ClusterUID), HaveField("Token", clusterToken), HaveField("JoinEndpoint", known.JoinEndpoint),
			HaveField("Learned", learned)))
	},
		Entry("from the launch configuration, where the cluster is in their metadata", "pool-metadata-without-token", func() {},
			"BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT, BKE_LOG_ENDPOINT learned from the launch configuration of pool workers"),
		Entry("from the launch configuration, where the cluster is known by the name of the API server", "pool-servers-elsewhere",
			func() { config.APIServer = sandbox.BKE().ClusterUID + ".api.k8saas.bizflycloud.vn:443" },
			"BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT, BKE_LOG_ENDPOINT learned from the launch configuration of pool workers"),
		Entry("from the launch configuration of the cluster that is configured", "pool-servers-elsewhere",
			func() { config.Values.ClusterID = sandbox.BKE().ClusterUID },
			"BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT, BKE_LOG_ENDPOINT learned from the launch configuration of pool workers"),
		Entry("from the name of the API server, where the rest is in their metadata", "pool-metadata-without-endpoint",
			func() { config.APIServer = "https://" + sandbox.BKE().ClusterUID + ".api.k8saas.bizflycloud.vn" },
			"BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN learned from the pool server of node workers-1; BKE_JOIN_ENDPOINT learned from the name of the API server"),
		Entry("from the name of the API server, where the token is configured", "pool-servers-elsewhere", func() {
			config.APIServer, config.Values.Token = sandbox.BKE().ClusterUID+".api.k8saas.bizflycloud.vn", clusterToken
		}, "BKE_CLUSTER_ID, BKE_JOIN_ENDPOINT learned from the name of the API server"),
	)
	DescribeTable("should be those of no other cluster that a launch configuration names", func(configure func()) {
		sandbox.AddPool("workers")
		api.configuration = elsewhere()
		configure()
		values, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("the launch configuration of pool workers"),
			ContainSubstring("prodprodprodprod"), Not(ContainSubstring(otherToken)))))
		Expect(values).To(Equal(config.Values))
	},
		Entry("where the name of the API server says which it is",
			func() { config.APIServer = sandbox.BKE().ClusterUID + ".api.k8saas.bizflycloud.vn" }),
		Entry("where the metadata of a pool server does", func() { node("pool-1", pool("pool-1"), metadata("bke_cluster_token", "")) }),
		Entry("where it is configured", func() { config.Values.ClusterID = sandbox.BKE().ClusterUID }),
	)
	It("should be learned from a launch configuration behind many foreign pools without servers", func() {
		sandbox.AddPool("workers")
		api.elsewhere, config.Values.ClusterID = 5, sandbox.BKE().ClusterUID
		Expect(provider().Values(ctx)).To(HaveField("Learned", HaveSuffix("learned from the launch configuration of pool workers")))
	})
	DescribeTable("should not follow from another name of the API server", func(name string) {
		config.APIServer, config.Values.Token = name, clusterToken
		values, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("set BKE_CLUSTER_ID"), Not(ContainSubstring(clusterToken)))))
		Expect(values.ClusterID).To(BeEmpty())
	},
		Entry("none", ""), Entry("an address", "https://10.96.0.1:443"), Entry("a name of the user's own", "kubernetes.example.com:6443"),
		Entry("one of another depth", "zdckkshu1he44fsb.example.com"), Entry("no URL", "https://%"),
	)
	It("should name the source of a cluster that the Kubernetes Engine does not have", func() {
		config.Values.ClusterID, config.Values.Token, config.APIServer = "0123456789abcdef", clusterToken, "0123456789abcdef.api.example.com"
		_, err := provider().Values(ctx)
		Expect(err).To(MatchError(ContainSubstring("reading cluster 0123456789abcdef, which BKE_CLUSTER_ID names")))
	})
	It("should say why neither servers nor launch configurations have them", func() {
		sandbox = cloud.Start(cloud.Options{ClusterToken: clusterToken, OmitServices: []string{"auto_scaling"}})
		DeferCleanup(sandbox.Close)
		api.API, config.Values.ClusterID = connect.Client(ctx, sandbox), sandbox.BKE().ClusterUID
		sandbox.AddPool("workers")
		_, err := provider().Values(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("no node has the label"), ContainSubstring("the launch configuration of pool workers"),
			ContainSubstring("auto_scaling"), Not(ContainSubstring(clusterToken)))))
	})
	It("should be looked for once by many, and the first may go away", func() {
		node("pool-1", pool("pool-1"), metadata())
		learner := provider()
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := learner.Values(gone); err != nil {
			Expect(errors.Is(err, context.Canceled)).To(BeTrue())
		}
		Eventually(func() bool { return learner.Known().Complete() }, "5s").Should(BeTrue())
	})
	It("should never print the token", func() {
		values := bke.Values{ClusterID: "c", Token: clusterToken, JoinEndpoint: "https://e/c"}
		Expect(fmt.Sprintf("%s %v %+v %#v %v", values, values, values, values, &values)).ToNot(ContainSubstring(clusterToken))
	})
})
