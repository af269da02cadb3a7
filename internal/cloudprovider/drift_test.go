// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// edit changes something in the cloud behind everybody's back.
func edit(path string, body any) {
	GinkgoHelper()
	raw := lo.Must(json.Marshal(body))
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, env.Sandbox.URL+"/_sandbox/"+path, bytes.NewReader(raw))
	Expect(err).ToNot(HaveOccurred())
	response := lo.Must(http.DefaultClient.Do(request))
	defer func() { _ = response.Body.Close() }()
	Expect(response.StatusCode).To(Equal(http.StatusNoContent))
}

func vpcID(name string) string {
	GinkgoHelper()
	found, ok := lo.Find(env.Sandbox.Options().Catalog.VPCs["HN"], func(v cloud.VPC) bool { return v.Name == name })
	Expect(ok).To(BeTrue())
	return found.ID
}

// wide launches a claim whose server has two data disks, and records them as its controller does.
func wide() (*v1alpha1.BizflyNodeClass, *karpv1.NodeClaim) {
	GinkgoHelper()
	class := nodeClass(func(n *v1alpha1.BizflyNodeClass) {
		n.Spec.DataDisks = []v1alpha1.DataDisk{
			{Size: lo.ToPtr(resource.MustParse("100Gi"))}, {Size: lo.ToPtr(resource.MustParse("50Gi")), Medium: v1alpha1.DiskMediumHDD},
		}
		n.Spec.UserData = lo.ToPtr("#!/bin/bash\ntrue\n")
	})
	claim := launched(nodeClaim(nil))
	env.Sandbox.AddDataDisks()
	class.Status.UserDataHash = serverOf(claim).Metadata[v1alpha1.MetadataUserDataHash]
	Expect(class.Status.UserDataHash).ToNot(BeEmpty())
	Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
	return class, recorded(claim)
}

func recorded(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	GinkgoHelper()
	Eventually(func() string { return serverOf(claim).Status }).Should(Equal("ACTIVE"))
	env.Instances.Flush() // what a specification has edited counts from the start
	_, err := server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock).Reconcile(ctx, claim)
	Expect(err).ToNot(HaveOccurred())
	Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	Expect(launch.OwnedVolumes(claim)).ToNot(BeEmpty())
	return claim
}

// interfacesOf is a list of a private and a public interface of a server, where the cloud has this word for the latter.
func interfacesOf(id, public string) string {
	private := lo.Ternary(public == "", "", "LAN")
	return fmt.Sprintf(`[{"id":"i-1","network_id":%q,"device_id":%q,"type":%q},{"id":"i-2","network_id":"ext-direct","device_id":%q,"type":%q}]`,
		env.Sandbox.BKE().NetworkID, id, private, id, public)
}

// addFlavor makes the cloud list one more flavor.
func addFlavor(one cloud.Flavor) {
	GinkgoHelper()
	env.Sandbox.Edit(func(c *cloud.Catalog) { c.Flavors["HN"] = append(c.Flavors["HN"], one) })
	Expect(env.Catalog.Refresh(ctx)).To(Succeed())
}

// drifts asks as core does, after a list.
func drifts(claim *karpv1.NodeClaim) corecloudprovider.DriftReason {
	GinkgoHelper()
	env.Instances.Flush()
	_, _ = env.CloudProvider.List(ctx)
	env.Sandbox.ResetRequests()
	reason := lo.Must(env.CloudProvider.IsDrifted(ctx, claim))
	Expect(env.Sandbox.Requests()).To(BeEmpty(), "drift reads caches only")
	Expect(string(reason)).To(MatchRegexp(`^[A-Za-z]*$`))
	return reason
}

