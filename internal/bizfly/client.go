/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package bizfly

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// maxAttempts is how often a call that may be repeated is sent.
const maxAttempts = 4

var _ API = (*Client)(nil)

// Client is the API over gobizfly. It is safe for concurrent use.
type Client struct {
	metrics  *metrics
	health   *health
	redactor *redactor

	// reconfiguring serialises Reconfigure; calls only load the pointer.
	reconfiguring sync.Mutex
	backend       atomic.Pointer[backend]
	confirmed     atomic.Pointer[Scope]
}

// backend is what one configuration amounts to. A call uses the one that it began with.
type backend struct {
	config     Config
	connection *connection
	admission  *admission
	classifier *classifier
	// confirmed is the client's.
	confirmed *atomic.Pointer[Scope]
}

// NewClient checks the configuration and prepares the client. It sends nothing: Scope logs in.
func NewClient(config Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering metrics, %w", err)
	}
	c := &Client{metrics: metrics, health: &health{clock: config.Clock, metrics: metrics}, redactor: &redactor{}}
	next, err := c.newBackend(config, nil)
	if err != nil {
		return nil, err
	}
	c.backend.Store(next)
	return c, nil
}

// Reconfigure makes every call that begins from now on use another configuration; calls under way finish with the old
// one. Parts that do not change are kept: new limits cost no login. The metrics stay where NewClient registered them.
// An invalid configuration is rejected and the old one stays active. Whether the new scope is the old one is the
// caller's business: compare Scope.
func (c *Client) Reconfigure(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	c.reconfiguring.Lock()
	defer c.reconfiguring.Unlock()
	old := c.backend.Load()
	next, err := c.newBackend(config.withDefaults(), old)
	if err != nil {
		return err
	}
	c.backend.Store(next)
	if next.connection != old.connection {
		old.connection.transport.CloseIdleConnections()
	}
	return nil
}

// SetErrorPatterns tries other patterns before the built-in ones from now on. They must have passed Validate.
func (c *Client) SetErrorPatterns(patterns []ErrorPattern) error {
	config := c.backend.Load().config
	config.ErrorPatterns = patterns
	return c.Reconfigure(config)
}

func (c *Client) newBackend(config Config, old *backend) (*backend, error) {
	classifier, err := newClassifier(config.ErrorPatterns)
	if err != nil {
		return nil, err
	}
	next := &backend{config: config, classifier: classifier, confirmed: &c.confirmed}
	if old != nil && old.config.sameConnection(config) {
		next.connection = old.connection
	} else if next.connection, err = newConnection(config, c.metrics, c.health, c.redactor); err != nil {
		return nil, err
	}
	// A pause that the cloud asked for, and the rate used so far, outlive new credentials.
	if old != nil && old.config.Limits == config.Limits && old.config.Clock == config.Clock {
		next.admission = old.admission
	} else {
		next.admission = newAdmission(config, c.metrics)
	}
	return next, nil
}

// Scope implements API.
func (c *Client) Scope(ctx context.Context) (Scope, error) {
	scope, err := c.backend.Load().connection.scope(ctx)
	return scope, named("Scope", err)
}

// Confirm lets calls through for exactly this scope, which is what this cluster's servers are in. A token of another
// project, region or host answers 404 to everything that we own, and that must never look like "gone": until the scope is
// confirmed every call is rejected but those that say that they need none.
func (c *Client) Confirm(scope Scope) { c.confirmed.Store(&scope) }

// Confirmed returns the scope for which calls are let through, and false while there is none.
func (c *Client) Confirmed() (Scope, bool) {
	if scope := c.confirmed.Load(); scope != nil {
		return *scope, true
	}
	return Scope{}, false
}

// checkScope rejects a call whose answer would be about another place than this cluster's servers are in. It looks at the
// token that the call is sent with.
func (b *backend) checkScope(op *operation, sent session) *APIError {
	if op.anyScope {
		return nil
	}
	confirmed := b.confirmed.Load()
	if confirmed == nil {
		return notSent(ClassAuth, "no configuration is active: see the conditions of the ProviderConfig named default")
	}
	if scope := b.connection.scopeOf(sent); scope != *confirmed {
		return notSent(ClassAuth, "the credentials belong to %s, but the servers of this cluster are in %s: see the conditions of the ProviderConfig named default",
			scope, *confirmed)
	}
	return nil
}

// Health says how the cloud has answered lately. It sends nothing.
func (c *Client) Health() Health {
	report := c.health.report()
	session, _ := c.backend.Load().connection.sessions.peek()
	report.LastLogin = session.issuedAt
	return report
}

// do performs one call, which no call bypasses: the scope, admission, attempts and their repetition. The secrets are what the request carries beside the
// credentials, and what no error may repeat.
func (c *Client) do(ctx context.Context, op *operation, secrets []string, call func(context.Context, *gobizfly.Client) error) error {
	used := c.backend.Load()
	if _, ok := c.Confirmed(); !ok && !op.anyScope {
		return named(op.name, used.checkScope(op, session{})) // neither logs in nor waits for admission
	}
	err := used.do(ctx, op, secrets, call)
	// Credentials that were revoked as they were rotated: the call had no effect, and the new ones are at hand.
	if current := c.backend.Load(); IsAuth(err) && current.connection != used.connection && sameScope(ctx, used, current) {
		err = current.do(ctx, op, secrets, call)
	}
	return named(op.name, err)
}

