// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/awslabs/operatorpkg/object"
	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// defaulted is what `spec: {}` becomes.
func defaulted() v1alpha1.BizflyNodeClassSpec {
	return v1alpha1.BizflyNodeClassSpec{
		ImageSelectorTerms: []v1alpha1.ImageSelectorTerm{{Alias: "bke@latest"}},
		RootDisk:           &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("40Gi")), Medium: v1alpha1.DiskMediumSSD},
		NetworkPlan:        v1alpha1.NetworkPlanFreeDataTransfer,
		BillingPlan:        v1alpha1.BillingPlanOnDemand,
		BootstrapMode:      v1alpha1.BootstrapModeBKE,
		MetadataOptions:    &v1alpha1.MetadataOptions{PodAccess: v1alpha1.PodAccessBlocked},
		PlacementStrategy:  v1alpha1.PlacementStrategyBalanced,
	}
}

var _ = Describe("Defaults of a BizflyNodeClass", func() {
	DescribeTable("should be complete", func(body string) {
		spec := nodeClass(body).Spec
		Expect(spec.RootDisk.Size.Cmp(resource.MustParse("40Gi"))).To(BeZero())
		spec.RootDisk.Size = defaulted().RootDisk.Size
		Expect(spec).To(Equal(defaulted()))
	},
		Entry("for an empty spec", "spec: {}"),
		Entry("for no spec at all", ""),
	)
	It("should fill what a root disk leaves out, and no medium beside a volume type", func() {
		disk := nodeClass(`spec: {rootDisk: {volumeType: PREMIUM-SSD1}}`).Spec.RootDisk
		Expect(disk.Size.String()).To(Equal("40Gi"))
		Expect(disk.Medium).To(BeEmpty())
	})
	It("should keep what is set", func() {
		spec := nodeClass(`spec: {publicIPv4: false, billingPlan: SavingPlan, networkPlan: FreeBandwidth, ` +
			`imageSelectorTerms: [{id: x}], rootDisk: {size: 100Gi, medium: HDD}}`).Spec
		Expect(*spec.PublicIPv4).To(BeFalse())
		Expect(spec.BillingPlan).To(Equal(v1alpha1.BillingPlanSavingPlan))
		Expect(spec.NetworkPlan).To(Equal(v1alpha1.NetworkPlanFreeBandwidth))
		Expect(spec.ImageSelectorTerms).To(Equal([]v1alpha1.ImageSelectorTerm{{ID: "x"}}))
		Expect(spec.RootDisk.Size.String()).To(Equal("100Gi"))
		Expect(spec.RootDisk.Medium).To(Equal(v1alpha1.DiskMediumHDD))
	})
})

