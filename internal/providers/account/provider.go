// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package account knows whether the account is unpaid. BizFly Cloud stops all servers of an account that it suspends.
package account

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// API says what the account of the credentials owes.
type API interface {
	Account(ctx context.Context) (bizfly.Account, error)
}

// Provider asks the account, at most once in a while for all who want to know.
type Provider struct {
	api    API
	clock  clock.PassiveClock
	flight singleflight.Group

	mu   sync.Mutex // not held while anything is read
	last answer
}

// answer is what the account has said.
type answer struct {
	unpaid string
	err    error
	at     time.Time
}

// NewProvider returns a Provider that has not asked yet.
func NewProvider(api API, clk clock.PassiveClock) *Provider { return &Provider{api: api, clock: clk} }

// Unpaid returns what is unpaid, and nothing where nothing is, for those who have met a stopped server or a silent
// node. With an error it is what was known before.
func (p *Provider) Unpaid(ctx context.Context) (string, error) { return p.within(ctx, ttl.Account) }

// UnpaidAtRest is Unpaid for those who have no reason to ask. It asks as often only while something is unpaid.
func (p *Provider) UnpaidAtRest(ctx context.Context) (string, error) {
	return p.within(ctx, ttl.AccountAtRest)
}

func (p *Provider) within(ctx context.Context, maxAge time.Duration) (string, error) {
	last, fresh := p.known(maxAge)
	if !fresh {
		// Others wait for it too: it does not end with its first caller. The client has its own deadline.
		_, _, _ = p.flight.Do("", func() (any, error) { return nil, p.ask(context.WithoutCancel(ctx)) })
		last, _ = p.known(maxAge)
	}
	return last.unpaid, last.err
}

// ask asks the account, and keeps what is known where that fails.
func (p *Provider) ask(ctx context.Context) error {
	account, err := p.api.Account(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.at, p.last.err = p.clock.Now(), nil
	if err != nil {
		p.last.err = fmt.Errorf("asking the account whether it is unpaid: %w", err)
		return p.last.err
	}
	p.last.unpaid = account.Unpaid
	return nil
}

func (p *Provider) known(maxAge time.Duration) (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.unpaid != "" {
		maxAge = ttl.Account
	}
	return p.last, !p.last.at.IsZero() && p.clock.Since(p.last.at) < maxAge
}
