// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package edits_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/edits"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const (
	userDataSecret = "user-data"
	// template shows in user data whatever of the spec a template can use.
	template = "#!/bin/sh\n# {{ .Values }} {{ .NetworkIDs }}\ncat <<X\n{{ .KubeletConfiguration }}\nX\n"
)

// bases are the specs that are edited: by default, and with every field of its bootstrap mode.
var bases = []string{
	`{}`,
	`{zones: [HN1], flavorSelectorTerms: [{name: "p2.*"}], imageSelectorTerms: [{alias: bke-ubuntu@latest}], networkSelectorTerms: [{name: kubernetes}],
		firewallSelectorTerms: [{name: web}], sshKeyName: ops, rootDisk: {size: 50Gi, medium: SSD}, dataDisks: [{size: 20Gi, medium: HDD}],
		networkPlan: FreeDataTransfer, billingPlan: OnDemand, publicIPv4: true, ipv6: false, bootstrapMode: BKE, userData: "#!/bin/sh\ntrue",
		kubelet: {maxPods: 60, systemReserved: {memory: 1Gi}}, placementStrategy: Balanced, tags: {team: web}}`,
	`{zones: [HN1, HN2], flavorSelectorTerms: [{category: premium, generation: "2"}], imageSelectorTerms: [{os: {distribution: Ubuntu, version: 24.04 x64}}],
		networkSelectorTerms: [{tag: default-vpc-network}], firewallSelectorTerms: [{name: web}, {name: default}], sshKeyName: karpenter,
		rootDisk: {size: 40Gi, volumeType: PREMIUM-SSD1}, dataDisks: [{size: 20Gi, volumeType: PREMIUM-HDD1}], networkPlan: FreeBandwidth, billingPlan: SavingPlan,
		publicIPv4: false, ipv6: true, bootstrapMode: Custom, userData: "` + strings.ReplaceAll(template, "\n", `\n`) + `",
		userDataFrom: {secretKeyRef: {name: ` + userDataSecret + `, key: other}}, joinToken: {ttl: 1h}, placementStrategy: Spread, tags: {team: web, stage: test},
		userDataValues: {version: v1}, metadataOptions: {podAccess: Allowed},
		kubelet: {maxPods: 60, podsPerCore: 20, systemReserved: {cpu: 100m}, kubeReserved: {memory: 500Mi}, evictionHard: {memory.available: 100Mi},
			evictionSoft: {memory.available: 200Mi}, evictionSoftGracePeriod: {memory.available: 1m}, evictionMaxPodGracePeriod: 60, clusterDNS: [10.96.0.10],
			imageGCHighThresholdPercent: 90, imageGCLowThresholdPercent: 70, cpuCFSQuota: false}}`,
}

