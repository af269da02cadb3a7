/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package instance_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// reports are the calls of OnLeftover.
type reports struct {
	mu    sync.Mutex
	kinds []instance.LeftoverKind
	errs  []error
}

func (r *reports) add(_ context.Context, server string, kind instance.LeftoverKind, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	Expect(server).To(Equal(ownName))
	r.kinds, r.errs = append(r.kinds, kind), append(r.errs, err)
}

var _ = Describe("What a deleted server leaves", func() {
	var now *clocktesting.FakeClock
	var reported *reports
	BeforeEach(func() { now, reported = clocktesting.NewFakeClock(time.Now()), &reports{} })
	controlled := func(c *instance.Config) { c.Clock, c.OnLeftover = now, reported.add }
	rejected := func(path string, status int, message string) cloud.Fault {
		return cloud.Fault{Method: http.MethodDelete, Path: path, Effect: cloud.EffectStatus, Status: status, Message: message}
	}
	// left are disks and addresses that are still there.
	left := func(w *world) int {
		state := w.box.State()
		return len(state.Volumes) + len(state.WanIPs) + len(state.NetworkInterfaces)
	}

	DescribeTable("should keep its NodeClaim for ten minutes and no longer, and be tried again later and later",
		func(kind instance.LeftoverKind, route string, faults ...cloud.Fault) {
			w := newWorld(cloud.Options{})
			server, _ := w.launch()
			if kind == instance.LeftoverAddress {
				w.box.PayForAddresses(server.ID)
			}
			w.box.AddFaults(1, faults...)
			provider := w.restart(controlled)
			Expect(w.box.RemoveServer(server.ID)).To(Succeed())
			request := instance.DeleteRequest{ID: server.ID, Name: server.Name}
			for range 10 {
				Expect(errors.Is(provider.Delete(ctx, request), instance.ErrNotFound)).To(BeFalse())
				now.Step(time.Minute)
			}
			Expect(reported.kinds).To(BeEmpty())
			Expect(provider.Delete(ctx, request)).To(MatchError(instance.ErrNotFound), "the server is gone, and the wait is over")
			Expect(lo.Uniq(reported.kinds)).To(Equal([]instance.LeftoverKind{kind}))
			before := len(reported.kinds)

			w.box.ResetRequests()
			for range 120 {
				now.Step(time.Minute)
				Expect(provider.Delete(ctx, request)).To(MatchError(instance.ErrNotFound))
				_, err := provider.ReconcileDeletions(ctx, instance.DeletionsRequest{})
				Expect(err).NotTo(HaveOccurred())
			}
			// After 1, 2, 4, 8, 16 and then every 30 minutes, of each thing that is left.
			Expect(w.count(route)).To(And(BeNumerically(">=", 5), BeNumerically("<=", 9*before)))
			Expect(reported.kinds).To(HaveLen(before), "it is reported once")

			w.box.ClearFaults()
			now.Step(31 * time.Minute)
			Eventually(func() int {
				_ = reconcileOnce(provider, instance.DeletionsRequest{})
				now.Step(31 * time.Minute)
				return left(w)
			}).Should(BeZero())
			if kind == instance.LeftoverNode {
				Expect(w.box.State().LeftNodes).To(ContainElement(server.Name))
			}
		},
		Entry("a disk with a snapshot, which is a conflict", instance.LeftoverDisk, deleteVolume, rejected("/volumes/*", 409, "Volume has snapshots")),
		Entry("a disk with a snapshot, in Cinder's words", instance.LeftoverDisk, deleteVolume,
			rejected("/volumes/*", 400, "Invalid volume: Volume status must be available or error and must not have snapshots")),
		Entry("a disk, for a reason that no table has", instance.LeftoverDisk, deleteVolume, rejected("/volumes/*", 418, "?")),
		Entry("addresses in use", instance.LeftoverAddress, "DELETE /iaas-cloud/api/wanips/{id}",
			rejected("/wanips/*", 409, "Address is in use"), rejected("/network-interfaces/*", 409, "Address is in use")),
		Entry("addresses that may not be released", instance.LeftoverAddress, "DELETE /iaas-cloud/api/wanips/{id}",
			rejected("/wanips/*", 403, "not allowed"), rejected("/network-interfaces/*", 403, "not allowed")),
		Entry("a node in BKE", instance.LeftoverNode, leaveCluster,
			cloud.Fault{Method: "POST", Path: "/**/cluster_leave/*", Effect: cloud.EffectStatus, Status: 400}),
	)

	It("should be reported once when it is the server itself, whose NodeClaim stays", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		w.box.AddFaults(1, rejected("/servers/*", 409, "Cannot delete a server in this state"))
		provider := w.restart(controlled)
		for range 20 {
			Expect(errors.Is(provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, Name: server.Name}), instance.ErrNotFound)).To(BeFalse())
			now.Step(time.Minute)
		}
		Expect(reported.kinds).To(Equal([]instance.LeftoverKind{instance.LeftoverServer}))
	})
	It("should be found by a process that starts anew and has no NodeClaim to ask", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		paid := w.box.PayForAddresses(server.ID)
		theirs := w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, "another-cluster", 1) + "_rootdisk", Bootable: true})
		forged := w.box.AddVolume(cloud.VolumeSpec{Name: claimName + "-0000000000000000ab_rootdisk", Bootable: true})
		data := w.box.AddVolume(cloud.VolumeSpec{Name: server.Name + "_datadisk_1"})
		Expect(paid).NotTo(BeEmpty())
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		fresh := w.restart(controlled)
		for range 10 {
			Expect(reconcileOnce(fresh, instance.DeletionsRequest{})).To(Succeed())
			now.Step(59 * time.Second)
		}
		Expect(left(w)).To(Equal(4+len(paid)), "a launch may be waited for")
		now.Step(time.Minute)
		Eventually(func() int { Expect(reconcileOnce(fresh, instance.DeletionsRequest{})).To(Succeed()); return left(w) }).Should(Equal(3))
		// Nothing but its name is known of the data disk: a user may have detached it to keep it.
		Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(theirs.ID, forged.ID, data.ID))
	})
	DescribeTable("should not be touched", func(request instance.DeletionsRequest, prepare func(*world, *instance.Instance)) {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		prepare(w, server)
		fresh := w.restart(controlled)
		for range 30 {
			_ = reconcileOnce(fresh, request)
			now.Step(time.Minute)
		}
		Expect(w.count(deleteVolume)).To(BeZero())
		Expect(w.box.State().Volumes).NotTo(BeEmpty())
	},
		Entry("while a NodeClaim without a provider ID waits for a server of that name", instance.DeletionsRequest{Launching: sets.New(ownName)},
			func(*world, *instance.Instance) {}),
		Entry("where a PersistentVolume names it", instance.DeletionsRequest{},
			func(w *world, _ *instance.Instance) { w.protected.set(nil, w.box.State().Volumes[0].ID) }),
		Entry("while it is not known what PersistentVolumes name", instance.DeletionsRequest{}, func(w *world, _ *instance.Instance) {
			w.protected.set(errors.New("no answer"))
		}),
		Entry("in a dry run", instance.DeletionsRequest{DryRun: true}, func(*world, *instance.Instance) {}),
		Entry("where another server uses it", instance.DeletionsRequest{}, func(w *world, _ *instance.Instance) {
			Expect(w.box.AttachVolume(w.box.State().Volumes[0].ID, w.box.AddServer(cloud.ServerSpec{Name: "rescue"}).ID)).To(Succeed())
		}),
		Entry("where a server of that name lives", instance.DeletionsRequest{}, func(w *world, s *instance.Instance) {
			w.box.AddServer(cloud.ServerSpec{Name: s.Name, Metadata: metadata(clusterUID, claimUID, 1)})
		}),
	)
	It("should not be what a NodeClaim merely names", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		golden := w.box.AddVolume(cloud.VolumeSpec{Name: "golden-image-of-the-database", Bootable: true})
		named := w.box.AddVolume(cloud.VolumeSpec{Name: "database_rootdisk", Bootable: true})
		rescued := w.box.AddServer(cloud.ServerSpec{Name: "broken"}).VolumesAttached[0].ID
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, Name: "database", RecordedVolumes: []string{golden.ID, named.ID, rescued}})
		w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID, Name: "database", RecordedVolumes: []string{golden.ID, named.ID, rescued}})
		Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(golden.ID, named.ID, rescued))
		Expect(w.box.State().LeftNodes).To(Equal([]string{server.Name}))
	})
	It("should not be another server's root disk that was attached to rescue it, though the record names it", func() {
		w := newWorld(cloud.Options{})
		broken := w.box.AddServer(cloud.ServerSpec{Name: "broken"})
		Expect(w.box.RemoveServer(broken.ID)).To(Succeed())
		theirs := broken.VolumesAttached[0].ID
		server, _ := w.launch()
		Expect(w.box.AttachVolume(theirs, server.ID)).To(Succeed())
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{theirs}})
		Expect(lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ConsistOf(theirs))
	})
})
