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
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// connection is one set of credentials at one endpoint: the transport, the token and the catalog that belong to it.
type connection struct {
	config    Config
	endpoint  *url.URL
	region    string
	transport *http.Transport
	wire      *wire
	sessions  *refreshable[session]
	catalogs  *refreshable[*catalog]
}

// newConnection expects a valid configuration with its defaults filled in.
func newConnection(config Config, metrics *metrics, health *health, redactor *redactor) (*connection, error) {
	endpoint, err := parseEndpoint(config.APIURL)
	if err != nil {
		return nil, err
	}
	region, err := ParseRegion(config.Region)
	if err != nil {
		return nil, err
	}
	config.Region = region
	transport, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	redactor.learnCredentials(config.Password, config.AppCredSecret)
	w := &wire{
		transport: transport,
		redactor:  redactor,
		metrics:   metrics,
		health:    health,
		userAgent: userAgentName + "/" + config.Version,
	}
	if config.Transport != nil {
		w.transport = config.Transport
	}
	authenticator := &authenticator{config: config, endpoint: endpoint, wire: w}
	librarian := &librarian{config: config, endpoint: endpoint, wire: w}
	return &connection{
		config: config, endpoint: endpoint, region: region, transport: transport, wire: w,
		sessions: &refreshable[session]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: authenticator.login},
		catalogs: &refreshable[*catalog]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: librarian.read},
	}, nil
}

// scope logs in, when that has not happened yet, and says what the login proved.
func (c *connection) scope(ctx context.Context) (Scope, error) {
	session, err := c.sessions.get(ctx)
	if err != nil {
		return Scope{}, loginFailed(err)
	}
	catalog, err := c.catalogs.get(ctx)
	if err != nil {
		return Scope{}, loginFailed(err)
	}
	// A region in which the account has no servers is a wrong configuration, and better said at the start.
	if _, err := catalog.value.require(serviceServers); err != nil {
		return Scope{}, err
	}
	return c.scopeOf(session.value), nil
}

// scopeOf returns the scope of a token of this connection.
func (c *connection) scopeOf(of session) Scope {
	return Scope{Host: c.endpoint.Host, Region: c.region, ProjectID: of.projectID}
}

// outageAfter is how many exchanges in a row must fail before it is called an outage: one lost connection is none.
const outageAfter = 3

// Health is what the traffic of the client says about the cloud.
type Health struct {
	// Outage is true while the cloud does not answer or answers with server errors.
	Outage bool
	// Since is when the first of the failures happened that make the outage; zero when there is none.
	Since time.Time
	// LastAnswer is when the cloud last gave an answer that made sense; zero when it never did.
	LastAnswer time.Time
	// LastLogin is when the token in use was issued; zero before the first login.
	LastLogin time.Time
}

// health counts failures in a row.
type health struct {
	clock   clock.PassiveClock
	metrics *metrics

	mu         sync.Mutex
	failures   int
	since      time.Time
	lastAnswer time.Time
}

func (h *health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.since, h.lastAnswer = 0, time.Time{}, h.clock.Now()
	h.metrics.outage.Set(0)
}

func (h *health) failed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		h.since = h.clock.Now()
	}
	h.failures++
	if h.failures >= outageAfter {
		h.metrics.outage.Set(1)
	}
}

func (h *health) report() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	report := Health{Outage: h.failures >= outageAfter, LastAnswer: h.lastAnswer}
	if report.Outage {
		report.Since = h.since
	}
	return report
}
