// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Worker pools", func() {
	ctx := context.Background()
	var b *box
	var uid string
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		uid = b.BKE().ClusterUID
	})
	pool := func() gobizfly.WorkerPool {
		return gobizfly.WorkerPool{
			Name: "workers", Flavor: "p2.2c_4g", ProfileType: "premium", VolumeType: "PREMIUM-SSD1", VolumeSize: 40, AvailabilityZone: "HN1", DesiredSize: 2,
			Labels: map[string]string{"team": "ml"}, Taints: []gobizfly.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}, BillingPlan: "on_demand",
		}
	}
	add := func(p gobizfly.WorkerPool) (*gobizfly.ExtendedWorkerPool, error) {
		GinkgoHelper()
		made, err := b.client.KubernetesEngine.AddWorkerPools(ctx, uid, &gobizfly.AddWorkerPoolsRequest{WorkerPools: []gobizfly.WorkerPool{p}})
		if err != nil {
			return nil, err
		}
		return made[0], nil
	}
	get := func(id string) *gobizfly.WorkerPoolWithNodes {
		GinkgoHelper()
		p, err := b.client.KubernetesEngine.GetClusterWorkerPool(ctx, uid, id)
		Expect(err).ToNot(HaveOccurred())
		return p
	}

	It("should be servers that join the cluster, and grow, shrink and go", func() {
		made, err := add(pool())
		Expect(err).ToNot(HaveOccurred())
		Expect(made).To(And(HaveField("ProvisionStatus", "PENDING_PROVISION"), HaveField("ShootID", uid)))
		b.Advance(latency)
		detail := get(made.UID)
		Expect(detail.ProvisionStatus).To(Equal("PROVISIONED"))
		Expect(detail.Nodes).To(HaveLen(2))
		Expect(detail.Nodes).To(HaveEach(And(HaveField("Status", "ACTIVE"), HaveField("IPAddresses", HaveLen(1)))))
		first := b.Servers()[0]
		Expect(first).To(And(HaveField("ID", detail.Nodes[0].PhysicalID), HaveField("Name", detail.Nodes[0].Name),
			HaveField("Metadata", And(HaveKeyWithValue("bke_pool_id", made.UID), HaveKeyWithValue("bke_cluster_id", uid)))))
		Expect(first.Truth.UserData).To(And(ContainSubstring("bke.bizflycloud.vn/node-id="+detail.Nodes[0].ID), ContainSubstring("team=ml"),
			ContainSubstring("--register-with-taints=gpu=yes:NoSchedule"), ContainSubstring("bootstrap.sh")))

		cluster, err := b.client.KubernetesEngine.Get(ctx, uid)
		Expect(err).ToNot(HaveOccurred())
		Expect(cluster.WorkerPools).To(HaveExactElements(HaveField("UID", made.UID)))
		Expect(b.client.KubernetesEngine.UpdateClusterWorkerPool(ctx, uid, made.UID, &gobizfly.UpdateWorkerPoolRequest{DesiredSize: 3})).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveLen(3))
		Expect(b.client.KubernetesEngine.UpdateClusterWorkerPool(ctx, uid, made.UID, &gobizfly.UpdateWorkerPoolRequest{DesiredSize: 1})).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveExactElements(HaveField("ID", detail.Nodes[0].ID)))
		Expect(b.State().Volumes).To(HaveLen(1), "root disks go with their nodes")

		Expect(b.client.KubernetesEngine.RecycleNode(ctx, uid, made.UID, detail.Nodes[0].PhysicalID)).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveExactElements(HaveField("ID", Not(Equal(detail.Nodes[0].ID)))))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPool(ctx, uid, made.UID)).To(Succeed())
		b.Advance(latency)
		Expect(b.Servers()).To(BeEmpty())
		_, err = b.client.KubernetesEngine.GetDetailWorkerPool(ctx, made.UID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
	})

	It("should scale by themselves or not, between their sizes", func() {
		made, err := add(pool())
		Expect(err).ToNot(HaveOccurred())
		update := func(body map[string]any) answer {
			return b.call(http.MethodPatch, "/api/kubernetes-engine/_/"+uid+"/"+made.UID, body)
		}
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 3, "max_size": 5}).status).To(Equal(400), "the size is 2")
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 2, "max_size": 5}).object()).To(HaveKeyWithValue("enable_autoscaling", true))
		b.Advance(latency)
		node := get(made.UID).Nodes[0]
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.PhysicalID)).To(MatchError(gobizfly.ErrNotFound))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.ID)).To(MatchError(ContainSubstring("least size")))
		Expect(update(map[string]any{"enable_autoscaling": false}).object()).To(HaveKeyWithValue("enable_autoscaling", false))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.ID)).To(Succeed())
		Expect(get(made.UID)).To(And(HaveField("DesiredSize", 1), HaveField("Nodes", HaveLen(1))))
		Expect(update(map[string]any{"update_strategy": "recreate"}).status).To(Equal(400))
	})

	It("should be made of servers that exist, and scale between sizes that are given", func() {
		servers := []string{b.AddServer(cloud.ServerSpec{Name: "a"}).ID, b.AddServer(cloud.ServerSpec{Name: "b"}).ID}
		made := get(b.AddWorkerPool(cloud.PoolSpec{Name: "static", Servers: servers, MinSize: 1, MaxSize: 3}))
		Expect(made.WorkerPool).To(And(HaveField("Name", "static"), HaveField("DesiredSize", 2), HaveField("EnableAutoScaling", true),
			HaveField("MinSize", 1), HaveField("MaxSize", 3)))
		Expect(made.Nodes).To(HaveExactElements(HaveField("PhysicalID", servers[0]), HaveField("PhysicalID", servers[1])))
		Expect(get(b.AddWorkerPool(cloud.PoolSpec{Name: "empty"})).EnableAutoScaling).To(BeFalse())
		Expect(func() { b.AddWorkerPool(cloud.PoolSpec{Name: "x", Servers: []string{"nowhere"}}) }).To(PanicWith(ContainSubstring("nowhere")))
	})

	It("should keep what a change leaves out, in one mode also autoscaling switched off", func() {
		b = newBox(cloud.Options{Modes: []string{"pools-keep-autoscaling"}})
		id := b.AddWorkerPool(cloud.PoolSpec{Name: "static", Servers: []string{b.AddServer(cloud.ServerSpec{Name: "a"}).ID}, MinSize: 1, MaxSize: 3})
		for _, body := range []map[string]any{{}, {"enable_autoscaling": false}} {
			changed := b.call(http.MethodPatch, "/api/kubernetes-engine/_/"+b.BKE().ClusterUID+"/"+id, body)
			Expect(changed.object()).To(And(HaveKeyWithValue("enable_autoscaling", true), HaveKeyWithValue("max_size", 3.0), HaveKeyWithValue("desired_size", 1.0)))
		}
	})

	DescribeTable("should be rejected as a create request of servers is", func(change func(*gobizfly.WorkerPool), said string) {
		p := pool()
		change(&p)
		_, err := add(p)
		Expect(err).To(MatchError(ContainSubstring(said)))
		Expect(b.Servers()).To(BeEmpty())
	},
		Entry("an unknown flavor", func(p *gobizfly.WorkerPool) { p.Flavor = "x" }, "could not be found"),
		Entry("another region's zone", func(p *gobizfly.WorkerPool) { p.AvailabilityZone = "HCM1" }, "availability zone"),
		Entry("an unknown version", func(p *gobizfly.WorkerPool) { p.Version = "v1.2.3" }, "Version v1.2.3"),
		Entry("a version without an image", func(p *gobizfly.WorkerPool) { p.Version = "v1.35.1" }, "Version v1.35.1"),
		Entry("more than the package allows", func(p *gobizfly.WorkerPool) { p.DesiredSize = 51 }, "allows 50 nodes"),
		Entry("a name that no node can have", func(p *gobizfly.WorkerPool) { p.Name = "Workers" }, "name"),
	)

	It("should have packages and a kubeconfig", func() {
		packages, err := b.client.KubernetesEngine.GetPackages(ctx, "standard")
		Expect(err).ToNot(HaveOccurred())
		Expect(packages.Packages).To(HaveLen(2))
		path := "/api/kubernetes-engine/_/" + uid
		Expect(b.client.KubernetesEngine.UpgradePackage(ctx, uid, &gobizfly.UpgradePackageRequest{NewPackage: packages.Packages[1].ID})).To(Succeed())
		Expect(b.get(path).object()["package"]).To(HaveKeyWithValue("max_nodes", 10.0))
		Expect(b.call(http.MethodPost, path+"/package/upgrade", map[string]any{"new_package": "x"}).status).To(Equal(400))
		config, err := b.client.KubernetesEngine.GetKubeConfig(ctx, uid, &gobizfly.GetKubeConfigOptions{ExpiteTime: "3600"})
		Expect(err).ToNot(HaveOccurred())
		Expect(config).To(And(HavePrefix("# expires 2026-03-04T06:06:07Z\napiVersion: v1\n"), ContainSubstring("server: https://"+uid+".api.k8saas.bizflycloud.vn")))
		Expect(string(newBox(cloud.Options{Kubeconfig: "mine"}).get(path + "/kubeconfig").body)).To(Equal("mine"))
		Expect(b.get("/api/kubernetes-engine/_/unknown/kubeconfig").status).To(Equal(404))
	})
})