var _ = Describe("Drift of a server", func() {
	dataDisk := func(claim *karpv1.NodeClaim, i int) string { return serverOf(claim).VolumesAttached[i].ID }
	DescribeTable("should be detected when a user changes",
		func(change func(id string, claim *karpv1.NodeClaim), expected corecloudprovider.DriftReason) {
			_, claim := wide()
			Expect(drifts(claim)).To(BeEmpty())
			change(serverOf(claim).ID, claim)
			Expect(drifts(claim)).To(Equal(expected))
			Expect(env.Recorder.Calls("ServerDrifted")).To(Equal(1))
		},
		Entry("the image that it was created from", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"metadata": map[string]any{v1alpha1.MetadataImage: "another"}})
		}, cloudprovider.ImageDrift),
		Entry("its flavor", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"flavor": "p2.16c_32g"})
		}, cloudprovider.FlavorDrift),
		Entry("its networks, by one more", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"networks": []string{env.Sandbox.BKE().NetworkID, vpcID("tiny")}})
		}, cloudprovider.NetworkDrift),
		Entry("the user data that it was launched with", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"metadata": map[string]any{v1alpha1.MetadataUserDataHash: "others"}})
		}, cloudprovider.UserDataDrift),
	)
	It("should be detected when all networks are others, also with no other server in them", func() {
		_, claim := wide()
		edit("servers/"+serverOf(claim).ID, map[string]any{"networks": []string{vpcID("tiny")}})
		Expect(drifts(claim)).To(Equal(cloudprovider.NetworkDrift))
	})
	DescribeTable("should be detected when the NodeClass resolves to",
		func(change func(*v1alpha1.BizflyNodeClass), expected corecloudprovider.DriftReason) {
			class, claim := wide()
			change(class)
			Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
			Expect(drifts(claim)).To(Equal(expected))
		},
		Entry("another image", func(n *v1alpha1.BizflyNodeClass) { n.Status.Images[0].ID = "another" }, cloudprovider.ImageDrift),
		Entry("other templates", func(n *v1alpha1.BizflyNodeClass) { n.Status.UserDataHash = "others" }, cloudprovider.UserDataDrift),
		Entry("another network, which anyone can create", func(n *v1alpha1.BizflyNodeClass) { n.Status.Networks[0].ID = vpcID("tiny") },
			corecloudprovider.DriftReason("")),
		Entry("another network too", func(n *v1alpha1.BizflyNodeClass) {
			n.Status.Networks = append(n.Status.Networks, v1alpha1.NetworkStatus{ID: vpcID("tiny")})
		}, corecloudprovider.DriftReason("")),
		Entry("no networks, which is not known", func(n *v1alpha1.BizflyNodeClass) { n.Status.Networks = nil }, corecloudprovider.DriftReason("")),
		Entry("no templates, which is not known", func(n *v1alpha1.BizflyNodeClass) { n.Status.UserDataHash = "" }, corecloudprovider.DriftReason("")),
		Entry("other firewalls, which are changed in place", func(n *v1alpha1.BizflyNodeClass) {
			n.Status.Firewalls = []v1alpha1.FirewallStatus{{ID: "another"}}
		}, corecloudprovider.DriftReason("")),
	)
	DescribeTable("should not be detected in",
		func(change func(id string, claim *karpv1.NodeClaim)) {
			_, claim := wide()
			change(serverOf(claim).ID, claim)
			Expect(drifts(claim)).To(BeEmpty())
		},
		Entry("a volume of the block storage driver", func(id string, _ *karpv1.NodeClaim) {
			volume := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: "pvc-0d6e", Description: "ns/claim by csi-bizflycloud"})
			Expect(env.Sandbox.AttachVolume(volume.ID, id)).To(Succeed())
		}),
		Entry("a public address of a user", func(id string, _ *karpv1.NodeClaim) { env.Sandbox.AddWanIP(id, "theirs") }),
		Entry("a network plan or a name, which are changed in place", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"network_plan": "free_bandwidth", "name": "mine"})
		}),
		Entry("a zone, a disk and a saving plan, which who changes them wants to keep", func(id string, claim *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"zone": "HN3", "billing_plan": "saving_plan", "root_disk": map[string]any{"size": 90},
				"detach_volumes": []string{dataDisk(claim, 2)}})
		}),
		Entry("the name of a flavor without its category, by which another one is listed", func(id string, claim *karpv1.NodeClaim) {
			addFlavor(cloud.Flavor{ID: "short", Name: "2c_4g", VCPUs: 2, RAM: 4096, Category: "premium"})
			edit("servers/"+id, map[string]any{"flavor": "2c_4g"})
			claim.Labels["node.kubernetes.io/instance-type"] = "2c_4g_basic"
		}),
		Entry("a server of which nothing was written down", func(id string, claim *karpv1.NodeClaim) {
			delete(claim.Annotations, v1alpha1.AnnotationLaunchIntent)
			delete(claim.Annotations, v1alpha1.AnnotationDelivered)
			edit("servers/"+id, map[string]any{
				"root_disk": map[string]any{"size": 90}, "billing_plan": "saving_plan",
				"metadata": map[string]any{v1alpha1.MetadataUserDataHash: nil, v1alpha1.MetadataImage: nil},
			})
		}),
		Entry("a failed list of servers", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"flavor": "p2.16c_32g"})
			env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/servers", Effect: cloud.EffectStatus, Status: 503})
		}),
		Entry("a failed list of interfaces", func(id string, _ *karpv1.NodeClaim) {
			edit("servers/"+id, map[string]any{"networks": []string{env.Sandbox.BKE().NetworkID, vpcID("tiny")}})
			env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: 400})
		}),
		Entry("a list of interfaces that is empty", func(string, *karpv1.NodeClaim) {
			env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectBody, Body: "[]"})
		}),
		Entry("interfaces of which BizFly Cloud does not return whether they are public", func(id string, _ *karpv1.NodeClaim) {
			env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectBody, Body: interfacesOf(id, "")})
		}),
		Entry("interfaces that BizFly Cloud describes in other words", func(id string, _ *karpv1.NodeClaim) {
			env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectBody, Body: interfacesOf(id, "PUBLIC")})
		}),
	)
	It("should not be detected in a list that lacks one of its interfaces for a moment", func() {
		nodeClass(func(c *v1alpha1.BizflyNodeClass) {
			c.Spec.NetworkSelectorTerms = []v1alpha1.NetworkSelectorTerm{{ID: env.Sandbox.BKE().NetworkID}, {Name: "tiny"}}
		})
		claim := recorded(launched(nodeClaim(nil)))
		Expect(launch.DeliveredOf(claim).Networks).To(HaveLen(2))
		env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectBody, Body: interfacesOf(serverOf(claim).ID, "WAN")})
		Expect(drifts(claim)).To(BeEmpty())
	})
	It("should be detected in a network added later, not in one that every server gets", func() {
		nodeClass()
		claim := launched(nodeClaim(nil))
		Eventually(func() string { return serverOf(claim).Status }).Should(Equal("ACTIVE"))
		own, added := env.Sandbox.BKE().NetworkID, vpcID("default-vpc")
		edit("servers/"+serverOf(claim).ID, map[string]any{"networks": []string{own, added}})
		recorded(claim)
		Expect(drifts(claim)).To(BeEmpty())
		edit("servers/"+serverOf(claim).ID, map[string]any{"networks": []string{own, added, vpcID("tiny")}})
		Expect(drifts(claim)).To(Equal(cloudprovider.NetworkDrift))
		edit("servers/"+serverOf(claim).ID, map[string]any{"networks": []string{own, added}})
		Expect(drifts(claim)).To(BeEmpty())
	})
	It("should not be detected without lists", func() {
		_, claim := wide()
		edit("servers/"+serverOf(claim).ID, map[string]any{"flavor": "p2.16c_32g", "networks": []string{vpcID("tiny")}})
		Expect(drifts(claim)).ToNot(BeEmpty())
		env.Instances.Flush()
		Expect(env.CloudProvider.IsDrifted(ctx, claim)).To(BeEmpty())
	})
	It("should not be detected when the flavor is delisted", func() {
		_, claim := wide()
		catalog := env.Sandbox.Options().Catalog
		catalog.Flavors["HN"] = lo.Reject(catalog.Flavors["HN"], func(f cloud.Flavor, _ int) bool { return f.Name == serverOf(claim).Flavor.Name })
		Expect(env.Catalog.Refresh(ctx)).To(Succeed())
		Expect(drifts(claim)).To(BeEmpty())
	})
	DescribeTable("should roll nothing while the NodeClass",
		func(change func(*v1alpha1.BizflyNodeClass)) {
			class, claim := wide()
			edit("servers/"+serverOf(claim).ID, map[string]any{"flavor": "p2.16c_32g"})
			Expect(drifts(claim)).ToNot(BeEmpty())
			change(class)
			Expect(drifts(claim)).To(BeEmpty())
		},
		Entry("is not ready", func(n *v1alpha1.BizflyNodeClass) {
			n.StatusConditions().SetFalse(v1alpha1.ConditionTypeFirewallsReady, "FirewallNotFound", "nothing matches")
			Expect(env.Client.Status().Update(ctx, n)).To(Succeed())
		}),
		Entry("is being resolved", func(n *v1alpha1.BizflyNodeClass) {
			n.Spec.PublicIPv4 = lo.ToPtr(false)
			Expect(env.Client.Update(ctx, n)).To(Succeed())
		}),
	)
	It("should roll no node of a static NodePool while no replacement can be launched", func() {
		_, claim := wide()
		edit("servers/"+serverOf(claim).ID, map[string]any{"flavor": "p2.16c_32g"})
		pool := unit.NodePool(unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.8c_16g"))
		pool.Spec.Replicas, pool.Spec.Weight, pool.Spec.Limits = lo.ToPtr[int64](1), nil, nil
		Expect(env.Client.Create(ctx, pool)).To(Succeed())
		claim.Labels = lo.Assign(claim.Labels, map[string]string{karpv1.NodePoolLabelKey: pool.Name})
		Expect(drifts(claim)).ToNot(BeEmpty())
		env.Capacity.MarkUnavailable(ctx, capacity.Offering{Flavor: "nix.8c_16g"}, capacity.ReasonInsufficientCapacity, time.Hour)
		Expect(drifts(claim)).To(BeEmpty())
		pool.Spec.Template.Spec.Requirements[0].Values = []string{"nix.4c_8g"}
		Expect(env.Client.Update(ctx, pool)).To(Succeed())
		Expect(drifts(claim)).ToNot(BeEmpty())
	})
	It("should roll nothing when a newer controller has other defaults: hashes are stamped anew", func() {
		class, claim := wide()
		class.Annotations[v1alpha1.AnnotationNodeClassHash] = "other"
		class.Annotations[v1alpha1.AnnotationNodeClassHashVersion] = "v0"
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		claim.Annotations[v1alpha1.AnnotationNodeClassHash], claim.Annotations[v1alpha1.AnnotationNodeClassHashVersion] = "old", "v0"
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		_, err := usage.NewController(env.Client, env.Recorder, env.Clock, env.CloudProvider).Reconcile(ctx, class)
		Expect(err).ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(drifts(claim)).To(BeEmpty())
	})
})