// known are the values of fields for which the schema does not say which there are: of what the cloud has, and of what it does not.
func known(catalog *cloud.Catalog) map[string][]any {
	web, tiny, plain := catalog.Firewalls[cloud.RegionHN][2], catalog.VPCs[cloud.RegionHN][3], catalog.Images[cloud.RegionHN][0].Versions[2].ID
	reserved := []any{
		map[string]any{"cpu": "200m"}, map[string]any{"cpu": "0.2"}, map[string]any{"memory": "1Gi", "ephemeral-storage": "2Gi"},
		map[string]any{"memory": "900Gi"}, map[string]any{"cpu": "900"}, map[string]any{"cpu": "-1"}, map[string]any{"memory": "much"}, map[string]any{"gpu": "1"},
	}
	thresholds := []any{
		map[string]any{"memory.available": "300Mi"}, map[string]any{"memory.available": "7%", "nodefs.available": "12%"},
		map[string]any{"memory.available": "900Gi"}, map[string]any{"memory.available": "100%"}, map[string]any{"pid.available": "1"},
	}
	long := strings.Repeat("#", 16385)
	disks := []any{"PREMIUM-SSD1", "BASIC_SSD1", "PREMIUM-HDD1", "NVME-1"}
	return map[string][]any{
		"zones":                              {"HN1", "HN2", "HN9"},
		"flavorSelectorTerms.name":           {"p2.*", "nix.2c_4g", "x9.*"},
		"flavorSelectorTerms.category":       {"premium", "dedicated", "gold"},
		"flavorSelectorTerms.generation":     {"2", "4a", "7"},
		"imageSelectorTerms.alias":           {"bke@latest", "bke-flatcar@latest", "bke@v1.34", "bke@v1.12"},
		"imageSelectorTerms.id":              {plain, catalog.Versions[7].WorkerImageID, catalog.Versions[8].WorkerImageID, "nope"},
		"imageSelectorTerms.name":            {"golden-*", "golden-node-next", "silver"},
		"imageSelectorTerms.os.distribution": {"Ubuntu", "ubuntu", "debian", "Windows"},
		"imageSelectorTerms.os.version":      {"22.04 x64", "12 x64", "3.11"},
		"imageSelectorTerms.snapshot.id":     {catalog.Snapshots[cloud.RegionHN][0].ID, "nope"},
		"imageSelectorTerms.snapshot.name":   {"golden-*", "silver"},
		"networkSelectorTerms.id":            {tiny.ID, "nope"},
		"networkSelectorTerms.name":          {"kubernetes", "one-zone", "default-vpc", "office"},
		"networkSelectorTerms.tag":           {"default-vpc-network", "office"},
		"firewallSelectorTerms.id":           {web.ID, "nope"},
		"firewallSelectorTerms.name":         {"kubernetes-nodes", "default", "office"},
		"sshKeyName":                         {"ops", "karpenter", "laptop"},
		"rootDisk.size":                      {"60Gi", "61440Mi", "20Gi", "16Ti", "10Gi", "55Gi", "20Ti", "much", int64(64424509440)},
		"rootDisk.volumeType":                disks,
		"dataDisks.size":                     {"30Gi", "10Gi", "16Ti", "5Gi", "15Gi", "20Ti", "much"},
		"dataDisks.volumeType":               disks,
		"userData":                           {"#!/bin/sh\nfalse", template, "#cloud-config\nruncmd: [reboot]", "{{ .Hostname }}", "no first line", long},
		"userDataFrom.secretKeyRef.name":     {userDataSecret, "secret-of-others"},
		"userDataFrom.secretKeyRef.key":      {"userData", "other", "none"},
		"userDataFrom.configMapKeyRef.name":  {userDataSecret, "config-map-of-others"},
		"userDataFrom.configMapKeyRef.key":   {"userData", "none"},
		"joinToken.ttl":                      {"20m", "60m", "1m", "48h", "soon"},
		"kubelet.systemReserved":             reserved,
		"kubelet.kubeReserved":               reserved,
		"kubelet.evictionHard":               thresholds,
		"kubelet.evictionSoft":               thresholds,
		"kubelet.evictionSoftGracePeriod": {
			map[string]any{"memory.available": "2m"}, map[string]any{"memory.available": "1m", "nodefs.available": "1m"}, map[string]any{"memory.available": "soon"},
		},
		"kubelet.clusterDNS": {"10.96.0.11", "fd00::10", "dns.example"},
		"userDataValues":     {map[string]any{"version": "v2"}, map[string]any{"version": "v1", "other": "x"}, map[string]any{"a-b": "1"}},
		"tags": {
			map[string]any{"team": "data"}, map[string]any{"stage": "test", "team": "web"}, map[string]any{"karpenter-x": "1"}, map[string]any{"a/b": "1"},
			map[string]any{"team": strings.Repeat("x", 256)},
		},
	}
}

// effect is what a change of a field does to running nodes, as its description in the definition says.
type effect int

const (
	replacesNodes effect = 1 << iota
	inPlace
	newNodesOnly
)

func effectOf(description string) effect {
	// Descriptions have lines of any length.
	description = strings.Join(strings.Fields(description), " ")
	says := func(text string, e effect) effect { return lo.Ternary(strings.Contains(description, text), e, 0) }
	return says("replaces nodes", replacesNodes) | says("applied in place", inPlace) | says("concerns new nodes only", newNodesOnly)
}

// world is a NodeClass with a node of it, whose spec is edited and restored, and edited again.
type world struct {
	schema   *edits.Schema
	status   *status.Controller
	usage    *usage.Controller
	server   *server.Controller
	base     map[string]any
	restored facts
	stamp    string
	claim    *karpv1.NodeClaim
	// delivered is what the node's server was launched with.
	delivered wire
	*counts
}

// counts are of edits: all that changed something, those that the API server rejected, those that left the NodeClass not ready, and of
// the others, with each of which a node was launched, those that replace nodes.
type counts struct {
	tried, rejected, unready, launched, drifted int
	// used are the fields with which a node was launched.
	used sets.Set[string]
}

