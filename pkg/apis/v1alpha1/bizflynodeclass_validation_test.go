// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	valid = ""

	noImageTerm      = "set one of alias, id, name, os and snapshot"
	noNetworkTerm    = "set at least one of alias, id, name and tag"
	alone            = "it cannot be combined with other fields of a term"
	imageKinds       = "are different kinds of images"
	familyAndVersion = "alias must be a family (bke, bke-ubuntu or bke-flatcar), @ and a version"
	labelForm        = "must begin and end with a letter or digit"
	oneSource        = "userDataFrom must have one of secretKeyRef and configMapKeyRef"
	needsUserData    = "bootstrapMode Custom needs userData or userDataFrom"
	reservedKeys     = "belongs to this provider or to BizFly Cloud: begin no key with bizfly-karpenter-, karpenter-, bke_"
	metadataForm     = "BizFly Cloud takes keys of 1 to 255 letters"
	diskSteps        = ".size must be a multiple of 10Gi"
	bothDiskTypes    = "set medium or volumeType, not both"
)

var _ = Describe("Validation of a BizflyNodeClass", func() {
	spec := func(fields, message string) { expectVerdict("BizflyNodeClass", "spec: {"+fields+"}", message) }
	list := func(n int, item func(int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}

	DescribeTable("zones", spec,
		Entry("one", `zones: [HN1]`, valid),
		Entry("none", `zones: []`, valid),
		Entry("one twice", `zones: [HN1, HN2, HN1]`, `Duplicate value: "HN1"`),
		Entry("an empty one", `zones: [""]`, "spec.zones[0]"),
		Entry("one that is too long", `zones: [`+strings.Repeat("z", 64)+`]`, "spec.zones[0]"),
		Entry("one that no label could have", `zones: ["HN 1"]`, "each of zones "+labelForm),
		Entry("sixteen", `zones: `+list(16, func(i int) string { return fmt.Sprintf("Z%d", i) }), valid),
		Entry("seventeen", `zones: `+list(17, func(i int) string { return fmt.Sprintf("Z%d", i) }), "must have at most 16 items"),
	)

	DescribeTable("imageSelectorTerms", spec,
		Entry("latest", `imageSelectorTerms: [{alias: bke@latest}]`, valid),
		Entry("a minor version", `imageSelectorTerms: [{alias: bke@v1.33}]`, valid),
		Entry("a patch version", `imageSelectorTerms: [{alias: bke-flatcar@v1.33.5}]`, valid),
		Entry("a version without v", `imageSelectorTerms: [{alias: bke@1.33}]`, familyAndVersion),
		Entry("another alias", `imageSelectorTerms: [{alias: eks@latest}]`, familyAndVersion),
		Entry("another family", `imageSelectorTerms: [{alias: bke-windows@latest}]`, familyAndVersion),
		Entry("an alias beside another term", `imageSelectorTerms: [{alias: bke@latest}, {id: x}]`, "an alias term must be the only term"),
		Entry("no terms", `imageSelectorTerms: []`, "should have at least 1 items"),
		Entry("a term that selects nothing", `imageSelectorTerms: [{}]`, noImageTerm),
		Entry("an id with a name", `imageSelectorTerms: [{id: x, name: b}]`, "id already names one image: "+alone),
		Entry("an alias with a name", `imageSelectorTerms: [{alias: bke@latest, name: b}]`, "alias already names one image: "+alone),
		Entry("a name with a snapshot", `imageSelectorTerms: [{name: b, snapshot: {id: x}}]`, imageKinds),
		Entry("a name with an operating system", `imageSelectorTerms: [{name: b, os: {distribution: Ubuntu, version: "24.04"}}], bootstrapMode: Custom, userData: x`,
			imageKinds),
		Entry("an empty id", `imageSelectorTerms: [{id: ""}]`, "spec.imageSelectorTerms[0].id"),
		Entry("an id that is too long", `imageSelectorTerms: [{id: `+strings.Repeat("x", 65)+`}]`, "spec.imageSelectorTerms[0].id"),
		Entry("an empty name", `imageSelectorTerms: [{name: ""}]`, "spec.imageSelectorTerms[0].name"),
		Entry("several terms", `imageSelectorTerms: [{id: x}, {name: b}]`, valid),
		Entry("seventeen terms", `imageSelectorTerms: `+list(17, func(int) string { return "{id: x}" }), "must have at most 16 items"),
		Entry("an operating system", `imageSelectorTerms: [{os: {distribution: Ubuntu, version: 24.04 x64}}], bootstrapMode: Custom, userData: x`, valid),
		Entry("an operating system without a version", `imageSelectorTerms: [{os: {distribution: Ubuntu}}], bootstrapMode: Custom, userData: x`,
			"spec.imageSelectorTerms[0].os.version"),
		Entry("an operating system without a distribution", `imageSelectorTerms: [{os: {version: x}}], bootstrapMode: Custom, userData: x`,
			"spec.imageSelectorTerms[0].os.distribution"),
		Entry("an operating system in BKE mode", `imageSelectorTerms: [{os: {distribution: Ubuntu, version: 24.04 x64}}]`,
			"bootstrapMode BKE needs a BKE worker image"),
		Entry("an operating system among others in BKE mode", `imageSelectorTerms: [{id: x}, {os: {distribution: Ubuntu, version: 24.04 x64}}]`,
			"bootstrapMode BKE needs a BKE worker image"),
	)

	DescribeTable("imageSelectorTerms of snapshots", spec,
		Entry("an id", `imageSelectorTerms: [{snapshot: {id: x}}]`, valid),
		Entry("a name", `imageSelectorTerms: [{snapshot: {name: "golden-*"}}]`, valid),
		Entry("neither", `imageSelectorTerms: [{snapshot: {}}]`, "set exactly one of snapshot.id and snapshot.name"),
		Entry("both", `imageSelectorTerms: [{snapshot: {id: x, name: other}}]`, "set exactly one of snapshot.id and snapshot.name"),
		Entry("an empty id", `imageSelectorTerms: [{snapshot: {id: ""}}]`, "spec.imageSelectorTerms[0].snapshot.id"),
		Entry("an empty name", `imageSelectorTerms: [{snapshot: {name: ""}}]`, "spec.imageSelectorTerms[0].snapshot.name"),
		Entry("beside an id", `imageSelectorTerms: [{id: x, snapshot: {id: x}}]`, "id already names one image: "+alone),
	)

	DescribeTable("flavorSelectorTerms", spec,
		Entry("none", `flavorSelectorTerms: []`, valid),
		Entry("a name", `flavorSelectorTerms: [{name: "nix.*"}]`, valid),
		Entry("a category", `flavorSelectorTerms: [{category: premium}]`, valid),
		Entry("a generation", `flavorSelectorTerms: [{generation: 4a}]`, valid),
		Entry("all of them", `flavorSelectorTerms: [{name: "p2.*", category: premium, generation: "2"}, {category: dedicated}]`, valid),
		Entry("a term that selects nothing", `flavorSelectorTerms: [{}]`, "set at least one of name, category and generation"),
		Entry("a name that no flavor can have", `flavorSelectorTerms: [{name: "nix 2c"}]`, "name must be made of letters, digits, - _ . and *"),
		Entry("an empty name", `flavorSelectorTerms: [{name: ""}]`, "name must be made of letters, digits, - _ . and *"),
		Entry("a category in capitals", `flavorSelectorTerms: [{category: Premium}]`, "category must be lower case"),
		Entry("a generation that no label could have", `flavorSelectorTerms: [{generation: "gen 2"}]`, "generation "+labelForm),
		Entry("a name that is too long", `flavorSelectorTerms: [{name: `+strings.Repeat("x", 64)+`}]`, "spec.flavorSelectorTerms[0].name"),
		Entry("thirty-three", `flavorSelectorTerms: `+list(33, func(int) string { return "{category: basic}" }), "must have at most 32 items"),
	)

	DescribeTable("networkSelectorTerms", spec,
		Entry("none", `networkSelectorTerms: []`, valid),
		Entry("an id", `networkSelectorTerms: [{id: x}]`, valid),
		Entry("a name", `networkSelectorTerms: [{name: x}]`, valid),
		Entry("a tag", `networkSelectorTerms: [{tag: x}]`, valid),
		Entry("the default", `networkSelectorTerms: [{alias: default}]`, valid),
		Entry("another alias", `networkSelectorTerms: [{alias: other}]`, `supported values: "default"`),
		Entry("a name with a tag, both of which must match", `networkSelectorTerms: [{name: x, tag: b}]`, valid),
		Entry("a term that selects nothing", `networkSelectorTerms: [{}]`, noNetworkTerm),
		Entry("an id with a tag", `networkSelectorTerms: [{id: x, tag: b}]`, "id already names one network: "+alone),
		Entry("an alias with a name", `networkSelectorTerms: [{alias: default, name: b}]`, "alias already names one network: "+alone),
		Entry("an empty tag", `networkSelectorTerms: [{tag: ""}]`, "spec.networkSelectorTerms[0].tag"),
		Entry("nine terms", `networkSelectorTerms: `+list(9, func(int) string { return "{id: x}" }), "must have at most 8 items"),
	)

	DescribeTable("firewallSelectorTerms", spec,
		Entry("an id and a name", `firewallSelectorTerms: [{id: x}, {name: b}]`, valid),
		Entry("a term that selects nothing", `firewallSelectorTerms: [{}]`, "set at least one of id and name"),
		Entry("a term that selects twice", `firewallSelectorTerms: [{id: x, name: b}]`, "id already names one firewall: "+alone),
		Entry("an empty name", `firewallSelectorTerms: [{name: ""}]`, "spec.firewallSelectorTerms[0].name"),
		Entry("seventeen terms", `firewallSelectorTerms: `+list(17, func(int) string { return "{id: x}" }), "must have at most 16 items"),
	)

	DescribeTable("sshKeyName", spec,
		Entry("a name", `sshKeyName: ops`, valid),
		Entry("an empty name", `sshKeyName: ""`, "spec.sshKeyName"),
		Entry("a name that is too long", `sshKeyName: `+strings.Repeat("x", 256), "spec.sshKeyName"),
	)

	DescribeTable("rootDisk", spec,
		Entry("a size", `rootDisk: {size: 100Gi}`, valid),
		Entry("the smallest size", `rootDisk: {size: 20Gi}`, valid),
		Entry("the largest size", `rootDisk: {size: 16380Gi}`, valid),
		Entry("a size between two steps", `rootDisk: {size: 25Gi}`, "rootDisk"+diskSteps),
		Entry("too small a size", `rootDisk: {size: 20479Mi}`, "rootDisk.size must be between 20Gi and 16Ti"),
		Entry("too large a size", `rootDisk: {size: 17Ti}`, "rootDisk.size must be between 20Gi and 16Ti"),
		Entry("a size between two GiB", `rootDisk: {size: 30.5Gi}`, "rootDisk"+diskSteps),
		Entry("a size that is none", `rootDisk: {size: big}`, "rootDisk.size must be between 20Gi and 16Ti"),
		Entry("a number for a size", `rootDisk: {size: 40}`, "rootDisk.size must be between 20Gi and 16Ti"),
		Entry("a medium", `rootDisk: {medium: HDD}`, valid),
		Entry("an unknown medium", `rootDisk: {medium: NVMe}`, `supported values: "SSD", "HDD"`),
		Entry("a volume type", `rootDisk: {volumeType: PREMIUM-SSD1}`, valid),
		Entry("an empty volume type", `rootDisk: {volumeType: ""}`, "spec.rootDisk.volumeType"),
		Entry("a medium and a volume type", `rootDisk: {medium: SSD, volumeType: PREMIUM-SSD1}`, bothDiskTypes),
	)

	DescribeTable("dataDisks", spec,
		Entry("none", `dataDisks: []`, valid),
		Entry("one", `dataDisks: [{size: 100Gi}]`, valid),
		Entry("the smallest and the largest", `dataDisks: [{size: 10Gi, medium: HDD}, {size: 16380Gi, volumeType: PREMIUM-HDD1}]`, valid),
		Entry("two that are equal", `dataDisks: [{size: 100Gi}, {size: 100Gi}]`, valid),
		Entry("one without a size", `dataDisks: [{medium: SSD}]`, "spec.dataDisks[0].size"),
		Entry("one that is too small", `dataDisks: [{size: 0}]`, "dataDisks.size must be between 10Gi and 16Ti"),
		Entry("one that is too large", `dataDisks: [{size: 17Ti}]`, "dataDisks.size must be between 10Gi and 16Ti"),
		Entry("one between two steps", `dataDisks: [{size: 15Gi}]`, "dataDisks"+diskSteps),
		Entry("one of an unknown medium", `dataDisks: [{size: 10Gi, medium: NVMe}]`, `supported values: "SSD", "HDD"`),
		Entry("one of a medium and a volume type", `dataDisks: [{size: 10Gi, medium: SSD, volumeType: x}]`, bothDiskTypes),
		Entry("one of an empty volume type", `dataDisks: [{size: 10Gi, volumeType: ""}]`, "spec.dataDisks[0].volumeType"),
		Entry("five", `dataDisks: `+list(5, func(int) string { return "{size: 10Gi}" }), "must have at most 4 items"),
	)

	DescribeTable("plans and addresses", spec,
		Entry("on_demand", `billingPlan: OnDemand`, valid),
		Entry("saving_plan", `billingPlan: SavingPlan`, valid),
		Entry("placement BinPack", `placementStrategy: BinPack`, valid),
		Entry("placement Spread", `placementStrategy: Spread`, valid),
		Entry("an unknown placement", `placementStrategy: Random`, `supported values: "Balanced", "BinPack", "Spread"`),
		Entry("spot", `billingPlan: spot_instance`, `supported values: "OnDemand", "SavingPlan"`),
		Entry("free_datatransfer", `networkPlan: FreeDataTransfer`, valid),
		Entry("free_bandwidth", `networkPlan: FreeBandwidth`, valid),
		Entry("another network plan", `networkPlan: unlimited`, `supported values: "FreeDataTransfer", "FreeBandwidth"`),
		Entry("no public address", `publicIPv4: false`, valid),
		Entry("IPv6", `ipv6: true`, valid),
		Entry("IPv6 that is no boolean", `ipv6: "yes"`, "spec.ipv6"),
		Entry("a public address that is no boolean", `publicIPv4: "yes"`, "spec.publicIPv4"),
	)

	DescribeTable("bootstrap", spec,
		Entry("BKE", `bootstrapMode: BKE`, valid),
		Entry("no mode", ``, valid),
		Entry("Custom", `bootstrapMode: Custom, userData: "#!/bin/bash"`, valid),
		Entry("another mode", `bootstrapMode: Magic`, `supported values: "BKE", "Custom"`),
		Entry("Custom without user data", `bootstrapMode: Custom`, needsUserData),
		Entry("Custom with empty user data", `bootstrapMode: Custom, userData: ""`, "spec.userData"),
		Entry("BKE with user data", `bootstrapMode: BKE, userData: x`, valid),
		Entry("user data without a mode", `userData: x`, valid),
		Entry("user data of 16 KiB", `bootstrapMode: Custom, userData: `+strings.Repeat("x", 16384)+``, valid),
		Entry("user data from a Secret", `bootstrapMode: Custom, userDataFrom: {secretKeyRef: {name: join, key: x}}`, valid),
		Entry("user data from a ConfigMap", `bootstrapMode: Custom, userDataFrom: {configMapKeyRef: {name: join, key: x}}`, valid),
		Entry("user data from a Secret and a ConfigMap", `userDataFrom: {secretKeyRef: {name: x, key: x}, configMapKeyRef: {name: x, key: x}}`, oneSource),
		Entry("user data from a Secret and inline", `bootstrapMode: Custom, userData: x, userDataFrom: {secretKeyRef: {name: join, key: worker}}`, valid),
		Entry("a Secret without a name", `bootstrapMode: Custom, userDataFrom: {secretKeyRef: {key: x}}`, "spec.userDataFrom.secretKeyRef.name"),
		Entry("a Secret whose name is none", `bootstrapMode: Custom, userDataFrom: {secretKeyRef: {name: Join_Me, key: x}}`,
			"name must be that of a Secret or ConfigMap"),
		Entry("a key that is none", `bootstrapMode: Custom, userDataFrom: {secretKeyRef: {name: x, key: a/b}}`, "key must be that of a Secret or ConfigMap"),
		Entry("no key of a Secret", `userDataFrom: {secretKeyRef: {name: x}}`, "spec.userDataFrom.secretKeyRef.key"),
		Entry("user data from nowhere", `userDataFrom: {}`, oneSource),
		Entry("user data for BKE's flatcar image", `imageSelectorTerms: [{alias: bke-flatcar@latest}], userData: x`, "not possible on BKE's flatcar image"),
		Entry("user data from a Secret for BKE's flatcar image", `imageSelectorTerms: [{alias: bke-flatcar@latest}], bootstrapMode: BKE,
			userDataFrom: {secretKeyRef: {name: x, key: x}}`,
			"not possible on BKE's flatcar image"),
		Entry("a join token", `bootstrapMode: Custom, userData: x, joinToken: {}`, valid),
		Entry("a join token of an hour", `bootstrapMode: Custom, userData: x, joinToken: {ttl: 1h}`, valid),
		Entry("a join token in BKE mode", `joinToken: {}`, "joinToken belongs to bootstrapMode Custom"),
		Entry("a join token that a slow server does not live to use", `bootstrapMode: Custom, userData: x, joinToken: {ttl: 14m}`,
			"joinToken.ttl must be a duration between 15m and 24h"),
		Entry("a join token of days", `bootstrapMode: Custom, userData: x, joinToken: {ttl: 25h}`, "joinToken.ttl must be a duration between 15m and 24h"),
		Entry("a join token of a time that is none", `bootstrapMode: Custom, userData: x, joinToken: {ttl: soon}`,
			"joinToken.ttl must be a duration between 15m and 24h"),
		Entry("user data that is too long", `bootstrapMode: Custom, userData: `+strings.Repeat("x", 16385)+``, "spec.userData"),
	)

	kubelet := func(fields, message string) {
		spec(`bootstrapMode: Custom, userData: x, kubelet: {`+fields+`}`, message)
	}
	DescribeTable("kubelet", kubelet,
		Entry("nothing", ``, valid),
		Entry("maxPods", `maxPods: 250`, valid),
		Entry("no pods", `maxPods: 0`, "spec.kubelet.maxPods"),
		Entry("too many pods", `maxPods: 1001`, "spec.kubelet.maxPods"),
		Entry("kubeReserved", `kubeReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi}`, valid),
		Entry("another kubeReserved", `kubeReserved: {pid: "100"}`, "valid keys for kubeReserved are"),
		Entry("a negative kubeReserved", `kubeReserved: {cpu: "-1"}`, "kubeReserved values must be quantities that are not negative"),
		Entry("a kubeReserved that is no quantity", `kubeReserved: {cpu: much}`, "kubeReserved values must be quantities that are not negative"),
		Entry("systemReserved", `systemReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi}`, valid),
		Entry("another systemReserved", `systemReserved: {pods: "1"}`, "valid keys for systemReserved are"),
		Entry("a negative systemReserved", `systemReserved: {memory: -1Gi}`, "systemReserved values must be quantities that are not negative"),
		Entry("evictionHard", `evictionHard: {memory.available: 5%, nodefs.available: 10Gi}`, valid),
		Entry("more keys than evictionHard has", `evictionHard: {memory.available: 5%, nodefs.available: 5%, pid.available: 5%}`, "valid keys for evictionHard are"),
		Entry("another evictionHard", `evictionHard: {imagefs.available: 5%}`, "valid keys for evictionHard are"),
		Entry("an evictionHard of everything", `evictionHard: {memory.available: 100%}`, "evictionHard values must be percentages below 100%"),
		Entry("an evictionHard that is off", `evictionHard: {memory.available: 0%}`, valid),
		Entry("an evictionHard of nothing, with which no kubelet starts", `evictionHard: {memory.available: "0"}`, "quantities above 0"),
		Entry("an evictionSoft of nothing", `evictionSoft: {memory.available: "0"}, evictionSoftGracePeriod: {memory.available: 1m}`, "quantities above 0"),
		Entry("a negative evictionHard", `evictionHard: {memory.available: -5Mi}`, "evictionHard values must be percentages below 100%"),
		Entry("an evictionHard that is no quantity", `evictionHard: {memory.available: some}`, "evictionHard values must be percentages below 100%"),
	)
	DescribeTable("more of kubelet", kubelet,
		Entry("podsPerCore", `podsPerCore: 10`, valid),
		Entry("no pods per core", `podsPerCore: 0`, "spec.kubelet.podsPerCore"),
		Entry("too many pods per core", `podsPerCore: 1001`, "spec.kubelet.podsPerCore"),
		Entry("evictionSoft", `evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {memory.available: 1m30s}`, valid),
		Entry("evictionSoft without a time", `evictionSoft: {memory.available: 10%}`, "each threshold of evictionSoft needs a time"),
		Entry("a time without evictionSoft", `evictionSoftGracePeriod: {memory.available: 1m}`, "each threshold of evictionSoft needs a time"),
		Entry("a time of another threshold", `evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {nodefs.available: 1m}`,
			"each threshold of evictionSoft needs a time"),
		Entry("another evictionSoft", `evictionSoft: {pid.available: 5%}, evictionSoftGracePeriod: {pid.available: 1m}`, "valid keys for evictionSoft are"),
		Entry("an evictionSoft of everything", `evictionSoft: {memory.available: 100%}, evictionSoftGracePeriod: {memory.available: 1m}`,
			"evictionSoft values must be percentages below 100%"),
		Entry("a time that is none", `evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {memory.available: soon}`,
			"evictionSoftGracePeriod values must be durations"),
	)
	const gcOrder = "imageGCHighThresholdPercent (default 85) must be greater than imageGCLowThresholdPercent (default 80)"
	DescribeTable("the rest of kubelet", kubelet,
		Entry("clusterDNS", `clusterDNS: [10.96.0.10, "fd00::a"]`, valid),
		Entry("a clusterDNS that is none", `clusterDNS: [dns.example.com]`, "each of clusterDNS must be an IP address"),
		Entry("a clusterDNS with a slip of the pen", `clusterDNS: [10.960.0.10]`, "must be an IP address"),
		Entry("no clusterDNS", `clusterDNS: []`, "spec.kubelet.clusterDNS"),
		Entry("image garbage collection", `imageGCHighThresholdPercent: 70, imageGCLowThresholdPercent: 60`, valid),
		Entry("image garbage collection that never begins", `imageGCHighThresholdPercent: 60, imageGCLowThresholdPercent: 70`, gcOrder),
		Entry("image garbage collection below its default", `imageGCHighThresholdPercent: 70`, gcOrder),
		Entry("image garbage collection above everything", `imageGCHighThresholdPercent: 101`, "spec.kubelet.imageGCHighThresholdPercent"),
		Entry("no CFS quota", `cpuCFSQuota: false`, valid),
		Entry("evictionMaxPodGracePeriod", `evictionMaxPodGracePeriod: 60`, valid),
		Entry("a negative evictionMaxPodGracePeriod", `evictionMaxPodGracePeriod: -1`, "spec.kubelet.evictionMaxPodGracePeriod"),
	)
	DescribeTable("kubelet where the worker image decides, of which it says what that reserves", spec,
		Entry("in BKE mode", `bootstrapMode: BKE, kubelet: {maxPods: 50}`, valid),
		Entry("without a mode", `kubelet: {maxPods: 50}`, valid),
	)

	long := strings.Repeat("x", 256)
	DescribeTable("tags", spec,
		Entry("a key", `tags: {team: storage}`, valid),
		Entry("an empty value", `tags: {team: ""}`, valid),
		Entry("an empty key", `tags: {"": x}`, metadataForm),
		Entry("every character that a key may have", `tags: {"Az09 _-.:": x}`, valid),
		Entry("a letter that a key may not have", `tags: {"đội": x}`, metadataForm),
		Entry("a slash in a key, as on AWS", `tags: {team: x, karpenter.sh/discovery: x}`,
			`tags: key "karpenter.sh/discovery": BizFly Cloud takes keys of 1 to 255 letters, digits, spaces and - _ . :, so write . for /`),
		Entry("a key that is too long", `tags: {`+long+`: x}`, metadataForm),
		Entry("a value that is too long", `tags: {x: `+long+`}`, "values of at most 255 bytes"),
		Entry("a value whose letters are two bytes each", `tags: {x: `+strings.Repeat("é", 250)+`}`, "values of at most 255 bytes"),
		Entry("ours", `tags: {bizfly-karpenter-cluster-uid: x}`, reservedKeys),
		Entry("the older provider's", `tags: {karpenter-managed: x}`, reservedKeys),
		Entry("the worker image's", `tags: {bke_cluster_id: x}`, reservedKeys),
		Entry("the service", `tags: {bizfly_cloud_service: x}`, reservedKeys),
		Entry("the version", `tags: {kubernetes_version: x}`, reservedKeys),
		Entry("the pool", `tags: {cluster_id: x}`, reservedKeys),
		Entry("the billing plan", `tags: {billing_plan: x}`, reservedKeys),
		Entry("the network plan", `tags: {network_plan: x}`, reservedKeys),
		Entry("values for templates", `userDataValues: {kubernetesMinor: v1.35, k3s_sha256: ""}`, valid),
		Entry("a value that no template can name", `userDataValues: {k3s-version: x}`, `userDataValues: key "k3s-version": a key has at most 63 letters`),
		Entry("a long value", `userDataValues: {x: `+strings.Repeat("x", 4097)+`}`, `userDataValues: key "x": `),
		Entry("thirty", `tags: {`+strings.Trim(list(30, func(i int) string { return fmt.Sprintf("k%d: x", i) }), "[]")+`}`, valid),
		Entry("thirty-one", `tags: {`+strings.Trim(list(31, func(i int) string { return fmt.Sprintf("k%d: x", i) }), "[]")+`}`, "must have at most 30 items"),
	)
})

var _ = Describe("The name of a BizflyNodeClass", func() {
	It("should fit into a label", func() {
		object := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 64)}}
		Expect(env.Client.Create(ctx, object)).To(MatchError(ContainSubstring("must have at most 63 characters")))
		object.Name = object.Name[1:]
		Expect(env.Client.Create(ctx, object)).To(Succeed())
		Expect(env.Client.Delete(ctx, object)).To(Succeed())
	})
})

