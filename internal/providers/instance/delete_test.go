// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Delete", func() {
	attach := func(w *world, serverID string, spec cloud.VolumeSpec) string {
		GinkgoHelper()
		volume := w.box.AddVolume(spec)
		Expect(w.box.AttachVolume(volume.ID, serverID)).To(Succeed())
		return volume.ID
	}
	root := func(server *instance.Instance) string {
		GinkgoHelper()
		volume, ok := lo.Find(server.Volumes, func(v instance.Volume) bool { return v.Root })
		Expect(ok).To(BeTrue())
		return volume.ID
	}

	It("should delete the server with its root disk and remove its node from BKE", func() {
		w := newWorld(cloud.Options{Latency: 50 * time.Millisecond})
		server, _ := w.launch()
		request, accepted, failed := instance.DeleteRequest{ID: server.ID, Node: server.Name}, deletions("accepted"), deletions("error")
		Expect(w.provider.Delete(ctx, request)).To(Succeed())
		Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
		Expect(deletions("accepted")).To(Equal(accepted + 1))
		Expect(deletions("error")).To(Equal(failed))
		w.deleteUntilGone(w.provider, request)
		Expect(w.leftovers()).To(BeEmpty())
		Expect(w.box.State().NetworkInterfaces).To(BeEmpty())
		Expect(w.box.State().WanIPs).To(BeEmpty())
		Eventually(leftNodes(w)).Should(Equal([]string{server.Name}))
		Expect(w.bodies(http.MethodPost, "/engine/cluster_leave/")).To(HaveLen(1))
	})
	It("should answer from the shared list while the deletion is under way", func() {
		w := newWorld(cloud.Options{Latency: time.Hour}, sharing)
		server, _ := w.launch()
		w.box.ResetRequests()
		for range 10 {
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(Succeed())
		}
		Expect(w.count(deleteServer)).To(Equal(1))
		Expect(w.count(listServers)).To(BeNumerically("<=", 1))
		Expect(w.count(listVolumes)).To(Equal(1))
		Expect(w.count(getServer)).To(BeZero())
	})
	It("should share its lists with all deletions, and read each server once to prove it gone", func() {
		const servers = 20
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, sharing, func(c *instance.Config) { c.Clock = now })
		requests := lo.Times(servers, func(i int) instance.DeleteRequest {
			name := instance.Name(claimName, claimUID, clusterUID, i+1)
			return instance.DeleteRequest{ID: w.box.AddServer(cloud.ServerSpec{Name: name, Metadata: metadata(clusterUID, claimUID, i+1)}).ID, Node: name}
		})
		for range 2 {
			for _, request := range requests {
				Expect(w.provider.Delete(ctx, request)).To(Succeed())
			}
			// What the cloud deletes in real time, the next list of a clock that stands still does not have.
			Eventually(w.box.Servers).Should(BeEmpty())
		}
		now.Step(6 * time.Second)
		for range 3 {
			for _, request := range requests {
				Expect(w.provider.Delete(ctx, request)).To(MatchError(instance.ErrNotFound))
				_, err := w.provider.Get(ctx, request.ID)
				Expect(err).To(MatchError(instance.ErrNotFound))
			}
		}
		Expect(w.count(deleteServer)).To(Equal(servers))
		Expect(w.count(getServer)).To(Equal(servers))
		Eventually(func() int { return w.count(leaveCluster) }).Should(Equal(servers))
		Expect(w.count(listServers)).To(Equal(2))
		Expect(w.leftovers()).To(BeEmpty())
	})
	It("should send one call when two controllers delete at once", func() {
		w := newWorld(cloud.Options{Latency: time.Hour})
		server, _ := w.launch()
		var wait sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			wait.Go(func() { errs[i] = w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID}) })
		}
		wait.Wait()
		Expect(errs).To(HaveEach(BeNil()))
		Expect(w.count(deleteServer)).To(Equal(1))
	})
	It("should ask again when a deletion was lost, and log the removal once", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, func(c *instance.Config) { c.Clock = now })
		server := w.box.AddServer(cloud.ServerSpec{Name: "lost", Metadata: metadata(clusterUID, claimUID, 1)})
		w.box.AddFaults(1, cloud.Fault{Method: "DELETE", Path: "/servers/*", Effect: cloud.EffectBody, Body: `{"task_id":"725620b1-0000-4000-8000-000000000000"}`,
			Count: 1})
		out := gbytes.NewBuffer()
		logged := log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder()))
		Expect(w.provider.Delete(logged, instance.DeleteRequest{ID: server.ID})).To(Succeed())
		now.Step(29 * time.Second)
		Expect(w.provider.Delete(logged, instance.DeleteRequest{ID: server.ID})).To(Succeed())
		Expect(w.count(deleteServer)).To(Equal(1))
		now.Step(time.Second)
		Expect(w.provider.Delete(logged, instance.DeleteRequest{ID: server.ID})).To(Succeed())
		Expect(w.count(deleteServer)).To(Equal(2))
		Expect(strings.Count(string(out.Contents()), "removed server")).To(Equal(1))
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(BeEmpty())
	})
	It("should say each time that a stopped server is kept while the account is unpaid", func() {
		w := newWorld(cloud.Options{}, func(c *instance.Config) {
			c.Unpaid = func(context.Context) (string, error) { return "an invoice is overdue", nil }
		})
		server := w.box.AddServer(cloud.ServerSpec{Name: ownName, Status: "SHUTOFF", Metadata: metadata(clusterUID, claimUID, 1)})
		for range 2 {
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(MatchError(instance.ErrUnpaid))
		}
	})
	It("should retry a server that cannot be deleted while it is built", func() {
		w := newWorld(cloud.Options{Latency: 200 * time.Millisecond, ConflictOnBuild: true})
		server, _ := w.launch()
		failed := deletions("error")
		err := w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})
		Expect(bizfly.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(deletions("error")).To(Equal(failed + 1))
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(BeEmpty())
	})
	It("should delete a server in BUILD with the disk that it gets", func() {
		w := newWorld(cloud.Options{Latency: 100 * time.Millisecond})
		server, _ := w.launch()
		Expect(server.Status).To(Equal(instance.StatusBuild))
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(BeEmpty())
	})
	DescribeTable("should log how long ago the deletion was asked for", func(ago time.Duration, seconds float64) {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, func(c *instance.Config) { c.Clock = now })
		request := instance.DeleteRequest{ID: w.box.AddServer(cloud.ServerSpec{Name: ownName, Metadata: metadata(clusterUID, claimUID, 1)}).ID}
		if ago > 0 {
			// The list that the deletion waits for begins after it.
			request.Since = now.Now()
			now.Step(ago)
		}
		out := gbytes.NewBuffer()
		Expect(w.provider.Delete(log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder())), request)).To(Succeed())
		Expect(string(out.Contents())).To(MatchRegexp(`"msg":"removed server",.*"seconds":%v,`, seconds))
	},
		Entry("where that is known", 90*time.Second, 90.0),
		Entry("where it is not", time.Duration(0), 0.0),
	)
	Context("choosing the disks", func() {
		var w *world
		BeforeEach(func() { w = newWorld(cloud.Options{}) })
		It("should keep what a PersistentVolume may own, whatever it is called", func() {
			server, _ := w.launch()
			pvc := attach(w, server.ID, cloud.VolumeSpec{Name: "pvc-0d6e0000-0000-4000-8000-000000000000"})
			described := attach(w, server.ID, cloud.VolumeSpec{Name: "renamed", Description: "default/data by csi-bizflycloud"})
			protected := attach(w, server.ID, cloud.VolumeSpec{Name: "static-volume"})
			unrecorded := attach(w, server.ID, cloud.VolumeSpec{Name: "attached-by-hand"})
			w.protected.set(nil, protected)
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{root(server), pvc, described, protected}})
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
			Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(pvc, described, protected, unrecorded))
		})
		DescribeTable("should keep another server's root disk that a user attached to rescue it", func(recorded bool) {
			broken := w.box.AddServer(cloud.ServerSpec{Name: "broken"})
			Expect(w.box.RemoveServer(broken.ID)).To(Succeed())
			theirs := broken.VolumesAttached[0].ID
			server, _ := w.launch()
			Expect(w.box.AttachVolume(theirs, server.ID)).To(Succeed())
			request := instance.DeleteRequest{ID: server.ID}
			if recorded {
				request.RecordedVolumes = []string{root(server)}
			}
			w.deleteUntilGone(w.provider, request)
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
			Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(theirs))
		},
			Entry("with the server's own on the record", true),
			Entry("with nothing on the record", false),
		)
		It("should delete the recorded data disks that are still attached", func() {
			server, _ := w.launch()
			data := attach(w, server.ID, cloud.VolumeSpec{Name: server.Name + "_datadisk_1"})
			detached := w.box.AddVolume(cloud.VolumeSpec{Name: server.Name + "_datadisk_2"}).ID
			other := w.box.AddServer(cloud.ServerSpec{Name: "other"})
			moved := attach(w, other.ID, cloud.VolumeSpec{Name: server.Name + "_datadisk_3"})
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{root(server), data, detached, moved}})
			Expect(w.deleted()).To(HaveLen(1))
			Expect(w.deleted()[0]).To(ConsistOf(root(server), data))
			Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ContainElements(detached, moved))
		})
		It("should keep a disk that is called like a data disk of a server launched without any", func() {
			server, _ := w.launch()
			theirs := attach(w, server.ID, cloud.VolumeSpec{Name: server.Name + "_datadisk_1"})
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
			Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(theirs))
		})
		It("should keep a recorded disk that another server got since the list was read", func() {
			server, _ := w.launch()
			data := attach(w, server.ID, cloud.VolumeSpec{Name: server.Name + "_datadisk_1"})
			w.answer("/volumes", editedVolume(w, data, func(v *cloud.Volume) { v.Attachments[0].ServerID = "another" }))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{root(server), data}})).To(Succeed())
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
		})
		It("should delete the root disk that the list of volumes does not show as attached yet", func() {
			server, _ := w.launch()
			w.answer("/volumes", editedVolume(w, root(server), func(v *cloud.Volume) { v.Attachments = []cloud.VolumeAttachment{} }))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(Succeed())
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
		})
		It("should know the root disk by the list of volumes where the server does not say it", func() {
			server, _ := w.launch()
			own := root(server)
			bootable := attach(w, server.ID, cloud.VolumeSpec{Name: "bootable"})
			called := attach(w, server.ID, cloud.VolumeSpec{Name: "called"})
			servers := w.box.Servers()
			for i := range servers[0].VolumesAttached {
				servers[0].VolumesAttached[i].AttachedType = ""
			}
			w.answer("/servers", servers)
			w.answer("/volumes", lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) cloud.Volume {
				v.Bootable, v.AttachedType = v.ID != called, lo.Ternary(v.ID != bootable, "rootdisk", "datadisk")
				return v
			}))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{bootable, called}})).To(Succeed())
			Expect(w.deleted()).To(HaveLen(1))
			Expect(w.deleted()[0]).To(ConsistOf(own, bootable, called), "the others are data disks on the record")
		})
		It("should take the recorded one of two root disks after a user renamed its own", func() {
			broken := w.box.AddServer(cloud.ServerSpec{Name: "broken"})
			Expect(w.box.RemoveServer(broken.ID)).To(Succeed())
			server, _ := w.launch()
			Expect(w.box.AttachVolume(broken.VolumesAttached[0].ID, server.ID)).To(Succeed())
			w.answer("/volumes", editedVolume(w, root(server), func(v *cloud.Volume) { v.Name = "mine" }))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{root(server)}})).To(Succeed())
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
		})
		It("should delete the root disk of a node whose pool is called pvc", func() {
			server, _ := w.launch(func(r *instance.LaunchRequest) { r.NodeClaim.Name = "pvc-pool-abcde" })
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
			Expect(w.leftovers()).To(BeEmpty())
		})
		It("should be its root disk alone while the list of volumes lags", func() {
			server, _ := w.launch()
			own := root(server)
			data := attach(w, server.ID, cloud.VolumeSpec{Name: "attached-by-hand"})
			w.box.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectBody, Body: "[]"})
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{own, data}})).To(Succeed())
			Expect(w.deleted()).To(Equal([][]string{{own}}))
		})
		It("should wait while it is not known what PersistentVolumes own", func() {
			server, _ := w.launch()
			w.protected.set(errors.New("the API server is away"))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(MatchError(ContainSubstring("the API server is away")))
			Expect(w.count(deleteServer)).To(BeZero())
			w.protected.set(nil)
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
		})
		It("should wait while the volumes cannot be listed", func() {
			server, _ := w.launch()
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/volumes", Effect: cloud.EffectStatus, Status: 400, Count: 1})
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(MatchError(ContainSubstring("listing volumes")))
			Expect(w.count(deleteServer)).To(BeZero())
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
			Expect(w.leftovers()).To(BeEmpty())
		})
	})
	It("should delete what the server names once the volumes cannot be listed for a minute", func() {
		now := clocktesting.NewFakeClock(time.Now())
		w := newWorld(cloud.Options{}, func(c *instance.Config) { c.Clock = now })
		server, _ := w.launch()
		own := root(server)
		recorded := attach(w, server.ID, cloud.VolumeSpec{Name: "attached-before"})
		users := attach(w, server.ID, cloud.VolumeSpec{Name: "a-users"})
		claimed := attach(w, server.ID, cloud.VolumeSpec{Name: "pvc-claimed"})
		w.protected.set(nil, "another")
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectStatus, Status: 400})
		request := instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{own, recorded, claimed}}
		for range 3 {
			Expect(w.provider.Delete(ctx, request)).To(MatchError(ContainSubstring("listing volumes")))
			now.Step(20*time.Second - time.Millisecond)
		}
		Expect(w.count(deleteServer)).To(BeZero())
		now.Step(time.Second)
		Expect(w.provider.Delete(ctx, request)).To(Succeed())
		Expect(w.deleted()).To(HaveLen(1))
		Expect(w.deleted()[0]).To(ConsistOf(own, recorded))
		Expect(w.deleted()[0]).ToNot(ContainElement(users))
	})
	Context("knowing that it is gone", func() {
		var w *world
		BeforeEach(func() { w = newWorld(cloud.Options{}) })
		It("should not find what never was", func() {
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: "71b9caeb-0000-4000-8000-000000000000"})).To(MatchError(instance.ErrNotFound))
			Expect(w.count(deleteServer)).To(BeZero())
		})
		It("should never touch a server of someone else", func() {
			theirs := w.restart(func(c *instance.Config) { c.ClusterUID = "another-cluster" })
			request, _ := w.request()
			server, _ := lo.Must2(send(ctx, theirs, request, nil))
			foreign := w.box.AddServer(cloud.ServerSpec{Name: "foreign"})
			for _, id := range []string{server.ID, foreign.ID} {
				Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: id, Node: server.Name, RecordedVolumes: []string{root(server)}})).
					To(MatchError(instance.ErrNotFound))
			}
			Expect(w.count(deleteServer) + w.count(deleteVolume) + w.count(leaveCluster)).To(BeZero())
			Expect(w.leftovers()).To(HaveLen(4))
		})
		DescribeTable("should take nothing but the API's own 404 for gone",
			func(fault cloud.Fault) {
				server, _ := w.launch()
				w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
				fault.Method, fault.Path = "GET", "/servers/*"
				w.box.AddFaults(1, fault)
				err := w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: server.Name})
				Expect(err).To(HaveOccurred())
				Expect(err).NotTo(MatchError(instance.ErrNotFound))
				Expect(w.leftovers()).To(HaveLen(2))
				Expect(w.count(deleteVolume) + w.count(leaveCluster)).To(BeZero())
			},
			Entry("a page of the gateway", cloud.Fault{Effect: cloud.EffectHTML, Status: 404}),
			Entry("a rejection", cloud.Fault{Effect: cloud.EffectStatus, Status: 403}),
		)
		It("should believe no list that was begun before the deletion", func() {
			w := newWorld(cloud.Options{}, sharing)
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectDelay, Delay: 300 * time.Millisecond, Count: 1})
			listed := make(chan error, 1)
			go func() { _, err := w.provider.List(ctx); listed <- err }()
			Eventually(w.box.FaultsFired).Should(Equal([]int{1}))
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: "71b9caeb-0000-4000-8000-000000000000", Since: time.Now()})).
				To(MatchError(instance.ErrNotFound))
			Expect(listed).To(Receive(BeNil()))
			Expect(w.count(listServers)).To(Equal(2))
		})
		It("should delete a server that is missing only in the list", func() {
			server, _ := w.launch()
			w.box.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectBody, Body: "[]", Count: 1})
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(Succeed())
			Expect(w.count(deleteServer)).To(Equal(1))
		})
		It("should work with an expired token", func() {
			server, _ := w.launch()
			w.box.ExpireTokens()
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
			Expect(w.leftovers()).To(BeEmpty())
		})
		It("should not wait for what the server has left", func() {
			w := newWorld(cloud.Options{Latency: time.Hour})
			w.box.AddVolume(cloud.VolumeSpec{Name: ownName + "_rootdisk", Bootable: true})
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: "71b9caeb-0000-4000-8000-000000000000"})).To(MatchError(instance.ErrNotFound))
			Expect(w.count(listVolumes)).To(BeZero())
		})
	})
	Context("leaving BKE", func() {
		gone := func(node string) instance.DeleteRequest {
			return instance.DeleteRequest{ID: "71b9caeb-0000-4000-8000-000000000000", Node: node}
		}
		// reporting counts the nodes that could not be removed.
		reporting := func(failed *atomic.Int32) func(*instance.Config) {
			return func(c *instance.Config) { c.OnLeaveFailed = func(string, error) { failed.Add(1) } }
		}
		It("should remove the node once, however often it is found gone", func() {
			failed := &atomic.Int32{}
			w := newWorld(cloud.Options{}, reporting(failed))
			for range 3 {
				Expect(w.provider.Delete(ctx, gone(ownName))).To(MatchError(instance.ErrNotFound))
			}
			w.provider.AwaitLeaves()
			Expect(w.count(leaveCluster)).To(Equal(1))
			Expect(failed.Load()).To(BeZero())
		})
		It("should go on when the time of the caller is up", func() {
			engine := &hangingEngine{release: make(chan struct{})}
			w := newWorld(cloud.Options{}, func(c *instance.Config) { engine.values, c.BKE = c.BKE.(bke.Values), engine })
			caller, end := context.WithCancel(ctx)
			Expect(w.provider.Delete(caller, gone(ownName))).To(MatchError(instance.ErrNotFound))
			end()
			close(engine.release)
			Eventually(leftNodes(w)).Should(Equal([]string{ownName}))
		})
		It("should report the nodes for which too many others wait", func() {
			const waiting = 1000
			engine, failed := &hangingEngine{release: make(chan struct{})}, make(chan error, waiting)
			w := newWorld(cloud.Options{}, sharing, func(c *instance.Config) {
				c.BKE, c.OnLeaveFailed = engine, func(_ string, err error) { failed <- err }
			})
			for i := range waiting + 1 {
				Expect(failed).To(BeEmpty())
				request := instance.DeleteRequest{ID: fmt.Sprintf("71b9caeb-0000-4000-8000-%012d", i), Node: instance.Name(claimName, claimUID, clusterUID, i)}
				Expect(w.provider.Delete(ctx, request)).To(MatchError(instance.ErrNotFound))
			}
			Expect(failed).To(Receive(MatchError("1000 nodes wait for BizFly Kubernetes Engine already")))
			close(engine.release)
		})
		It("should report a node while it cannot be learned with what BKE is asked", func() {
			failed := make(chan error, 1)
			w := newWorld(cloud.Options{}, func(c *instance.Config) {
				c.BKE = &hangingEngine{values: c.BKE.(bke.Values), err: errors.New("no pool has a node yet")}
				c.OnLeaveFailed = func(_ string, err error) { failed <- err }
			})
			Expect(w.provider.Delete(ctx, gone(ownName))).To(MatchError(instance.ErrNotFound))
			Eventually(failed).Should(Receive(MatchError("no pool has a node yet")))
			Expect(w.count(leaveCluster)).To(BeZero())
		})
		DescribeTable("should skip it",
			func(change func(*instance.Config), name string) {
				failed := &atomic.Int32{}
				w := newWorld(cloud.Options{}, change, reporting(failed))
				Expect(w.provider.Delete(ctx, gone(name))).To(MatchError(instance.ErrNotFound))
				w.provider.AwaitLeaves()
				Expect(w.count(leaveCluster)).To(BeZero())
				Expect(failed.Load()).To(BeZero())
			},
			Entry("without BKE", func(c *instance.Config) { c.BKE = bke.Values{Token: "token"} }, ownName),
			Entry("without a token", func(c *instance.Config) { c.BKE = bke.Values{ClusterID: "cluster"} }, ownName),
			Entry("when the node's name is not known", func(*instance.Config) {}, ""),
			Entry("when the name is not provably that of a server of this cluster", func(*instance.Config) {}, "control-plane-1"),
			Entry("when the name is of another cluster's", func(*instance.Config) {}, instance.Name(claimName, claimUID, "another-cluster", 1)),
		)
		DescribeTable("should hold up nothing when BKE",
			func(fault cloud.Fault, rejects bool) {
				failed := make(chan string, 1)
				w := newWorld(cloud.Options{}, func(c *instance.Config) { c.OnLeaveFailed = func(node string, _ error) { failed <- node } })
				fault.Method, fault.Path = "POST", "/**/cluster_leave/*"
				w.box.AddFaults(1, fault)
				Expect(w.provider.Delete(ctx, gone(ownName))).To(MatchError(instance.ErrNotFound))
				Eventually(func() int { return w.count(leaveCluster) }).Should(Equal(1))
				server, _ := w.launch()
				w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
				if rejects {
					w.provider.AwaitLeaves()
					Expect(failed).To(Receive(Equal(ownName)))
				}
				Expect(w.count(leaveCluster)).To(Equal(1), "it is not asked again")
			},
			Entry("rejects it for good", cloud.Fault{Effect: cloud.EffectStatus, Status: 400}, true),
			Entry("hangs", cloud.Fault{Effect: cloud.EffectDelay, Delay: time.Hour}, false),
		)
	})
	It("should take nothing from a living duplicate of the same name", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		duplicate := w.box.AddServer(cloud.ServerSpec{Name: server.Name, Metadata: metadata(clusterUID, claimUID, 1)})
		// The disk of a server that is being built is attached to nothing yet.
		free := w.box.AddVolume(cloud.VolumeSpec{Name: server.Name + "_rootdisk", Bootable: true})
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: duplicate.ID, Node: server.Name})
		Expect(w.count(deleteVolume)).To(BeZero())
		Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(root(server), free.ID))

		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID, Node: server.Name})
		w.provider.AwaitLeaves()
		Expect(leftNodes(w)()).To(Equal([]string{server.Name}), "once: BKE knows the living server's node by that name")
		Expect(w.leftovers()).To(BeEmpty())
	})
	Context("of a server that a user renamed", func() {
		renamed := func(w *world, changes ...func(*instance.LaunchRequest)) *instance.Instance {
			GinkgoHelper()
			server, _ := w.launch(changes...)
			Eventually(func() string { return w.box.Servers()[0].Status }).Should(Equal(instance.StatusActive))
			Expect(w.box.ApplyServerEdit(server.ID, cloud.ServerEdit{Name: lo.ToPtr("mine")})).To(Succeed())
			Expect(w.box.Servers()[0].Name).To(Equal("mine"))
			return server
		}
		It("should remove its node from BKE by its name, and delete the disk named at launch", func() {
			w := newWorld(cloud.Options{})
			server := renamed(w)
			theirs := w.box.AddVolume(cloud.VolumeSpec{Name: "mine_rootdisk", Bootable: true})
			Expect(w.box.RemoveServer(server.ID)).To(Succeed())
			w.deletedWithLeftovers(w.restart(), instance.DeleteRequest{ID: server.ID, Node: server.Name})
			Eventually(leftNodes(w)).Should(Equal([]string{server.Name}))
			Expect(w.leftovers()).To(Equal([]string{"volume " + theirs.Name}))
		})
		It("should take the root disk that is called like a disk of the storage driver", func() {
			w := newWorld(cloud.Options{})
			server := renamed(w, func(r *instance.LaunchRequest) { r.NodeClaim.Name = "pvc-pool-abcde" })
			w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID})
			Expect(w.deleted()).To(Equal([][]string{{root(server)}}))
			Expect(w.leftovers()).To(BeEmpty())
		})
		It("should not be done in the place of its duplicate, which is still that node", func() {
			w := newWorld(cloud.Options{})
			server := renamed(w)
			duplicate := w.box.AddServer(cloud.ServerSpec{Name: server.Name, Metadata: metadata(clusterUID, claimUID, 1)})
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: duplicate.ID, Node: server.Name})
			w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, Node: server.Name})
			Eventually(leftNodes(w)).Should(Equal([]string{server.Name}))
			Expect(w.leftovers()).To(BeEmpty())
		})
	})
	It("should list nothing for each of many deletions", func() {
		w := newWorld(cloud.Options{Latency: time.Hour}, sharing)
		for range 20 {
			server := w.box.AddServer(cloud.ServerSpec{Name: "gc", Metadata: metadata(clusterUID, claimUID, 1)})
			w.provider.Flush()
			Expect(w.provider.Delete(ctx, instance.DeleteRequest{ID: server.ID})).To(Succeed())
			Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		}
		w.box.ResetRequests()
		Expect(collectOnce(w.provider)).To(Succeed())
		Expect(w.count(listServers)).To(BeNumerically("<=", 1))
		Expect(w.count(listVolumes)).To(BeNumerically("<=", 1))
	})
})

// leftNodes returns the nodes that have left BKE.
func leftNodes(w *world) func() []string { return func() []string { return w.box.State().LeftNodes } }

// hangingEngine gives the values of BKE, or its error, once it is released; at once where there is nothing to wait for.
type hangingEngine struct {
	values  bke.Values
	err     error
	release chan struct{}
}

// Values implements bke.Provider.
func (h *hangingEngine) Values(context.Context) (bke.Values, error) {
	if h.release != nil {
		<-h.release
	}
	return h.values, h.err
}

// editedVolume returns the volumes of the cloud with a change of one.
func editedVolume(w *world, id string, edit func(*cloud.Volume)) []cloud.Volume {
	return lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) cloud.Volume {
		if v.ID == id {
			edit(&v)
		}
		return v
	})
}

// deletions reads the metric.
func deletions(outcome string) float64 {
	GinkgoHelper()
	return counted("karpenter_bizfly_instance_deletions_total", outcome)
}
