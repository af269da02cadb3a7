// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// saying is a condition with a status, a reason and a message that matches.
func saying(conditionStatus, reason, message string) OmegaMatcher {
	return HaveValue(And(HaveField("Status", BeEquivalentTo(conditionStatus)), HaveField("Reason", reason), HaveField("Message", MatchRegexp(message))))
}

var _ = Describe("What a NodeClass resolves to", func() {
	var w *setup
	BeforeEach(func() { w = newSetup(nil) })
	Context("flavors and disks", func() {
		It("should be counted with the selector", func() {
			apply(`flavorSelectorTerms: [{name: "p2.2c_*"}]`)
			nodeClass, _ := w.look()
			Expect(nodeClass.Status.FlavorCount).To(BeEquivalentTo(2))
			Expect(condition(nodeClass, v1alpha1.ConditionTypeFlavorsReady)).To(saying("True", "FlavorsReady", "^2 flavors$"))
		})
		It("should report a term that matches nothing beside others that do", func() {
			apply(`flavorSelectorTerms: [{name: "p2.2c_*"}, {name: "p7.*"}]`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
			Expect(condition(nodeClass, v1alpha1.ConditionTypeFlavorsReady)).
				To(saying("True", "FlavorsReady", `^2 flavors; spec\.flavorSelectorTerms\[1\]: no flavor matches name "p7\.\*"`))
		})
		It("should be ready while any zone has the explicit volume type, and name the others", func() {
			apply(`rootDisk: {volumeType: DEDICATED-HDD1}`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
			Expect(condition(nodeClass, v1alpha1.ConditionTypeDisksReady)).
				To(saying("True", "DisksReady", `^zone HN2 does not have spec\.rootDisk\.volumeType "DEDICATED-HDD1"`))
		})
		It("should wait for the zones, and the flavors for the disks", func() {
			apply(`networkSelectorTerms: [{name: office}]`)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeDisksReady)).To(saying("Unknown", "AwaitingZones", "zones"))
			apply(`rootDisk: {volumeType: NVME-1}`)
			nodeClass, _ = w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeFlavorsReady)).To(saying("Unknown", "AwaitingDisks", "disks"))
			Expect(ready(nodeClass)).To(saying("False", "DiskNotSold", "NVME-1"))
		})
		It("should fit once the root disk is as large as the snapshot", func() {
			apply(`imageSelectorTerms: [{snapshot: {name: "golden-*"}}], rootDisk: {size: 20Gi}`)
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
			Expect(nodeClass.Status.Image()).To(HaveValue(And(HaveField("Type", v1alpha1.ImageTypeSnapshot), HaveField("MinDiskGiB", BeEquivalentTo(20)))))
		})
	})

	Context("egress", func() {
		It("should be there with public addresses", func() {
			apply("")
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("True", "EgressAvailable", "public IPv4"))
		})
		It("should come with a warning where no firewall is selected for public addresses", func() {
			for spec, warned := range map[string]bool{
				"": true, "publicIPv4: true": true, "publicIPv4: false": false, "firewallSelectorTerms: [{name: web}]": false,
			} {
				apply(spec)
				nodeClass, _ := w.look()
				Expect(ready(nodeClass).IsTrue()).To(BeTrue(), spec)
				message := condition(nodeClass, v1alpha1.ConditionTypeFirewallsReady).Message
				Expect(strings.Contains(message, "no firewall is selected")).To(Equal(warned), spec)
			}
		})
		It("should be there through an internet gateway of any of the networks", func() {
			apply(`publicIPv4: false, networkSelectorTerms: [{name: kubernetes}, {alias: default}]`)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("True", "EgressAvailable", "default-vpc has an internet gateway"))
		})
		It("should be missing without either, which prevents nothing", func() {
			apply(`publicIPv4: false`)
			nodeClass, result := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("False", "NoEgress",
				`^spec\.publicIPv4 is false and no network of the servers has an internet gateway `+
					`\(kubernetes \(.+\)\): .*set spec\.publicIPv4 to true, attach an internet gateway, or select`))
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
			Expect(result.RequeueAfter).To(Equal(5 * time.Minute))

			w.sandbox.Edit(func(c *cloud.Catalog) {
				for i := range c.VPCs[cloud.RegionHN] {
					c.VPCs[cloud.RegionHN][i].InternetGateway = lo.ToPtr("gateway")
				}
			})
			w.lists.flush()
			nodeClass, _ = w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable).IsTrue()).To(BeTrue())
		})
		It("should be unknown while the networks are, and no reason not to be ready", func() {
			apply(`publicIPv4: false, networkSelectorTerms: [{name: office}]`)
			nodeClass, _ := w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("Unknown", "AwaitingNetworks", "way out"))
			Expect(ready(nodeClass).Message).ToNot(ContainSubstring("EgressAvailable"))
			w.sandbox.AddFaults(1, cloud.Fault{Path: "/vpc-networks", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
			w.lists.flush()
			nodeClass, _ = w.look()
			Expect(condition(nodeClass, v1alpha1.ConditionTypeEgressAvailable)).To(saying("Unknown", "AwaitingNetworks", "way out"))
			Expect(ready(nodeClass).Message).ToNot(ContainSubstring("EgressAvailable"))
		})
	})

	It("should stay ready on old results while a controller that starts has no catalog", func() {
		apply("publicIPv4: false")
		before, _ := w.look()
		restarted := newUnreadSetup(nil)
		after, result := restarted.look()
		for _, conditionType := range []string{
			v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady,
			v1alpha1.ConditionTypeDisksReady, v1alpha1.ConditionTypeFlavorsReady,
		} {
			Expect(condition(after, conditionType)).To(saying("True", "CloudUnavailable", "has not been read yet"), conditionType)
		}
		Expect(ready(after)).To(saying("True", "CloudUnavailable", "has not been read yet"))
		Expect(result.RequeueAfter).To(BeNumerically("<=", 20*time.Second))
		after.Status.Conditions, after.Status.Summary = before.Status.Conditions, before.Status.Summary
		Expect(after.Status).To(Equal(before.Status))
	})
	It("should not be ready, and name the missing part, while volume types were never read", func() {
		w := newUnreadSetup(nil)
		w.sandbox.AddFaults(1, cloud.Fault{Path: "/volume-types", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		Expect(w.Catalog.Refresh(ctx)).NotTo(Succeed())
		apply("publicIPv4: false")
		nodeClass, _ := w.look()
		Expect(condition(nodeClass, v1alpha1.ConditionTypeNetworksReady)).To(saying("Unknown", "CloudUnavailable", "reading the volume types: .*503"))
		Expect(condition(nodeClass, v1alpha1.ConditionTypeDisksReady)).To(saying("Unknown", "CloudUnavailable", "^its cause is that of NetworksReady$"))
		Expect(ready(nodeClass).IsTrue()).To(BeFalse())
		Expect(ready(nodeClass).Message).To(ContainSubstring("reading the volume types"), "this is what core repeats on each NodePool")
		w.sandbox.ClearFaults()
		Expect(w.Catalog.Refresh(ctx)).To(Succeed())
		nodeClass, _ = w.look()
		Expect(ready(nodeClass).IsTrue()).To(BeTrue())
	})
	It("should not blame conditions beside the others for not being ready", func() {
		nodeClass := apply(`imageSelectorTerms: [{name: silver}], publicIPv4: false`)
		nodeClass.StatusConditions(status.WithObservedOnly()).SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, "LaunchFailed", "again and again")
		Expect(env.Client.Status().Update(ctx, nodeClass)).To(Succeed())
		nodeClass, _ = w.look()
		Expect(ready(nodeClass)).To(saying("False", "ImageNotFound", "^ImagesReady: [^;]*;[^;]*;[^;]*$"))
		Expect(ready(nodeClass).Message).ToNot(Or(ContainSubstring("NoEgress"), ContainSubstring("LaunchesSucceeding"), ContainSubstring("egress")))
	})
	It("should be looked up by reading alone, and each list once while nothing changes", func() {
		apply(`imageSelectorTerms: [{snapshot: {name: "golden-*"}}], firewallSelectorTerms: [{name: web}], sshKeyName: ops, networkSelectorTerms: [{alias: default}]`)
		w.look()
		first := len(w.sandbox.Requests())
		for range 3 {
			nodeClass, _ := w.look()
			Expect(ready(nodeClass).IsTrue()).To(BeTrue())
		}
		Expect(w.sandbox.Requests()).To(HaveLen(first))
		Expect(w.sandbox.Requests()).To(HaveEach(Or(HaveField("Method", http.MethodGet), HaveField("Path", "/api/token"))))
	})
	It("should follow a newer image of the same name, and never lose it to one read that fails", func() {
		apply(`imageSelectorTerms: [{name: "golden-*"}]`)
		before, _ := w.look()
		Expect(before.Status.Image().Name).To(Equal("golden-node"))
		w.sandbox.Edit(func(c *cloud.Catalog) {
			next := c.CustomImages[cloud.RegionHN][0]
			next.ID, next.Name, next.CreatedAt = "7e11c0de-0000-4000-8000-000000000002", "golden-node-2", "2026-01-01T00:00:00Z"
			c.CustomImages[cloud.RegionHN] = append(c.CustomImages[cloud.RegionHN], next)
		})
		w.lists.flush()
		after, _ := w.look()
		Expect(after.Status.Image()).To(HaveValue(HaveField("Name", "golden-node-2")))
		w.lists.flush()
		w.sandbox.AddFaults(1, cloud.Fault{Path: "/user/images", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		lost, _ := w.look()
		Expect(lost.Status.Image()).To(Equal(after.Status.Image()))
		Expect(condition(lost, v1alpha1.ConditionTypeImagesReady)).To(saying("True", "CloudUnavailable", "cannot be checked"))
		w.sandbox.ClearFaults()
		w.sandbox.Edit(func(c *cloud.Catalog) { c.CustomImages[cloud.RegionHN] = nil })
		for range 2 {
			w.lists.flush()
			doubted, _ := w.look()
			Expect(condition(doubted, v1alpha1.ConditionTypeImagesReady)).To(saying("True", "CloudUnavailable", "stays in use until 3 reads in a row agree"))
		}
		w.lists.flush()
		gone, _ := w.look()
		Expect(condition(gone, v1alpha1.ConditionTypeImagesReady)).To(saying("False", "ImageNotFound", "golden"))
		Expect(gone.Status.Image()).To(Equal(after.Status.Image()), "running nodes are compared with it")
	})
})