var _ = Describe("Validation of a ProviderConfig", func() {
	It("should reject a second one", func() {
		object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
		Expect(env.Client.Create(ctx, object)).To(MatchError(ContainSubstring("there is one ProviderConfig, named default")))
	})
	DescribeTable("spec", func(fields, message string) { expectVerdict("ProviderConfig", "spec: {"+fields+"}", message) },
		Entry("nothing", ``, valid),
		Entry("an https endpoint", `endpoint: "https://manage.bizflycloud.vn/api"`, valid),
		Entry("an http endpoint, which the controller may reject", `endpoint: "http://127.0.0.1:8080/api"`, valid),
		Entry("an endpoint of another scheme", `endpoint: "ftp://example.com"`, "endpoint must be an https address"),
		Entry("an endpoint without a host", `endpoint: "https:///api"`, "endpoint must be an https address"),
		Entry("an endpoint that is no URL", `endpoint: manage.bizflycloud.vn`, "endpoint must be an https address"),
		Entry("a region", `region: HN`, valid),
		Entry("an unknown region", `region: DaNang`, "spec.region"),
		Entry("a project", `projectID: bc8d2790fc9a46949818b942c0a824de`, valid),
		Entry("a project with a slash", `projectID: a/b`, "projectID must be made of letters, digits and -"),
		Entry("the Secret that the Role grants", `secretRef: {}`, valid),
		Entry("the ConfigMap that the Role grants", `tuningConfigMapRef: {}`, valid),
		Entry("a bundle", `caBundle: "-----BEGIN CERTIFICATE-----"`, valid),
		Entry("a bundle that is none", `caBundle: x`, "caBundle must hold PEM certificates"),
		Entry("limits", `rateLimits: {read: {qps: 10, burst: 20, concurrency: 5}}`, valid),
		Entry("a limit of nothing", `rateLimits: {create: {qps: 0}}`, "spec.rateLimits.create.qps"),
		Entry("a limit beyond reason", `rateLimits: {delete: {concurrency: 1001}}`, "spec.rateLimits.delete.concurrency"),
	)
})
