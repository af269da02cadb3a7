// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// maxAttempts is how often a call that may be repeated is sent.
const maxAttempts = 4

var _ API = (*Client)(nil)

// Client is the API over gobizfly. It is safe for concurrent use.
type Client struct {
	metrics  *metrics
	redactor *redact.Redactor

	// active is the connection of the present configuration; a call uses the one that it began with.
	active    atomic.Pointer[connection]
	confirmed atomic.Pointer[Scope]
}

// NewClient checks the configuration and prepares the client. It sends nothing: Scope logs in.
func NewClient(config Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	c := NewInactiveClient(config)
	return c, c.Reconfigure(config)
}

// NewInactiveClient returns a client that rejects every call until Reconfigure gives it a configuration. Of this one it
// uses the registerer.
func NewInactiveClient(config Config) *Client {
	return &Client{metrics: newMetrics(config.Registerer), redactor: &redact.Redactor{}}
}

// Reconfigure makes every call that begins from now on use another configuration; calls under way finish with the old
// one. The metrics stay where NewClient registered them. An invalid configuration is rejected and the old one stays
// active. Whether the new scope is the old one is the caller's business: compare Scope.
func (c *Client) Reconfigure(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	next, err := c.newConnection(config.withDefaults())
	if err != nil {
		return err
	}
	if old := c.active.Swap(next); old != nil {
		old.transport.CloseIdleConnections()
	}
	return nil
}

// Scope implements API.
func (c *Client) Scope(ctx context.Context) (Scope, error) {
	connection, session, err := c.login(ctx, "Scope")
	if err != nil {
		return Scope{}, err
	}
	return connection.scopeOf(session), nil
}

// login returns the connection of the present configuration and its session.
func (c *Client) login(ctx context.Context, operation string) (*connection, session, error) {
	connection := c.active.Load()
	if connection == nil {
		return nil, session{}, named(operation, inactive())
	}
	current, err := connection.sessions.get(ctx, 0)
	return connection, current, named(operation, err)
}

// Account implements API.
func (c *Client) Account(ctx context.Context) (Account, error) {
	connection, session, err := c.login(ctx, "Account")
	if err != nil {
		return Account{}, err
	}
	account, said := Account{Services: slices.Sorted(maps.Keys(session.services.services))}, user{}
	err = connection.readWith(ctx, session.services, session.token, opGetUser, &said)
	if err == nil && said.Data.NegativeBalance == nil && said.Data.HasExpiredInvoice == nil {
		// What is known to be unpaid must not be taken for paid.
		err = unreadable(kindItem, http.StatusOK, "the answer does not say whether the account is unpaid", nil)
	}
	account.Unpaid = said.unpaid()
	if balance, isNumber := said.Data.BillingBalance.(float64); isNumber {
		account.Balance = &balance
	}
	return account, named("Account", err)
}

// Confirm lets calls through for exactly this scope, which is what this cluster's servers are in. A token of another
// project, region or host answers 404 to everything that we own, and that must never look like "gone": until the scope
// is confirmed every call is rejected but those that say that they need none.
func (c *Client) Confirm(scope Scope) { c.confirmed.Store(&scope) }

// Confirmed returns the scope for which calls are let through, and false while there is none.
func (c *Client) Confirmed() (Scope, bool) {
	scope := c.confirmed.Load()
	return lo.FromPtr(scope), scope != nil
}

// checkScope rejects a call whose answer would be about another place than this cluster's servers are in. It looks at
// the token that the call is sent with. Client.do has rejected what is called before a scope is confirmed.
func (c *connection) checkScope(op *operation, sent session) *APIError {
	if op.anyScope {
		return nil
	}
	if scope, confirmed := c.scopeOf(sent), *c.confirmed.Load(); scope != confirmed {
		return notSent(ClassAuth, "the credentials belong to %s, but the servers of this cluster are in %s: see the "+
			"conditions of the ProviderConfig named default", scope, confirmed)
	}
	return nil
}

