// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"net/http"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/utils/ptr"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Internet gateways", func() {
	ctx := context.Background()
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })

	It("should give networks a way out, one each", func() {
		gateways := b.client.CloudServer.InternetGateways()
		list, err := gateways.List(ctx, gobizfly.ListInternetGatewayOpts{})
		Expect(err).ToNot(HaveOccurred())
		Expect(list.InternetGateways).To(HaveExactElements(HaveField("InterfacesInfo", HaveExactElements(HaveField("NetworkInfo.Name", "default-vpc")))))
		network := b.BKE().NetworkID
		made, err := gateways.Create(ctx, gobizfly.CreateInternetGatewayPayload{Name: "igw", Description: ptr.To("out"), NetworkIDs: &[]string{network}})
		Expect(err).ToNot(HaveOccurred())
		Expect(made).To(And(HaveField("Status", "ACTIVE"), HaveField("AvailabilityZones", []string{"HN1"}), HaveField("ExTernalGatewayInfo.EnableSnat", true),
			HaveField("InterfacesInfo", HaveExactElements(And(HaveField("NetworkID", network), HaveField("IPAddress", "10.20.0.1"))))))
		vpc, err := b.client.CloudServer.VPCNetworks().Get(ctx, network)
		Expect(err).ToNot(HaveOccurred())
		Expect(vpc.InternetGateway).To(HaveValue(Equal(made.ID)))
		_, err = gateways.Create(ctx, gobizfly.CreateInternetGatewayPayload{Name: "second", NetworkIDs: &[]string{network}})
		Expect(err).To(MatchError(ContainSubstring("has an internet gateway already")))

		changed, err := gateways.Update(ctx, made.ID, gobizfly.UpdateInternetGatewayPayload{Name: "renamed", NetworkIDs: []string{}})
		Expect(err).ToNot(HaveOccurred())
		Expect(changed).To(And(HaveField("Name", "renamed"), HaveField("Description", ""), HaveField("InterfacesInfo", BeEmpty())))
		Expect(b.get("/iaas-cloud/api/vpc-networks?igw_attached=true").json()).To(HaveLen(1))
		Expect(gateways.Delete(ctx, made.ID)).To(Succeed())
		_, err = gateways.Get(ctx, made.ID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
	})
	It("should be rejected where something does not exist", func() {
		path := "/iaas-cloud/api/internet-gateways"
		Expect(b.call(http.MethodPost, path, map[string]any{"name": "x", "network_ids": []string{"x"}}).status).To(Equal(400))
		Expect(b.call(http.MethodPost, path, map[string]any{"name": "x", "availability_zone": "HCM1"}).status).To(Equal(400))
		Expect(b.call(http.MethodPost, path, map[string]any{"network_ids": []string{}}).status).To(Equal(400))
		Expect(b.get(path + "?name=nothing").object()["internet_gateways"]).To(BeEmpty())
	})
})

