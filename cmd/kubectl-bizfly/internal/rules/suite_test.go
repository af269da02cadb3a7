// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestRules(t *testing.T) { suite.Run(t, "Rules") }

var _ = ginkgo.Describe("a rule", func() {
	all := slices.Concat(installationRules, preflightRules, podRules)

	ginkgo.It("should not be known where a fact that it needs could not be read", func(ctx context.Context) {
		failed := errors.New("the fact failed")
		Expect(all).ToNot(BeEmpty())
		for _, r := range all {
			Expect(r.needs).ToNot(BeEmpty(), r.code)
			for _, missing := range r.needs {
				facts := newReading(nil)
				for _, other := range r.needs {
					facts.facts[other.called()] = read{err: lo.Ternary(other == missing, failed, nil)}
				}
				Expect(r.apply(ctx, facts)).To(Equal(outcome{code: r.code, state: notKnown, reason: "the fact failed"}), "%s without %s", r.code,
					missing.called())
			}
		}
	})

	ginkgo.It("should read a fact once, by a name that no other fact has", func(ctx context.Context) {
		byName, reads := map[string]need{}, 0
		for _, r := range all {
			for _, n := range r.needs {
				Expect(lo.CoalesceOrEmpty(byName[n.called()], n)).To(BeIdenticalTo(n), n.called())
				byName[n.called()] = n
			}
		}
		counted := newFact("counted", func(context.Context, *reading) (int, error) {
			reads++
			return reads, nil
		})
		facts := newReading(nil)
		for _, of := range []*reading{facts, facts.ask(question{}), facts.ask(question{})} {
			Expect(counted.in(ctx, of)).To(Equal(1))
		}
	})

	ginkgo.DescribeTable("should name the requirement that leaves no flavor, and those with which it does so:", func(
		wanted map[string]string, text string, keys ...string) {
		large, small := flavor("large", 200), flavor("small", 100)
		large.Requirements.Add(scheduling.NewRequirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "premium"))
		small.Requirements.Add(scheduling.NewRequirement(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "basic"))
		all := []*corecloudprovider.InstanceType{large, small}
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: wanted}}
		got, of := blockedBy(fit{all: all, filters: filtersOf(question{pod, &karpv1.NodePool{}}, zones{}, all)})
		Expect(got).To(Equal(text))
		Expect(of).To(Equal(keys))
	},
		ginkgo.Entry("one that none has", map[string]string{corev1.LabelInstanceTypeStable: "huge"},
			"none has node.kubernetes.io/instance-type In [huge]", corev1.LabelInstanceTypeStable),
		ginkgo.Entry("one that none has of those that satisfy another", map[string]string{
			v1alpha1.LabelInstanceCategory: "basic", corev1.LabelInstanceTypeStable: "large"},
			"none with karpenter.bizflycloud.vn/instance-category In [basic] has node.kubernetes.io/instance-type In [large]",
			v1alpha1.LabelInstanceCategory, corev1.LabelInstanceTypeStable),
	)

	ginkgo.It("should be said once of the NodePools of which it says the same, and of none that is paused", func(ctx context.Context) {
		facts := newReading(nil)
		pools := &karpv1.NodePoolList{Items: lo.Map([]string{"a", "b", "c", "paused"}, func(name string, _ int) karpv1.NodePool {
			return karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		})}
		pools.Items[3].Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("0")}
		facts.facts[factNodePools.name] = read{value: pools}
		known := true
		of := ofAll(rule{code: "Code", severity: Warning, why: "why", fix: "kubectl edit nodepool NAME",
			given: given1(factAsked, func(q question) outcome {
				if !known {
					return outcome{state: notKnown, reason: "forbidden"}
				}
				return failsIf(q.pool.Name != "c", "it fails")
			})}, 0)
		Expect(of.apply(ctx, facts).findings).To(HaveExactElements(Finding{Code: "Code", Severity: Warning, Why: "why",
			What: "NodePools a, b: it fails", Fix: "kubectl edit nodepool a b"}))
		known = false
		Expect(of.apply(ctx, facts)).To(Equal(outcome{code: "Code", state: notKnown, reason: "forbidden"}))
	})

	ginkgo.It("should say what is in order only where every rule about it holds", func(ctx context.Context) {
		one := newFact("one", func(context.Context, *reading) (bool, error) { return true, nil })
		of := func(result outcome) rule {
			return rule{code: "Code", about: "thing", given: given1(one, func(bool) outcome { return result })}
		}
		report := func(results ...outcome) *Report {
			facts := newReading(nil)
			facts.Session = &connect.Session{}
			return examine(ctx, facts, lo.Map(results, func(o outcome, _ int) rule { return of(o) }))
		}
		unknown := outcome{code: "A", state: notKnown, reason: "forbidden"}
		Expect(report(positive(), positive()).Passed).To(ConsistOf("thing"))
		Expect(report(positive(), inapplicable("none")).Passed).To(ConsistOf("thing"))
		Expect(report(positive(), unknown)).To(And(HaveField("Passed", BeEmpty()), HaveField("Skipped",
			Equal(map[string]string{"thing": "forbidden"}))))
		Expect(report(found(Finding{}), unknown)).To(And(HaveField("Findings", HaveLen(1)), HaveField("Skipped", HaveLen(1))))
		Expect(report(positive(), found(Finding{})).Passed).To(BeEmpty())
		Expect(report(inapplicable("none"))).To(And(HaveField("Passed", BeEmpty()), HaveField("NotApplicable",
			HaveKeyWithValue("thing", "none"))))
		Expect(checksOf("launches", []outcome{unknown, yes("nothing holds them back")})).To(
			Equal([]Check{{Code: "A", Name: "launches", Unknown: true, Detail: "forbidden"}}))
	})
})
