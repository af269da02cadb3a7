// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"reflect"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Changing worker pools", func() {
	var sandbox *cloud.Sandbox
	var client *bizfly.Client
	var pool string
	BeforeEach(func() {
		sandbox = startSandbox(cloud.Options{})
		var err error
		client, err = newClient(sandboxConfig(sandbox))
		Expect(err).ToNot(HaveOccurred())
		server := sandbox.AddServer(cloud.ServerSpec{Name: "pool-1-0"})
		pool = sandbox.AddWorkerPool(cloud.PoolSpec{Name: "pool-1", Servers: []string{server.ID}, MinSize: 1, MaxSize: 3})
		sandbox.ResetRequests()
	})
	It("should send that autoscaling is off, and nothing else", func(ctx SpecContext) {
		Expect(client.UpdateWorkerPool(ctx, sandbox.BKE().ClusterUID, pool, bizfly.WorkerPoolChange{EnableAutoscaling: ptr.To(false)})).To(Succeed())
		requests := sandbox.Requests()
		Expect(requests[len(requests)-1]).To(And(HaveField("Method", "PATCH"), HaveField("Body", MatchJSON(`{"enable_autoscaling": false}`))))
		cluster, err := client.GetCluster(ctx, sandbox.BKE().ClusterUID)
		Expect(err).ToNot(HaveOccurred())
		Expect(cluster.WorkerPools).To(HaveExactElements(And(HaveField("EnableAutoScaling", false), HaveField("MaxSize", 3), HaveField("DesiredSize", 1))))
	})
	It("should say what is wrong", func(ctx SpecContext) {
		uid := sandbox.BKE().ClusterUID
		Expect(bizfly.IsNotFound(client.UpdateWorkerPool(ctx, uid, "unknown", bizfly.WorkerPoolChange{}))).To(BeTrue())
		Expect(bizfly.IsInvalid(client.UpdateWorkerPool(ctx, uid, pool, bizfly.WorkerPoolChange{MinSize: ptr.To(2)}))).To(BeTrue(), "the size is 1")
		Expect(bizfly.IsNotSent(client.UpdateWorkerPool(ctx, uid, "../x", bizfly.WorkerPoolChange{}))).To(BeTrue())
	})
	It("should be out of the controller's reach", func() {
		_, listed := reflect.TypeFor[bizfly.API]().MethodByName("UpdateWorkerPool")
		Expect(listed).To(BeFalse())
	})
})