func sameScope(ctx context.Context, old, current *backend) bool {
	before, _ := old.connection.sessions.peek()
	now, err := current.connection.scope(ctx)
	return err == nil && before.projectID != "" && before.projectID == now.ProjectID &&
		old.connection.endpoint.Host == now.Host && old.connection.region == now.Region
}

func named(operation string, err error) error {
	if err == nil {
		return nil
	}
	apiError, ok := asAPIError(err)
	if !ok {
		apiError = &APIError{Class: ClassUnknown, Err: err}
	}
	apiError.Operation = operation
	return apiError
}

func (b *backend) timeout(class class) time.Duration {
	switch class {
	case classDelete:
		return b.config.Timeouts.Delete
	case classCreate:
		return b.config.Timeouts.Create
	}
	return b.config.Timeouts.Read
}

func (b *backend) do(ctx context.Context, op *operation, secrets []string, call func(context.Context, *gobizfly.Client) error) error {
	b.connection.wire.redactor.learnRequest(secrets)
	release, err := b.admission.acquire(ctx, op.class)
	if err != nil {
		return err
	}
	// The call's own deadline starts here: what waited long for its turn still has all of it.
	callCtx, cancel := context.WithTimeout(ctx, b.timeout(op.class))
	defer cancel()
	maybeDone := false
	for attempt := 1; ; attempt++ {
		sent := b.config.Clock.Now()
		apiError := b.attempt(callCtx, op, call)
		release()
		if apiError == nil {
			return nil
		}
		// What an earlier attempt deleted is gone by our own doing.
		if maybeDone && op.kind == kindDelete && apiError.class() == ClassNotFound {
			return nil
		}
		maybeDone = maybeDone || apiError.Ambiguous
		if apiError.class() == ClassThrottled && apiError.Status == http.StatusTooManyRequests {
			b.admission.throttled(op.class, sent, apiError.RetryAfter)
		}
		if attempt == maxAttempts || !b.worthRepeating(op, apiError) || !b.rest(callCtx, attempt, apiError.RetryAfter) {
			return withHistory(apiError, maybeDone)
		}
		b.connection.wire.metrics.retries.WithLabelValues(op.route, op.method).Inc()
		if release, err = b.admission.acquire(callCtx, op.class); err != nil {
			return withHistory(apiError, maybeDone)
		}
	}
}

// withHistory keeps the last attempt's error from hiding that an earlier one may have had its effect.
func withHistory(err *APIError, maybeDone bool) *APIError {
	if maybeDone && !err.Ambiguous {
		err.NotSent, err.Ambiguous, err.Class = false, true, ClassUnknown
	}
	return err
}

func (b *backend) worthRepeating(op *operation, err *APIError) bool {
	if !op.idempotent {
		return false
	}
	transient := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	// A message that says more than the status, such as a quota behind a 503, will say it again.
	if err.Ambiguous || err.class() == ClassOutage || err.class() == ClassThrottled {
		return err.unanswered || slices.Contains(transient, err.Status)
	}
	return false
}

// rest waits before the next attempt, longer each time and as long as the cloud asked; false when the deadline of the
// call comes first.
func (b *backend) rest(ctx context.Context, attempt int, asked time.Duration) bool {
	ceiling := min(ttl.FirstRetry<<(attempt-1), ttl.MaxRetry)
	wait := max(ceiling/2+time.Duration(b.config.Spread(int64(ceiling)/2+1)), asked)
	return b.admission.sleep(ctx, wait, "") == nil
}

// attempt sends the request at most once, and once more after a 401.
func (b *backend) attempt(ctx context.Context, op *operation, call func(context.Context, *gobizfly.Client) error) (apiError *APIError) {
	session, err := b.connection.sessions.get(ctx)
	if err != nil {
		return loginFailed(err)
	}
	catalog, err := b.connection.catalogs.get(ctx)
	if err != nil {
		return loginFailed(err)
	}
	if err := b.checkScope(op, session.value); err != nil {
		return err
	}
	base, err := catalog.value.require(op.service)
	if err != nil {
		return loginFailed(err)
	}
	x := &exchange{
		ctx: ctx, operation: op, connection: b.connection, classifier: b.classifier,
		session: session, catalog: catalog.value, base: base,
	}
	// Nothing in gobizfly should panic any more, since no answer reaches it that is not what it expects.
	defer func() {
		if recovered := recover(); recovered != nil {
			apiError = x.broken(fmt.Errorf("panic in gobizfly (%T)", recovered))
		}
	}()
	client, err := x.client()
	if err != nil {
		return x.broken(err)
	}
	if err := call(ctx, client); err != nil {
		if typed, ok := asAPIError(err); ok {
			return typed
		}
		return x.broken(err)
	}
	return nil
}

// broken is the error of an answer, or a request, that gobizfly could not handle.
func (x *exchange) broken(err error) *APIError {
	cause := x.connection.wire.redactor.cause(err)
	switch {
	case x.answer != nil:
		return unreadable(x.operation.kind, x.answer.status, "the answer cannot be read", cause)
	case x.sent:
		return unreadable(x.operation.kind, 0, "the request broke off", cause)
	}
	return &APIError{Class: ClassInvalid, NotSent: true, Message: "the request cannot be made", Err: cause}
}

// invalid is the error of an argument that must not reach the wire.
func invalid(op *operation, format string, args ...any) error {
	err := notSent(ClassInvalid, format, args...)
	err.Operation = op.name
	return err
}

// errUnexpected is for what gobizfly returned and the body's check should have made impossible.
var errUnexpected = errors.New("gobizfly returned nothing")