var _ = Describe("Scheduled backups", func() {
	ctx := context.Background()
	var b *box
	BeforeEach(func() { b = newBox(cloud.Options{}) })

	It("should take a snapshot each day at their hour, keep the last few, and so keep the disk", func() {
		server := b.launch(b.request("node-1")) // at 12:06 in Hà Nội
		root := server.AttachedVolumes[0].ID
		backups := b.client.CloudServer.ScheduledVolumeBackups()
		made, err := backups.Create(ctx, &gobizfly.CreateBackupPayload{ResourceID: root, Frequency: "1440", Size: "2", Hour: 2})
		Expect(err).ToNot(HaveOccurred())
		Expect([]any{made.ResourceType, made.Type, made.ScheduledHour, made.NextRunAt, made.Volume.ID}).
			To(Equal([]any{"volume", "volume_snapshot", 2, "2026-03-05T02:00:00.000000", root}))
		Expect(made.ID).To(HaveLen(24))
		for range 3 {
			b.Advance(24 * time.Hour)
		}
		b.login(b.Credentials().ProjectID, "HN")
		detail, err := backups.Get(ctx, made.ID)
		if err != nil { // the token of the first client has expired
			detail, err = b.login(b.Credentials().ProjectID, "HN").CloudServer.ScheduledVolumeBackups().Get(ctx, made.ID)
		}
		Expect(err).ToNot(HaveOccurred())
		Expect(lo.Map(detail.Snapshots, func(s gobizfly.Snapshot, _ int) string { return s.Name })).
			To(Equal([]string{"node-1_rootdisk@07-03-2026", "node-1_rootdisk@06-03-2026"}))
		Expect(detail.Snapshots).To(HaveEach(HaveField("Metadata", And(HaveKeyWithValue("type", "backup"), HaveKeyWithValue("job_id", made.ID)))))

		client := b.login(b.Credentials().ProjectID, "HN").CloudServer
		_, err = client.Delete(ctx, server.ID, []string{root})
		Expect(err).ToNot(HaveOccurred())
		b.Advance(latency)
		Expect(b.State().Volumes).To(HaveLen(1), "its snapshots keep the root disk")
		Expect(client.Volumes().Delete(ctx, root)).To(MatchError(ContainSubstring("dependent snapshots")))
		Expect(client.ScheduledVolumeBackups().Delete(ctx, made.ID)).To(Succeed())
		for _, snapshot := range detail.Snapshots {
			Expect(client.Snapshots().Delete(ctx, snapshot.ID)).To(Succeed())
		}
		Expect(client.Volumes().Delete(ctx, root)).To(Succeed())
	})
	It("should change their schedule", func() {
		disk := b.AddVolume(cloud.VolumeSpec{Name: "data"})
		backups := b.client.CloudServer.ScheduledVolumeBackups()
		made, err := backups.Create(ctx, &gobizfly.CreateBackupPayload{ResourceID: disk.ID, Frequency: "1440", Size: "2", Hour: 2})
		Expect(err).ToNot(HaveOccurred())
		changed, err := backups.Update(ctx, made.ID, &gobizfly.UpdateBackupPayload{Frequency: "60", Hour: 13})
		Expect(err).ToNot(HaveOccurred())
		Expect([]any{changed.Options.Frequency, changed.Options.Size, changed.ScheduledHour}).To(Equal([]any{"60", "2", 13}))
		b.Advance(2 * time.Hour) // 14:06
		Expect(b.Options().Catalog.Snapshots["HN"]).To(HaveLen(3), "the catalog's, and those of 13:00 and 14:00")
		Expect(backups.List(ctx)).To(HaveLen(1))
		path := "/iaas-cloud/api/backup"
		for _, body := range []map[string]any{
			{"resource_id": disk.ID, "frequency": "often", "size": "1"}, {"resource_id": disk.ID, "frequency": "60", "size": "0"},
			{"resource_id": disk.ID, "frequency": "60", "size": "1"}, {"resource_id": "x", "frequency": "60", "size": "1"},
		} {
			Expect(b.call(http.MethodPost, path, body).status).To(BeElementOf(400, 404, 409))
		}
		Expect(b.call(http.MethodPut, path+"/"+made.ID, map[string]any{"hour": 24}).status).To(Equal(400))
	})
})

