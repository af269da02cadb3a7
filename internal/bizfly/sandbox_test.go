// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func sandboxConfig(sandbox *cloud.Sandbox) bizfly.Config {
	credentials := sandbox.Credentials()
	return bizfly.Config{
		APIURL: sandbox.APIURL, Region: credentials.Region, ProjectID: credentials.ProjectID, AllowHTTP: true,
		AuthMethod: bizfly.AuthMethodPassword, Email: credentials.Email, Password: credentials.Password,
		Registerer: prometheus.NewRegistry(), Clock: &skipping{},
	}
}

func startSandbox(options cloud.Options) *cloud.Sandbox {
	sandbox := cloud.Start(options)
	DeferCleanup(sandbox.Close)
	return sandbox
}

// acceptedRequest is a request that the sandbox accepts, made of what the API itself offers.
func acceptedRequest(ctx context.Context, client *bizfly.Client) *gobizfly.ServerCreateRequest {
	GinkgoHelper()
	flavors := lo.Must(client.ListFlavors(ctx))
	flavor, ok := lo.Find(flavors, func(f *gobizfly.ServerFlavorResponse) bool {
		return f.Category == "premium" && f.GPU == nil && !strings.HasSuffix(f.Name, "_vps") && lo.Contains(f.BillingPlans, "on_demand") &&
			(len(f.Generation.AvailabilityZones) == 0 || lo.Contains(f.Generation.AvailabilityZones, "HN1"))
	})
	Expect(ok).To(BeTrue())
	types := lo.Must(client.ListVolumeTypes(ctx))
	volumeType, ok := lo.Find(types, func(t *gobizfly.VolumeType) bool {
		return t.Category == "premium" && lo.Contains(t.AvailabilityZones, "HN1")
	})
	Expect(ok).To(BeTrue())
	versions := lo.Must(client.ListKubernetesVersions(ctx))
	version, ok := lo.Find(versions, func(v gobizfly.ControllerVersion) bool { return v.WorkerImageID != "" })
	Expect(ok).To(BeTrue())
	request := createRequest()
	request.FlavorName, request.RootDisk.VolumeType, request.OS.ID = flavor.Name, lo.ToPtr(volumeType.Name), version.WorkerImageID
	return request
}

