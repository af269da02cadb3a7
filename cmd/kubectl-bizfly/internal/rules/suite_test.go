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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
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
