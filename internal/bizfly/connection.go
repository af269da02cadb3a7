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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
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
	catalogReader := &catalogReader{config: config, endpoint: endpoint, wire: w}
	return &connection{
		config: config, endpoint: endpoint, region: region, transport: transport, wire: w,
		sessions: &refreshable[session]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: authenticator.login},
		catalogs: &refreshable[*catalog]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: catalogReader.read},
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

const tokenRoute = "/token"

// session is what a login proved.
type session struct {
	token     string
	projectID string
	issuedAt  time.Time
}

// authenticator logs in. gobizfly never does: it has no deadline there, and recurses when the login itself is rejected.
type authenticator struct {
	config   Config
	endpoint *url.URL
	wire     *wire

	mu sync.Mutex
	// project is that of the first login. The default project of a user can change behind our back, and the token of
	// another project answers 404 to everything that we own.
	project string
}

func (a *authenticator) login(ctx context.Context) (fetched[session], error) {
	value, err := a.exchange(ctx)
	outcome := "success"
	if err != nil {
		outcome = "failure"
		if IsAuth(err) {
			outcome = "refused"
		}
	}
	a.wire.metrics.logins.WithLabelValues(outcome).Inc()
	return value, err
}

func (a *authenticator) exchange(ctx context.Context) (fetched[session], error) {
	request := &gobizfly.TokenCreateRequest{AuthMethod: a.config.AuthMethod, ProjectID: a.config.ProjectID}
	if a.config.AuthMethod == AuthMethodPassword {
		request.Username, request.Password = a.config.Email, a.config.Password
	} else {
		request.AppCredID, request.AppCredSecret = a.config.AppCredID, a.config.AppCredSecret
	}
	body, err := json.Marshal(request) //nolint:gosec // a login sends its password
	if err != nil {
		return fetched[session]{}, &APIError{Class: ClassInvalid, NotSent: true, Message: "the credentials cannot be encoded"}
	}
	target := a.endpoint.JoinPath(tokenRoute)
	httpRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return fetched[session]{}, &APIError{Class: ClassInvalid, NotSent: true, Message: "the endpoint is no valid URL"}
	}
	httpRequest.Header.Set("X-Auth-Type", "token")
	answer, err := a.wire.send(httpRequest, exchangeInfo{kind: kindCreate, route: tokenRoute})
	if err != nil {
		return fetched[session]{}, loginError(err)
	}
	return a.read(answer)
}

// loginError gives the rejections of a login their meaning: nothing is bought or deleted by it, so it is never ambiguous.
func loginError(err error) error {
	apiError, ok := asAPIError(err)
	if !ok {
		return err
	}
	wasAmbiguous := apiError.Ambiguous
	apiError.Ambiguous = false
	switch {
	case apiError.Status == http.StatusBadRequest, apiError.Status == http.StatusUnauthorized, apiError.Status == http.StatusForbidden:
		apiError.Class = ClassAuth
	case errors.Is(apiError.Err, context.Canceled):
	case wasAmbiguous, apiError.Status == 0, apiError.Status == http.StatusNotFound:
		apiError.Class = ClassOutage
	}
	apiError.Message = strings.TrimSuffix("login: "+apiError.Message, ": ")
	return apiError
}

func (a *authenticator) read(answer *answer) (fetched[session], error) {
	var reply struct {
		Token     string `json:"token"`
		ProjectID string `json:"project_id"`
		// The struct of gobizfly reads the first name, the recorded replies of the API have the second.
		ExpireAt  string `json:"expire_at"`
		ExpiresAt string `json:"expires_at"`
	}
	if err := json.Unmarshal(answer.body, &reply); err != nil || reply.Token == "" || !validHeader(reply.Token) {
		return fetched[session]{}, &APIError{Class: ClassOutage, Status: answer.status, Message: "login: the answer holds no token"}
	}
	a.wire.redactor.learnToken(reply.Token)
	if err := a.confirmProject(reply.ProjectID); err != nil {
		return fetched[session]{}, err
	}
	now := a.config.Clock.Now()
	life := tokenLife(now, reply.ExpireAt, reply.ExpiresAt)
	return fetched[session]{
		value:     session{token: reply.Token, projectID: reply.ProjectID, issuedAt: now},
		refreshAt: now.Add(life / 5 * 4),
		expiresAt: now.Add(life),
	}, nil
}

func (a *authenticator) confirmProject(replied string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	rejected := func(format string, args ...any) error {
		err := notSent(ClassAuth, format, args...)
		err.NotSent = false
		return err
	}
	switch {
	case replied == "" || !validID(replied):
		return rejected("login: the token's reply names no project, so nothing that it answers could be trusted")
	case a.config.ProjectID != "" && replied != a.config.ProjectID:
		return rejected("login: the token belongs to project %s but BIZFLY_CLOUD_PROJECT_ID is %s, use a credential of that project or change the variable", replied,
			a.config.ProjectID)
	case a.project != "" && replied != a.project:
		return rejected("login: the credential's project changed from %s to %s, set BIZFLY_CLOUD_PROJECT_ID to the one that is meant", a.project, replied)
	}
	a.project = replied
	return nil
}

// tokenLife is how long the token is good for, from whichever expiry can be read.
func tokenLife(now time.Time, expiries ...string) time.Duration {
	for _, expiry := range expiries {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05"} {
			at, err := time.Parse(layout, expiry)
			// A past expiry is a clock that is wrong, ours or theirs: a 401 will tell.
			if err == nil && at.After(now) {
				return min(max(at.Sub(now), ttl.MinToken), ttl.MaxToken)
			}
		}
	}
	return ttl.DefaultToken
}

// validHeader reports whether a value can travel in a header as it is.
func validHeader(value string) bool {
	return value != "" && strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
}