func (c *counts) String() string {
	return fmt.Sprintf("%d edits: %d rejected, %d not ready, %d launched with, of which %d replace nodes", c.tried, c.rejected, c.unready, c.launched, c.drifted)
}

func newWorld(schema *edits.Schema, base string, c *counts) *world {
	GinkgoHelper()
	env.Restart(ctx, func(d *wiring.Dependencies) {
		settings := *d.Settings.Load()
		settings.Namespace, settings.UserDataSecretNames = metav1.NamespaceDefault, []string{userDataSecret}
		settings.UserDataConfigMapNames = settings.UserDataSecretNames
		d.Settings.Store(&settings)
	})
	w := &world{schema: schema, base: map[string]any{}, counts: c}
	w.status = status.NewController(env.Client, env.Clock, env.Catalog, env.Images, env.Networks, env.Bootstrap, env.Flavors)
	w.usage = usage.NewController(env.Client, env.Recorder, env.Clock, env.CloudProvider)
	w.server = server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
	Expect(yaml.Unmarshal([]byte(base), &w.base)).To(Succeed())
	Expect(write(unit.NodeClassName, w.base)).To(Succeed())
	nodeClass := w.settle(unit.NodeClassName)
	Expect(nodeClass.StatusConditions().Root().IsTrue()).To(BeTrue(), "%s", nodeClass.StatusConditions().Root().Message)
	w.restored, w.stamp = factsOf(nodeClass), nodeClass.Annotations[v1alpha1.AnnotationNodeClassHash]
	claim := lo.Must(env.Launched(ctx))
	w.claim = claim
	w.serve()
	Expect(launch.OwnedVolumes(w.claim)).ToNot(BeEmpty())
	w.delivered = wireOf(w.claim)
	Expect(w.drift()).To(BeEmpty())
	return w
}

// write creates a NodeClass, or changes it to a spec, as a user would write it.
func write(name string, spec map[string]any, options ...client.CreateOption) error {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BizflyNodeClass"))
	err := env.APIReader.Get(ctx, client.ObjectKey{Name: name}, object)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	object.SetName(name)
	object.Object["spec"] = runtime.DeepCopyJSON(spec)
	if err != nil {
		return env.APIReader.Create(ctx, object, options...)
	}
	return env.APIReader.Update(ctx, object)
}

func read(name string) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	nodeClass := &v1alpha1.BizflyNodeClass{}
	Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: name}, nodeClass)).To(Succeed())
	return nodeClass
}

// settle lets the controllers look once, and requires that there is nothing left to write then: what is wrong is said at once.
func (w *world) settle(name string) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	look := func() string {
		nodeClass := read(name)
		Expect(w.status.Reconcile(ctx, nodeClass)).Error().ToNot(HaveOccurred())
		Expect(w.usage.Reconcile(ctx, nodeClass)).Error().ToNot(HaveOccurred())
		return read(name).ResourceVersion
	}
	Expect(look()).To(Equal(look()), "the controllers do not come to rest")
	return read(name)
}

// serve lets the controller of servers look at the node until it is done.
func (w *world) serve() {
	GinkgoHelper()
	for range 5 {
		env.Clock.Step(10 * time.Second)
		env.Instances.Flush()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(w.claim), w.claim)).To(Succeed())
		before := w.claim.ResourceVersion
		Expect(w.server.Reconcile(ctx, w.claim.DeepCopy())).Error().ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(w.claim), w.claim)).To(Succeed())
		if before == w.claim.ResourceVersion {
			return
		}
	}
	Fail("the controller of servers does not come to rest")
}

// drift asks as core does, after a list.
func (w *world) drift() corecloudprovider.DriftReason {
	GinkgoHelper()
	env.Instances.Flush()
	Expect(env.CloudProvider.List(ctx)).Error().ToNot(HaveOccurred())
	return lo.Must(env.CloudProvider.IsDrifted(ctx, w.claim))
}

// facts are what a status says, without times.
type facts struct {
	Conditions map[string]string
	Status     v1alpha1.BizflyNodeClassStatus
}

func factsOf(nodeClass *v1alpha1.BizflyNodeClass) facts {
	GinkgoHelper()
	found := facts{Conditions: map[string]string{}, Status: nodeClass.Status}
	for _, condition := range nodeClass.Status.Conditions {
		Expect(condition.ObservedGeneration).To(Equal(nodeClass.Generation), condition.Type)
		found.Conditions[condition.Type] = fmt.Sprintf("%s, %s: %s", condition.Status, condition.Reason, condition.Message)
	}
	found.Status.Conditions = nil
	return found
}

