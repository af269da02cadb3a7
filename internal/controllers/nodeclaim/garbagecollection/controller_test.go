// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var _ = Describe("Garbage collection", func() {
	var controller *garbagecollection.Controller
	collectorOver := func(kubeClient client.Client, reader client.Reader) *garbagecollection.Controller {
		return garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings}, kubeClient, reader, env.Instances, env.Recorder, env.Clock)
	}
	collector := func(reader client.Reader) *garbagecollection.Controller { return collectorOver(env.Client, reader) }
	BeforeEach(func() { controller = collector(env.APIReader) })

	passAgainAfter := func(next time.Duration) {
		GinkgoHelper()
		result := lo.Must(controller.Reconcile(ctx))
		Expect(result.RequeueAfter).To(Equal(next))
	}
	pass := func() {
		GinkgoHelper()
		passAgainAfter(options.Defaults().GarbageCollectionInterval)
	}
	// passes makes enough of them for every deletion to end.
	passes := func() {
		GinkgoHelper()
		for range 4 {
			pass()
		}
	}
	aged := func() { env.Clock.Step(options.Defaults().GarbageCollectionGrace + time.Minute) }
	launched := func() *karpv1.NodeClaim {
		GinkgoHelper()
		return lo.Must(env.Launched(ctx))
	}
	server := func(claim *karpv1.NodeClaim) string { return unit.ServerID(claim.Status.ProviderID) }
	lost := func(claim *karpv1.NodeClaim) {
		GinkgoHelper()
		stored := claim.DeepCopy()
		claim.Finalizers = nil
		Expect(env.Client.Patch(ctx, claim, client.MergeFrom(stored))).To(Succeed())
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
	}
	// orphan is a server whose claim is gone.
	orphan := func() string {
		GinkgoHelper()
		claim := launched()
		lost(claim)
		return server(claim)
	}
	// joined registers the node of a server, as core does once a NodeClaim holds its id.
	joined := func(id string) string {
		GinkgoHelper()
		Expect(env.Client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + id,
			Labels: map[string]string{karpv1.NodeRegisteredLabelKey: "true"}},
			Spec: corev1.NodeSpec{ProviderID: providerid.New(id)}})).To(Succeed())
		return id
	}
	// nodeOf is a Node of a server that core has not registered.
	nodeOf := func(id, name string, taints ...corev1.Taint) *corev1.Node {
		GinkgoHelper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{ProviderID: providerid.New(id), Taints: taints}}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		return node
	}
	// restored is a NodeClaim with the server of another one, as after a restore from a backup.
	restored := func(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
		GinkgoHelper()
		restored := claim.DeepCopy()
		restored.UID, restored.ResourceVersion, restored.Finalizers, restored.DeletionTimestamp = "", "", nil, nil
		status := restored.Status
		Expect(env.Client.Create(ctx, restored)).To(Succeed())
		restored.Status = status
		Expect(env.Client.Status().Update(ctx, restored)).To(Succeed())
		Expect(restored.UID).ToNot(Equal(claim.UID))
		return restored
	}
	// measured is a metric of the process, which all specs share.
	measured := func(name string) float64 {
		GinkgoHelper()
		metric, found := expectations.FindMetricWithLabelValues("karpenter_bizfly_"+name, nil)
		Expect(found).To(BeTrue(), name)
		return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	const failures = "garbage_collection_failures_total"
	left := func() []string {
		return lo.FilterMap(env.Sandbox.Servers(), func(s cloud.Server, _ int) (string, bool) { return s.ID, s.Status != "DELETED" })
	}

	It("should not delete a server that the older provider marked", func() {
		older, cluster := orphan(), env.Sandbox.BKE().ClusterUID
		Expect(env.Sandbox.EditServer(older, func(s *cloud.Server) {
			s.Metadata = map[string]string{"karpenter-managed": "true", "karpenter-cluster-uid": unit.ClusterUID, "bke_cluster_id": cluster}
		})).To(BeTrue())
		aged()
		passes()
		Expect(left()).To(Equal([]string{older}))
	})
	It("should keep and report copies that a user made of a node with its metadata and disk", func() {
		claim := launched()
		node := env.Server(claim.Status.ProviderID)
		copies := []string{server(claim)}
		for _, name := range []string{"forensics-of-incident-42", node.Name + "-restored", node.Name + "-20261128",
			node.Name + "-backup01", node.Name + "-clone001"} {
			copies = append(copies, env.Sandbox.AddServer(cloud.ServerSpec{Name: name, Metadata: node.Metadata}).ID)
		}
		disk := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: node.Name + "-20261128_rootdisk", Bootable: true})
		aged()
		passes()
		Expect(left()).To(ConsistOf(copies))
		Expect(env.Sandbox.State().Volumes).To(ContainElement(HaveField("ID", disk.ID)))
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerKept),
			HaveField("Message", And(ContainSubstring(node.Name+"-20261128"), ContainSubstring("kubectl bizfly doctor"))))))
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerKept), HaveField("DedupeTimeout", 24*time.Hour),
			HaveField("Message", ContainSubstring("forensics-of-incident-42")))))
	})
	It("should delete a duplicate of a repeated create request by its proven name", func() {
		claim := launched()
		own := env.Server(claim.Status.ProviderID)
		env.Sandbox.AddServer(cloud.ServerSpec{Name: own.Name, Metadata: own.Metadata})
		aged()
		passes()
		Expect(left()).To(ConsistOf(server(claim)))
	})
	It("should delete a late server whose name the cloud has changed", func() {
		env.Reset(ctx, cloud.Options{AppendNameCode: true})
		controller = collector(env.APIReader)
		orphan()
		aged()
		passes()
		Expect(left()).To(BeEmpty())
		Expect(env.Sandbox.State().Volumes).To(BeEmpty())
	})
	It("should keep servers that the cloud has renamed, and report unowned ones once a day", func() {
		env.Reset(ctx, cloud.Options{ChangeNames: true})
		controller = collector(env.APIReader)
		claim, late := launched(), orphan()
		aged()
		passes()
		Expect(left()).To(ConsistOf(server(claim), late))
		kept := lo.Filter(env.Recorder.Events(), func(event karpevents.Event, _ int) bool { return event.Reason == events.ReasonServerKept })
		Expect(kept).To(HaveEach(And(HaveField("DedupeTimeout", 24*time.Hour), HaveField("DedupeValues", ContainElement(late)))))
		Expect(kept).ToNot(BeEmpty())

		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		Eventually(func() error { return env.CloudProvider.Delete(ctx, claim) }).Should(MatchError(ContainSubstring("not found")))
		Expect(left()).To(ConsistOf(late), "its NodeClaim names it")
	})
	It("should emit its events on the ProviderConfig", func() {
		config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		Expect(env.Client.Create(ctx, config)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(ctx, config)).To(Succeed()) })
		orphan()
		aged()
		passes()
		Expect(env.Recorder.Events()).To(ContainElement(
			And(HaveField("Reason", events.ReasonGarbageCollected), HaveField("InvolvedObject", HaveField("UID", config.UID)))))
	})
	It("should only report in a dry run, and report each server that it deletes otherwise", func() {
		id := orphan()
		aged()
		controller = garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings, DryRun: true}, env.Client, env.APIReader,
			env.Instances, env.Recorder, env.Clock)
		collected := measured("garbage_collected_servers_total")
		passes()
		Expect(left()).To(Equal([]string{id}))
		Expect(env.Recorder.Calls(events.ReasonWouldGarbageCollect)).To(BeNumerically(">", 0))
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())
		Expect(measured("orphan_servers")).To(Equal(1.0))

		controller = collector(env.APIReader)
		name, out := env.Servers()[0].Metadata[v1alpha1.MetadataNodeClaim], gbytes.NewBuffer()
		_, err := controller.Reconcile(log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder())))
		Expect(err).ToNot(HaveOccurred())
		Expect(string(out.Contents())).To(MatchRegexp(
			`"msg":"removed server",.*"NodeClaim":{"name":"%s"},.*"server-id":"%s"`, name, id))
		passes()
		Expect(left()).To(BeEmpty())
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
		Expect(measured("garbage_collected_servers_total")).To(Equal(collected + 1))
		Expect(measured("orphan_servers")).To(BeZero())
	})
	It("should only report, and say why, while the cluster may be a clone", func() {
		id := orphan()
		aged()
		clone := errors.New("this cluster may be a clone")
		controller = garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings, Recognized: func(context.Context) error { return clone }},
			env.Client, env.APIReader, env.Instances, env.Recorder, env.Clock)
		passes()
		Expect(left()).To(Equal([]string{id}))
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonWouldGarbageCollect),
			HaveField("Message", ContainSubstring(clone.Error())))))

		clone = nil
		passes()
		Expect(left()).To(BeEmpty())
	})
	Context("what a deleted server has left", func() {
		disks := func() []cloud.Volume { return env.Sandbox.State().Volumes }
		// removed is a server that ended without its disk.
		removed := func() cloud.Server {
			GinkgoHelper()
			claim := launched()
			own := env.Server(claim.Status.ProviderID)
			lost(claim)
			Expect(env.Sandbox.RemoveServer(own.ID)).To(Succeed())
			Expect(disks()).To(HaveLen(1))
			return own
		}
		It("should be deleted by its proven name once it is old enough, and never in a dry run", func() {
			removed()
			pass()
			Expect(disks()).To(HaveLen(1), "a launch may have made it a moment ago")
			aged()
			controller = garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings, DryRun: true}, env.Client, env.APIReader,
				env.Instances, env.Recorder, env.Clock)
			pass()
			Expect(disks()).To(HaveLen(1))
			Expect(measured("leftovers")).To(Equal(1.0), "it is paid for")
			controller = collector(env.APIReader)
			Eventually(func() []cloud.Volume { pass(); return disks() }).Should(BeEmpty())
		})
		It("should stay while garbage collection is suspended", func() {
			own := removed()
			lo.Times(7, func(int) string { return joined(orphan()) })
			aged()
			passes()
			Expect(env.Recorder.Calls(events.ReasonGarbageCollectionSuspended)).To(BeNumerically(">", 0))
			Expect(disks()).To(ContainElement(HaveField("Name", HavePrefix(own.Name))))
		})
		It("should stay while a NodeClaim without a provider ID waits for a server of that name", func() {
			own := removed()
			claim := lo.Must(env.NodeClaim(ctx, nil))
			claim.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: `{"attempt":1,"name":"` + own.Name + `"}`}
			Expect(env.Client.Update(ctx, claim)).To(Succeed())
			aged()
			passes()
			Expect(disks()).To(HaveLen(1))
		})
		It("should stay until it was seen for as long where the cloud does not return its age", func() {
			removed()
			ageless := disks()[0]
			ageless.CreatedAt = ""
			list := lo.Must(json.Marshal([]cloud.Volume{ageless}))
			ages := cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectBody, Body: string(list)}
			env.Sandbox.AddFaults(1, ages)
			aged()
			passes()
			Expect(disks()).To(HaveLen(1))
			aged()
			By("not listing it once, which is not to see that it is gone")
			env.Sandbox.ClearFaults()
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
			pass()
			env.Sandbox.ClearFaults()
			env.Sandbox.AddFaults(1, ages)
			pass()
			Eventually(disks).Should(BeEmpty())
		})
		It("should be kept, and reported, where a user may have detached it to keep its data", func() {
			own := removed()
			data := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: own.Name + "_datadisk_1"})
			aged()
			passes()
			Expect(disks()).To(ConsistOf(HaveField("ID", data.ID)))
			Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonDiskDeletionFailed),
				HaveField("Message", ContainSubstring(data.Name+" is kept")))))
		})
		It("should be reported while it cannot be deleted", func() {
			own, before := removed(), measured(failures)
			aged()
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/volumes/*", Effect: cloud.EffectStatus, Status: http.StatusConflict,
				Message: "Volume has snapshots"})
			pass()
			Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonDiskDeletionFailed),
				HaveField("InvolvedObject", HaveField("Name", own.Name)), HaveField("Message", ContainSubstring("has snapshots")))))
			Expect(measured(failures)).To(Equal(before + 1))
			Expect(measured("leftovers")).To(Equal(1.0))
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
			pass()
			Expect(measured("leftovers")).To(Equal(1.0), "what cannot be listed is not gone")
			env.Sandbox.ClearFaults()
			pass()
			Expect(measured("leftovers")).To(BeZero())
		})
		It("should be left for the next pass where the cloud hangs on it for longer than until then", func(SpecContext) {
			for range 13 {
				claim := launched()
				own := env.Server(claim.Status.ProviderID)
				lost(claim)
				Expect(env.Sandbox.RemoveServer(own.ID)).To(Succeed())
			}
			aged()
			// No deadline of the client ends what hangs.
			env.Restart(ctx, func(d *wiring.Dependencies) {
				d.API = connect.Client(ctx, env.Sandbox, connect.Unlimited, func(c *bizfly.Config) { c.Timeouts.Delete = time.Hour })
			})
			controller = collector(env.APIReader)
			const interval = 100 * time.Millisecond
			env.Tune(func(o *options.Options) { o.GarbageCollectionInterval = interval })
			left := env.Sandbox.State().Volumes
			for _, disk := range left[:12] {
				env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/volumes/" + disk.ID, Effect: cloud.EffectDelay, Delay: time.Hour})
			}
			Eventually(func() float64 {
				env.Clock.Step(time.Second)
				passAgainAfter(interval)
				return measured("leftovers")
			}).Should(Equal(12.0), "what hangs holds back no other disk")
			env.Sandbox.ClearFaults()
			env.Tune(func(o *options.Options) { o.GarbageCollectionInterval = options.Defaults().GarbageCollectionInterval })
			pass()
			Expect(measured("leftovers")).To(BeZero())
		}, SpecTimeout(time.Minute))
		It("should not keep servers from being deleted where it cannot be listed", func() {
			orphan()
			aged()
			before := measured(failures)
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectStatus, Status: http.StatusForbidden, Count: 1})
			passes()
			Expect(left()).To(BeEmpty())
			Expect(measured(failures)).To(BeNumerically(">", before))
		})
	})
	It("should not touch a server whose metadata was removed while it was deleted, nor its node", func() {
		id := orphan()
		aged()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusConflict,
			Message: "is locked"})
		pass()
		env.Sandbox.ClearFaults()
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { s.Metadata = nil })).To(BeTrue())
		node := nodeOf(id, "wiped")
		before := node.ResourceVersion
		passes()
		Expect(left()).To(Equal([]string{id}))
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.ResourceVersion).To(Equal(before), "%+v", node.Spec.Taints)
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())
	})
	It("should delete a server whose NodeClaim is gone, with its disk, and keep the others", func() {
		kept, before := server(launched()), measured(failures)
		orphan()
		aged()
		passes()
		Expect(left()).To(ConsistOf(kept))
		Expect(env.Sandbox.State().Volumes).To(HaveLen(1))
		Expect(measured(failures)).To(Equal(before))
	})
	It("should not touch a young server", func() {
		id := orphan()
		passes()
		Expect(left()).To(ConsistOf(id))
	})
	It("should not touch the server of a NodeClaim that is still being launched", func() {
		claim := lo.Must(env.NodeClaim(ctx, nil))
		Expect(env.CloudProvider.Create(ctx, claim)).Error().ToNot(HaveOccurred())
		aged()
		passes()
		Expect(left()).To(HaveLen(1))
	})
	It("should delete the second server of a claim that has another", func() {
		claim, other := launched(), launched()
		Expect(env.Sandbox.EditServer(server(other), func(s *cloud.Server) { s.Metadata[v1alpha1.MetadataNodeClaimUID] = string(claim.UID) })).To(BeTrue())
		lost(other)
		aged()
		passes()
		Expect(left()).To(ConsistOf(server(claim)))
	})
	It("should keep a server that a restored NodeClaim holds under a new UID, and report it", func() {
		claim := launched()
		lost(claim)
		holder := restored(claim)
		id := server(holder)
		aged()
		passes()
		Expect(left()).To(ConsistOf(id))
		Expect(env.Client.Delete(ctx, holder)).To(Succeed())
		passes()
		Expect(left()).To(BeEmpty(), "nothing holds it any more")
	})
	It("should not repeat the deletion of a server that a restored NodeClaim has meanwhile", func() {
		claim := launched()
		lost(claim)
		env.Restart(ctx, func(d *wiring.Dependencies) { d.ServerClock = env.Clock })
		controller = collector(env.APIReader)
		aged()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusConflict,
			Message: "is locked", Count: 1})
		pass()
		restored(claim)
		env.Clock.Step(ttl.DeletionRetry)
		passes()
		Expect(left()).To(ConsistOf(server(claim)))
		Expect(env.Sandbox.RequestCounts()["DELETE /iaas-cloud/api/servers/{id}"]).To(Equal(1))
	})
	It("should reconcile each deletion once per pass", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour})
		controller = collector(env.APIReader)
		ids := lo.Times(3, func(int) string { return orphan() })
		aged()
		pass()
		for _, id := range ids {
			Expect(env.Sandbox.RemoveServer(id)).To(Succeed())
		}
		env.Sandbox.ResetRequests()
		pass()
		Expect(env.Sandbox.RequestCounts()["GET /iaas-cloud/api/servers/{id}"]).To(Equal(len(ids)))
		Eventually(func() int {
			return env.Sandbox.RequestCounts()["POST /api/kubernetes-engine/engine/cluster_leave/{uid}"]
		}).Should(Equal(len(ids)))
		pass()
		Expect(env.Sandbox.RequestCounts()["GET /iaas-cloud/api/servers/{id}"]).To(Equal(len(ids)), "they are known to be gone")
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(len(ids)))
	})
	DescribeTable("should not touch a server that is not provably ours:", func(edit func(map[string]string)) {
		id := orphan()
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { edit(s.Metadata) })).To(BeTrue())
		aged()
		passes()
		Expect(left()).To(ConsistOf(id))
	},
		Entry("another cluster's", func(m map[string]string) { m[v1alpha1.MetadataClusterUID] = "another" }),
		Entry("one without the cluster's UID", func(m map[string]string) { delete(m, v1alpha1.MetadataClusterUID) }),
		Entry("one without a claim's UID", func(m map[string]string) { delete(m, v1alpha1.MetadataNodeClaimUID) }),
	)
	It("should not touch what a user created", func() {
		flavor := env.Sandbox.AddServer(cloud.ServerSpec{Name: "database", Flavor: "nix.2c_4g", Zone: "HN1"})
		aged()
		passes()
		Expect(left()).To(ConsistOf(flavor.ID))
	})
	It("should delete the node of the server too", func() {
		nodeOf(orphan(), "orphan")
		nodeOf("other", "other")
		aged()
		pass()
		nodes := &corev1.NodeList{}
		Expect(env.APIReader.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(ConsistOf(HaveField("Name", "other")))
		Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(BeZero())
	})
	It("should delete the nodes that joined while their server was deleted", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour})
		controller = collector(env.APIReader)
		id := orphan()
		aged()
		pass()
		for _, name := range []string{"late", "later"} {
			nodeOf(id, name)
		}
		Expect(env.Sandbox.RemoveServer(id)).To(Succeed())
		pass()
		nodes := &corev1.NodeList{}
		Expect(env.APIReader.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(BeEmpty())
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
	})
	It("should report a node that cannot be deleted, and delete it in the next pass", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour})
		node := nodeOf(orphan(), "orphan")
		aged()
		controller = collectorOver(rejecting{env.Client, "delete", &corev1.Node{}}, env.APIReader)
		pass()
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerDeletionFailed),
			HaveField("Message", ContainSubstring("deleting node orphan: connection refused")))))
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		controller = collector(env.APIReader)
		pass()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), node)).To(MatchError(ContainSubstring("not found")))
	})
	Context("when pods run on the node", func() {
		pod := func(options coretest.PodOptions) *corev1.Pod {
			GinkgoHelper()
			options.NodeName = "late"
			object := coretest.Pod(options)
			Expect(env.Client.Create(ctx, object)).To(Succeed())
			return object
		}
		It("should let core drain it first", func() {
			id := orphan()
			object := nodeOf(id, "late")
			running := pod(coretest.PodOptions{})
			aged()
			passes()
			Expect(left()).To(ConsistOf(id))
			Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.DeletionTimestamp.IsZero()).To(BeFalse(), "core drains a Node that is deleted")
			Expect(object.Finalizers).To(ContainElement(karpv1.TerminationFinalizer))
			Expect(object.Labels).To(HaveKeyWithValue(karpv1.NodeClassLabelKey(unit.NodeClassRef().GroupKind()), unit.NodeClassName))
			Expect(object.Spec.Taints).To(ContainElement(karpv1.DisruptedNoScheduleTaint))
			Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())

			Expect(env.Client.Delete(ctx, running, client.GracePeriodSeconds(0))).To(Succeed())
			passes()
			Expect(left()).To(BeEmpty())
		})
		It("should let core drain it although a deletion was requested and the server goes on", func() {
			id := orphan()
			env.Restart(ctx, func(d *wiring.Dependencies) { d.ServerClock = env.Clock })
			controller = collector(env.APIReader)
			aged()
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusConflict,
				Message: "is locked", Count: 1})
			pass()
			object := nodeOf(id, "late")
			running := pod(coretest.PodOptions{})
			env.Clock.Step(ttl.DeletionRetry)
			passes()
			Expect(left()).To(ConsistOf(id))
			Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.Finalizers).To(ContainElement(karpv1.TerminationFinalizer))

			Expect(env.Client.Delete(ctx, running, client.GracePeriodSeconds(0))).To(Succeed())
			passes()
			Expect(left()).To(BeEmpty())
			env.Clock.Step(time.Minute)
			pass()
			Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
		})
		It("should report a server that was gone before its node was drained", func() {
			env.Reset(ctx, cloud.Options{Latency: time.Hour})
			controller = collector(env.APIReader)
			id := orphan()
			aged()
			pass()
			nodeOf(id, "late")
			running := pod(coretest.PodOptions{})
			Expect(env.Sandbox.RemoveServer(id)).To(Succeed())
			pass()
			Expect(env.Client.Delete(ctx, running, client.GracePeriodSeconds(0))).To(Succeed())
			pass()
			Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
		})
		It("should not wait for pods of DaemonSets and for pods that have ended", func() {
			nodeOf(orphan(), "late", karpv1.UnregisteredNoExecuteTaint)
			pod(coretest.PodOptions{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "log", UID: "d"}}}})
			ended := pod(coretest.PodOptions{})
			ended.Status.Phase = corev1.PodSucceeded
			Expect(env.Client.Status().Update(ctx, ended)).To(Succeed())
			aged()
			passes()
			Expect(left()).To(BeEmpty())
		})
		DescribeTable("should delete nothing while the API server", func(verb string, object runtime.Object, report string, taints ...corev1.Taint) {
			id := orphan()
			nodeOf(id, "late", taints...)
			pod(coretest.PodOptions{})
			aged()
			controller = collectorOver(rejecting{env.Client, verb, object}, rejecting{env.APIReader, verb, object})
			passes()
			Expect(left()).To(ConsistOf(id))
			Expect(env.Sandbox.RequestCounts()["DELETE /iaas-cloud/api/servers/{id}"]).To(BeZero())
			Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerDeletionFailed),
				HaveField("Message", ContainSubstring(report+"connection refused")))))
		},
			Entry("cannot list nodes", "list", &corev1.NodeList{}, ""),
			Entry("cannot read the node", "get", &corev1.Node{}, ""),
			Entry("cannot keep further pods off", "patch", &corev1.Node{}, "keeping pods off node late: "),
			Entry("cannot list pods", "list", &corev1.PodList{}, "listing the pods of node late: "),
			Entry("cannot let core drain the node", "patch", &corev1.Node{}, "preparing node late to be drained: ", karpv1.DisruptedNoScheduleTaint),
			Entry("cannot begin the drain", "delete", &corev1.Node{}, "deleting node late: "),
		)
	})
	It("should not let one server that cannot be deleted keep the others, or the next pass", func() {
		locked, before := orphan(), measured(failures)
		orphan()
		node := nodeOf(locked, "locked")
		aged()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/" + locked, Effect: cloud.EffectStatus, Status: http.StatusForbidden,
			Message: "Permission denied"})
		passes()
		Expect(left()).To(ConsistOf(locked))
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerDeletionFailed),
			HaveField("Message", ContainSubstring("Permission denied")))))
		Expect(measured(failures)).To(Equal(before+4), "one in each pass")
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed(), "its server runs")
	})
	It("should continue a deletion until the cloud answers that the server is gone", func() {
		env.Reset(ctx, cloud.Options{Latency: 300 * time.Millisecond})
		controller = collector(env.APIReader)
		orphan()
		Eventually(func() []cloud.Server { return env.Sandbox.Servers() }).Should(ConsistOf(HaveField("Status", "ACTIVE")))
		aged()
		Eventually(func() []cloud.Volume {
			pass()
			return env.Sandbox.State().Volumes
		}).Should(BeEmpty())
		Expect(left()).To(BeEmpty())
		Expect(env.Sandbox.RequestCounts()["DELETE /iaas-cloud/api/servers/{id}"]).To(Equal(1))
	})
	DescribeTable("should not collect a server that is only still listed as", func(status string) {
		orphan()
		ended := launched()
		show := func() {
			for _, s := range env.Sandbox.Servers() {
				Expect(env.Sandbox.EditServer(s.ID, func(s *cloud.Server) { s.Status = status })).To(BeTrue())
			}
		}
		show()
		lost(ended)
		aged()
		before := measured("garbage_collected_servers_total")
		passes()
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())
		Expect(measured("garbage_collected_servers_total")).To(Equal(before))
		Expect(measured("orphan_servers")).To(BeZero())
		Expect(env.Sandbox.RequestCounts()["DELETE /iaas-cloud/api/servers/{id}"]).To(BeZero())
	},
		Entry("deleted", instance.StatusDeleted),
		Entry("deleted and recoverable", instance.StatusSoftDeleted),
	)
	It("should report a server once that it has requested to delete, also while it is listed", func() {
		id := orphan()
		aged()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectBody, Body: "{}"})
		pass()
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { s.Status = instance.StatusSoftDeleted })).To(BeTrue())
		passes()
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
	})
	It("should not report a server that went with its NodeClaim between two reads of a pass", func() {
		id := server(launched())
		aged()
		before := measured("garbage_collected_servers_total")
		controller = collector(reader(func(list client.ObjectList) error {
			if claims, ok := list.(*karpv1.NodeClaimList); ok {
				claims.Items = nil
				Expect(env.Sandbox.RemoveServer(id)).To(Succeed())
				env.Clock.Step(options.Defaults().ServerListMaxAge + time.Second)
			}
			return nil
		}))
		pass()
		Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(BeZero())
		Expect(measured("garbage_collected_servers_total")).To(Equal(before))
	})
	It("should forget when it first saw a server that it does not see any more", func() {
		id := orphan()
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { s.Created = "" })).To(BeTrue())
		pass()
		aged()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		pass()
		env.Sandbox.ClearFaults()
		passes()
		Expect(left()).To(ConsistOf(id))
	})

	It("should follow the settings for which age servers are collected, and how often they are listed", func() {
		orphan()
		aged()
		env.Tune(func(o *options.Options) {
			o.GarbageCollectionGrace, o.GarbageCollectionInterval = time.Hour, time.Minute
		})
		collected := func() []string {
			GinkgoHelper()
			for range 4 {
				passAgainAfter(time.Minute)
			}
			return left()
		}
		Expect(collected()).To(HaveLen(1))
		env.Tune(func(o *options.Options) { o.GarbageCollectionGrace = options.Defaults().GarbageCollectionGrace })
		Expect(collected()).To(BeEmpty())
	})
	DescribeTable("should count a server's age from when it was first seen where the cloud", func(created func() string) {
		id := orphan()
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { s.Created = created() })).To(BeTrue())
		aged()
		passes()
		Expect(left()).To(ConsistOf(id))
		aged()
		passes()
		Expect(left()).To(BeEmpty())
	},
		Entry("has none", func() string { return "" }),
		// Seven hours from now, as seen from here.
		Entry("writes local time without its zone", func() string {
			return env.Clock.Now().Add(7 * time.Hour).UTC().Format("2006-01-02T15:04:05")
		}),
	)

	Context("in doubt", func() {
		It("should delete nothing when the servers cannot be listed, and try again soon", func() {
			id := orphan()
			aged()
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectTruncated})
			before := measured(failures)
			passAgainAfter(ttl.CatalogBackoff)
			Expect(left()).To(ConsistOf(id))
			Expect(measured(failures)).To(Equal(before + 1))
			env.Sandbox.ClearFaults()
			passes()
			Expect(left()).To(BeEmpty())
		})
		It("should delete nothing when the claims cannot be listed", func() {
			id := orphan()
			aged()
			controller = collector(reader(func(client.ObjectList) error { return errors.New("connection refused") }))
			passAgainAfter(ttl.CatalogBackoff)
			Expect(left()).To(ConsistOf(id))
		})
		It("should stop, and report it, when most servers have a registered node and no NodeClaim", func() {
			lo.Times(7, func(int) string { return joined(orphan()) })
			aged()
			passes()
			Expect(left()).To(HaveLen(7))
			Expect(env.Recorder.Events()).To(ContainElement(And(
				HaveField("Reason", events.ReasonGarbageCollectionSuspended), HaveField("Message", ContainSubstring("7 of 7 servers")))))
			Expect(measured("garbage_collection_suspended")).To(Equal(1.0))
			out := gbytes.NewBuffer()
			_, err := controller.Reconcile(log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder())))
			Expect(err).ToNot(HaveOccurred())
			for _, server := range env.Servers() {
				Expect(string(out.Contents())).To(MatchRegexp(`"msg":"garbage collection is suspended: .*"%s"`, server.Name))
			}
		})
		It("should delete nothing when the nodes of so many cannot be listed", func() {
			lo.Times(7, func(int) string { return joined(orphan()) })
			aged()
			controller = collector(rejecting{env.APIReader, "list", &corev1.NodeList{}})
			passAgainAfter(ttl.CatalogBackoff)
			Expect(left()).To(HaveLen(7))
		})
		It("should still report a server whose deletion it began before it stopped", func() {
			env.Reset(ctx, cloud.Options{Latency: time.Hour})
			controller = collector(env.APIReader)
			id := orphan()
			aged()
			pass()
			lo.Times(7, func(int) string { return joined(orphan()) })
			aged()
			Expect(env.Sandbox.RemoveServer(id)).To(Succeed())
			pass()
			Expect(env.Recorder.Calls(events.ReasonGarbageCollectionSuspended)).To(BeNumerically(">", 0))
			Expect(env.Recorder.Calls(events.ReasonGarbageCollected)).To(Equal(1))
			Expect(left()).To(HaveLen(7))
		})
		It("should still stop after a restart", func() {
			lo.Times(7, func(int) string { return joined(orphan()) })
			env.Restart(ctx)
			controller = collector(env.APIReader)
			aged()
			passes()
			Expect(left()).To(HaveLen(7))
			Expect(env.Recorder.Calls(events.ReasonGarbageCollectionSuspended)).To(BeNumerically(">", 0))
		})
		DescribeTable("should not stop, nor list a second time, when the servers without a NodeClaim are", func(orphans, others int) {
			kept := lo.Times(others, func(int) string { return server(launched()) })
			lo.Times(orphans, func(int) string { return joined(orphan()) })
			aged()
			reads := 0
			controller = collector(reader(func(list client.ObjectList) error {
				if _, claims := list.(*karpv1.NodeClaimList); claims {
					reads++
				}
				return nil
			}))
			pass()
			Expect(reads).To(Equal(1))
			passes()
			Expect(left()).To(ConsistOf(lo.ToAnySlice(kept)...))
			Expect(measured("garbage_collection_suspended")).To(BeZero())
		},
			Entry("half of them", 6, 6),
			Entry("five, and no others exist", 5, 0),
		)
		It("should not stop when no NodeClaim ever held their ids", func() {
			cloudTime := clocktesting.NewFakeClock(time.Now())
			env.Reset(ctx, cloud.Options{Clock: cloudTime, Latency: time.Minute, HideBuilding: true})
			env.WithoutIDWait()
			var group sync.WaitGroup
			for range 7 {
				claim, err := env.NodeClaim(ctx, nil)
				Expect(err).ToNot(HaveOccurred())
				group.Go(func() {
					defer GinkgoRecover()
					_, err := env.CloudProvider.Create(ctx, claim)
					Expect(err).To(HaveOccurred(), "the server has no id yet")
				})
			}
			group.Wait()
			Expect(env.Cleanup(ctx)).To(Succeed())
			env.Restart(ctx)
			controller = collector(env.APIReader)
			cloudTime.Step(time.Minute)
			Expect(left()).To(HaveLen(7))
			aged()
			Eventually(func() []string { pass(); cloudTime.Step(time.Second); return left() }).Should(BeEmpty())
			Expect(env.Recorder.Calls(events.ReasonGarbageCollectionSuspended)).To(BeZero())
		})
		It("should list a second time before it accepts that most NodeClaims are gone", func() {
			kept := lo.Times(7, func(int) string { return server(launched()) })
			aged()
			reads := 0
			controller = collector(reader(func(list client.ObjectList) error {
				if claims, ok := list.(*karpv1.NodeClaimList); ok {
					if reads++; reads == 1 {
						*claims = karpv1.NodeClaimList{}
					}
				}
				return nil
			}))
			pass()
			Expect(reads).To(Equal(2))
			Expect(left()).To(ConsistOf(lo.ToAnySlice(kept)...))
			Expect(env.Recorder.Calls(events.ReasonGarbageCollectionSuspended)).To(BeZero())
		})
	})

	It("should have a name of its own", func() {
		Expect(controller.Name()).To(Equal("server.garbagecollection"))
	})
})

// reader is an API reader that looks at each list before its caller does.
func reader(look func(client.ObjectList) error) client.Reader {
	GinkgoHelper()
	inner, err := client.NewWithWatch(env.Environment.Config, client.Options{Scheme: env.Client.Scheme()})
	Expect(err).ToNot(HaveOccurred())
	return interceptor.NewClient(inner, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		if err := c.List(ctx, list, opts...); err != nil {
			return err
		}
		return look(list)
	}})
}

// rejecting is a client that does not do one thing with one kind of objects.
type rejecting struct {
	client.Client
	verb   string
	object runtime.Object
}

func (r rejecting) rejects(verb string, object runtime.Object) error {
	if verb == r.verb && reflect.TypeOf(object) == reflect.TypeOf(r.object) {
		return errors.New("connection refused")
	}
	return nil
}

// Get implements client.Reader.
func (r rejecting) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := r.rejects("get", object); err != nil {
		return err
	}
	return r.Client.Get(ctx, key, object, opts...)
}

// List implements client.Reader.
func (r rejecting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.rejects("list", list); err != nil {
		return err
	}
	return r.Client.List(ctx, list, opts...)
}

// Patch implements client.Writer.
func (r rejecting) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := r.rejects("patch", object); err != nil {
		return err
	}
	return r.Client.Patch(ctx, object, patch, opts...)
}

// Delete implements client.Writer.
func (r rejecting) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if err := r.rejects("delete", object); err != nil {
		return err
	}
	return r.Client.Delete(ctx, object, opts...)
}