var _ = Describe("The hash of a BizflyNodeClass", func() {
	// hash is that of the defaults with these fields, as a user writes them.
	hash := func(fields string) string {
		GinkgoHelper()
		nodeClass := &v1alpha1.BizflyNodeClass{Spec: defaulted()}
		Expect(yaml.UnmarshalStrict([]byte("{"+fields+"}"), &nodeClass.Spec)).To(Succeed())
		return nodeClass.Hash()
	}
	const unchanged = ""

	It("should be the same in every release of this hash version", func() {
		// A change of this hash needs another NodeClassHashVersion, or the next upgrade rolls every node.
		Expect(v1alpha1.NodeClassHashVersion).To(Equal("v3"))
		Expect(hash(unchanged)).To(Equal("750002989739153619-public-default"))
	})
	It("should not depend on anything but the spec", func() {
		nodeClass := &v1alpha1.BizflyNodeClass{Spec: defaulted()}
		nodeClass.Name, nodeClass.Labels, nodeClass.Status.SSHKeyName = "x", map[string]string{"a": "b"}, "ops"
		Expect(nodeClass.Hash()).To(Equal(hash(unchanged)))
	})

	hashed := map[string][]string{
		"RootDisk":        {`rootDisk: {size: 41Gi}`, `rootDisk: {medium: HDD}`, `rootDisk: {medium: "", volumeType: PREMIUM-SSD1}`},
		"BillingPlan":     {`billingPlan: SavingPlan`},
		"NetworkPlan":     {`networkPlan: FreeBandwidth`},
		"PublicIPv4":      {`publicIPv4: false`},
		"IPv6":            {`ipv6: true`},
		"BootstrapMode":   {`bootstrapMode: Custom`},
		"UserData":        {`userData: "#!/bin/bash"`, `userData: "#!/bin/sh"`},
		"UserDataFrom":    {`userDataFrom: {secretKeyRef: {name: x, key: x}}`, `userDataFrom: {secretKeyRef: {name: x, key: y}}`},
		"UserDataValues":  {`userDataValues: {team: storage}`},
		"MetadataOptions": {`metadataOptions: {podAccess: Allowed}`},
		"JoinToken":       {`joinToken: {ttl: 1h}`},
		"Tags":            {`tags: {team: storage}`, `tags: {team: network}`},
		"DataDisks": {
			`dataDisks: [{size: 100Gi}]`, `dataDisks: [{size: 100Gi}, {size: 100Gi}]`, `dataDisks: [{size: 100Gi}, {size: 200Gi}]`,
			`dataDisks: [{size: 200Gi}, {size: 100Gi}]`, `dataDisks: [{size: 100Gi, medium: HDD}]`,
			`dataDisks: [{size: 100Gi, volumeType: PREMIUM-HDD1}]`,
		},
		"Kubelet": lo.Map([]string{
			`maxPods: 50`, `systemReserved: {cpu: "1"}`, `kubeReserved: {cpu: "1"}`, `evictionHard: {memory.available: 5%}`,
			`evictionSoft: {memory.available: 5%}`, `evictionSoftGracePeriod: {memory.available: 1m}`, `podsPerCore: 50`,
			`clusterDNS: [10.96.0.10]`, `imageGCHighThresholdPercent: 50`, `imageGCLowThresholdPercent: 50`, `cpuCFSQuota: false`,
			`evictionMaxPodGracePeriod: 50`,
		}, func(field string, _ int) string { return `bootstrapMode: Custom, kubelet: {` + field + `}` }),
		"NetworkSelectorTerms": lo.Map([]string{`id: x`, `name: x`, `tag: x`, `alias: default`}, func(term string, _ int) string {
			return `networkSelectorTerms: [{` + term + `}]`
		}),
	}
	ignored := map[string]string{
		"Zones":                 `zones: [HN1]`,
		"FlavorSelectorTerms":   `flavorSelectorTerms: [{category: premium}]`,
		"PlacementStrategy":     `placementStrategy: Spread`,
		"ImageSelectorTerms":    `imageSelectorTerms: [{id: x}]`,
		"FirewallSelectorTerms": `firewallSelectorTerms: [{id: x}]`,
		"SSHKeyName":            `sshKeyName: x`,
	}

	It("should change with every value of every field that cannot change on a running server", func() {
		seen := map[string]string{hash(unchanged): "the defaults"}
		for field, changes := range hashed {
			for _, change := range changes {
				changed := hash(change)
				Expect(seen).ToNot(HaveKey(changed), "%s collides with %s", field, seen[changed])
				seen[changed] = field
			}
		}
	})
	It("should not change with what can change in place or is compared with the live server", func() {
		for field, change := range ignored {
			Expect(hash(change)).To(Equal(hash(unchanged)), field)
		}
	})
	It("should be decided for every field of the spec", func() {
		for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.BizflyNodeClassSpec]()) {
			_, isHashed := hashed[field.Name]
			_, isIgnored := ignored[field.Name]
			Expect(isHashed).ToNot(Equal(isIgnored), "%s is a case of exactly one of the specs above", field.Name)
		}
	})
	It("should be explained by the comment of every field: what a change of it does to nodes", func() {
		file := lo.Must(parser.ParseFile(token.NewFileSet(), "bizflynodeclass.go", nil, parser.ParseComments))
		comments := map[string]string{}
		ast.Inspect(file, func(node ast.Node) bool {
			declared, ok := node.(*ast.TypeSpec)
			if !ok || declared.Name.Name != "BizflyNodeClassSpec" {
				return true
			}
			for _, field := range declared.Type.(*ast.StructType).Fields.List {
				comments[field.Names[0].Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
			}
			return false
		})
		// The image is compared with the live server.
		replaces := append(lo.Keys(hashed), "ImageSelectorTerms")
		inPlace := []string{"FirewallSelectorTerms"}
		Expect(comments).To(HaveLen(len(hashed) + len(ignored)))
		for field, comment := range comments {
			switch {
			case lo.Contains(replaces, field):
				Expect(comment).To(MatchRegexp(`A change (that leads to another image )?replaces nodes`), field)
			case lo.Contains(inPlace, field):
				Expect(comment).To(ContainSubstring("A change is applied in place."), field)
			default:
				Expect(comment).To(ContainSubstring("A change concerns new nodes only."), field)
			}
		}
	})
	It("should not depend on how a quantity is written", func() {
		first := nodeClass(`spec: {rootDisk: {size: 40Gi}}`)
		Expect(env.Client.Delete(ctx, first)).To(Succeed())
		second := nodeClass(`spec: {rootDisk: {size: 40960Mi}}`)
		Expect(second.Hash()).To(Equal(first.Hash()))
	})
	DescribeTable("should be that of what is in effect, however it is written", func(one, other string) {
		first := nodeClass("spec: {" + one + "}")
		Expect(env.Client.Delete(ctx, first)).To(Succeed())
		Expect(nodeClass("spec: {" + other + "}").Hash()).To(Equal(first.Hash()))
	},
		Entry("a root disk of nothing", ``, `rootDisk: {}`),
		Entry("the default medium", `rootDisk: {size: 60Gi}`, `rootDisk: {size: 60Gi, medium: SSD}`),
		Entry("the default medium of a data disk", `dataDisks: [{size: 100Gi}]`, `dataDisks: [{size: 102400Mi, medium: SSD}]`),
		Entry("no data disks", ``, `dataDisks: []`),
		Entry("no networks", ``, `networkSelectorTerms: []`),
		Entry("no metadata", ``, `tags: {}`),
		Entry("the default access of pods", ``, `metadataOptions: {}`),
		Entry("no IPv6", ``, `ipv6: false`),
		Entry("the default plan", ``, `billingPlan: OnDemand`),
		Entry("the default network plan", ``, `networkPlan: FreeDataTransfer`),
		Entry("the default mode", ``, ``),
		Entry("what the worker image is said to reserve, which changes no server", ``, `kubelet: {systemReserved: {memory: 1Gi}}`),
		Entry("no values", ``, `userDataValues: {}`),
		Entry("kubelet settings of nothing", `bootstrapMode: Custom, userData: x`, `bootstrapMode: Custom, userData: x, kubelet: {kubeReserved: {}}`),
		Entry("a quantity in another form", `bootstrapMode: Custom, userData: x, kubelet: {kubeReserved: {cpu: "1"}}`,
			`bootstrapMode: Custom, userData: x, kubelet: {kubeReserved: {cpu: 1000m}}`),
	)
	DescribeTable("should differ by the address of a server only where the spec means another one",
		func(launchedWith *bool, poolThen string, spec *bool, poolNow string, differs bool) {
			with := func(publicIPv4 *bool, pool string) *v1alpha1.BizflyNodeClass {
				nodeClass := &v1alpha1.BizflyNodeClass{Spec: defaulted()}
				nodeClass.Spec.PublicIPv4 = publicIPv4
				if pool != "" {
					nodeClass.Status.PoolServer = &v1alpha1.PoolServerStatus{PublicIPv4: pool == "public"}
				}
				nodeClass.Annotations = map[string]string{v1alpha1.AnnotationNodeClassHash: nodeClass.Hash()}
				return nodeClass
			}
			Expect(with(spec, poolNow).HashDiffers(with(launchedWith, poolThen).Hash())).To(Equal(differs))
		},
		Entry("the default written out", nil, "", lo.ToPtr(true), "", false),
		Entry("the default no longer written out", lo.ToPtr(true), "", nil, "", false),
		Entry("no address instead of the default one", nil, "", lo.ToPtr(false), "", true),
		Entry("the default one instead of none", lo.ToPtr(false), "", nil, "", true),
		Entry("what the pools have written out", nil, "private", lo.ToPtr(false), "private", false),
		Entry("what the pools have no longer written out", lo.ToPtr(false), "private", nil, "private", false),
		Entry("another one than that of the pools", nil, "private", lo.ToPtr(true), "private", true),
		Entry("that of the pools instead of another one", lo.ToPtr(true), "private", nil, "private", true),
		Entry("another pool", nil, "private", nil, "public", false),
		Entry("a pool that was not known", nil, "", nil, "private", false),
		Entry("a pool that is not known any more", nil, "private", nil, "", false),
		Entry("another pool, where the spec says it", lo.ToPtr(true), "public", lo.ToPtr(true), "private", false),
	)
	It("should leave the spec as it is", func() {
		nodeClass := &v1alpha1.BizflyNodeClass{}
		nodeClass.Hash()
		Expect(nodeClass).To(Equal(&v1alpha1.BizflyNodeClass{}))
	})
	It("should be the same before and after the API server", func() {
		Expect(nodeClass(`spec: {}`).Hash()).To(Equal(hash(unchanged)))
	})
})

