// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var dependents = []string{
	v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady,
	v1alpha1.ConditionTypeSSHKeyReady, v1alpha1.ConditionTypeBootstrapReady, v1alpha1.ConditionTypeDisksReady, v1alpha1.ConditionTypeFlavorsReady,
}

var _ = Describe("The status of a NodeClass", func() {
	Context("that asks for what there is", func() {
		It("should be discovered from the BKE cluster for an empty spec", func() {
			content := cloud.DefaultCatalog()
			w := newSetup(content)
			apply("")
			nodeClass, result := w.look()
			instanceTypes := lo.Must(w.Flavors.List(ctx, nodeClass))
			worker, _ := lo.Find(content.Versions, func(v cloud.KubernetesVersion) bool { return v.KubernetesVersion == "v1.35.4" })
			Expect(nodeClass.Status).To(Equal(v1alpha1.BizflyNodeClassStatus{
				Zones:             []string{"HN1", "HN2"},
				Images:            []v1alpha1.ImageStatus{{ID: worker.WorkerImageID, Name: "bke v1.35.4 ubuntu", Type: v1alpha1.ImageTypeImage}},
				Summary:           &v1alpha1.NodeClassSummary{Zones: "HN1,HN2", Networks: "kubernetes"},
				FlavorCount:       int32(len(instanceTypes)),
				Networks:          []v1alpha1.NetworkStatus{{ID: w.sandbox.BKE().NetworkID, Name: "kubernetes"}},
				KubernetesVersion: "v1.35.4",
				Conditions:        nodeClass.Status.Conditions,
			}))
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
			for _, conditionType := range dependents {
				Expect(condition(nodeClass, conditionType).IsTrue()).To(BeTrue(), conditionType)
				Expect(condition(nodeClass, conditionType).ObservedGeneration).To(Equal(nodeClass.Generation), conditionType)
			}
			Expect(result.RequeueAfter).To(Equal(5 * time.Minute))
		})
		It("should have each of its conditions from the start, and none that looks like a fault", func() {
			w := newSetup(nil)
			apply("")
			nodeClass, _ := w.look()
			for _, conditionType := range append([]string{status.ConditionReady, v1alpha1.ConditionTypeEgressAvailable}, dependents...) {
				found := nodeClass.StatusConditions(status.WithObservedOnly()).Get(conditionType)
				Expect(found).ToNot(BeNil(), conditionType)
				Expect(found.IsFalse()).To(BeFalse(), conditionType)
				Expect(found.Reason).ToNot(BeEmpty(), conditionType)
			}
			Expect(nodeClass.Status.Summary.Reason).To(BeEmpty())
		})
		It("should show several networks and zones in one text each, and why it is not ready", func() {
			w := newSetup(nil)
			apply("networkSelectorTerms: [{name: kubernetes}, {alias: default}]")
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.Summary).To(HaveValue(And(HaveField("Networks", "kubernetes,default-vpc"), HaveField("Reason", ""))))
			apply("networkSelectorTerms: [{name: kubernetes}, {name: nope}]")
			nodeClass, _ = w.look()
			Expect(nodeClass.Status.Summary.Reason).To(Equal("NetworkNotFound"))
		})
		It("should be resolved for each selector", func() {
			content := cloud.DefaultCatalog()
			w := newSetup(content)
			web, _ := lo.Find(content.Firewalls[cloud.RegionHN], func(f cloud.Firewall) bool { return f.Name == "web" })
			golden := content.CustomImages[cloud.RegionHN][0]
			apply(`imageSelectorTerms: [{name: golden-node}], networkSelectorTerms: [{alias: default}], firewallSelectorTerms: [{name: web}], ` +
				`sshKeyName: ops, zones: [HN2], bootstrapMode: Custom, userData: "#!/bin/bash"`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue(), "%+v", ready(nodeClass))
			Expect(nodeClass.Status.Zones).To(Equal([]string{"HN2"}))
			Expect(nodeClass.Status.Image()).To(Equal(&v1alpha1.ImageStatus{ID: golden.ID, Name: "golden-node", Type: v1alpha1.ImageTypeImage,
				MinDiskGiB: 5}))
			Expect(nodeClass.Status.KubernetesVersion).To(BeEmpty())
			Expect(nodeClass.Status.Networks).To(HaveExactElements(HaveField("Name", "default-vpc")))
			Expect(nodeClass.Status.Firewalls).To(Equal([]v1alpha1.FirewallStatus{{ID: web.ID, Name: "web"}}))
			Expect(nodeClass.Status.SSHKeyName).To(Equal("ops"))
		})
		It("should be written once and left alone while nothing changes", func() {
			w := newSetup(nil)
			before := apply("")
			first, _ := w.look()
			Expect(first.ResourceVersion).ToNot(Equal(before.ResourceVersion))
			second, _ := w.look()
			Expect(second.ResourceVersion).To(Equal(first.ResourceVersion))
		})
		It("should follow the spec", func() {
			w := newSetup(nil)
			apply("firewallSelectorTerms: [{name: web}], sshKeyName: ops")
			w.look()
			apply("")
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.Firewalls).To(BeEmpty())
			Expect(nodeClass.Status.SSHKeyName).To(BeEmpty())
		})
		It("should stay ready while everything is unavailable", func() {
			w := newSetup(nil)
			w.Capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonQuotaExceeded, time.Hour)
			apply("")
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
		})
	})

	Context("whose image does not suit it", func() {
		rejected := func(w *setup, spec, says string) {
			GinkgoHelper()
			apply(spec)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeImagesReady)).To(HaveValue(And(
				HaveField("Status", BeEquivalentTo("False")), HaveField("Reason", "ImageUnsuitable"), HaveField("Message", ContainSubstring(says)))))
			Expect(nodeClass.Status.Images).To(BeEmpty())
			Expect(ready(nodeClass).IsFalse()).To(BeTrue(), "nothing is launched with it")
		}
		It("should reject the id of a plain image in BKE mode, and take it in Custom mode", func() {
			content := cloud.DefaultCatalog()
			w := newSetup(content)
			terms := "imageSelectorTerms: [{id: " + content.Images[cloud.RegionHN][0].Versions[0].ID + "}]"
			rejected(w, terms, "is a plain operating system image, which has no BKE script; use an alias such as bke@latest, or bootstrapMode Custom")
			apply(terms + `, bootstrapMode: Custom, userData: "#!/bin/bash"`)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeImagesReady).IsTrue()).To(BeTrue())
		})
		It("should reject user data for a Flatcar image that only its id names", func() {
			content := cloud.DefaultCatalog()
			flatcar, _ := lo.Find(content.Versions, func(v cloud.KubernetesVersion) bool { return v.KubernetesVersion == "v1.35.4.flatcar" })
			rejected(newSetup(content), "userData: x, imageSelectorTerms: [{id: "+flatcar.WorkerImageID+"}]", "use an alias such as bke-ubuntu@latest")
		})
	})

	Context("that asks for what does not exist", func() {
		DescribeTable("should say field, value and what is available", func(spec, conditionType, reason, message string) {
			content := cloud.DefaultCatalog()
			large := content.Snapshots[cloud.RegionHN][0]
			if strings.Contains(spec, "large") {
				large.ID, large.Name, large.Size = "7e11c0de-0000-4000-8000-000000000001", "large", 45
				content.Snapshots[cloud.RegionHN] = append(content.Snapshots[cloud.RegionHN], large)
			}
			w := newSetup(content)
			apply(spec)
			nodeClass, result := w.look()
			found := condition(nodeClass, conditionType)
			Expect(found.IsFalse()).To(BeTrue(), "%+v", found)
			Expect(found.Reason).To(Equal(reason))
			Expect(found.Message).To(MatchRegexp(message))
			Expect(ready(nodeClass).IsFalse()).To(BeTrue())
			Expect(ready(nodeClass).Reason).To(Equal(reason))
			Expect(ready(nodeClass).Message).To(ContainSubstring(found.Message), "this is what core repeats on each NodePool")
			Expect(result.RequeueAfter).To(BeNumerically("<=", time.Minute))
			apply("")
			nodeClass, _ = w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue(), "%+v", ready(nodeClass))
		},
			Entry("a zone", `zones: [HN1, HN9]`, v1alpha1.ConditionTypeZonesReady, "ZoneNotFound",
				`^spec\.zones\[1\]: no zone of the region matches "HN9"; available: \[HN1 HN2\]$`),
			Entry("zones in which the network is not", `zones: [HN2], networkSelectorTerms: [{name: one-zone}]`, v1alpha1.ConditionTypeZonesReady, "NoZones",
				`^spec\.zones: no zone is left .*network one-zone \(.+\) is not in zone HN2, only in \[HN1\]; available zones of the region: \[HN1 HN2\]$`),
			Entry("an alias", `imageSelectorTerms: [{alias: bke@v1.12}]`, v1alpha1.ConditionTypeImagesReady, "ImageNotFound",
				`^spec\.imageSelectorTerms\[0\]\.alias: nothing matches "bke@v1.12"; available: \[bke-flatcar@v1.34.6 .*nodes must not be newer$`),
			Entry("an image by name", `imageSelectorTerms: [{name: silver}]`, v1alpha1.ConditionTypeImagesReady, "ImageNotFound",
				`^spec\.imageSelectorTerms\[0\]\.name: nothing matches "silver"; available: \[golden-node\]`),
			Entry("a network", `networkSelectorTerms: [{name: office}]`, v1alpha1.ConditionTypeNetworksReady, "NetworkNotFound",
				`^spec\.networkSelectorTerms\[0\]\.name: nothing matches "office"; available: \[default-vpc \(.+kubernetes \(`),
			Entry("a firewall", `firewallSelectorTerms: [{name: web}, {id: nope}]`, v1alpha1.ConditionTypeFirewallsReady, "FirewallNotFound",
				`^spec\.firewallSelectorTerms\[1\]\.id: nothing matches "nope"; available: \[default \(`),
			Entry("an SSH key", `sshKeyName: laptop`, v1alpha1.ConditionTypeSSHKeyReady, "SSHKeyNotFound",
				`^spec\.sshKeyName: nothing matches "laptop"; available: \[karpenter ops\]`),
			Entry("a snapshot", `imageSelectorTerms: [{snapshot: {name: "silver-*"}}]`, v1alpha1.ConditionTypeImagesReady, "ImageNotFound",
				`^spec\.imageSelectorTerms\[0\]\.snapshot\.name: nothing matches "silver-\*"; available: \[golden-node_rootdisk@06-05-2024\]`),
			Entry("a volume type", `rootDisk: {volumeType: NVME-1}`, v1alpha1.ConditionTypeDisksReady, "DiskNotSold",
				`^spec\.rootDisk\.volumeType "NVME-1" is not available in zones \[HN1 HN2\]; volume types there: `+
					`\[BASIC_HDD1 .*PREMIUM-SSD1\]; use spec\.rootDisk\.medium \(SSD or HDD\)`),
			Entry("a volume type of a data disk", `dataDisks: [{size: 10Gi}, {size: 10Gi, volumeType: NVME-1}]`, v1alpha1.ConditionTypeDisksReady, "DiskNotSold",
				`^spec\.dataDisks\[1\]\.volumeType "NVME-1" is not available in zones`),
			Entry("a volume type that is available elsewhere", `zones: [HN2], rootDisk: {volumeType: DEDICATED-HDD1}`, v1alpha1.ConditionTypeDisksReady, "DiskNotSold",
				`^spec\.rootDisk\.volumeType "DEDICATED-HDD1" is not available in zones \[HN2\]`),
			Entry("disks of different categories", `rootDisk: {volumeType: BASIC_SSD1}, dataDisks: [{size: 10Gi, volumeType: PREMIUM-SSD1}]`,
				v1alpha1.ConditionTypeDisksReady, "DisksNotSoldTogether",
				`^spec\.rootDisk\.volumeType "BASIC_SSD1", spec\.dataDisks\[0\]\.volumeType "PREMIUM-SSD1" are each available .* `+
					`no zone has all of them for servers of one category`),
			Entry("a root disk that its snapshot does not fit on", `imageSelectorTerms: [{snapshot: {name: "large"}}], rootDisk: {size: 40Gi}`,
				v1alpha1.ConditionTypeDisksReady, "RootDiskTooSmall",
				`^spec\.rootDisk\.size: 40Gi is too small for the snapshot large \(.+\), which needs 45Gi; set at least 50Gi$`),
			Entry("flavors by name", `flavorSelectorTerms: [{name: "x9.*"}, {category: basic, generation: "7"}]`, v1alpha1.ConditionTypeFlavorsReady, "FlavorNotFound",
				`^spec\.flavorSelectorTerms\[0\]: no flavor matches name "x9\.\*"; available: \[1c_2g_basic .*; `+
					`spec\.flavorSelectorTerms\[1\]: no flavor matches category "basic" and generation "7"; `),
			Entry("flavors that are not available where it may launch", `zones: [HN2], flavorSelectorTerms: [{generation: 4a, category: premium}]`,
				v1alpha1.ConditionTypeFlavorsReady, "NoFlavors",
				`^no flavor is available in zones \[HN2\] with spec\.billingPlan "OnDemand" and spec\.rootDisk\.medium "SSD" and `+
					`spec\.flavorSelectorTerms \(category "premium" and generation "4a"\); change one of these, or allow more zones$`),
			Entry("flavors of another category than its disks", `flavorSelectorTerms: [{category: basic}], rootDisk: {volumeType: PREMIUM-SSD1}`,
				v1alpha1.ConditionTypeFlavorsReady, "NoFlavors",
				`spec\.rootDisk\.volumeType "PREMIUM-SSD1" and spec\.flavorSelectorTerms \(category "basic"\)`),
			Entry("kubelet settings that no server has room for", `rootDisk: {size: 20Gi}, kubelet: {kubeReserved: {ephemeral-storage: 30Gi}}`,
				v1alpha1.ConditionTypeFlavorsReady, "NoFlavors",
				`spec\.kubelet \(\d+ flavors are too small: kubeReserved, systemReserved and evictionHard of spec\.kubelet keep `+
					`\S+ of ephemeral-storage, and a server of \S+ has \S+\)`),
			Entry("user data that cannot be rendered", `bootstrapMode: Custom, userData: "{{ .Hostname }}"`, v1alpha1.ConditionTypeBootstrapReady, "UserDataInvalid",
				`^spec\.userData, line 1, column \d+: .*variables are NodeName`),
		)
		It("should say which variables the controller lacks", func() {
			w := newSetup(nil, func(o *options.Options) { o.BKEClusterToken, o.BKEJoinEndpoint, o.BKELogEndpoint = "", "", "" })
			apply("")
			nodeClass, _ := w.look()
			found := condition(nodeClass, v1alpha1.ConditionTypeBootstrapReady)
			Expect(found.Reason).To(Equal("BootstrapNotConfigured"))
			Expect(found.Message).To(And(ContainSubstring("BKE_CLUSTER_TOKEN is not set"), ContainSubstring("BKE_JOIN_ENDPOINT is not set")))
			Expect(ready(nodeClass).IsFalse()).To(BeTrue())
		})
		It("should keep what was resolved before, because running nodes are compared with it", func() {
			w := newSetup(nil)
			apply(`firewallSelectorTerms: [{name: web}], sshKeyName: ops`)
			before, _ := w.look()
			apply(`zones: [HN9], imageSelectorTerms: [{name: x}], networkSelectorTerms: [{name: x}], firewallSelectorTerms: [{name: x}], sshKeyName: x`)
			after, _ := w.look()
			Expect(ready(after).IsFalse()).To(BeTrue())
			before.Status.Conditions, after.Status.Conditions = nil, nil
			before.Status.Summary, after.Status.Summary = nil, nil
			Expect(after.Status).To(Equal(before.Status))
		})
		DescribeTable("should follow from nothing that an earlier spec resolved to", func(spec string) {
			w := newSetup(nil)
			apply("")
			w.look()
			apply(spec)
			edited, _ := w.look()
			Expect(env.Client.Delete(ctx, edited)).To(Succeed())
			apply(spec)
			fresh, _ := w.look()
			for _, conditionType := range append(dependents, status.ConditionReady) {
				now, wanted := condition(edited, conditionType), condition(fresh, conditionType)
				Expect([]any{now.Status, now.Reason, now.Message}).To(Equal([]any{wanted.Status, wanted.Reason, wanted.Message}), conditionType)
			}
		},
			Entry("about zones", `zones: [HN9]`),
			Entry("about networks", `networkSelectorTerms: [{name: office}]`),
			Entry("about the image, which the root disk is too small for or not", `imageSelectorTerms: [{name: silver}], rootDisk: {size: 20Gi}`),
		)
		It("should have the same reason whichever problem came first", func() {
			reasons := func(specs ...string) string {
				w := newSetup(nil)
				for _, spec := range specs {
					apply(spec)
					w.look()
					w.clock.Step(time.Minute)
				}
				found := ready(stored())
				return found.Reason + ": " + found.Message
			}
			const both = `imageSelectorTerms: [{name: silver}], sshKeyName: laptop`
			first := reasons(`imageSelectorTerms: [{name: silver}]`, both)
			Expect(first).To(HavePrefix("ImageNotFound: ImagesReady: "))
			Expect(reasons("", `sshKeyName: laptop`, both)).To(Equal(first))
		})
		It("should name every problem at once", func() {
			w := newSetup(nil)
			apply(`imageSelectorTerms: [{name: silver}], sshKeyName: laptop`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).Message).To(And(ContainSubstring("ImagesReady: "), ContainSubstring("silver"), ContainSubstring("SSHKeyReady: "),
				ContainSubstring("laptop")))
		})
		It("should wait for the networks before it checks the zones", func() {
			w := newSetup(nil)
			apply(`networkSelectorTerms: [{name: office}]`)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeZonesReady)).To(HaveValue(And(
				HaveField("Status", BeEquivalentTo("Unknown")), HaveField("Reason", "AwaitingNetworks"))))
			Expect(condition(nodeClass, v1alpha1.ConditionTypeFlavorsReady)).To(HaveValue(And(
				HaveField("Status", BeEquivalentTo("Unknown")), HaveField("Reason", "AwaitingZones"))))
		})
	})

	Context("zones", func() {
		It("should be those that every network is in, and say why others are not", func() {
			w := newSetup(nil)
			apply(`networkSelectorTerms: [{name: kubernetes}, {name: one-zone}]`)
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.Zones).To(Equal([]string{"HN1"}))
			Expect(condition(nodeClass, v1alpha1.ConditionTypeZonesReady)).To(HaveValue(And(
				HaveField("Status", BeEquivalentTo("True")), HaveField("Message", ContainSubstring("is not in zone HN2")))))
		})
		It("should leave out one that the cloud has closed", func() {
			content := cloud.DefaultCatalog()
			content.Regions[0].Zones[0].Active = false
			w := newSetup(content)
			apply("")
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.Zones).To(Equal([]string{"HN2"}))
			Expect(condition(nodeClass, v1alpha1.ConditionTypeZonesReady).Message).To(Equal("zone HN1 is closed for new servers"))
		})
		It("should ignore a network that names no zones", func() {
			content := cloud.DefaultCatalog()
			for i := range content.VPCs[cloud.RegionHN] {
				content.VPCs[cloud.RegionHN][i].AvailabilityZones, content.VPCs[cloud.RegionHN][i].AvailabilityZoneHints = nil, nil
			}
			w := newSetup(content)
			apply("")
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.Zones).To(Equal([]string{"HN1", "HN2"}))
		})
	})

	Context("while the cloud does not answer", func() {
		const everything = `firewallSelectorTerms: [{name: web}], sshKeyName: ops, imageSelectorTerms: [{name: golden-node}]`

		DescribeTable("should stay ready on what was resolved, however long it lasts, and report it once", func(path string, conditionTypes ...string) {
			w := newSetup(nil)
			apply(lo.Ternary(path == "/snapshots", `imageSelectorTerms: [{snapshot: {name: "golden-*"}}]`, everything))
			before, _ := w.look()
			Expect(ready(before).IsTrue()).To(BeTrue())
			w.lists.flush()
			w.sandbox.AddFaults(1, cloud.Fault{Path: path, Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: "not now"})
			for range 3 {
				after, result := w.look()
				for _, conditionType := range dependents {
					found := condition(after, conditionType)
					Expect(found.IsTrue()).To(BeTrue(), conditionType)
					if slices.Contains(conditionTypes, conditionType) {
						Expect(found.Reason).To(Equal("CloudUnavailable"))
						Expect(found.Message).To(ContainSubstring("not now"))
						Expect(ready(after).Message).To(ContainSubstring(conditionType + ": what was resolved last cannot be checked"))
					}
				}
				Expect(ready(after).IsTrue()).To(BeTrue())
				Expect(ready(after).Reason).To(Equal("CloudUnavailable"))
				Expect(result.RequeueAfter).To(BeNumerically("<", time.Minute))
				values := after.DeepCopy()
				values.Status.Conditions, values.Status.Summary = before.Status.Conditions, before.Status.Summary
				Expect(values.Status).To(Equal(before.Status))
				w.clock.Step(24 * time.Hour)
			}
			w.sandbox.ClearFaults()
			after, _ := w.look()
			Expect(ready(after).IsTrue()).To(BeTrue())
			Expect(ready(after).Message).To(BeEmpty())
		},
			Entry("about networks", "/vpc-networks", v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeZonesReady),
			Entry("about images", "/user/images", v1alpha1.ConditionTypeImagesReady),
			Entry("about snapshots", "/snapshots", v1alpha1.ConditionTypeImagesReady),
			Entry("about firewalls", "/firewalls", v1alpha1.ConditionTypeFirewallsReady),
			Entry("about SSH keys", "/keypairs", v1alpha1.ConditionTypeSSHKeyReady),
		)
		It("should be unknown at once for a spec that was never resolved", func() {
			w := newSetup(nil)
			apply(everything)
			w.look()
			w.lists.flush()
			w.sandbox.AddFaults(1, cloud.Fault{Path: "/firewalls", Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: "not now"})
			apply(`firewallSelectorTerms: [{name: default}], sshKeyName: ops`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsUnknown()).To(BeTrue())
			Expect(condition(nodeClass, v1alpha1.ConditionTypeFirewallsReady).IsUnknown()).To(BeTrue())
		})
		DescribeTable("should name the cause in one condition and in Ready alone", func(cause string, newSetup func() *setup) {
			w := newSetup()
			w.sandbox.AddFaults(1, cloud.Fault{Path: "/vpc-networks", Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: "not now"})
			apply("publicIPv4: false")
			nodeClass, _ := w.look()
			naming := lo.FilterMap(nodeClass.Status.Conditions, func(c status.Condition, _ int) (string, bool) {
				return c.Type, strings.Contains(c.Message, cause)
			})
			Expect(naming).To(ConsistOf(v1alpha1.ConditionTypeNetworksReady, status.ConditionReady))
			Expect(strings.Count(ready(nodeClass).Message, cause)).To(Equal(1))
		},
			Entry("where networks cannot be listed", "not now", func() *setup { return newSetup(nil) }),
			Entry("where the catalog has not been read", "has not been read yet", func() *setup { return newUnreadSetup(nil) }),
			Entry("where the BKE cluster is unknown", "the BKE cluster is not known yet", func() *setup {
				w := newUnreadSetup(nil)
				w.sandbox.AddFaults(1, cloud.Fault{Path: "/api/kubernetes-engine/**", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
				_ = w.Catalog.Refresh(ctx) // it has all but the cluster
				return w
			}),
		)
		It("should look again within seconds while the catalog has not been read", func() {
			w := newUnreadSetup(nil)
			apply("")
			nodeClass, result := w.look()
			Expect(ready(nodeClass).IsUnknown()).To(BeTrue())
			Expect(condition(nodeClass, v1alpha1.ConditionTypeImagesReady).Reason).To(Equal("CloudUnavailable"))
			Expect(result.RequeueAfter).To(BeNumerically("<=", 20*time.Second))
			Expect(w.Catalog.Refresh(ctx)).To(Succeed())
			nodeClass, _ = w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
		})
	})

	It("should never hold a secret", func() {
		w := newSetup(nil)
		apply(`bootstrapMode: Custom, userData: "{{ ` + clusterToken + ` }}"`)
		nodeClass, _ := w.look()
		Expect(ready(nodeClass).IsFalse()).To(BeTrue())
		for _, found := range nodeClass.Status.Conditions {
			Expect(found.Message).ToNot(ContainSubstring(clusterToken))
		}
	})
	It("should be retried soon after a conflict", func() {
		w := newSetup(nil)
		stale := apply("")
		fresh := stored()
		fresh.Labels = map[string]string{"a": "b"}
		Expect(env.Client.Update(ctx, fresh)).To(Succeed())
		result := lo.Must(w.controller.Reconcile(ctx, stale))
		Expect(result.RequeueAfter).To(BeNumerically("~", time.Second, time.Second))
		Expect(stored().Status.Conditions).To(BeEmpty())
	})
	It("should show nothing but the deletion while the NodeClass is being deleted", func() {
		w := newSetup(nil)
		nodeClass := apply("")
		nodeClass.Finalizers = []string{"example.com/hold"}
		Expect(env.Client.Update(ctx, nodeClass)).To(Succeed())
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		deleting, result := w.look()
		Expect(deleting.StatusConditions(status.WithObservedOnly()).List()).To(HaveExactElements(
			And(HaveField("Type", "Ready"), HaveField("Status", BeEquivalentTo("False")), HaveField("Reason", "Deleting"))))
		Expect(deleting.Status.Summary.Reason).To(Equal("Deleting"))
		Expect(result.RequeueAfter).To(BeZero())
		deleting.Finalizers = nil
		Expect(env.Client.Update(ctx, deleting)).To(Succeed())
	})
	It("should be kept up by a manager from the creation to a change of the spec", func() {
		w := newSetup(nil)
		manager := unit.NewManager(env.Config)
		Expect(w.controller.Register(ctx, manager)).To(Succeed())
		Expect(w.controller.Name()).To(Equal("nodeclass.status"))
		unit.RunManager(ctx, manager)
		apply("")
		Eventually(func() *status.Condition { return ready(stored()) }).Should(HaveValue(HaveField("Status", BeEquivalentTo("True"))))
		apply("zones: [HN9]")
		Eventually(func() *status.Condition { return ready(stored()) }).Should(HaveValue(HaveField("Reason", "ZoneNotFound")))
	})
})