// wire is what a server was launched with, without what differs between two servers of one spec.
type wire struct {
	Image, ImageType, Key, BillingPlan, NetworkPlan, UserData string
	Networks, Firewalls, Disks                                []string
	Wan, IPv6                                                 bool
	Tags                                                      map[string]string
}

var joinToken = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)

func wireOf(claim *karpv1.NodeClaim) wire {
	GinkgoHelper()
	env.Sandbox.AddDataDisks()
	s := env.Server(claim.Status.ProviderID)
	firewalls := lo.Uniq(lo.Map(s.SecurityGroups, func(g cloud.SecurityGroup, _ int) string { return g.Name }))
	slices.Sort(firewalls)
	return wire{
		Image: s.Truth.ImageID, ImageType: s.Truth.ImageType, Key: lo.FromPtr(s.KeyName), BillingPlan: s.BillingPlan, NetworkPlan: s.NetworkPlan,
		UserData:  joinToken.ReplaceAllString(strings.ReplaceAll(s.Truth.UserData, s.Name, "NAME"), "TOKEN"),
		Networks:  slices.Sorted(maps.Keys(s.Addresses)),
		Firewalls: firewalls,
		Disks: lo.Map(s.VolumesAttached, func(v cloud.AttachedVolume, _ int) string {
			return fmt.Sprintf("%d GiB of %s", v.Size, v.VolumeType)
		}),
		Wan: s.IsCreatedWan, IPv6: s.IPv6,
		Tags: lo.OmitBy(s.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "bizfly-karpenter-") }),
	}
}

// try edits the base, requires what must be true of the result whatever the edits are, and goes back to the base.
func (w *world) try(all ...edits.Edit) {
	GinkgoHelper()
	spec := w.schema.Apply(w.base, all...)
	if same(spec, w.base) {
		return
	}
	story := storyOf(all)
	w.tried++
	if before := w.schema.Apply(w.base, all[0]); len(all) > 1 && write(unit.NodeClassName, before) == nil {
		w.settle(unit.NodeClassName)
		env.Clock.Step(time.Minute)
	}
	fresh := write("fresh", spec)
	err := write(unit.NodeClassName, spec)
	Expect(apierrors.IsInvalid(err)).To(Equal(apierrors.IsInvalid(fresh)), "%s: what is valid depends on the history: %v, %v", story, err, fresh)
	if err != nil {
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", story, err)
		expectNamed(err.Error(), story, all)
		w.rejected++
		if len(all) > 1 {
			w.restore(story)
		}
		return
	}
	nodeClass, like := w.settle(unit.NodeClassName), w.settle("fresh")
	now, wanted := factsOf(nodeClass), factsOf(like)
	Expect(env.Client.Delete(ctx, like)).To(Succeed())
	_, err = w.usage.Reconcile(ctx, read("fresh")) // no NodeClaim uses it
	Expect(err).ToNot(HaveOccurred())
	Expect(nodeClass.Annotations[v1alpha1.AnnotationNodeClassHash]).To(Equal(like.Annotations[v1alpha1.AnnotationNodeClassHash]), story)
	Expect(now.Conditions).To(Equal(wanted.Conditions), "%s: conditions depend on the history", story)
	if ready := nodeClass.StatusConditions().Root(); ready.IsTrue() {
		Expect(now).To(Equal(wanted), "%s: the status depends on the history", story)
		w.replace(nodeClass, story, all)
	} else {
		w.unready++
		expectNamed(ready.Message, story, all)
		Expect(w.drift()).To(BeEmpty(), "%s: a NodeClass that is not ready replaces nothing", story)
	}
	w.restore(story)
}

// replace compares what the node has with what a node that is launched now gets.
func (w *world) replace(nodeClass *v1alpha1.BizflyNodeClass, story string, all []edits.Edit) {
	GinkgoHelper()
	verdict := w.drift()
	claim, like := w.launch(story)
	gets := wireOf(claim)
	w.launched++
	for _, edit := range all {
		w.used.Insert(edit.Field())
	}
	allowed := w.effects(nodeClass, all)
	switch {
	case verdict != "":
		w.drifted++
		Expect(allowed&replacesNodes).ToNot(BeZero(), "%s: %s, though no field that changed replaces nodes", story, verdict)
	case allowed == replacesNodes && like:
		Expect(gets).To(Equal(w.delivered), "%s: nothing drifts, though new nodes differ", story)
	}
	if allowed == inPlace {
		w.serve()
		Expect(wireOf(w.claim)).To(Equal(gets), "%s: what is changed in place is not what new nodes get", story)
		Expect(w.drift()).To(BeEmpty(), "%s: what was changed in place", story)
	}
	w.forget(claim)
}