var _ = Describe("Worker pools", func() {
	ctx := context.Background()
	var b *box
	var uid string
	BeforeEach(func() {
		b = newBox(cloud.Options{})
		uid = b.BKE().ClusterUID
	})
	pool := func() gobizfly.WorkerPool {
		return gobizfly.WorkerPool{
			Name: "workers", Flavor: "p2.2c_4g", ProfileType: "premium", VolumeType: "PREMIUM-SSD1", VolumeSize: 40, AvailabilityZone: "HN1", DesiredSize: 2,
			Labels: map[string]string{"team": "ml"}, Taints: []gobizfly.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}, BillingPlan: "on_demand",
		}
	}
	add := func(p gobizfly.WorkerPool) (*gobizfly.ExtendedWorkerPool, error) {
		GinkgoHelper()
		made, err := b.client.KubernetesEngine.AddWorkerPools(ctx, uid, &gobizfly.AddWorkerPoolsRequest{WorkerPools: []gobizfly.WorkerPool{p}})
		if err != nil {
			return nil, err
		}
		return made[0], nil
	}
	get := func(id string) *gobizfly.WorkerPoolWithNodes {
		GinkgoHelper()
		p, err := b.client.KubernetesEngine.GetClusterWorkerPool(ctx, uid, id)
		Expect(err).ToNot(HaveOccurred())
		return p
	}

	It("should be servers that join the cluster, and grow, shrink and go", func() {
		made, err := add(pool())
		Expect(err).ToNot(HaveOccurred())
		Expect(made).To(And(HaveField("ProvisionStatus", "PENDING_PROVISION"), HaveField("ShootID", uid)))
		b.Advance(latency)
		detail := get(made.UID)
		Expect(detail.ProvisionStatus).To(Equal("PROVISIONED"))
		Expect(detail.Nodes).To(HaveLen(2))
		Expect(detail.Nodes).To(HaveEach(And(HaveField("Status", "ACTIVE"), HaveField("IPAddresses", HaveLen(1)))))
		first := b.Servers()[0]
		Expect(first).To(And(HaveField("ID", detail.Nodes[0].PhysicalID), HaveField("Name", detail.Nodes[0].Name),
			HaveField("Metadata", And(HaveKeyWithValue("bke_pool_id", made.UID), HaveKeyWithValue("bke_cluster_id", uid)))))
		Expect(first.Truth.UserData).To(And(ContainSubstring("bke.bizflycloud.vn/node-id="+detail.Nodes[0].ID), ContainSubstring("team=ml"),
			ContainSubstring("--register-with-taints=gpu=yes:NoSchedule"), ContainSubstring("bootstrap.sh")))

		cluster, err := b.client.KubernetesEngine.Get(ctx, uid)
		Expect(err).ToNot(HaveOccurred())
		Expect(cluster.WorkerPools).To(HaveExactElements(HaveField("UID", made.UID)))
		Expect(b.client.KubernetesEngine.UpdateClusterWorkerPool(ctx, uid, made.UID, &gobizfly.UpdateWorkerPoolRequest{DesiredSize: 3})).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveLen(3))
		Expect(b.client.KubernetesEngine.UpdateClusterWorkerPool(ctx, uid, made.UID, &gobizfly.UpdateWorkerPoolRequest{DesiredSize: 1})).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveExactElements(HaveField("ID", detail.Nodes[0].ID)))
		Expect(b.State().Volumes).To(HaveLen(1), "root disks go with their nodes")

		Expect(b.client.KubernetesEngine.RecycleNode(ctx, uid, made.UID, detail.Nodes[0].PhysicalID)).To(Succeed())
		b.Advance(latency)
		Expect(get(made.UID).Nodes).To(HaveExactElements(HaveField("ID", Not(Equal(detail.Nodes[0].ID)))))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPool(ctx, uid, made.UID)).To(Succeed())
		b.Advance(latency)
		Expect(b.Servers()).To(BeEmpty())
		_, err = b.client.KubernetesEngine.GetDetailWorkerPool(ctx, made.UID)
		Expect(err).To(MatchError(gobizfly.ErrNotFound))
	})

	It("should scale by themselves or not, between their sizes", func() {
		made, err := add(pool())
		Expect(err).ToNot(HaveOccurred())
		update := func(body map[string]any) answer {
			return b.call(http.MethodPatch, "/api/kubernetes-engine/_/"+uid+"/"+made.UID, body)
		}
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 3, "max_size": 5}).status).To(Equal(400), "the size is 2")
		Expect(update(map[string]any{"enable_autoscaling": true, "min_size": 2, "max_size": 5}).object()).To(HaveKeyWithValue("enable_autoscaling", true))
		b.Advance(latency)
		node := get(made.UID).Nodes[0]
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.PhysicalID)).To(MatchError(gobizfly.ErrNotFound))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.ID)).To(MatchError(ContainSubstring("least size")))
		Expect(update(map[string]any{"enable_autoscaling": false}).object()).To(HaveKeyWithValue("enable_autoscaling", false))
		Expect(b.client.KubernetesEngine.DeleteClusterWorkerPoolNode(ctx, uid, made.UID, node.ID)).To(Succeed())
		Expect(get(made.UID)).To(And(HaveField("DesiredSize", 1), HaveField("Nodes", HaveLen(1))))
		Expect(update(map[string]any{"update_strategy": "recreate"}).status).To(Equal(400))
	})

	It("should be made of servers that exist, and scale between sizes that are given", func() {
		servers := []string{b.AddServer(cloud.ServerSpec{Name: "a"}).ID, b.AddServer(cloud.ServerSpec{Name: "b"}).ID}
		made := get(b.AddWorkerPool(cloud.PoolSpec{Name: "static", Servers: servers, MinSize: 1, MaxSize: 3}))
		Expect(made.WorkerPool).To(And(HaveField("Name", "static"), HaveField("DesiredSize", 2), HaveField("EnableAutoScaling", true),
			HaveField("MinSize", 1), HaveField("MaxSize", 3)))
		Expect(made.Nodes).To(HaveExactElements(HaveField("PhysicalID", servers[0]), HaveField("PhysicalID", servers[1])))
		Expect(get(b.AddWorkerPool(cloud.PoolSpec{Name: "empty"})).EnableAutoScaling).To(BeFalse())
		Expect(func() { b.AddWorkerPool(cloud.PoolSpec{Name: "x", Servers: []string{"nowhere"}}) }).To(PanicWith(ContainSubstring("nowhere")))
	})

	It("should keep what a change leaves out, in one mode also autoscaling switched off", func() {
		b = newBox(cloud.Options{Modes: []string{"pools-keep-autoscaling"}})
		id := b.AddWorkerPool(cloud.PoolSpec{Name: "static", Servers: []string{b.AddServer(cloud.ServerSpec{Name: "a"}).ID}, MinSize: 1, MaxSize: 3})
		for _, body := range []map[string]any{{}, {"enable_autoscaling": false}} {
			changed := b.call(http.MethodPatch, "/api/kubernetes-engine/_/"+b.BKE().ClusterUID+"/"+id, body)
			Expect(changed.object()).To(And(HaveKeyWithValue("enable_autoscaling", true), HaveKeyWithValue("max_size", 3.0), HaveKeyWithValue("desired_size", 1.0)))
		}
	})

	DescribeTable("should be rejected as a create request of servers is", func(change func(*gobizfly.WorkerPool), said string) {
		p := pool()
		change(&p)
		_, err := add(p)
		Expect(err).To(MatchError(ContainSubstring(said)))
		Expect(b.Servers()).To(BeEmpty())
	},
		Entry("an unknown flavor", func(p *gobizfly.WorkerPool) { p.Flavor = "x" }, "could not be found"),
		Entry("another region's zone", func(p *gobizfly.WorkerPool) { p.AvailabilityZone = "HCM1" }, "availability zone"),
		Entry("an unknown version", func(p *gobizfly.WorkerPool) { p.Version = "v1.2.3" }, "Version v1.2.3"),
		Entry("a version without an image", func(p *gobizfly.WorkerPool) { p.Version = "v1.35.1" }, "Version v1.35.1"),
		Entry("more than the package allows", func(p *gobizfly.WorkerPool) { p.DesiredSize = 51 }, "allows 50 nodes"),
		Entry("a name that no node can have", func(p *gobizfly.WorkerPool) { p.Name = "Workers" }, "name"),
	)

	It("should have packages and a kubeconfig", func() {
		packages, err := b.client.KubernetesEngine.GetPackages(ctx, "standard")
		Expect(err).ToNot(HaveOccurred())
		Expect(packages.Packages).To(HaveLen(2))
		path := "/api/kubernetes-engine/_/" + uid
		Expect(b.client.KubernetesEngine.UpgradePackage(ctx, uid, &gobizfly.UpgradePackageRequest{NewPackage: packages.Packages[1].ID})).To(Succeed())
		Expect(b.get(path).object()["package"]).To(HaveKeyWithValue("max_nodes", 10.0))
		Expect(b.call(http.MethodPost, path+"/package/upgrade", map[string]any{"new_package": "x"}).status).To(Equal(400))
		config, err := b.client.KubernetesEngine.GetKubeConfig(ctx, uid, &gobizfly.GetKubeConfigOptions{ExpiteTime: "3600"})
		Expect(err).ToNot(HaveOccurred())
		Expect(config).To(And(HavePrefix("# expires 2026-03-04T06:06:07Z\napiVersion: v1\n"), ContainSubstring("server: https://"+uid+".api.k8saas.bizflycloud.vn")))
		Expect(string(newBox(cloud.Options{Kubeconfig: "mine"}).get(path + "/kubeconfig").body)).To(Equal("mine"))
		Expect(b.get("/api/kubernetes-engine/_/unknown/kubeconfig").status).To(Equal(404))
	})
})
