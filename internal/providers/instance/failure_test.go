// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Launch", func() {
	Context("when the build fails", func() {
		fail := func(w *world, faults ...cloud.Fault) error {
			GinkgoHelper()
			w.box.AddFaults(1, faults...)
			request, written := w.request()
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(And(MatchError(instance.ErrBuildFailed), MatchError(ContainSubstring(written.last().Name))))
			return err
		}
		DescribeTable("should say why and clean up",
			func(options cloud.Options, fault cloud.Fault, is func(error) bool) {
				fault.Method, fault.Path = "POST", "/servers"
				w := newWorld(options)
				err := fail(w, fault)
				Expect(is(err)).To(BeTrue(), "%v", err)
				collectAll(w)
				Expect(w.count(createServer)).To(Equal(1))
			},
			Entry("no room, shown at the end", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true},
				ofClass(bizfly.ClassCapacity)),
			Entry("no room", cloud.Options{}, cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true}, ofClass(bizfly.ClassCapacity)),
			Entry("quota", cloud.Options{}, cloud.Fault{Effect: cloud.EffectQuota, Async: true}, ofClass(bizfly.ClassQuota)),
			Entry("another fault", cloud.Options{}, cloud.Fault{Effect: cloud.EffectErrorServer}, func(err error) bool { return !ofClass(bizfly.ClassCapacity)(err) }),
			Entry("no server", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectTaskFailed}, func(err error) bool { return !bizfly.IsNotFound(err) }),
			Entry("no server but its disk", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectTaskFailed, Orphan: true},
				func(err error) bool { return !bizfly.IsNotFound(err) }),
			Entry("an unknown task", cloud.Options{}, cloud.Fault{Effect: cloud.EffectErrorServer, Code: "x", Message: "broken"}, func(error) bool { return true }),
		)
		It("should fail over at once although nothing can be cleaned up yet", func() {
			now := clocktesting.NewFakeClock(time.Now())
			w := newWorld(cloud.Options{}, func(c *instance.Config) { c.Clock = now })
			_ = fail(w, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectErrorServer},
				cloud.Fault{Method: "DELETE", Effect: cloud.EffectStatus, Status: 409, Count: 2})
			Expect(w.leftovers()).To(HaveLen(2))
			for range 3 {
				now.Step(31 * time.Second)
				Expect(collectOnce(w.provider)).To(Succeed())
			}
			collectAll(w)
		})
		It("should give the task of a server in ERROR time to say why", func() {
			w := newWorld(cloud.Options{Latency: time.Hour, HideBuilding: true})
			tasks := func() int {
				return lo.Sum(lo.Values(lo.PickBy(w.box.RequestCounts(), func(route string, _ int) bool { return strings.HasSuffix(route, "/tasks/{id}") })))
			}
			request, written := w.request()
			failed := make(chan error, 1)
			go func() {
				_, _, err := send(ctx, w.provider, request, written)
				failed <- err
			}()
			Eventually(tasks).Should(BeNumerically(">", 0))
			w.box.AddServer(cloud.ServerSpec{Name: instance.Name(claimName, claimUID, clusterUID, 1), Status: instance.StatusError,
				Metadata: metadata(clusterUID, claimUID, 1)})
			before := tasks()
			Eventually(tasks).Should(BeNumerically(">", before+5))
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectBody,
				Body: `{"ready":true,"result":{"action":"create_server","progress":100,"success":false,"message":"No valid host was found."}}`})
			var err error
			Eventually(failed).Should(Receive(&err))
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			Expect(ofClass(bizfly.ClassCapacity)(err)).To(BeTrue(), "%v", err)
		})
		It("should not wait for the reason when an earlier call has waited for it", func() {
			w := newWorld(cloud.Options{Latency: time.Hour, HideBuilding: true}, func(c *instance.Config) {
				c.Settings = times(func(o *options.Options) { o.ServerIDWait = 10 * time.Millisecond })
			})
			request, written := w.request()
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(MatchError(instance.ErrAwaitingServerID))
			Expect(w.box.EditServer(w.box.Servers()[0].ID, func(s *cloud.Server) { s.Status = instance.StatusError })).To(BeTrue())
			w.box.AddServer(cloud.ServerSpec{Name: written.last().Name, Status: instance.StatusError, Metadata: metadata(clusterUID, claimUID, 1)})
			_, err = w.restart(func(c *instance.Config) {
				c.Settings = times(func(o *options.Options) { o.ServerIDWait = 20 * time.Second })
			}).Resume(ctx, claimUID, written.last())
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			Expect(ofClass(bizfly.ClassCapacity)(err)).To(BeFalse())
		})
		It("should not return a server that broke behind the back of a stale list", func() {
			w := newWorld(cloud.Options{Latency: 200 * time.Millisecond})
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectBody, Body: "[]"},
				cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectLateError})
			request, _ := w.request()
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(ContainSubstring("status ERROR after its task had succeeded")))
			w.box.ClearFaults()
			collectAll(w)
		})
		It("should not return a server that was deleted after its task had succeeded", func() {
			w := newWorld(cloud.Options{})
			server, intent := w.launch()
			Eventually(func() string { return w.box.Servers()[0].Status }).Should(Equal(instance.StatusActive))
			Expect(w.box.RemoveServer(server.ID)).To(Succeed())
			intent.RequestedAt = time.Now().Add(-3 * time.Minute)
			_, err := w.restart().Resume(ctx, claimUID, intent)
			Expect(err).To(MatchError(instance.ErrOutcomeUnknown))
		})
		It("should not touch the disks of others", func() {
			w := newWorld(cloud.Options{HideBuilding: true})
			w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTaskFailed, Orphan: true})
			name := instance.Name(claimName, claimUID, clusterUID, 1)
			theirs := w.box.AddVolume(cloud.VolumeSpec{Name: "default-x7k2p-00000000_rootdisk", Bootable: true})
			owned := w.box.AddVolume(cloud.VolumeSpec{Name: name + "_rootdisk", Bootable: true})
			csi := w.box.AddVolume(cloud.VolumeSpec{Name: name + "_rootdisk", Description: "ns/claim by csi-bizflycloud"})
			w.protected.set(nil, owned.ID)
			request, _ := w.request()
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			Eventually(func() []string {
				Expect(collectOnce(w.provider)).To(Succeed())
				return lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })
			}).Should(ConsistOf(theirs.ID, owned.ID, csi.ID))
		})
		It("should leave to garbage collection what other launches have left", func() {
			w := newWorld(cloud.Options{HideBuilding: true})
			other := w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, clusterUID, 2) + "_rootdisk", Bootable: true})
			_ = fail(w, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTaskFailed, Orphan: true})
			Eventually(func() []cloud.Volume { return w.box.State().Volumes }).Should(ConsistOf(HaveField("ID", other.ID)))
		})
		It("should log which disk of it could not be deleted", func() {
			w := newWorld(cloud.Options{HideBuilding: true})
			w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTaskFailed, Orphan: true},
				cloud.Fault{Method: "DELETE", Path: "/volumes/*", Effect: cloud.EffectStatus, Status: 409, Message: "Volume has snapshots"})
			request, _ := w.request()
			out := gbytes.NewBuffer()
			_, _, err := send(log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder())), w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			Eventually(out).Should(gbytes.Say("cleaning up after a failed launch.*" + ownName + "_rootdisk.*Volume has snapshots"))
		})
		It("should delete the disk of its launch although a foreign server has the same name", func() {
			w := newWorld(cloud.Options{HideBuilding: true})
			foreign := w.box.AddServer(cloud.ServerSpec{Name: instance.Name(claimName, claimUID, clusterUID, 1), Metadata: metadata("another-cluster", claimUID, 1)})
			w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectTaskFailed, Orphan: true})
			request, _ := w.request()
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			Eventually(func() []cloud.Volume {
				Expect(collectOnce(w.provider)).To(Succeed())
				return w.box.State().Volumes
			}).Should(ConsistOf(HaveField("Attachments", ConsistOf(HaveField("ServerID", foreign.ID)))))
		})
		It("should explain a server that broke after it was returned", func() {
			w := newWorld(cloud.Options{Latency: 50 * time.Millisecond})
			w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectNoCapacity, Async: true})
			_, intent := w.launch()
			Eventually(func() bool { return ofClass(bizfly.ClassCapacity)(w.provider.FailureReason(ctx, intent)) }).Should(BeTrue())
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectQuota, Status: 403})
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/tasks/*", Effect: cloud.EffectTask404})
			fault := w.provider.FailureReason(ctx, intent)
			Expect(fault).To(HaveOccurred())
			Expect(bizfly.IsNotFound(fault)).To(BeFalse())
			Expect(w.provider.FailureReason(ctx, w.intent())).To(MatchError(ContainSubstring("gives no reason")))
		})
	})
})
