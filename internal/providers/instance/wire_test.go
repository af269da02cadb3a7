// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func gib(size string) *resource.Quantity { return lo.ToPtr(resource.MustParse(size)) }

// class changes the NodeClass of a request.
func class(change func(*v1alpha1.BizflyNodeClass)) func(*instance.LaunchRequest) {
	return func(r *instance.LaunchRequest) { change(r.NodeClass) }
}

// withDataDisks requests two of them, of different media.
func withDataDisks(r *instance.LaunchRequest) {
	r.NodeClass.Spec.DataDisks = []v1alpha1.DataDisk{{Size: gib("100Gi")}, {Size: gib("50Gi"), Medium: v1alpha1.DiskMediumHDD}}
}

var _ = Describe("Each field of a NodeClass", func() {
	var w *world
	BeforeEach(func() { w = newWorld(cloud.Options{}) })
	vpc := func(w *world, name string) string {
		GinkgoHelper()
		found, ok := lo.Find(w.box.Options().Catalog.VPCs["HN"], func(v cloud.VPC) bool { return v.Name == name })
		Expect(ok).To(BeTrue())
		return found.ID
	}
	// prepare changes the request once the cloud is known; wire is what the create request contains, and truth what the cloud created.
	type field struct {
		prepare func(*world, *instance.LaunchRequest)
		wire    func(*world) map[string]any
		truth   func(*world, cloud.Server)
	}
	DescribeTable("should reach the wire and become true",
		func(f field) {
			server, intent := w.launch(func(r *instance.LaunchRequest) { f.prepare(w, r) })
			for key, value := range f.wire(w) {
				Expect(w.created()[0]).To(HaveKeyWithValue(key, BeComparableTo(value)))
			}
			Expect(intent.Name).To(Equal(server.Name))
			if f.truth != nil {
				f.truth(w, w.box.Servers()[0])
			}
		},
		Entry("rootDisk by medium", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				r.NodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: gib("60Gi"), Medium: v1alpha1.DiskMediumHDD}
			},
			wire: func(*world) map[string]any {
				return map[string]any{"rootdisk": map[string]any{"size": 60.0, "volume_type": "PREMIUM-HDD1"}}
			},
		}),
		Entry("rootDisk by volume type", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				r.NodeClass.Spec.RootDisk = &v1alpha1.RootDisk{Size: gib("20Gi"), VolumeType: "PREMIUM-HDD1"}
			},
			wire: func(*world) map[string]any {
				return map[string]any{"rootdisk": map[string]any{"size": 20.0, "volume_type": "PREMIUM-HDD1"}}
			},
		}),
		Entry("dataDisks, each with the volume type of its medium, category and zone, in their order", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				withDataDisks(r)
				r.NodeClass.Spec.DataDisks = append(r.NodeClass.Spec.DataDisks, v1alpha1.DataDisk{Size: gib("10Gi"), VolumeType: "PREMIUM-HDD1"})
			},
			wire: func(*world) map[string]any {
				return map[string]any{"datadisks": []any{
					map[string]any{"size": 100.0, "volume_type": "PREMIUM-SSD1"}, map[string]any{"size": 50.0, "volume_type": "PREMIUM-HDD1"},
					map[string]any{"size": 10.0, "volume_type": "PREMIUM-HDD1"},
				}}
			},
			truth: func(w *world, server cloud.Server) {
				Expect(lo.Map(server.VolumesAttached, func(v cloud.AttachedVolume, _ int) int { return v.Size })).To(Equal([]int{40, 100, 50, 10}))
				Expect(server.Metadata).To(HaveKeyWithValue(v1alpha1.MetadataDataDisks, "3"))
			},
		}),
		Entry("dataDisks of another category and zone", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				r.Flavor, r.Category, r.Zone = "e2.2c_4g", "enterprise", "HN2"
				r.NodeClass.Spec.DataDisks = []v1alpha1.DataDisk{{Size: gib("10Gi")}}
			},
			wire: func(w *world) map[string]any {
				disk := map[string]any{"size": 10.0, "volume_type": w.volumeType("enterprise", "HN2", "SSD")}
				return map[string]any{"datadisks": []any{disk}, "availability_zone": "HN2"}
			},
		}),
		Entry("no dataDisks", field{
			prepare: func(*world, *instance.LaunchRequest) {},
			wire:    func(*world) map[string]any { return nil },
			truth: func(w *world, server cloud.Server) {
				Expect(w.created()[0]).ToNot(HaveKey("datadisks"))
				Expect(w.created()[0]).ToNot(HaveKey("ipv6"))
				Expect(server.VolumesAttached).To(HaveLen(1))
			},
		}),
		Entry("ipv6", field{
			prepare: func(_ *world, r *instance.LaunchRequest) { r.NodeClass.Spec.IPv6 = lo.ToPtr(true) },
			wire:    func(*world) map[string]any { return map[string]any{"ipv6": true} },
			truth:   func(_ *world, server cloud.Server) { Expect(server.IPAddresses.WANV6).To(HaveLen(1)) },
		}),
		Entry("publicIPv4", field{
			prepare: func(_ *world, r *instance.LaunchRequest) { r.NodeClass.Spec.PublicIPv4 = lo.ToPtr(false) },
			wire:    func(*world) map[string]any { return map[string]any{"is_created_wan": false} },
			truth:   func(w *world, _ cloud.Server) { Expect(w.box.State().WanIPs).To(BeEmpty()) },
		}),
		Entry("publicIPv4 by default", field{
			prepare: func(*world, *instance.LaunchRequest) {},
			wire:    func(*world) map[string]any { return map[string]any{"is_created_wan": true} },
			truth:   func(w *world, _ cloud.Server) { Expect(w.box.State().WanIPs).To(HaveLen(1)) },
		}),
		Entry("several networks, in the order of their ports", field{
			prepare: func(w *world, r *instance.LaunchRequest) {
				r.NodeClass.Status.Networks = []v1alpha1.NetworkStatus{{ID: vpc(w, "tiny")}, {ID: vpc(w, "default-vpc")}}
			},
			wire: func(w *world) map[string]any {
				return map[string]any{"vpc_network_ids": []any{vpc(w, "tiny"), vpc(w, "default-vpc")}}
			},
			truth: func(w *world, _ cloud.Server) {
				Expect(lo.Map(w.box.State().NetworkInterfaces, func(p cloud.NetworkInterface, _ int) string { return p.NetworkID })).
					To(Equal([]string{vpc(w, "tiny"), vpc(w, "default-vpc")}))
			},
		}),
		Entry("firewalls", field{
			prepare: func(w *world, r *instance.LaunchRequest) {
				r.NodeClass.Status.Firewalls = []v1alpha1.FirewallStatus{{ID: w.firewall("web")}, {ID: w.firewall("kubernetes-nodes")}}
			},
			wire: func(w *world) map[string]any {
				return map[string]any{"firewalls": []any{w.firewall("web"), w.firewall("kubernetes-nodes")}}
			},
			truth: func(w *world, server cloud.Server) {
				Expect(w.groups(server.ID)).To(HaveEach(ConsistOf(w.firewall("web"), w.firewall("kubernetes-nodes"))))
			},
		}),
		Entry("SSH key, and never a password", field{
			prepare: func(w *world, r *instance.LaunchRequest) {
				r.NodeClass.Status.SSHKeyName = w.box.Options().Catalog.SSHKeys[0].Name
			},
			wire: func(w *world) map[string]any {
				return map[string]any{"sshkey": w.box.Options().Catalog.SSHKeys[0].Name, "password": false}
			},
		}),
		Entry("network plan", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				r.NodeClass.Spec.NetworkPlan = v1alpha1.NetworkPlanFreeBandwidth
			},
			wire:  func(*world) map[string]any { return map[string]any{"network_plan": "free_bandwidth"} },
			truth: func(_ *world, server cloud.Server) { Expect(server.NetworkPlan).To(Equal("free_bandwidth")) },
		}),
		Entry("an image", field{
			prepare: func(*world, *instance.LaunchRequest) {},
			wire: func(w *world) map[string]any {
				return map[string]any{"os": map[string]any{"id": w.nodeClass().Status.Image().ID, "type": "image"}}
			},
		}),
		Entry("a snapshot", field{
			prepare: func(w *world, r *instance.LaunchRequest) {
				snapshot := w.box.Options().Catalog.Snapshots["HN"][0]
				r.NodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: snapshot.ID, Type: v1alpha1.ImageTypeSnapshot}}
			},
			wire: func(w *world) map[string]any {
				return map[string]any{"os": map[string]any{"id": w.box.Options().Catalog.Snapshots["HN"][0].ID, "type": "snapshot"}}
			},
			truth: func(_ *world, server cloud.Server) { Expect(server.Truth.ImageType).To(Equal("snapshot")) },
		}),
		Entry("billingPlan, which the disks get too", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				withDataDisks(r)
				r.BillingPlan = "saving_plan"
			},
			wire: func(*world) map[string]any { return map[string]any{"billing_plan": "saving_plan"} },
			truth: func(w *world, server cloud.Server) {
				Expect(w.box.State().Volumes).To(And(HaveLen(3), HaveEach(HaveField("BillingPlan", "saving_plan"))))
				Expect(server.BillingPlan).To(Equal("saving_plan"))
			},
		}),
		Entry("metadata", field{
			prepare: func(_ *world, r *instance.LaunchRequest) {
				r.NodeClass.Spec.Tags = map[string]string{"team": "data"}
			},
			wire:  func(*world) map[string]any { return nil },
			truth: func(_ *world, server cloud.Server) { Expect(server.Metadata).To(HaveKeyWithValue("team", "data")) },
		}),
		Entry("the hash of user data", field{
			prepare: func(_ *world, r *instance.LaunchRequest) { withUserData(r.NodeClass) },
			wire:    func(*world) map[string]any { return nil },
			truth: func(_ *world, server cloud.Server) {
				Expect(server.Metadata).To(HaveKeyWithValue(v1alpha1.MetadataUserDataHash, MatchRegexp("^[0-9a-f]{16}$")), "that of what it was launched with")
			},
		}),
	)
	It("should be recorded with the launch", func() {
		_, intent := w.launch(withDataDisks, class(func(n *v1alpha1.BizflyNodeClass) {
			n.Status.Firewalls = []v1alpha1.FirewallStatus{{ID: w.firewall("web")}}
		}))
		Expect(intent.Disks).To(HaveExactElements(And(HaveField("GiB", 40), HaveField("VolumeType", "PREMIUM-SSD1")),
			And(HaveField("GiB", 100), HaveField("VolumeType", "PREMIUM-SSD1")), And(HaveField("GiB", 50), HaveField("VolumeType", "PREMIUM-HDD1"))))
		Expect(intent.Networks).To(Equal([]string{w.box.BKE().NetworkID}))
		Expect(intent.Firewalls).To(Equal([]string{w.firewall("web")}))
	})
	It("should be read back", func() {
		server, _ := w.launch(withDataDisks, class(withUserData))
		Expect(server.UserDataHash).To(MatchRegexp("^[0-9a-f]{16}$"))
		Expect(server.DataDisks).To(Equal(2))
		w.provider.Flush()
		server = lo.Must(w.provider.Get(ctx, server.ID))
		Expect(server.Volumes).To(ConsistOf(
			And(HaveField("Root", true), HaveField("SizeGiB", 40), HaveField("Medium", v1alpha1.DiskMediumSSD)),
			And(HaveField("Root", false), HaveField("SizeGiB", 100), HaveField("Medium", v1alpha1.DiskMediumSSD)),
			And(HaveField("Root", false), HaveField("SizeGiB", 50), HaveField("Medium", v1alpha1.DiskMediumHDD)),
		))
	})
	DescribeTable("should be rejected before anything is sent where there is no such disk",
		func(zone string, change func(*v1alpha1.BizflyNodeClass), message string) {
			request, written := w.request(class(change))
			request.Zone = zone
			_, _, err := send(ctx, w.provider, request, written)
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
			Expect(written.all()).To(BeEmpty())
			Expect(w.box.Requests()).To(BeEmpty())
		},
		Entry("root disk", "HN9", func(*v1alpha1.BizflyNodeClass) {}, `spec.rootDisk.medium "SSD": zone HN9 has no such disks for premium servers`),
		Entry("data disk", "HN1", func(n *v1alpha1.BizflyNodeClass) {
			n.Spec.DataDisks = []v1alpha1.DataDisk{{Size: gib("10Gi"), VolumeType: "PREMIUM-SSD1"}, {Size: gib("10Gi"), VolumeType: "PREMIUM-TAPE1"}}
		}, `spec.dataDisks[1].volumeType "PREMIUM-TAPE1": zone HN1 has no such disks`),
	)
	It("should let no disk of another plan onto the server", func() {
		server, _ := w.launch(withDataDisks)
		Eventually(func() string { return w.box.Servers()[0].Status }).Should(Equal(instance.StatusActive))
		foreign := w.box.AddVolume(cloud.VolumeSpec{Name: "pvc-1", BillingPlan: "saving_plan"})
		Expect(w.attach(foreign.ID, server.ID)).To(Equal(400))
		own := w.box.AddVolume(cloud.VolumeSpec{Name: "pvc-2"})
		Expect(w.attach(own.ID, server.ID)).To(Equal(200))
	})
})

