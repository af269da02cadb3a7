// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

var _ = Describe("The launches of a NodeClass", func() {
	const mark = 3 * time.Minute
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	unknown := failure{err: errors.New("E_4711"), reason: ReasonLaunchFailed}
	quota := failure{err: errors.New("quota"), reason: capacity.ReasonQuotaExceeded, class: bizfly.ClassQuota}
	unregistered := failure{err: ErrNotRegistered, reason: ReasonNotRegistered}

	// step is an event some time after the one before it.
	type step struct {
		after time.Duration
		event event
	}
	fails := func(claim, flavor, zone string, f failure) event {
		return event{kind: launchFailed, claim: types.UID(claim), offering: capacity.Offering{Flavor: flavor, Zone: zone},
			failure: f,
			accuses: !f.ofNodeClass(), period: mark}
	}
	of := func(kind eventKind, claim string) event { return event{kind: kind, claim: types.UID(claim)} }
	at := func(after time.Duration, e event) step { return step{after, e} }
	now := func(e event) step { return step{0, e} }
	three := func(f failure) []step {
		return []step{now(fails("a", "2c", "HN1", f)), now(fails("b", "2c", "HN2", f)), now(fails("c", "4c", "HN1", f))}
	}
	run := func(severalZones bool, steps []step) (s state, at time.Time) {
		at = begin
		for _, step := range steps {
			at = at.Add(step.after)
			step.event.now, step.event.severalZones = at, severalZones
			s = next(s, step.event)
		}
		return s, at
	}

	type wanted struct {
		phase   phase
		left    time.Duration
		trialOf types.UID
		trials  int
	}
	DescribeTable("should go on, pause and be tried as the table says", func(steps []step, want wanted) {
		s, at := run(true, steps)
		got := wanted{phase: s.phase, trialOf: s.trialOf, trials: s.failedTrials}
		if s.phase != open {
			got.left = s.until.Sub(at)
		}
		Expect(got).To(Equal(want))
	},
		Entry("nothing has happened", nil, wanted{}),
		Entry("one failure", three(unknown)[:1], wanted{}),
		Entry("two failures", three(unknown)[:2], wanted{}),
		Entry("three offerings of two flavors in two zones", three(unknown), wanted{phase: paused, left: time.Minute}),
		Entry("three offerings of one flavor", []step{now(fails("a", "2c", "HN1", unknown)), now(fails("b", "2c", "HN2",
			unknown)),
			now(fails("c", "2c", "HN3", unknown))}, wanted{}),
		Entry("three offerings in one of several zones", []step{now(fails("a", "2c", "HN1", unknown)), now(fails("b", "4c",
			"HN1", unknown)),
			now(fails("c", "8c", "HN1", unknown))}, wanted{}),
		Entry("three offerings that one NodeClaim has tried", []step{now(fails("a", "2c", "HN1", unknown)), now(fails("a",
			"2c", "HN2", unknown)),
			now(fails("a", "4c", "HN1", unknown))}, wanted{}),
		Entry("three failures, of which the first no longer counts", []step{now(fails("a", "2c", "HN1", unknown)),
			at(ttl.NodeClassFailures, fails("b", "2c", "HN2", unknown)), now(fails("c", "4c", "HN1", unknown))}, wanted{}),
		Entry("a quota", []step{now(fails("a", "2c", "HN1", quota))}, wanted{phase: paused, left: mark}),
		Entry("three failures while a quota pauses for longer", append([]step{now(fails("q", "2c", "HN1", quota))},
			three(unknown)...),
			wanted{phase: paused, left: mark}),
		Entry("a quota while a shorter pause lasts", append(three(unknown), now(fails("q", "2c", "HN1", quota))),
			wanted{phase: paused, left: mark}),
		Entry("a node registers during the pause", append(three(unknown), now(of(nodeRegistered, "z"))), wanted{}),
		Entry("a node registers while a quota is exhausted", []step{now(fails("q", "2c", "HN1", quota)),
			now(of(nodeRegistered, "z"))},
			wanted{phase: paused, left: mark}),
		Entry("a node registers after two failures, and one more fails", append(three(unknown)[:2], now(of(nodeRegistered,
			"z")),
			now(fails("c", "4c", "HN1", unknown))), wanted{}),
		Entry("the pause is over, and a launch is admitted", append(three(unknown), at(time.Minute, of(launchAdmitted,
			"d"))), wanted{}),
		Entry("two failures after the pause", append(three(unknown), at(time.Minute, fails("d", "8c", "HN1", unknown)),
			now(fails("e", "8c", "HN2", unknown))), wanted{}),

		Entry("three nodes do not register", three(unregistered), wanted{phase: paused, left: time.Minute, trials: 1}),
		Entry("more nodes of the same time do not register", append(three(unregistered), now(fails("d", "8c", "HN1",
			unregistered)),
			now(fails("e", "8c", "HN2", unregistered))), wanted{phase: paused, left: time.Minute, trials: 1}),
		Entry("the first launch after that is the trial", append(three(unregistered), at(time.Minute, of(launchAdmitted,
			"t"))),
			wanted{phase: trial, left: 6 * time.Minute, trialOf: "t", trials: 1}),
		Entry("its server has the time to register", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")),
			now(of(serverLaunched, "t"))),
			wanted{phase: trial, left: ttl.TrialRegistration, trialOf: "t", trials: 1}),
		Entry("the server of another launch changes nothing", append(three(unregistered), at(time.Minute, of(launchAdmitted,
			"t")),
			now(of(serverLaunched, "z"))), wanted{phase: trial, left: 6 * time.Minute, trialOf: "t", trials: 1}),
		Entry("the trial registers", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")),
			now(of(nodeRegistered, "t"))), wanted{}),
		Entry("another node registers", append(three(unregistered), now(of(nodeRegistered, "z"))),
			wanted{phase: paused, left: time.Minute, trials: 1}),
		Entry("the trial ends without a result", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")),
			now(of(launchEnded, "t"))),
			wanted{trials: 1}),
		Entry("the trial does not register", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")),
			at(time.Minute, fails("t", "8c", "HN2", unregistered))), wanted{phase: paused, left: 2 * time.Minute, trials: 2}),
		Entry("the trial meets a quota", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")), now(fails("t",
			"8c", "HN1", quota))),
			wanted{phase: paused, left: mark, trials: 1}),
		Entry("another launch meets a quota during the trial", append(three(unregistered), at(time.Minute, of(launchAdmitted,
			"t")),
			now(fails("z", "8c", "HN1", quota))), wanted{phase: trial, left: 6 * time.Minute, trialOf: "t", trials: 1}),
		Entry("one offering fails for the trial", append(three(unregistered), at(time.Minute, of(launchAdmitted, "t")),
			now(fails("t", "8c", "HN1", unknown))), wanted{phase: trial, left: 6 * time.Minute, trialOf: "t", trials: 1}),
		Entry("the time of the trial is over, and the next one is admitted", append(three(unregistered), at(time.Minute,
			of(launchAdmitted, "t")),
			at(6*time.Minute, of(launchAdmitted, "u"))), wanted{phase: trial, left: 6 * time.Minute, trialOf: "u", trials: 1}),
		Entry("a quota between nodes that do not register", []step{now(fails("a", "2c", "HN1", unregistered)), now(fails("b",
			"2c", "HN2", unregistered)),
			now(fails("q", "2c", "HN1", quota)), at(mark, fails("c", "4c", "HN1", unregistered))},
			wanted{phase: paused, left: time.Minute, trials: 1}),
		Entry("nodes that register, and none does not, for an hour", append(three(unregistered)[:2], at(ttl.NotRegistered,
			fails("c", "4c", "HN1", unregistered))),
			wanted{}),
	)
	It("should pause for longer each time that a trial does not register, up to five minutes", func() {
		steps, length := three(unregistered), []string{}
		for i := range 5 {
			s, at := run(true, steps)
			length = append(length, s.until.Sub(at).String())
			claim := fmt.Sprint("trial", i)
			steps = append(steps, step{s.until.Sub(at), of(launchAdmitted, claim)}, now(fails(claim, "8c", "HN1", unregistered)))
		}
		Expect(length).To(Equal([]string{"1m0s", "2m0s", "4m0s", "5m0s", "5m0s"}))
	})
	It("should pause where all failures are in the only zone", func() {
		s, _ := run(false, []step{now(fails("a", "2c", "HN1", unknown)), now(fails("b", "4c", "HN1", unknown)),
			now(fails("c", "8c", "HN1", unknown))})
		Expect(s.phase).To(Equal(paused))
	})
	It("should be what the classified failure says, also for one that never was a request", func() {
		prepared := classify(instance.ErrNotPrepared, true)
		s, _ := run(true, []step{now(fails("a", "2c", "HN1", prepared))})
		Expect(s.phase).To(Equal(paused))
		Expect(s.cause.reason).To(Equal(ReasonLaunchNotPrepared))
	})
})
