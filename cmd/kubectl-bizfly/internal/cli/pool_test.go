// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/doctor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("pool", func() {
	// changes are the bodies of what changed something in the cloud.
	changes := func(f *fixture) []string {
		return lo.FilterMap(f.Requests(), func(r cloud.Request, _ int) (string, bool) {
			return string(r.Body), r.Method != http.MethodGet && r.Route != "/api/token"
		})
	}

	It("should list the pools with their sizes, and which of them scale by themselves", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddWorkerPool(cloud.PoolSpec{Name: "fixed", MinSize: 2, MaxSize: 2})
		f.AddWorkerPool(cloud.PoolSpec{Name: "another"})
		f.ResetRequests()
		Expect(f.run("pool", "list")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(MatchRegexp(`(?m)^another .* 0 +0 +0 +off `), MatchRegexp(`(?m)^fixed .* 0 +2 +2 +on, pinned `),
			MatchRegexp(`(?m)^pool-1 .* nix\.2c_4g +HN1 +1 +1 +3 +on +PROVISIONED`)))
		Expect(changes(f)).To(BeEmpty())
		pools := answer[[]pool.Pool](f, "pool", "list")
		Expect(lo.Map(pools, func(p pool.Pool, _ int) bool { return p.Scales() })).To(Equal([]bool{false, false, true}))
	})

	It("should switch the autoscaling of a pool off, read it back, and show the way back", func() {
		f := newFixture()
		addAutoscalingPool(f)
		id := answer[[]pool.Pool](f, "pool", "list")[0].ID
		f.ResetRequests()
		Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(Equal("pool-1: sent enable_autoscaling: false; read back: autoscaling off, 1 node\n" +
			fmt.Sprintf("The way back: bizfly kubernetes workerpool update %s %s --autoscaling=true --min-size 1 --max-size 3\n", f.BKE().ClusterUID, id)))
		Expect(changes(f)).To(HaveExactElements(MatchJSON(`{"enable_autoscaling": false}`)))
		Expect(codesOf(answer[doctor.Report](f, "doctor"))).ToNot(ContainElement("WorkerPoolAutoscaling"))
	})

	It("should set both sizes to the present one where the cloud keeps autoscaling on", func() {
		f := newFixture("pools-keep-autoscaling")
		addAutoscalingPool(f)
		f.ResetRequests()
		results := answer[[]pool.Result](f, "pool", "pin", "pool-1", "--yes")
		Expect(results).To(HaveExactElements(And(
			HaveField("Before.MaxSize", 3), HaveField("After", And(HaveField("Autoscaling", true), HaveField("MinSize", 1), HaveField("MaxSize", 1))),
			HaveField("Steps", HaveExactElements(
				"sent enable_autoscaling: false; read back: autoscaling on, 1 node, 1 to 3",
				"sent desired_size, min_size and max_size: 1; read back: autoscaling on, 1 node, 1 to 1")),
		)))
		Expect(changes(f)).To(HaveExactElements(MatchJSON(`{"enable_autoscaling": false}`), MatchJSON(`{"desired_size": 1, "min_size": 1, "max_size": 1}`)))
		Expect(codesOf(answer[doctor.Report](f, "doctor"))).ToNot(ContainElement("WorkerPoolAutoscaling"))
	})

	It("should set the sizes where the cloud rejects that autoscaling is off", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddFaults(1, cloud.Fault{Method: http.MethodPatch, Effect: cloud.EffectStatus, Count: 1, Status: http.StatusBadRequest,
			Message: "enable_autoscaling is not valid"})
		Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("BizFly Cloud rejected it"), ContainSubstring("read back: autoscaling on, 1 node, 1 to 1")))
	})

	It("should find out by what it reads back where the answer is lost", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddFaults(1, cloud.Fault{Method: http.MethodPatch, Effect: cloud.EffectLostResponse, Count: 1})
		Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("read back: autoscaling off, 1 node"))
	})

	It("should report a change that could not be sent", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddFaults(1, cloud.Fault{Method: http.MethodPatch, Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: "not allowed"})
		Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("changing the worker pool pool-1"))
		Expect(f.out).To(BeEmpty())
	})

	It("should report that there is no pool", func() {
		Expect(newFixture().run("pool", "pin", "--all", "--yes")).To(Equal(cli.ExitFailure))
	})

	It("should fail where a pool still scales, and name the console", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddFaults(1, cloud.Fault{Method: http.MethodPatch, Effect: cloud.EffectStatus, Status: http.StatusBadRequest, Message: "not valid"})
		Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("still scales by itself (autoscaling on, 1 node, 1 to 3): switch its autoscaling off in the BizFly Cloud console"))
	})

	It("should leave alone what does not scale", func() {
		f := newFixture()
		id := f.AddWorkerPool(cloud.PoolSpec{Name: "fixed", MinSize: 2, MaxSize: 2})
		f.ResetRequests()
		Expect(f.run("pool", "pin", id, "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(Equal("fixed: nothing to change: autoscaling on, 0 nodes, 2 to 2\n"))
		Expect(changes(f)).To(BeEmpty())
	})

	It("should pin all pools at once", func() {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddWorkerPool(cloud.PoolSpec{Name: "apps", Servers: []string{f.AddServer(cloud.ServerSpec{Name: "apps-0"}).ID}, MinSize: 1, MaxSize: 9})
		f.ResetRequests()
		Expect(f.run("pool", "pin", "--all", "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(changes(f)).To(HaveLen(2))
		Expect(answer[[]pool.Pool](f, "pool", "list")).To(HaveEach(HaveField("Autoscaling", false)))
	})

	It("should change nothing without --yes, and say what to run", func() {
		f := newFixture()
		addAutoscalingPool(f)
		id := answer[[]pool.Pool](f, "pool", "list")[0].ID
		f.ResetRequests()
		Expect(f.run("pool", "pin", "pool-1", "-n", "shop")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(Equal("pool-1 would not scale by itself any more (autoscaling on, 1 node, 1 to 3)\n" +
			"Nothing was changed. To do it, run: kubectl bizfly pool pin " + id + " --yes --namespace shop\n"))
		Expect(changes(f)).To(BeEmpty())
	})

	DescribeTable("should say what is wrong with its arguments", func(said string, args ...string) {
		f := newFixture()
		addAutoscalingPool(f)
		f.AddWorkerPool(cloud.PoolSpec{Name: "twin"})
		f.AddWorkerPool(cloud.PoolSpec{Name: "twin"})
		f.ResetRequests()
		Expect(f.run(append([]string{"pool"}, args...)...)).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring(said))
		Expect(changes(f)).To(BeEmpty())
	},
		Entry("no pool", "--all", "pin", "--yes"), Entry("a pool and all", "--all", "pin", "pool-1", "--all", "--yes"),
		Entry("an unknown pool", `no worker pool "x", it has pool-1, twin, twin`, "pin", "x", "--yes"),
		Entry("a name of two pools", "name one by its id", "pin", "twin", "--yes"),
	)

	// tenants is a Deployment with the controller's label that names a BKE cluster, as one tenant may create it before the installation.
	tenants := func(f *fixture, cluster string) {
		d := f.controller(corev1.EnvVar{Name: "BKE_CLUSTER_ID", Value: cluster})
		d.Namespace = "apps"
		d.Spec.Template.Spec.Containers[0].Args = []string{"--bke-cluster-id=" + cluster}
		f.put(d)
	}
	// nameless leaves the BKE cluster out of the user's environment.
	nameless := func() {
		for _, name := range []string{"BKE_CLUSTER_ID", "BKE_CLUSTER_TOKEN", "BKE_JOIN_ENDPOINT"} {
			unsetEnv(name)
		}
	}
	// poolNode is a node of the BKE cluster's pools, whose server names the cluster.
	poolNode := func(f *fixture) {
		bke := f.BKE()
		server := f.AddServer(cloud.ServerSpec{Name: "pool-1-1", Metadata: map[string]string{
			"bke_cluster_id": bke.ClusterUID, "bke_cluster_token": bke.ClusterToken, "bke_join_endpoint": bke.JoinEndpoint,
		}})
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pool-1-1", Labels: map[string]string{"bke.bizflycloud.vn/node-id": "n"}},
			Spec: corev1.NodeSpec{ProviderID: "bizflycloud://" + server.ID}})
	}

	It("should not change the pools of a BKE cluster that only a Deployment names", func() {
		f := newFixture()
		addAutoscalingPool(f)
		nameless()
		tenants(f, f.BKE().ClusterUID)
		f.ResetRequests()
		Expect(f.run("pool", "pin", "--all", "--yes")).To(Equal(cli.ExitFailure), f.out)
		Expect(f.err).To(ContainSubstring("set BKE_CLUSTER_ID"))
		Expect(changes(f)).To(BeEmpty())
	})

	It("should print the BKE cluster that it changes: that of the pool's server", func() {
		f := newFixture()
		addAutoscalingPool(f)
		nameless()
		tenants(f, "aaaaaaaaaaaaaaaa")
		poolNode(f)
		Expect(f.run("pool", "pin", "--all", "--yes")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(Equal("BKE cluster: " + f.BKE().ClusterUID + "\n"))
		Expect(answer[[]pool.Pool](f, "pool", "list")).To(HaveEach(HaveField("Autoscaling", false)))
		Expect(f.Requests()).ToNot(ContainElement(HaveField("Path", ContainSubstring("aaaaaaaaaaaaaaaa"))))
	})

	It("should find the cluster by a server of its pools where nothing names it", func() {
		f := newFixture()
		addAutoscalingPool(f)
		poolNode(f)
		nameless()
		Expect(f.run("pool", "list")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("pool-1"))
		f.reader = nil
		Expect(f.run("pool", "list")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("set BKE_CLUSTER_ID"))
	})
})