var _ = Describe("Data disks", func() {
	var w *world
	BeforeEach(func() { w = newWorld(cloud.Options{}) })
	It("should be deleted with a server that has no record of them, and those of others stay", func() {
		server, _ := w.launch(withDataDisks)
		Eventually(func() string { return w.box.Servers()[0].Status }).Should(Equal(instance.StatusActive))
		csi := w.box.AddVolume(cloud.VolumeSpec{Name: "pvc-0d6e", Description: "ns/claim by csi-bizflycloud"})
		theirs := w.box.AddVolume(cloud.VolumeSpec{Name: "theirs"})
		for _, id := range []string{csi.ID, theirs.ID} {
			Expect(w.box.AttachVolume(id, server.ID)).To(Succeed())
		}
		w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(ConsistOf("volume pvc-0d6e", "volume theirs"))
	})
	It("should be deleted with a server that a user renamed", func() {
		server, _ := w.launch(withDataDisks)
		Expect(w.box.ApplyServerEdit(server.ID, cloud.ServerEdit{Name: lo.ToPtr("mine")})).To(Succeed())
		w.deleteUntilGone(w.restart(), instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(BeEmpty())
	})
	It("should stay where a PersistentVolume names them", func() {
		server, _ := w.launch(withDataDisks)
		kept := w.box.Servers()[0].VolumesAttached[1]
		w.protected.set(nil, kept.ID)
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID, RecordedVolumes: []string{kept.ID}})
		Expect(w.leftovers()).To(ConsistOf("volume " + kept.Name))
	})
	It("should not be taken for ours on a server that was launched without any", func() {
		server, _ := w.launch()
		theirs := w.box.AddVolume(cloud.VolumeSpec{Name: "data_datadisk_1"})
		named := w.box.AddVolume(cloud.VolumeSpec{Name: "other-server_datadisk_1"})
		for _, id := range []string{theirs.ID, named.ID} {
			Expect(w.box.AttachVolume(id, server.ID)).To(Succeed())
		}
		w.deleteUntilGone(w.provider, instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(ConsistOf("volume data_datadisk_1", "volume other-server_datadisk_1"))
	})
	It("should stay, and be reported, where the server was deleted from outside without them", func() {
		server, _ := w.launch(withDataDisks)
		Expect(w.box.RemoveServer(server.ID)).To(Succeed())
		Expect(w.leftovers()).To(HaveLen(3))
		w.deletedWithLeftovers(w.restart(), instance.DeleteRequest{ID: server.ID})
		Expect(w.leftovers()).To(HaveEach(ContainSubstring("_datadisk")))
		Expect(w.provider.Leftovers(ctx)).To(And(HaveLen(2), HaveEach(HaveField("Kept", ContainSubstring("detached")))))
	})
	It("should not outlive a launch whose process died before it knew the server", func() {
		w := newWorld(cloud.Options{Latency: 100 * time.Millisecond, HideBuilding: true})
		w.box.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: cloud.EffectLostResponse, Count: 1})
		request, _ := w.request(withDataDisks)
		dying, die := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = send(dying, w.provider, request, nil) // no caller reads its result
		}()
		Eventually(w.box.Servers).ShouldNot(BeEmpty())
		die()
		<-done
		Eventually(func() ([]*instance.Instance, error) { return w.provider.List(ctx) }).Should(HaveLen(1))
		collectAll(w)
	})
})

var _ = Describe("Data disks without a record", func() {
	DescribeTable("should not outlive a launch that fails",
		func(options cloud.Options, fault cloud.Fault) {
			w := newWorld(options)
			fault.Method, fault.Path = "POST", "/servers"
			w.box.AddFaults(1, fault)
			request, _ := w.request(withDataDisks)
			_, _, err := send(ctx, w.provider, request, nil)
			Expect(err).To(MatchError(instance.ErrBuildFailed))
			collectAll(w)
		},
		Entry("with a server in ERROR", cloud.Options{}, cloud.Fault{Effect: cloud.EffectErrorServer}),
		Entry("for want of capacity", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true}),
		Entry("with disks and no server", cloud.Options{HideBuilding: true}, cloud.Fault{Effect: cloud.EffectTaskFailed, Orphan: true}),
	)
})

// withUserData gives a NodeClass a template that its status does not know yet.
func withUserData(nodeClass *v1alpha1.BizflyNodeClass) {
	nodeClass.Spec.UserData = lo.ToPtr("#!/bin/bash\ntrue\n")
	nodeClass.Status.UserDataHash = "that of a minute ago"
}
