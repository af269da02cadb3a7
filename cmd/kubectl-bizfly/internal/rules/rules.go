// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules is what the plugin knows to be right or wrong about a cluster and a project: doctor, its preflight and
// why answer from one table. A rule declares the facts that it needs and sees no others. Where one of them could not be
// read, its result is not known.
package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
)

// fact is something that is read at most once in a reading.
type fact[T any] struct {
	name string
	load func(ctx context.Context, r *reading) (T, error)
	// asked facts depend on what is asked about, which only a reading of a question has.
	asked bool
}

func newFact[T any](name string, load func(ctx context.Context, r *reading) (T, error)) *fact[T] {
	return &fact[T]{name: name, load: load}
}

// newAsked is a fact about what is asked, such as a pod and a NodePool.
func newAsked[T any](name string, load func(ctx context.Context, r *reading) (T, error)) *fact[T] {
	return &fact[T]{name: name, load: load, asked: true}
}

// read is a fact as it was read.
type read struct {
	value any
	err   error
	at    time.Time
}

// reading has the facts of one run, each with its error and time.
type reading struct {
	*connect.Session
	facts map[string]read
	// parent has the facts that do not depend on what is asked.
	parent *reading
	asked  question
}

func newReading(s *connect.Session) *reading { return &reading{Session: s, facts: map[string]read{}} }

// ask makes a reading of a question, which shares what does not depend on it.
func (r *reading) ask(q question) *reading {
	return &reading{Session: r.Session, facts: map[string]read{}, parent: r, asked: q}
}

// in returns the fact, and reads it where nobody has yet.
func (f *fact[T]) in(ctx context.Context, r *reading) (T, error) {
	if r.parent != nil && !f.asked {
		r = r.parent
	}
	known, ok := r.facts[f.name]
	if !ok {
		value, err := f.load(ctx, r)
		known = read{value, err, time.Now()}
		r.facts[f.name] = known
	}
	value, _ := known.value.(T)
	return value, known.err
}

func (f *fact[T]) called() string { return f.name }

// want reads the fact for its error.
func (f *fact[T]) want(ctx context.Context, r *reading) error {
	_, err := f.in(ctx, r)
	return err
}

// need is a fact of any type.
type need interface {
	called() string
	want(ctx context.Context, r *reading) error
}

// state is what came of a rule.
type state int

const (
	holds state = iota
	fails
	doesNotApply
	notKnown
)

// outcome is what came of a rule, and why if it does not apply or is not known.
type outcome struct {
	// code is that of the rule.
	code     string
	state    state
	reason   string
	findings []Finding
	// known is what a rule that holds lets a report say.
	known []Known
}

// found is the outcome of a rule: it holds where there is no finding.
func found(findings ...Finding) outcome {
	return outcome{state: lo.Ternary(len(findings) > 0, fails, holds), findings: findings}
}

// no is the outcome of a rule with one finding, and failsIf that of one which may hold.
func no(format string, args ...any) outcome {
	return found(Finding{What: fmt.Sprintf(format, args...)})
}

func failsIf(condition bool, format string, args ...any) outcome {
	if condition {
		return no(format, args...)
	}
	return positive()
}

// positive is the outcome of a rule that holds, and what this lets a report say.
func positive(known ...Known) outcome { return outcome{state: holds, known: known} }

// inapplicable is the outcome of a rule that has nothing to look at.
func inapplicable(format string, args ...any) outcome {
	return outcome{state: doesNotApply, reason: fmt.Sprintf(format, args...)}
}

// nothingToCheckError is the error of a fact that there cannot be here.
type nothingToCheckError string

// Error says why.
func (n nothingToCheckError) Error() string { return string(n) }

// unread is the outcome of a rule one of whose facts could not be read.
func unread(ctx context.Context, err error) outcome {
	if _, nothing := errors.AsType[nothingToCheckError](err); nothing || connect.IsMissing(err) {
		return inapplicable("%s", err)
	}
	return outcome{state: notKnown, reason: lo.CoalesceOrEmpty(context.Cause(ctx), err).Error()}
}

// rule is one thing that is right or wrong.
type rule struct {
	// code is stable, in CamelCase; about is what reports call it, together with others.
	code, about string
	severity    Severity
	// why is why it matters, and fix a command or the change to make, where a finding has none of its own.
	why, fix string
	// remedies are what may help a pod, where a finding has none of its own.
	remedies []remedy
	given
}

// given are the facts of a rule, and the decision over them.
type given struct {
	needs  []need
	decide func(ctx context.Context, r *reading) outcome
}

func given1[A any](a *fact[A], decide func(A) outcome) given {
	return given{[]need{a}, func(ctx context.Context, r *reading) outcome { return decide(lo.Must(a.in(ctx, r))) }}
}

func given2[A, B any](a *fact[A], b *fact[B], decide func(A, B) outcome) given {
	return given{[]need{a, b}, func(ctx context.Context, r *reading) outcome {
		return decide(lo.Must(a.in(ctx, r)), lo.Must(b.in(ctx, r)))
	}}
}

func given3[A, B, C any](a *fact[A], b *fact[B], c *fact[C], decide func(A, B, C) outcome) given {
	return given{[]need{a, b, c}, func(ctx context.Context, r *reading) outcome {
		return decide(lo.Must(a.in(ctx, r)), lo.Must(b.in(ctx, r)), lo.Must(c.in(ctx, r)))
	}}
}

func given4[A, B, C, D any](a *fact[A], b *fact[B], c *fact[C], d *fact[D], decide func(A, B, C, D) outcome) given {
	return given{[]need{a, b, c, d}, func(ctx context.Context, r *reading) outcome {
		return decide(lo.Must(a.in(ctx, r)), lo.Must(b.in(ctx, r)), lo.Must(c.in(ctx, r)), lo.Must(d.in(ctx, r)))
	}}
}

// apply reads the facts of the rule and decides over them.
func (r *rule) apply(ctx context.Context, facts *reading) outcome {
	for _, need := range r.needs {
		if err := need.want(ctx, facts); err != nil {
			result := unread(ctx, err)
			result.code = r.code
			return result
		}
	}
	result := r.decide(ctx, facts)
	result.code = r.code
	for i := range result.findings {
		f := &result.findings[i]
		f.Code, f.Severity = lo.CoalesceOrEmpty(f.Code, r.code), lo.CoalesceOrEmpty(f.Severity, r.severity)
		f.Why, f.Fix = lo.CoalesceOrEmpty(f.Why, r.why), lo.CoalesceOrEmpty(f.Fix, r.fix)
		if f.remedies == nil {
			f.remedies = r.remedies
		}
	}
	return result
}