// effects are what the changed fields may do.
func (w *world) effects(nodeClass *v1alpha1.BizflyNodeClass, all []edits.Edit) effect {
	var sum effect
	for _, edit := range all {
		found := effectOf(w.schema.Fields()[edit.Top()])
		if found == replacesNodes|newNodesOnly {
			found = lo.Ternary(nodeClass.Spec.BootstrapMode == v1alpha1.BootstrapModeCustom, replacesNodes, newNodesOnly)
		}
		sum |= found
	}
	return sum
}

// launch launches a node like the first where the spec allows that, and otherwise any, and reports which.
func (w *world) launch(story string) (*karpv1.NodeClaim, bool) {
	GinkgoHelper()
	zone, flavor := w.claim.Labels[corev1.LabelTopologyZone], w.claim.Labels[corev1.LabelInstanceTypeStable]
	claim := lo.Must(env.NodeClaim(ctx, nil, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone),
		unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavor)))
	launched, err := env.Launch(ctx, claim)
	if err == nil {
		return launched, true
	}
	Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue(), "%s is ready, and nothing can be launched: %v", story, err)
	w.forget(claim)
	launched, err = env.Launched(ctx)
	Expect(err).ToNot(HaveOccurred(), "%s is ready, and nothing can be launched", story)
	return launched, false
}

// forget deletes a NodeClaim with its server.
func (w *world) forget(claim *karpv1.NodeClaim) {
	GinkgoHelper()
	if claim.Status.ProviderID != "" {
		Expect(env.Sandbox.RemoveServer(unit.ServerID(claim.Status.ProviderID))).To(Succeed())
	}
	Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	claim.Finalizers = nil
	Expect(env.Client.Update(ctx, claim)).To(Succeed())
	Expect(env.Client.Delete(ctx, claim)).To(Succeed())
}

// restore goes back to the base, and requires that everything is as before.
func (w *world) restore(story string) {
	GinkgoHelper()
	Expect(write(unit.NodeClassName, w.base)).To(Succeed(), story)
	nodeClass := w.settle(unit.NodeClassName)
	Expect(factsOf(nodeClass)).To(Equal(w.restored), "%s, and back", story)
	Expect(nodeClass.Annotations[v1alpha1.AnnotationNodeClassHash]).To(Equal(w.stamp), "%s, and back", story)
	w.serve()
	Expect(w.drift()).To(BeEmpty(), "%s, and back", story)
	Expect(wireOf(w.claim)).To(Equal(w.delivered), "%s, and back", story)
}

func same(a, b map[string]any) bool {
	return string(lo.Must(json.Marshal(a))) == string(lo.Must(json.Marshal(b)))
}

// expectNamed requires that a message names a field that was edited.
func expectNamed(message, story string, all []edits.Edit) {
	GinkgoHelper()
	Expect(lo.SomeBy(all, func(e edits.Edit) bool {
		return strings.Contains(strings.ToLower(message), strings.ToLower(e.Top()))
	})).To(BeTrue(), "%s: does not name the field: %s", story, message)
}