var _ = Describe("A BizflyNodeClass", func() {
	It("should be ready when all its conditions are", func() {
		nodeClass := &v1alpha1.BizflyNodeClass{}
		for _, condition := range []string{
			v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady,
			v1alpha1.ConditionTypeSSHKeyReady, v1alpha1.ConditionTypeBootstrapReady, v1alpha1.ConditionTypeDisksReady, v1alpha1.ConditionTypeFlavorsReady,
		} {
			Expect(nodeClass.StatusConditions().Root().IsTrue()).To(BeFalse(), condition)
			nodeClass.StatusConditions().SetTrue(condition)
		}
		Expect(nodeClass.StatusConditions().Get(status.ConditionReady).IsTrue()).To(BeTrue())
	})
	DescribeTable("should be ready whatever the conditions beside the others say", func(condition string) {
		nodeClass := &v1alpha1.BizflyNodeClass{}
		for _, dependent := range []string{
			v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady,
			v1alpha1.ConditionTypeSSHKeyReady, v1alpha1.ConditionTypeBootstrapReady, v1alpha1.ConditionTypeDisksReady, v1alpha1.ConditionTypeFlavorsReady,
		} {
			nodeClass.StatusConditions().SetTrue(dependent)
		}
		nodeClass.StatusConditions().SetFalse(condition, "Because", "of something")
		Expect(nodeClass.StatusConditions().Get(status.ConditionReady).IsTrue()).To(BeTrue())
	},
		Entry("of launches", v1alpha1.ConditionTypeLaunchesSucceeding),
		Entry("of egress", v1alpha1.ConditionTypeEgressAvailable),
	)
	It("should be known by its kind where core looks for it", func() {
		Expect(object.GVK(&v1alpha1.BizflyNodeClass{})).To(Equal(v1alpha1.GroupVersion.WithKind("BizflyNodeClass")))
	})
})

var _ = Describe("Labels", func() {
	It("should all be known to core, which would otherwise guess their values", func() {
		Expect(karpv1.WellKnownLabels.IsSuperset(v1alpha1.InstanceTypeLabels)).To(BeTrue())
		Expect(karpv1.RestrictedLabelDomains.Has(v1alpha1.Group)).To(BeTrue())
	})
	DescribeTable("should make the zone of a volume the zone of a node", func(label string) {
		Expect(karpv1.NormalizedLabels).To(HaveKeyWithValue(label, corev1.LabelTopologyZone))
	},
		Entry("of block storage", "topology.volume.csi.bizflycloud.vn/zone"),
		Entry("of file storage", "topology.fs.csi.bizflycloud.vn/zone"),
	)
})