var _ = Describe("Client and the sandbox", func() {
	var sandbox *cloud.Sandbox
	var client *bizfly.Client

	BeforeEach(func() {
		sandbox = startSandbox(cloud.Options{})
		client = lo.Must(newClient(sandboxConfig(sandbox)))
	})
	It("should log in with either method and tell its scope", func(ctx SpecContext) {
		scope := lo.Must(client.Scope(ctx))
		Expect(scope).To(Equal(bizfly.Scope{Host: strings.TrimPrefix(sandbox.URL, "http://"), Region: "HaNoi", ProjectID: sandbox.Credentials().ProjectID}))

		config := sandboxConfig(sandbox)
		config.AuthMethod, config.Email, config.Password, config.ProjectID = bizfly.AuthMethodAppCredential, "", "", ""
		config.AppCredID, config.AppCredSecret = sandbox.Credentials().AppCredID, sandbox.Credentials().AppCredSecret
		other := lo.Must(newClient(config))
		Expect(other.Scope(ctx)).To(Equal(scope))
	})
	It("should say which variable is wrong when the credentials are", func(ctx SpecContext) {
		config := sandboxConfig(sandbox)
		config.Password = "wrong-password"
		other := lo.Must(newClient(config))
		_, err := other.Scope(ctx)
		Expect(bizfly.IsAuth(err)).To(BeTrue())
		Expect(err).To(MatchError(And(ContainSubstring("Scope"), ContainSubstring("login"), Not(ContainSubstring("wrong-password")))))
	})
	It("should read the whole catalog of the cloud", func(ctx SpecContext) {
		regions := lo.Must(client.ListRegions(ctx))
		Expect(regions).To(ConsistOf(HaveField("ShortName", "HN"), HaveField("ShortName", "HCM")))
		Expect(regions).To(HaveEach(HaveField("Zones", Not(BeEmpty()))))
		flavors := lo.Must(client.ListFlavors(ctx))
		Expect(len(flavors)).To(BeNumerically(">=", 60))
		Expect(flavors).To(ContainElement(HaveField("GPU", Not(BeNil()))))
		Expect(flavors).To(HaveEach(And(HaveField("VCPUs", BeNumerically(">", 0)), HaveField("RAM", BeNumerically(">", 0)))))
		Expect(client.ListVolumeTypes(ctx)).To(HaveEach(HaveField("AvailabilityZones", Not(BeEmpty()))))
		images := lo.Must(client.ListOSImages(ctx))
		Expect(images).To(ContainElement(And(HaveField("Distribution", "Ubuntu"), HaveField("ID", Not(BeEmpty())), HaveField("Version", Not(BeEmpty())))))
		Expect(client.ListCustomImages(ctx)).ToNot(BeEmpty())
		snapshots := lo.Must(client.ListSnapshots(ctx))
		Expect(snapshots).To(ContainElement(And(HaveField("Name", HavePrefix("golden-node")), HaveField("Size", 20), HaveField("CreateAt", Not(BeEmpty())))))
		versions := lo.Must(client.ListKubernetesVersions(ctx))
		Expect(versions).To(And(ContainElement(HaveField("K8SVersion", HaveSuffix(".flatcar"))), ContainElement(HaveField("WorkerImageID", ""))))
	})
	It("should read what servers are attached to", func(ctx SpecContext) {
		Expect(client.ListVPCNetworks(ctx)).To(ContainElement(HaveField("Subnets", Not(BeEmpty()))))
		Expect(client.ListFirewalls(ctx)).To(ContainElement(HaveField("Name", "default")))
		Expect(client.ListSSHKeys(ctx)).To(HaveEach(HaveField("SSHKeyPair.Name", Not(BeEmpty()))))
		Expect(client.ListNetworkInterfaces(ctx)).Error().ToNot(HaveOccurred())
	})
	It("should read and leave the BKE cluster, as often as it likes", func(ctx SpecContext) {
		bke := sandbox.BKE()
		cluster := lo.Must(client.GetCluster(ctx, bke.ClusterUID))
		Expect(cluster.VPCNetworkID).To(Equal(bke.NetworkID))
		Expect(cluster.Version.K8SVersion).To(Equal(bke.Version))
		_, err := client.GetCluster(ctx, "nosuchcluster")
		Expect(bizfly.IsNotFound(err)).To(BeTrue())
		for range 2 {
			Expect(client.LeaveCluster(ctx, bke.ClusterUID, bke.ClusterToken, "node-1")).To(Succeed())
		}
		Expect(client.LeaveCluster(ctx, "nosuchcluster", bke.ClusterToken, "node-1")).To(Succeed())
		Expect(sandbox.State().LeftNodes).To(Equal([]string{"node-1"}))
	})
	It("should read the metadata of a pool's launch configuration, with its secrets", func(ctx SpecContext) {
		sandbox.AddPool("workers")
		cluster := lo.Must(client.GetCluster(ctx, sandbox.BKE().ClusterUID))
		Expect(client.GetLaunchConfigurationMetadata(ctx, cluster.WorkerPools[0].LaunchConfigID)).
			To(HaveKeyWithValue("bke_cluster_token", sandbox.BKE().ClusterToken))
		_, err := client.GetLaunchConfigurationMetadata(ctx, "no-such-configuration")
		Expect(bizfly.IsNotFound(err)).To(BeTrue())
	})
	It("should not log in again for every leave with a rejected join token", func(ctx SpecContext) {
		for range 5 {
			err := client.LeaveCluster(ctx, sandbox.BKE().ClusterUID, "wrong", "node-1")
			Expect(bizfly.IsAuth(err)).To(BeTrue())
		}
		Expect(sandbox.State().TokensIssued).To(Equal(1))
	})
	It("should take a server from its create request to its deletion, disk and all", func(ctx SpecContext) {
		request := acceptedRequest(ctx, client)
		taskID, err := client.CreateServer(ctx, request)
		Expect(err).ToNot(HaveOccurred())
		var task *bizfly.Task
		Eventually(func(g Gomega) {
			task, err = client.GetTask(ctx, taskID)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(task.Ready).To(BeTrue())
		}).Should(Succeed())
		Expect(task.Failure).To(Succeed())
		Expect(task.Server.Name).To(Equal(request.Name))

		server := lo.Must(client.GetServer(ctx, task.Server.ID))
		Expect(server.Status).To(Equal("ACTIVE"))
		Expect(server.Metadata).To(And(HaveKeyWithValue("karpenter-managed", "true"), HaveKeyWithValue("bke_cluster_token", "[REDACTED]")))
		metadata := lo.Must(client.GetServerMetadata(ctx, task.Server.ID))
		Expect(metadata).To(And(HaveKeyWithValue("karpenter-managed", "true"), HaveKeyWithValue("bke_cluster_token", clusterToken)))
		Expect(sandbox.State().Servers[0].Metadata).To(HaveKeyWithValue("bke_cluster_token", clusterToken))
		Expect(client.ListServers(ctx)).To(HaveExactElements(HaveField("ID", server.ID)))
		Expect(client.ListNetworkInterfaces(ctx)).To(ContainElement(HaveField("DeviceID", server.ID)))

		root, ok := lo.Find(server.AttachedVolumes, func(v gobizfly.AttachedVolume) bool { return v.AttachedType == "rootdisk" })
		Expect(ok).To(BeTrue())
		Expect(client.DeleteServer(ctx, server.ID, []string{root.ID})).To(Succeed())
		Eventually(func() error { _, err := client.GetServer(ctx, server.ID); return err }).Should(Satisfy(bizfly.IsNotFound))
		Expect(sandbox.State().Servers).To(BeEmpty())
		Expect(sandbox.State().Volumes).To(BeEmpty())
		Expect(sandbox.State().ForeignRequests).To(BeZero())
	})
	It("should keep a root disk that is not listed, and delete it by itself", func(ctx SpecContext) {
		_, err := client.CreateServer(ctx, acceptedRequest(ctx, client))
		Expect(err).ToNot(HaveOccurred())
		var server *gobizfly.Server
		Eventually(func(g Gomega) {
			servers, err := client.ListServers(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(servers).To(HaveExactElements(HaveField("Status", "ACTIVE")))
			server = servers[0]
		}).Should(Succeed())
		Expect(client.DeleteServer(ctx, server.ID, nil)).To(Succeed())
		var volumes []*gobizfly.Volume
		Eventually(func(g Gomega) {
			volumes, err = client.ListVolumes(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(volumes).To(HaveExactElements(HaveField("Status", "available")))
		}).Should(Succeed())
		Expect(client.DeleteVolume(ctx, volumes[0].ID)).To(Succeed())
		Eventually(func() []cloud.Volume { return sandbox.State().Volumes }).Should(BeEmpty())
		Expect(bizfly.IsNotFound(client.DeleteVolume(ctx, volumes[0].ID))).To(BeTrue())
	})
	DescribeTable("should give a rejected create request and a failed task their class, in both languages",
		func(ctx SpecContext, effect cloud.Effect, is func(error) bool) {
			for _, vietnamese := range []bool{false, true} {
				for _, async := range []bool{false, true} {
					sandbox := startSandbox(cloud.Options{Vietnamese: vietnamese})
					client := lo.Must(newClient(sandboxConfig(sandbox)))
					request := acceptedRequest(ctx, client)
					sandbox.AddFaults(1, cloud.Fault{Method: "POST", Path: "/servers", Effect: effect, Async: async})
					taskID, err := client.CreateServer(ctx, request)
					if async {
						Expect(err).ToNot(HaveOccurred())
						Eventually(func(g Gomega) {
							task, readErr := client.GetTask(ctx, taskID)
							g.Expect(readErr).ToNot(HaveOccurred())
							err = task.Failure
							g.Expect(err).To(HaveOccurred())
						}).Should(Succeed())
					}
					Expect(is(err)).To(BeTrue(), "vietnamese %t, async %t: %v", vietnamese, async, err)
					Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
				}
			}
		},
		Entry("capacity", cloud.EffectNoCapacity, ofClass(bizfly.ClassCapacity)),
		Entry("addresses", cloud.EffectNoAddress, ofClass(bizfly.ClassCapacity)),
		Entry("quota", cloud.EffectQuota, ofClass(bizfly.ClassQuota)),
		Entry("balance", cloud.EffectBalance, ofClass(bizfly.ClassBalance)),
	)
	DescribeTable("should not know the outcome of a create request whose answer is lost, and send it once",
		func(ctx SpecContext, fault cloud.Fault) {
			request := acceptedRequest(ctx, client)
			fault.Method, fault.Path = "POST", "/servers"
			sandbox.AddFaults(1, fault)
			_, err := client.CreateServer(ctx, request)
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue(), "%v", err)
			Expect(bizfly.IsNotSent(err)).To(BeFalse())
			Expect(bizfly.IsOutage(err)).To(BeFalse())
			Expect(sandbox.RequestCounts()["POST /iaas-cloud/api/servers"]).To(Equal(1))
		},
		Entry("connection closed after the work", cloud.Fault{Effect: cloud.EffectLostResponse}),
		Entry("connection closed before the work", cloud.Fault{Effect: cloud.EffectReset}),
		Entry("500 after the work", cloud.Fault{Effect: cloud.EffectStatus, Commit: true}),
		Entry("502", cloud.Fault{Effect: cloud.EffectStatus, Status: 502}),
		Entry("truncated", cloud.Fault{Effect: cloud.EffectTruncated}),
		Entry("a page after the work", cloud.Fault{Effect: cloud.EffectHTML, Commit: true}),
		Entry("empty after the work", cloud.Fault{Effect: cloud.EffectEmpty, Commit: true}),
		Entry("204 after the work", cloud.Fault{Effect: cloud.EffectEmpty, Status: 204, Commit: true}),
		Entry("no task", cloud.Fault{Effect: cloud.EffectEmptyTask}),
		Entry("a string where an array belongs", cloud.Fault{Effect: cloud.EffectBody, Body: `{"task_id":"x"}`, Commit: true}),
	)
	DescribeTable("should say what a second delete finds where the answer to the first was lost",
		func(ctx SpecContext, latency time.Duration, found types.GomegaMatcher) {
			sandbox := startSandbox(cloud.Options{Latency: latency})
			client := lo.Must(newClient(sandboxConfig(sandbox)))
			own := sandbox.AddServer(cloud.ServerSpec{Name: "own"})
			sandbox.AddFaults(1, cloud.Fault{Method: "DELETE", Path: "/servers/*", Effect: cloud.EffectLostResponse, Count: 1})
			Expect(client.DeleteServer(ctx, own.ID, nil)).To(found)
			Expect(sandbox.RequestCounts()["DELETE /iaas-cloud/api/servers/{id}"]).To(Equal(2))
		},
		Entry("the deletion under way", time.Hour, Satisfy(bizfly.IsConflict)),
		Entry("no server", time.Duration(0), Satisfy(bizfly.IsNotFound)),
	)
	It("should survive tokens that expire and numbers in metadata", func(ctx SpecContext) {
		Expect(client.CreateServer(ctx, acceptedRequest(ctx, client))).Error().ToNot(HaveOccurred())
		sandbox.ExpireTokens()
		sandbox.AddFaults(1, cloud.Fault{Effect: cloud.EffectNumericMetadata})
		Expect(client.ListServers(ctx)).To(HaveLen(1))
		Expect(sandbox.State().TokensIssued).To(Equal(2))
	})
	It("should never take another project's silence for an absence", func(ctx SpecContext) {
		other := startSandbox(cloud.Options{DefaultProject: "0000000000000000000000000000dead"})
		config := sandboxConfig(other)
		config.ProjectID = ""
		foreign := lo.Must(newClient(config))
		Expect(foreign.Scope(ctx)).To(HaveField("ProjectID", "0000000000000000000000000000dead"))
		Expect(foreign.Reconfigure(sandboxConfig(other))).To(Succeed())
		Expect(foreign.Scope(ctx)).To(HaveField("ProjectID", other.Credentials().ProjectID))
	})
	DescribeTable("should find its services however the catalog writes regions", func(ctx SpecContext, forms, region, zone string) {
		other := startSandbox(cloud.Options{ServiceRegions: forms, Region: region})
		config := sandboxConfig(other)
		reader := lo.Must(newClient(config))
		Expect(reader.ListServers(ctx)).Error().ToNot(HaveOccurred())
		types := lo.Must(reader.ListVolumeTypes(ctx))
		Expect(types).To(HaveEach(HaveField("AvailabilityZones", ContainElement(zone))), "the services are those of the region")
		Expect(reader.ListKubernetesVersions(ctx)).Error().ToNot(HaveOccurred())
		Expect(reader.ListRegions(ctx)).Error().ToNot(HaveOccurred())
		Expect(other.State().ForeignRequests).To(BeZero())
	},
		Entry("all forms, HN", cloud.RegionsMixed, "HN", "HN1"), Entry("all forms, HCM", cloud.RegionsMixed, "HCM", "HCM1"),
		Entry("another form for each service, HN", cloud.RegionsScattered, "HN", "HN1"),
		Entry("another form for each service, HCM", cloud.RegionsScattered, "HCM", "HCM1"),
		Entry("HaNoi", cloud.RegionsLong, "HN", "HN1"), Entry("HN", cloud.RegionsShort, "HN", "HN1"), Entry("HCM", cloud.RegionsShort, "HCM", "HCM1"),
	)
	It("should say that a service is missing and send nothing anywhere", func(ctx SpecContext) {
		other := startSandbox(cloud.Options{OmitServices: []string{"kubernetes_engine"}})
		poor := lo.Must(newClient(sandboxConfig(other)))
		_, err := poor.ListKubernetesVersions(ctx)
		Expect(err).To(MatchError(ContainSubstring("no kubernetes_engine in region HaNoi")))
		Expect(poor.ListServers(ctx)).Error().ToNot(HaveOccurred())
	})
})