var _ = Describe("A BizflyNodeClass", func() {
	var schema *edits.Schema

	BeforeEach(func() {
		schema = lo.Must(edits.New(apis.CRDs[0], known(env.Sandbox.Options().Catalog)))
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: userDataSecret, Namespace: metav1.NamespaceDefault},
			StringData: map[string]string{"userData": "#!/bin/sh\necho userData", "other": "#!/bin/sh\necho other"},
		}
		configMap := &corev1.ConfigMap{ObjectMeta: *secret.ObjectMeta.DeepCopy(), Data: map[string]string{"userData": "#!/bin/sh\necho configMap"}}
		for _, object := range []client.Object{secret, configMap} {
			Expect(env.Client.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { Expect(env.Client.Delete(ctx, object)).To(Succeed()) })
		}
	})

	It("should say of each field what a change of it does to running nodes", func() {
		for name, description := range schema.Fields() {
			Expect(effectOf(description)).To(BeElementOf(replacesNodes, inPlace, newNodesOnly, replacesNodes|newNodesOnly), name)
		}
	})
	// all tries edits of a base, and returns what was wrong with each.
	all := func(base string, c *counts, combinations [][]edits.Edit) []string {
		GinkgoHelper()
		var problems []string
		w := newWorld(schema, base, c)
		for _, combination := range combinations {
			if failures := InterceptGomegaFailures(func() { w.try(combination...) }); len(failures) > 0 {
				problems = append(problems, failures[0])
				Expect(env.Cleanup(ctx)).To(Succeed())
				w = newWorld(schema, base, c)
			}
		}
		Expect(env.Cleanup(ctx)).To(Succeed())
		return problems
	}

	It("should be the same after an edit and back, and after each edit like a new one", func() {
		c := &counts{used: sets.New[string]()}
		var problems []string
		for i, base := range bases {
			problems = append(problems, all(base, c, lo.FilterMap(schema.Edits(), func(edit edits.Edit, j int) ([]edits.Edit, bool) {
				return []edits.Edit{edit}, chosen(j, i, len(bases))
			}))...)
		}
		AddReportEntry("edits", c.String())
		Expect(problems).To(BeEmpty(), "%s", strings.Join(problems, "\n"))
		if everyBase() {
			fields := lo.Uniq(lo.Map(schema.Edits(), func(edit edits.Edit, _ int) string { return edit.Field() }))
			values := lo.Reject(fields, func(field string, _ int) bool {
				return lo.SomeBy(fields, func(other string) bool { return strings.HasPrefix(other, field+".") })
			})
			Expect(lo.Without(values, c.used.UnsortedList()...)).To(BeEmpty(), "no edit of these was launched with")
		}
	})
	It("should be so after edits of two fields", func() {
		seed := GinkgoRandomSeed()
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		c := &counts{used: sets.New[string]()}
		byBase := make([][][]edits.Edit, len(bases))
		for _, pair := range pairs(schema, random, int(suite.Number(pairsVariable, 40)), validWithSome(schema)) {
			i := random.IntN(len(bases))
			byBase[i] = append(byBase[i], pair)
		}
		var problems []string
		for i, base := range bases {
			problems = append(problems, all(base, c, byBase[i])...)
		}
		AddReportEntry("pairs of edits", c.String())
		Expect(problems).To(BeEmpty(), "again with GINKGO_SEED=%d: %s", seed, strings.Join(problems, "\n"))
	})
})

// pairsVariable is how many pairs of fields are edited. With it, each edit of one field is tried with every base, and otherwise with one.
const pairsVariable = "EDIT_PAIRS"

func everyBase() bool { return os.Getenv(pairsVariable) != "" }

// chosen reports whether an edit of one field is tried with a base, both by their number: with another one for another seed.
func chosen(edit, base, bases int) bool {
	return everyBase() || (edit+int(GinkgoRandomSeed()%1000))%bases == base
}

// pairs are edits of two fields each: of every two fields once before those of any two again. Their values are random ones of those that are
// valid alone.
func pairs(schema *edits.Schema, random *rand.Rand, number int, valid func(edits.Edit) bool) [][]edits.Edit {
	byField := lo.GroupBy(lo.Filter(schema.Edits(), func(edit edits.Edit, _ int) bool { return valid(edit) }), edits.Edit.Field)
	fields := slices.Sorted(maps.Keys(byField))
	var all [][]edits.Edit
	for len(all) < number {
		var round [][]edits.Edit
		for i, one := range fields {
			for _, other := range fields[i+1:] {
				pair := []edits.Edit{byField[one][random.IntN(len(byField[one]))], byField[other][random.IntN(len(byField[other]))]}
				if !pair[0].Overlaps(pair[1]) {
					round = append(round, pair)
				}
			}
		}
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		all = append(all, round...)
	}
	return all[:number]
}

// validWithSome reports whether the API server accepts an edit of one of the bases.
func validWithSome(schema *edits.Schema) func(edits.Edit) bool {
	return func(edit edits.Edit) bool {
		return lo.SomeBy(bases, func(text string) bool {
			base := map[string]any{}
			Expect(yaml.Unmarshal([]byte(text), &base)).To(Succeed())
			spec := schema.Apply(base, edit)
			return !same(spec, base) && write("tried", spec, client.DryRunAll) == nil
		})
	}
}

func storyOf(all []edits.Edit) string {
	return strings.Join(lo.Map(all, func(e edits.Edit, _ int) string { return e.String() }), ", ")
}
