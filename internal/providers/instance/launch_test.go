// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var ctx = context.Background()

var _ = Describe("Launch", func() {
	DescribeTable("should put each field on the wire",
		func(field string, want func(*world) any, changes ...func(*instance.LaunchRequest)) {
			w := newWorld(cloud.Options{})
			w.launch(changes...)
			Expect(w.created()).To(HaveLen(1))
			var value any = w.created()[0]
			for _, key := range strings.Split(field, "/") {
				value = value.(map[string]any)[key]
			}
			Expect(value).To(BeEquivalentTo(want(w)))
		},
		Entry("name", "name", is(instance.Name(claimName, claimUID, clusterUID, 1))),
		Entry("flavor, verbatim", "flavor", is("nix.2c_4g"), func(r *instance.LaunchRequest) { r.Flavor = "nix.2c_4g" }),
		Entry("category", "type", is("premium")),
		Entry("zone", "availability_zone", is("HN2"), func(r *instance.LaunchRequest) { r.Zone = "HN2" }),
		Entry("billing plan", "billing_plan", is("on_demand")),
		Entry("quantity", "quantity", is(1)),
		Entry("image", "os/id", func(w *world) any { return w.nodeClass().Status.Image().ID }),
		Entry("kind of image", "os/type", is("image")),
		Entry("default root disk", "rootdisk/size", is(40)),
		Entry("root disk's size", "rootdisk/size", is(60), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("60Gi"))}
		}),
		Entry("default medium", "rootdisk/volume_type", is("PREMIUM-SSD1")),
		Entry("medium", "rootdisk/volume_type", is("PREMIUM-HDD1"), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumHDD}
		}),
		Entry("volume type by name", "rootdisk/volume_type", is("PREMIUM-HDD1"), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.RootDisk = &v1alpha1.RootDisk{VolumeType: "PREMIUM-HDD1"}
		}),
		Entry("networks", "vpc_network_ids", func(w *world) any { return []any{w.box.BKE().NetworkID} }),
		Entry("default network plan", "network_plan", is("free_datatransfer")),
		Entry("network plan", "network_plan", is("free_bandwidth"), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.NetworkPlan = v1alpha1.NetworkPlanFreeBandwidth
		}),
		Entry("public address, by default", "is_created_wan", is(true)),
		Entry("no public address", "is_created_wan", is(false), func(r *instance.LaunchRequest) { r.NodeClass.Spec.PublicIPv4 = lo.ToPtr(false) }),
		Entry("no password", "password", is(false)),
		Entry("SSH key", "sshkey", is("ops"), func(r *instance.LaunchRequest) { r.NodeClass.Status.SSHKeyName = "ops" }),
		Entry("user data", "user_data", is("#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.MetadataOptions = &v1alpha1.MetadataOptions{PodAccess: v1alpha1.PodAccessAllowed}
		}),
		Entry("bootstrap metadata", "metadata/bke_cluster_id", func(w *world) any { return w.box.BKE().ClusterUID }),
		Entry("the user's metadata", "metadata/team", is("payments"), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.Tags = map[string]string{"team": "payments"}
		}),
		Entry("the managed mark", "metadata/bizfly-karpenter-managed", is("true")),
		Entry("the cluster's name", "metadata/bizfly-karpenter-cluster-name", is(clusterName)),
		Entry("the cluster's UID", "metadata/bizfly-karpenter-cluster-uid", is(clusterUID)),
		Entry("the claim's name", "metadata/bizfly-karpenter-nodeclaim", is(claimName)),
		Entry("the claim's UID", "metadata/bizfly-karpenter-nodeclaim-uid", is(claimUID)),
		Entry("the attempt", "metadata/bizfly-karpenter-attempt", is("3"), func(r *instance.LaunchRequest) { r.Attempt = 3 }),
		Entry("the NodePool", "metadata/bizfly-karpenter-nodepool", is("default")),
		Entry("the NodeClass", "metadata/bizfly-karpenter-nodeclass", is("default")),
		Entry("the image's id", "metadata/bizfly-karpenter-image", func(w *world) any { return w.nodeClass().Status.Image().ID }),
		Entry("our metadata over the user's", "metadata/bizfly-karpenter-cluster-uid", is(clusterUID), func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.Tags = map[string]string{v1alpha1.MetadataClusterUID: "stolen"}
		}),
		Entry("the bootstrap's metadata over the user's", "metadata/bke_cluster_id", func(w *world) any { return w.box.BKE().ClusterUID },
			func(r *instance.LaunchRequest) {
				r.NodeClass.Spec.Tags = map[string]string{"bke_cluster_id": "stolen"}
			}),
	)
	It("should put the firewalls on the wire", func() {
		w := newWorld(cloud.Options{})
		firewalls := w.box.Options().Catalog.Firewalls["HN"]
		w.launch(func(r *instance.LaunchRequest) {
			r.NodeClass.Status.Firewalls = []v1alpha1.FirewallStatus{{ID: firewalls[0].ID}, {ID: firewalls[1].ID}}
		})
		Expect(w.created()[0]["firewalls"]).To(Equal([]any{firewalls[0].ID, firewalls[1].ID}))
	})
	It("should leave out what a standalone claim does not have", func() {
		w := newWorld(cloud.Options{})
		w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.Labels = nil })
		Expect(w.created()[0]["metadata"]).NotTo(HaveKey(v1alpha1.MetadataNodePool))
	})
	It("should describe the server without the join token", func() {
		w := newWorld(cloud.Options{})
		server, intent := w.launch()
		Expect(server.Name).To(Equal(intent.Name))
		Expect(server.Flavor).To(Equal("p2.2c_4g"))
		Expect(server.Zone).To(Equal("HN1"))
		Expect(server.BillingPlan).To(Equal("on_demand"))
		Expect(server.ImageID).To(Equal(w.nodeClass().Status.Image().ID))
		Expect([]string{server.ClusterUID, server.NodeClaim, server.NodeClaimUID, server.NodePool, server.NodeClass}).
			To(Equal([]string{clusterUID, claimName, claimUID, "default", "default"}))
		Expect(server.Attempt).To(Equal(1))
		Expect(server.CreatedAt).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(server.Volumes).To(ConsistOf(HaveField("Root", true)))
		Expect(server.Volumes[0].SizeGiB).To(Equal(40))
		Expect(fmt.Sprintf("%+v", *server)).NotTo(ContainSubstring(w.box.BKE().ClusterToken))
	})

	It("should name server and request before it is sent, and return the task with the server", func() {
		w := newWorld(cloud.Options{})
		request, _ := w.request()
		intent, err := w.provider.Intent(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.box.Requests()).To(BeEmpty())
		Expect(intent.Name).To(Equal(ownName))
		Expect(intent.RequestedAt).To(BeTemporally("~", time.Now(), time.Minute))
		Expect([]string{intent.Flavor, intent.Zone, intent.BillingPlan, intent.ImageID, intent.TaskID}).
			To(Equal([]string{"p2.2c_4g", "HN1", "on_demand", w.nodeClass().Status.Image().ID, ""}))
		_, intent, err = w.provider.Launch(ctx, request, intent)
		Expect(err).NotTo(HaveOccurred())
		Expect(intent.TaskID).To(Equal(w.box.State().Tasks[0].ID))
	})
	It("should return that a create request was rejected", func() {
		w := newWorld(cloud.Options{})
		w.box.SetStock("", "", "", 0)
		request, written := w.request()
		_, _, err := send(ctx, w.provider, request, written)
		Expect(ofClass(bizfly.ClassCapacity)(err)).To(BeTrue())
		Expect(written.last().Rejected).To(BeTrue())
		Expect(w.leftovers()).To(BeEmpty())
	})

	DescribeTable("should return a rejection with its class",
		func(fault cloud.Fault, is func(error) bool) {
			w := newWorld(cloud.Options{})
			fault.Method, fault.Path = "POST", "/servers"
			w.box.AddFaults(1, fault)
			request, _ := w.request()
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(is(err)).To(BeTrue(), "%v", err)
			Expect(w.count(createServer)).To(Equal(1))
			Expect(w.leftovers()).To(BeEmpty())
		},
		Entry("no room", cloud.Fault{Effect: cloud.EffectNoCapacity}, ofClass(bizfly.ClassCapacity)),
		Entry("quota", cloud.Fault{Effect: cloud.EffectQuota}, ofClass(bizfly.ClassQuota)),
		Entry("balance", cloud.Fault{Effect: cloud.EffectBalance}, ofClass(bizfly.ClassBalance)),
		Entry("throttled", cloud.Fault{Effect: cloud.EffectThrottle}, ofClass(bizfly.ClassThrottled)),
	)
	DescribeTable("should send no create request that cannot work",
		func(change func(*instance.LaunchRequest), message string) {
			w := newWorld(cloud.Options{})
			request, _ := w.request(change)
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(w.count(createServer)).To(BeZero())
		},
		Entry("a medium that the zone does not sell", func(r *instance.LaunchRequest) {
			r.Category, r.Zone, r.NodeClass.Spec.RootDisk = "dedicated", "HN2", &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumHDD}
		}, "zone HN2 has no such disks for dedicated servers"),
		Entry("an image that was not found", func(r *instance.LaunchRequest) { r.NodeClass.Status.Images = nil }, "image"),
		Entry("a tag that metadata does not hold, instead of cutting it", func(r *instance.LaunchRequest) {
			r.NodeClass.Spec.Tags = map[string]string{"team": strings.Repeat("é", 128)}
		}, "the value of team is 256 bytes long and server metadata holds 255"),
	)
	It("should fail closed without the cluster's UID", func() {
		w := newWorld(cloud.Options{}, func(c *instance.Config) { c.ClusterUID = "" })
		request, _ := w.request()
		_, _, err := send(ctx, w.provider, request, nil)
		Expect(err).To(MatchError(ContainSubstring("kube-system")))
		_, err = w.provider.Resume(ctx, claimUID, w.intent())
		Expect(err).To(HaveOccurred())
		_, err = w.provider.List(ctx)
		Expect(err).To(HaveOccurred())
		_, err = w.provider.Get(ctx, "some-server")
		Expect(err).To(HaveOccurred())
		Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: "some-server"})).NotTo(MatchError(instance.ErrNotFound))
		Expect(collectOnce(w.provider)).NotTo(Succeed())
		Expect(w.box.Requests()).To(BeEmpty())
	})

	Context("finding the server", func() {
		It("should find it by a name with a code appended, and delete it with what it leaves", func() {
			w := newWorld(cloud.Options{AppendNameCode: true})
			server, intent := w.launch(withDataDisks)
			Expect(server.Name).To(MatchRegexp("^" + intent.Name + "-[0-9A-Za-z]{8}$"))
			Expect(server.NameProven).To(BeTrue())
			resumed := lo.Must(w.restart().Resume(ctx, claimUID, intent))
			Expect(resumed.ID).To(Equal(server.ID))
			w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID, Node: strings.ToLower(server.Name)})
			Expect(w.leftovers()).To(BeEmpty(), "its data disks are named after it too")
			Eventually(leftNodes(w)).Should(Equal([]string{strings.ToLower(server.Name)}))

			again, _ := w.launch()
			Expect(w.box.RemoveServer(again.ID)).To(Succeed())
			w.deletedWithLeftovers(w.restart(), instance.DeleteRequest{ID: again.ID})
			Expect(w.leftovers()).To(BeEmpty())
		})
		It("should find it under another name, and delete it with what was recorded of it", func() {
			w := newWorld(cloud.Options{ChangeNames: true})
			server, intent := w.launch(withDataDisks)
			Expect(server.Name).NotTo(ContainSubstring(intent.Name))
			Expect(server.NameProven).To(BeFalse())
			resumed := lo.Must(w.restart().Resume(ctx, claimUID, intent))
			Expect(resumed.ID).To(Equal(server.ID))
			recorded := lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })
			w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID, RecordedVolumes: recorded})
			Expect(w.leftovers()).To(BeEmpty())
		})
		It("should not wait for the server to run", func() {
			w := newWorld(cloud.Options{Latency: time.Hour})
			server, _ := w.launch()
			Expect(server.Status).To(Equal(instance.StatusBuild))
		})
		It("should find it where servers are listed only at the end of their task", func() {
			w := newWorld(cloud.Options{Latency: 100 * time.Millisecond, HideBuilding: true})
			server, _ := w.launch()
			Expect(server.Status).To(Equal(instance.StatusActive))
		})
		It("should find it by its task while the list is stale", func() {
			w := newWorld(cloud.Options{})
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
			server, _ := w.launch()
			Expect(server.ID).To(Equal(w.box.Servers()[0].ID))
		})
		DescribeTable("should find it by its metadata",
			func(fault cloud.Fault) {
				w := newWorld(cloud.Options{})
				w.box.AddFaults(1, fault)
				server, _ := w.launch()
				Expect(w.box.Servers()).To(HaveLen(1))
				Expect(server.ID).To(Equal(w.box.Servers()[0].ID))
			},
			Entry("when the answer was lost", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectLostResponse}),
			Entry("when the answer names no task", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectEmptyTask}),
			Entry("when the answer is a page of the gateway", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectHTML, Status: 502, Commit: true}),
			Entry("when the answer is cut short", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTruncated}),
			Entry("when the task does not exist", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTask404}),
			Entry("when the task has no result", cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTaskNull}),
			Entry("when the first lists fail", cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectStatus, Status: 400, Count: 3}),
			Entry("when the token has expired", cloud.Fault{Effect: cloud.EffectUnauthorized, Count: 1}),
		)
		It("should return in time and leave the rest to Resume", func() {
			w := newWorld(cloud.Options{Latency: time.Hour, HideBuilding: true}, func(c *instance.Config) {
				c.Settings = times(func(o *options.Options) { o.ServerIDWait = 50 * time.Millisecond })
			})
			request, written := w.request()
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			Expect(written.last().TaskID).NotTo(BeEmpty())
			quiet()
		})
		It("should leave it to Resume to report the outcome as unknown", func() {
			w := newWorld(cloud.Options{}, func(c *instance.Config) {
				c.Settings = times(func(o *options.Options) { o.ServerIDWait, o.VisibilityWindow = 100*time.Millisecond, time.Nanosecond })
			})
			w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectReset})
			request, written := w.request()
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			Expect(written.last().Rejected).To(BeFalse())
			_, err = w.provider.Resume(ctx, claimUID, written.last())
			Expect(err).To(MatchError(instance.ErrOutcomeUnknown))
			Expect(w.box.Servers()).To(BeEmpty())
		})
		It("should return when its context ends", func() {
			w := newWorld(cloud.Options{Latency: time.Hour, HideBuilding: true})
			request, _ := w.request()
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			done := make(chan error, 1)
			go func() { _, _, err := send(short, w.provider, request, nil); done <- err }()
			Eventually(func() int { return w.count(listServers) }).Should(BeNumerically(">", 0))
			cancel()
			Eventually(done).Should(Receive(And(MatchError(instance.ErrAwaitingServerID), MatchError(context.Canceled))))
			quiet()
		})
	})

	It("should count launches by their outcome", func() {
		w := newWorld(cloud.Options{})
		launched, rejected := launches("launched"), launches("rejected")
		w.launch(func(r *instance.LaunchRequest) { r.Zone = "HN2" })
		w.box.SetStock("", "HN2", "", 0)
		request, _ := w.request(func(r *instance.LaunchRequest) { r.Zone, r.Attempt = "HN2", 2 })
		_, _, err := send(ctx, w.provider, request, nil)
		Expect(err).To(HaveOccurred())
		Expect(launches("launched") - launched).To(BeEquivalentTo(1))
		Expect(launches("rejected") - rejected).To(BeEquivalentTo(1))
	})
	It("should find the servers of all but a few launches while the cloud hangs for tasks", func() {
		const launches, hanging = 40, 4
		w := newWorld(cloud.Options{Latency: 300 * time.Millisecond, HideBuilding: true}, soon)
		w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectDelay, Delay: time.Hour})
		var wait sync.WaitGroup
		var found atomic.Int32
		for i := range launches {
			wait.Go(func() {
				request, _ := w.request(func(r *instance.LaunchRequest) {
					r.NodeClaim.Name, r.NodeClaim.UID = fmt.Sprintf("default-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
				})
				if _, _, err := send(ctx, w.provider, request, nil); err == nil {
					found.Add(1)
				}
			})
		}
		wait.Wait()
		Expect(w.count(getTask)).To(BeNumerically("<=", hanging))
		Expect(found.Load()).To(BeNumerically(">=", launches-hanging))
	})
	It("should find its server while a cloud hangs for single servers that are removed", func() {
		w := newWorld(cloud.Options{}, soon)
		w.client = connect.Client(ctx, w.box) // with the limits of every installation
		w.provider = w.restart()
		w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers/*", Effect: cloud.EffectDelay, Delay: time.Hour})
		removing, stop := context.WithCancel(ctx)
		var wait sync.WaitGroup
		DeferCleanup(func() { stop(); wait.Wait() })
		for i := range 60 {
			wait.Go(func() {
				_ = w.provider.Delete(removing, instance.DeleteRequest{ID: fmt.Sprintf("71b9caeb-0000-4000-8000-%012d", i)})
			})
		}
		Eventually(func() int { return w.count(getServer) }).Should(BeNumerically(">=", 10))
		w.launch()
	})
})

// soon lets a launch wait for less than the client's own deadline for a read that hangs.
func soon(c *instance.Config) {
	c.Settings = times(func(o *options.Options) { o.ServerIDWait = 10 * time.Second })
}

// quiet waits until nothing of a provider runs that could read servers or tasks. What hangs for BKE reads neither.
func quiet() {
	GinkgoHelper()
	Eventually(func() []gleak.Goroutine {
		return lo.Filter(gleak.Goroutines(), func(g gleak.Goroutine, _ int) bool {
			return strings.Contains(g.Backtrace, "/providers/instance.") && !strings.Contains(g.Backtrace, "leaveBKE")
		})
	}).Should(BeEmpty())
}

func is(want any) func(*world) any { return func(*world) any { return want } }

// launches reads the metric.
func launches(outcome string) float64 {
	GinkgoHelper()
	return counted("karpenter_bizfly_instance_launches_total", outcome)
}