var _ = Describe("A quiet cluster", func() {
	It("should stay quiet for 24 hours, through failed reads and restarts", func() {
		class, first := wide()
		claims := []*karpv1.NodeClaim{first, recorded(launched(nodeClaim(nil))), recorded(launched(nodeClaim(nil)))}
		look := func() error {
			_, err := usage.NewController(env.Client, env.Recorder, env.Clock, env.CloudProvider).Reconcile(ctx, class.DeepCopy())
			servers := server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
			for _, claim := range claims {
				_, failed := servers.Reconcile(ctx, claim.DeepCopy())
				err = errors.Join(err, failed)
			}
			return err
		}
		versions := func() []string {
			return lo.Map(claims, func(claim *karpv1.NodeClaim, _ int) string {
				Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
				return claim.ResourceVersion
			})
		}
		// The data disks of a server are recorded by a later look than its root disk where a slow machine has not listed them before.
		Eventually(func(g Gomega) {
			env.Clock.Step(time.Minute)
			env.Instances.Flush()
			g.Expect(look()).To(Succeed())
			versions()
			for _, claim := range claims {
				g.Expect(strings.Count(claim.Annotations[v1alpha1.AnnotationDelivered], `"gib"`)).To(Equal(3))
			}
		}).Should(Succeed())
		before := versions()
		state := env.Sandbox.State()
		env.Sandbox.ResetRequests()
		failing := []string{"/servers", "/network-interfaces", "/flavors", "/volumes"}
		for step := range 24 * 4 {
			env.Clock.Step(15 * time.Minute)
			env.Sandbox.ClearFaults()
			if step%3 == 0 {
				env.Sandbox.AddFaults(int64(step), cloud.Fault{Method: "GET", Path: failing[step/3%len(failing)], Effect: cloud.EffectStatus, Status: 400})
			}
			if step == 50 {
				env.Sandbox.ClearFaults()
				env.Restart(ctx)
			}
			_ = env.Catalog.Refresh(ctx)
			env.Instances.Flush()
			_, _ = env.CloudProvider.List(ctx)
			for _, claim := range claims {
				Expect(env.CloudProvider.IsDrifted(ctx, claim)).To(BeEmpty())
			}
			_ = look() // a list that failed is an error and changes nothing
		}
		Expect(versions()).To(Equal(before))
		Expect(lo.Filter(env.Sandbox.Requests(), func(r cloud.Request, _ int) bool {
			return r.Method != http.MethodGet && !strings.HasSuffix(r.Path, "/token")
		})).To(BeEmpty())
		after := env.Sandbox.State()
		Expect(after.Servers).To(Equal(state.Servers))
		Expect(after.Volumes).To(Equal(state.Volumes))
		Expect(env.Recorder.Calls("ServerDrifted")).To(BeZero())
	})
})
