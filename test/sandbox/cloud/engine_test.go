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
	get := func(id string) *gobizfly.WorkerPoolWithNodes {
		GinkgoHelper()
		p, err := b.client.KubernetesEngine.GetClusterWorkerPool(ctx, uid, id)
		Expect(err).ToNot(HaveOccurred())
		return p
	}

	It("should scale by themselves or not, between their sizes", func() {
		made := b.AddWorkerPool(cloud.PoolSpec{Name: "workers", Servers: []string{
			b.AddServer(cloud.ServerSpec{Name: "a"}).ID, b.AddServer(cloud.ServerSpec{Name: "b"}).ID,
		}})
		update := func(body map[string]any) answer {
			return b.call(http.MethodPatch, "/api/kubernetes-engine/_/"+uid+"/"+made, body)
		}
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 3, "max_size": 5}).status).To(Equal(400), "the size is 2")
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 2, "max_size": 5}).object()).To(HaveKeyWithValue("enable_autoscaling", true))
		b.Advance(latency)
		node := get(made).Nodes[0]
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made, node.PhysicalID)).To(MatchError(gobizfly.ErrNotFound))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made, node.ID)).To(MatchError(ContainSubstring("least size")))
		Expect(update(map[string]any{"enable_autoscaling": false}).object()).To(HaveKeyWithValue("enable_autoscaling", false))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made, node.ID)).To(Succeed())
		Expect(get(made)).To(And(HaveField("DesiredSize", 1), HaveField("Nodes", HaveLen(1))))
		Expect(update(map[string]any{"update_strategy": "recreate"}).status).To(Equal(400))
		Expect(update(map[string]any{"desired_size": 51}).status).To(Equal(400), "the package allows 50 nodes")
		Expect(update(map[string]any{"desired_size": 2, "labels": map[string]string{"team": "ml"}, "taints": []map[string]string{
			{"key": "gpu", "value": "yes", "effect": "NoSchedule"}}}).status).To(Equal(200))
		b.Advance(latency)
		Expect(get(made).Nodes).To(HaveExactElements(HaveField("Name", "b"), And(HaveField("Status", "ACTIVE"), HaveField("IPAddresses", HaveLen(1)))))
		grown := b.Servers()[1]
		Expect(grown.Metadata).To(And(HaveKeyWithValue("bke_pool_id", made), HaveKeyWithValue("bke_cluster_id", uid)))
		Expect(grown.Truth.UserData).To(And(ContainSubstring("bke.bizflycloud.vn/node-id="+get(made).Nodes[1].ID), ContainSubstring("team=ml"),
			ContainSubstring("--register-with-taints=gpu=yes:NoSchedule"), ContainSubstring("bootstrap.sh")))
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
})