// do performs one call, and no call bypasses it: the scope, admission, attempts and their repetition.
func (c *Client) do(ctx context.Context, op *operation, send func(*sdk) error) error {
	used := c.active.Load()
	if _, ok := c.Confirmed(); used == nil || !ok && !op.anyScope {
		// It neither logs in nor waits for admission.
		return named(op.name, inactive())
	}
	err := used.do(ctx, op, send)
	// Credentials that were revoked as they were rotated: the call had no effect, and the new ones are at hand.
	if current := c.active.Load(); IsAuth(err) && current != used {
		err = current.do(ctx, op, send)
	}
	return named(op.name, err)
}

func inactive() *APIError {
	return notSent(ClassAuth, "no configuration is active: see the conditions of the ProviderConfig named default")
}

func named(operation string, err error) error {
	if err == nil {
		return nil
	}
	apiError := typed(err)
	apiError.Operation = operation
	return apiError
}

func (c *connection) do(ctx context.Context, op *operation, send func(*sdk) error) error {
	timeouts := c.config.Timeouts
	timeout := map[class]time.Duration{
		classDelete: timeouts.Delete, classRead: timeouts.Read, classCreate: timeouts.Create, classLeave: timeouts.Delete,
	}[op.class]
	release, err := c.admission.acquire(ctx, op)
	if err != nil {
		return err
	}
	// The call's own deadline starts here: what waited long for its turn still has all of it.
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		sent := c.config.Clock.Now()
		apiError := c.attempt(callCtx, op, send)
		release()
		c.observeRate(op, sent, apiError)
		if apiError == nil {
			return nil
		}
		if attempt == maxAttempts || !worthRepeating(op, apiError) || !c.rest(callCtx, attempt, apiError.RetryAfter) {
			return apiError
		}
		if release, err = c.admission.acquire(callCtx, op); err != nil {
			return apiError
		}
	}
}

// observeRate pauses the route of a call after a 429, and ends its pause after any other answer of the cloud. A failing
// server says nothing about rates, nor does a login, which has a back-off of its own.
func (c *connection) observeRate(op *operation, sent time.Time, err *APIError) {
	switch {
	case err == nil:
		c.admission.accepted(op, sent)
	case err.NotSent:
	case err.Status == http.StatusTooManyRequests:
		c.admission.throttled(op, err.RetryAfter)
	case err.Status > 0 && err.Status < http.StatusInternalServerError:
		c.admission.accepted(op, sent)
	}
}

func worthRepeating(op *operation, err *APIError) bool {
	transient := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
	// A message that says more than the status, such as a quota behind a 503, will say it again.
	return op.repeatable() && (err.Ambiguous || err.class() == ClassOutage || err.class() == ClassThrottled) &&
		(err.unanswered || slices.Contains(transient, err.Status))
}

// rest waits before the next attempt, longer each time and as long as the cloud asked; false when the deadline of the
// call comes first.
func (c *connection) rest(ctx context.Context, attempt int, asked time.Duration) bool {
	ceiling := min(ttl.FirstRetry<<(attempt-1), ttl.MaxRetry)
	wait := max(ceiling/2+time.Duration(c.config.Spread(int64(ceiling)/2+1)), asked)
	return c.admission.sleep(ctx, wait, "") == nil
}

// attempt sends the request at most once, and once more after a 401.
func (c *connection) attempt(ctx context.Context, op *operation, send func(*sdk) error) (apiError *APIError) {
	session, err := c.sessions.get(ctx, 0)
	if err != nil {
		return typed(err)
	}
	if err := c.checkScope(op, session); err != nil {
		return err
	}
	base, err := session.services.require(op.service)
	if err != nil {
		return typed(err)
	}
	x := &exchange{ctx: ctx, operation: op, connection: c, session: session, base: base}
	// Nothing in gobizfly should panic any more, since no answer reaches it that is not what it expects.
	defer func() {
		if recovered := recover(); recovered != nil {
			apiError = x.broken(fmt.Errorf("panic in gobizfly (%T)", recovered))
		}
	}()
	client, err := x.client()
	if err == nil {
		err = send(client)
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*APIError](err); !ok {
		return x.broken(err)
	}
	return c.classifyForbidden(ctx, x.session, typed(err))
}
