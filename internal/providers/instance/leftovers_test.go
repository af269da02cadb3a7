// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"errors"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("What a deleted server leaves", func() {
	removed := func(w *world) *instance.Instance {
		GinkgoHelper()
		server, _ := w.launch()
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		return server
	}
	volumes := func(w *world) []string {
		return lo.Map(w.box.State().Volumes, func(v cloud.Volume, _ int) string { return v.ID })
	}

	It("should be found by its proven name, by a process that starts anew", func() {
		w := newWorld(cloud.Options{})
		removed(w)
		theirs := w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, "another-cluster", 1) + "_rootdisk", Bootable: true})
		forged := w.box.AddVolume(cloud.VolumeSpec{Name: claimName + "-0000000000000000ab_rootdisk", Bootable: true})
		Expect(collectOnce(w.restart())).To(Succeed())
		Eventually(func() []string { return volumes(w) }).Should(ConsistOf(theirs.ID, forged.ID))
	})
	DescribeTable("should not be deleted", func(prepare func(*world, *instance.Instance)) {
		w := newWorld(cloud.Options{})
		server := removed(w)
		prepare(w, server)
		fresh := w.restart()
		for range 3 {
			found, err := fresh.Leftovers(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, left := range found {
				_ = fresh.DeleteLeftover(ctx, left)
			}
		}
		Expect(w.count(deleteVolume)).To(BeZero())
		Expect(volumes(w)).NotTo(BeEmpty())
	},
		Entry("where a PersistentVolume names it", func(w *world, _ *instance.Instance) { w.protected.set(nil, w.box.State().Volumes[0].ID) }),
		Entry("where another server uses it", func(w *world, _ *instance.Instance) {
			Expect(w.box.AttachVolume(w.box.State().Volumes[0].ID, w.box.AddServer(cloud.ServerSpec{Name: "rescue"}).ID)).To(Succeed())
		}),
		Entry("where a server of that name lives", func(w *world, s *instance.Instance) {
			w.box.AddServer(cloud.ServerSpec{Name: s.Name, Metadata: metadata(clusterUID, "its own", 1)})
		}),
	)
	It("should not be deleted while it is not known what PersistentVolumes name", func() {
		w := newWorld(cloud.Options{})
		removed(w)
		w.protected.set(errors.New("no answer"))
		Expect(collectOnce(w.restart())).To(MatchError(ContainSubstring("no answer")))
		Expect(w.count(deleteVolume)).To(BeZero())
	})
	It("should not be deleted where a PersistentVolume names it since the last look", func() {
		w := newWorld(cloud.Options{})
		w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, clusterUID, 2) + "_rootdisk", Bootable: true})
		Expect(collectOnce(w.provider)).To(Succeed())
		Expect(w.count(deleteVolume)).To(Equal(1))
		restored := w.box.AddVolume(cloud.VolumeSpec{Name: ownName + "_rootdisk", Bootable: true})
		w.protected.set(nil, restored.ID)
		Expect(collectOnce(w.provider)).To(Succeed())
		Expect(w.count(deleteVolume)).To(Equal(1))
	})
	It("should not be deleted where a PersistentVolume names it since they were listed", func() {
		w := newWorld(cloud.Options{})
		for attempt := range 2 {
			w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, clusterUID, 2+attempt) + "_rootdisk", Bootable: true})
		}
		left, err := w.provider.Leftovers(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(left).To(HaveLen(2))
		Expect(w.provider.DeleteLeftover(ctx, left[0])).To(Succeed())
		w.protected.set(nil, left[1].ID)
		Expect(w.provider.DeleteLeftover(ctx, left[1])).To(Succeed())
		Expect(volumes(w)).To(ContainElement(left[1].ID))
		Expect(w.count(deleteVolume)).To(Equal(1))
	})
	DescribeTable("should be a disk that the cloud deletes in its status", func(status string, left bool) {
		w := newWorld(cloud.Options{})
		removed(w)
		w.answer("/volumes", editedVolume(w, w.box.State().Volumes[0].ID, func(v *cloud.Volume) { v.Status = status }))
		Expect(w.provider.Leftovers(ctx)).To(HaveLen(lo.Ternary(left, 1, 0)))
	},
		Entry("available", "available", true),
		Entry("failed", "error", true),
		Entry("not deleted when that was tried", "error_deleting", true),
		Entry("not one that is being created", "creating", false),
		Entry("not one that is being deleted", "deleting", false),
	)
	It("should be described by its server and its age", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		Expect(w.provider.Leftovers(ctx)).To(ConsistOf(And(HaveField("Server", server.Name), HaveField("Name", Not(BeEmpty())),
			HaveField("CreatedAt", Not(BeZero())))))
	})
	It("should be unknown while the servers cannot be listed", func() {
		w := newWorld(cloud.Options{})
		removed(w)
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectStatus, Status: 400})
		_, err := w.restart().Leftovers(ctx)
		Expect(err).To(MatchError(ContainSubstring("listing servers")))
	})
	It("should be kept where a user may have detached it to keep its data", func() {
		w := newWorld(cloud.Options{})
		data := w.box.AddVolume(cloud.VolumeSpec{Name: ownName + "_datadisk_1"})
		Expect(collectOnce(w.provider)).To(Succeed())
		Expect(w.count(deleteVolume)).To(BeZero())
		Expect(w.provider.Leftovers(ctx)).To(ConsistOf(And(HaveField("ID", data.ID), HaveField("Kept", ContainSubstring("detached")))))
	})
	It("should be kept where a user may have restored it from a snapshot", func() {
		w := newWorld(cloud.Options{})
		restored := w.box.AddVolume(cloud.VolumeSpec{Name: ownName + "_rootdisk", Bootable: true, SnapshotID: "3ff96d7f-0000-4000-8000-000000000000"})
		Expect(collectOnce(w.provider)).To(Succeed())
		Expect(w.count(deleteVolume)).To(BeZero())
		Expect(w.provider.Leftovers(ctx)).To(ContainElement(And(HaveField("ID", restored.ID), HaveField("Kept", ContainSubstring("snapshot")))))
	})
	It("should say what cannot be deleted, and go on with the others", func() {
		w := newWorld(cloud.Options{})
		broken := w.box.AddVolume(cloud.VolumeSpec{Name: ownName + "_rootdisk", Bootable: true})
		w.box.AddVolume(cloud.VolumeSpec{Name: instance.Name(claimName, claimUID, clusterUID, 2) + "_rootdisk", Bootable: true})
		w.box.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/volumes/" + broken.ID, Effect: cloud.EffectStatus, Status: 409,
			Message: "Volume has snapshots"})
		deleted := func(outcome string) float64 {
			return counted("karpenter_bizfly_instance_disk_deletions_total", outcome)
		}
		accepted, failed := deleted("accepted"), deleted("error")
		Expect(collectOnce(w.provider)).To(MatchError(And(ContainSubstring(broken.Name), ContainSubstring("has snapshots"))))
		Eventually(w.leftovers).Should(Equal([]string{"volume " + broken.Name}))
		Expect(deleted("accepted")).To(Equal(accepted + 1))
		Expect(deleted("error")).To(Equal(failed + 1))
	})
	It("should not be what a NodeClaim merely names", func() {
		w := newWorld(cloud.Options{})
		server, _ := w.launch()
		golden := w.box.AddVolume(cloud.VolumeSpec{Name: "golden-image-of-the-database", Bootable: true})
		named := w.box.AddVolume(cloud.VolumeSpec{Name: "database_rootdisk", Bootable: true})
		rescued := w.box.AddServer(cloud.ServerSpec{Name: "broken"}).VolumesAttached[0].ID
		request := instance.DeleteRequest{ID: server.ID, Node: "database", RecordedVolumes: []string{golden.ID, named.ID, rescued}}
		w.deletedWithLeftovers(w.provider, request)
		w.deletedWithLeftovers(w.restart(), request)
		Expect(volumes(w)).To(ConsistOf(golden.ID, named.ID, rescued))
	})
	It("should not be another server's root disk, though the record names it", func() {
		w := newWorld(cloud.Options{})
		broken := w.box.AddServer(cloud.ServerSpec{Name: "broken"})
		Expect(w.box.RemoveServer(broken.ID)).To(Succeed())
		theirs := broken.VolumesAttached[0].ID
		server, _ := w.launch()
		Expect(w.box.AttachVolume(theirs, server.ID)).To(Succeed())
		w.deletedWithLeftovers(w.provider, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{theirs}})
		Expect(volumes(w)).To(ConsistOf(theirs))
	})
})
