// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/diff"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// annotate adds annotations to an object of the cluster, after a change of it.
func annotate[T client.Object](f *fixture, name string, object T,
	annotationsOf func(T) map[string]string) map[string]string {
	GinkgoHelper()
	Expect(f.objects.Get(context.Background(), client.ObjectKey{Name: name}, object)).To(Succeed())
	annotations := annotationsOf(object)
	object.SetAnnotations(lo.Assign(object.GetAnnotations(), annotations))
	f.put(object)
	return annotations
}

// launchedNow makes the node of runningNode one of the present specs.
func launchedNow(f *fixture, change func(*karpv1.NodeClaim)) {
	GinkgoHelper()
	ofPool := annotate(f, "default", &karpv1.NodePool{}, func(p *karpv1.NodePool) map[string]string {
		return map[string]string{
			karpv1.NodePoolHashAnnotationKey: p.Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion,
		}
	})
	ofClass := annotate(f, "default", &v1alpha1.BizflyNodeClass{}, func(c *v1alpha1.BizflyNodeClass) map[string]string {
		return map[string]string{v1alpha1.AnnotationNodeClassHash: c.Hash(),
			v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion}
	})
	f.runningNode()
	annotate(f, "claim-1", &karpv1.NodeClaim{}, func(c *karpv1.NodeClaim) map[string]string {
		c.Labels[v1alpha1.LabelInstanceCategory] = "premium"
		c.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour)) // core looks for its offering after one
		change(c)
		return lo.Assign(ofPool, ofClass)
	})
}

var _ = Describe("diff", func() {
	diffOf := func(status int, files ...string) diff.Diff {
		GinkgoHelper()
		var d diff.Diff
		Expect(f.run("diff", "-o", "json", "-f", strings.Join(files, ","))).To(Equal(status), f.out+f.err)
		Expect(json.Unmarshal([]byte(f.out), &d)).To(Succeed())
		return d
	}

	DescribeTable("should say what a change does to a node that runs", func(from, to, change, reason string) {
		f.apply(pools)
		launchedNow(f, func(c *karpv1.NodeClaim) {
			c.Status.ImageID = lo.Ternary(reason == "ImageDrift", "of-another-image", "")
		})
		status := lo.Ternary(change == diff.Replaced, cli.ExitFindings, cli.ExitOK)
		d := diffOf(status, written("new.yaml", strings.Replace(pools, from, to, 1)))
		Expect(d.Nodes).To(HaveExactElements(And(HaveField("Name", "node-1"), HaveField("Change", change),
			HaveField("Reason", reason))))
		Expect(d.Pods).To(Equal(lo.Ternary(change == diff.Replaced, 1, 0)))
		Expect(d.VNDPerHour > 0).To(Equal(change == diff.Replaced))
	},
		Entry("none", "", "", diff.Stays, ""),
		Entry("a root disk", "spec: {}", "spec: {rootDisk: {size: 60Gi}}", diff.Replaced, "NodeClassDrift"),
		Entry("a default that is written out", "spec: {}", "spec: {rootDisk: {size: 40Gi}}", diff.Stays, ""),
		Entry("an address", "spec: {}", "spec: {publicIPv4: false}", diff.Replaced, "NodeClassDrift"),
		Entry("tags", "spec: {}", "spec: {tags: {team: shop}}", diff.Replaced, "NodeClassDrift"),
		Entry("an image", "spec: {}", "spec: {imageSelectorTerms: [{alias: bke-ubuntu@latest}]}", diff.Replaced, "ImageDrift"),
		Entry("firewalls", "spec: {}", "spec: {firewallSelectorTerms: [{name: web}]}", diff.InPlace, "firewalls"),
		Entry("a placement", "spec: {}", "spec: {placementStrategy: Spread}", diff.Stays, ""),
		Entry("zones", "spec: {}", "spec: {zones: [HN2]}", diff.Stays, ""),
		Entry("flavors", "spec: {}", "spec: {flavorSelectorTerms: [{category: basic}]}", diff.Stays, ""),
		Entry("a requirement that it lacks", "[premium]", "[basic]", diff.Replaced, "RequirementsDrifted"),
		Entry("a requirement that it has", "[premium]", "[premium, basic]", diff.Stays, ""),
		Entry("a taint", "      requirements:", "      taints: [{key: a, effect: NoSchedule}]\n      requirements:",
			diff.Replaced, "NodePoolDrifted"),
		Entry("a limit", "  template:", "  limits: {cpu: 100}\n  template:", diff.Stays, ""),
	)

	It("should count no node that is replaced without the change, and name what it leaves out", func() {
		f.apply(pools)
		launchedNow(f, func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeDrifted) })
		file := written("disk.yaml", strings.Replace(pools, "spec: {}", "spec: {rootDisk: {size: 60Gi}}", 1)+"---\n"+web)
		d := diffOf(cli.ExitOK, file)
		Expect(d.Nodes).To(HaveExactElements(HaveField("Change", diff.AlreadyDrifted)))
		Expect(d.Objects).To(HaveExactElements(
			And(HaveField("Kind", "BizflyNodeClass"), HaveField("Fields", []string{"rootDisk"})),
			And(HaveField("Kind", "NodePool"), HaveField("Fields", BeEmpty()))))
		Expect(f.err).To(ContainSubstring("only NodePools and BizflyNodeClasses are compared"))
		Expect(f.run("diff", "-f", written("web.yaml", web))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("neither a NodePool nor a BizflyNodeClass"))
	})

	It("should have no node of objects that are new, and say where nothing can be compared", func() {
		f.apply(pools)
		launchedNow(f, func(*karpv1.NodeClaim) {})
		other := written("new.yaml", strings.ReplaceAll(pools, "name: default}", "name: other}"))
		Expect(f.run("diff", "-f", other)).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(And(ContainSubstring("NodePool other: new"), ContainSubstring("Replaced: 0 nodes"),
			Not(ContainSubstring("node-1"))))
		f.failLists(&karpv1.NodeClaimList{}, forbidden)
		Expect(f.run("diff", "-f", written("same.yaml", pools))).To(Equal(cli.ExitFailure))
	})
})
