// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const api = "/iaas-cloud/api"

var _ = Describe("What a request contains", func() {
	ctx := context.Background()
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })
	rejected := func(method, path string, body any, status int, said string) {
		GinkgoHelper()
		a := b.call(method, api+path, body)
		Expect(a.status).To(Equal(status), "%s", a.body)
		Expect(a.object()["message"]).To(ContainSubstring(said))
	}

	Describe("of a volume", func() {
		volume := func(change map[string]any) answer {
			GinkgoHelper()
			body := map[string]any{"name": "v", "description": "", "size": 50, "volume_type": "PREMIUM-SSD1", "category": "premium", "availability_zone": "HN1"}
			return b.call(http.MethodPost, api+"/volumes", lo.Assign(body, change))
		}
		DescribeTable("should be its type, also by the medium alone", func(kind, name string) {
			Expect(volume(map[string]any{"volume_type": kind}).object()).To(And(HaveKeyWithValue("volume_type", name), HaveKeyWithValue("status", "available")))
		},
			Entry("SSD", "SSD", "PREMIUM-SSD1"), Entry("HDD", "HDD", "PREMIUM-HDD1"), Entry("text", "PREMIUM HDD", "PREMIUM-HDD1"),
			Entry("name", "PREMIUM-HDD1", "PREMIUM-HDD1"))
		It("should be the snapshot that it is made from", func() {
			snapshot := b.Options().Catalog.Snapshots["HN"][0]
			made := volume(map[string]any{"snapshot_id": snapshot.ID}).object()
			Expect(made).To(And(HaveKeyWithValue("snapshot_id", snapshot.ID), HaveKeyWithValue("bootable", true)))
			Expect(volume(nil).object()).To(HaveKeyWithValue("snapshot_id", BeNil()))
			Expect(volume(map[string]any{"snapshot_id": "unknown"}).status).To(Equal(404))
			small := volume(map[string]any{"snapshot_id": snapshot.ID, "size": 10})
			Expect(small.status).To(Equal(400))
			Expect(small.object()["message"]).To(ContainSubstring("cannot be smaller than the snapshot size 20GB"))
			Expect(volume(map[string]any{"billing_plan": "spot_instance"}).status).To(Equal(400))
			Expect(b.call(http.MethodPost, servers, b.raw(map[string]any{"os": map[string]any{"id": snapshot.ID, "type": "snapshot"}})).status).To(Equal(200))
			root, _ := lo.Find(b.State().Volumes, func(v cloud.Volume) bool { return v.AttachedType == "rootdisk" })
			Expect(root.SnapshotID).To(HaveValue(Equal(snapshot.ID)))
		})
		It("should keep it from being deleted while it has snapshots, also with its server", func() {
			server := b.launch(b.request("node-1"))
			root := server.AttachedVolumes[0].ID
			snapshot, err := b.client.CloudServer.Snapshots().Create(ctx, &gobizfly.SnapshotCreateRequest{Name: "s", VolumeID: root, Force: true})
			Expect(err).ToNot(HaveOccurred())
			_, err = b.client.CloudServer.Delete(ctx, server.ID, []string{root})
			Expect(err).ToNot(HaveOccurred())
			b.Advance(latency)
			Expect(b.Servers()).To(BeEmpty())
			Expect(b.State().Volumes).To(HaveExactElements(And(HaveField("ID", root), HaveField("Status", "available"))))
			rejected(http.MethodDelete, "/volumes/"+root, nil, 400, "still has 1 dependent snapshots")
			Expect(b.client.CloudServer.Snapshots().Delete(ctx, snapshot.ID)).To(Succeed())
			Expect(b.client.CloudServer.Volumes().Delete(ctx, root)).To(Succeed())
			b.Advance(latency)
			Expect(b.State().Volumes).To(BeEmpty())
		})
	})
})
