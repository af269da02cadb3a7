// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// connection is one configuration: the transport, the token and services of its credentials, and its rates.
type connection struct {
	config    Config
	endpoint  *url.URL
	transport *http.Transport
	wire      *wire
	sessions  *sessions
	admission *admission
	// confirmed is the client's.
	confirmed *atomic.Pointer[Scope]
	// rejected is when a token was rejected that a 401 had just brought, by service.
	rejected sync.Map
}

// newConnection expects a valid configuration with its defaults filled in.
func (c *Client) newConnection(config Config) (*connection, error) {
	endpoint, err := parseEndpoint(config.APIURL)
	if err != nil {
		return nil, err
	}
	if config.Region, err = ParseRegion(config.Region); err != nil {
		return nil, err
	}
	transport := newTransport(config)
	c.redactor.LearnCredentials(config.Password, config.AppCredSecret)
	next := &connection{config: config, endpoint: endpoint, transport: transport, wire: &wire{
		transport: cmp.Or[http.RoundTripper](config.Transport, transport), redactor: c.redactor, metrics: c.metrics,
		userAgent: "karpenter-provider-bizflycloud/" + config.Version,
	}, admission: newAdmission(config, c.metrics), confirmed: &c.confirmed}
	next.sessions = &sessions{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login,
		login: next.login}
	return next, nil
}

// scopeOf returns the scope of a token of this connection.
func (c *connection) scopeOf(of session) Scope {
	return Scope{Host: c.endpoint.Host, Region: c.config.Region, ProjectID: of.projectID}
}

// read reads what no call of the API answers; a token may be empty.
func (c *connection) read(ctx context.Context, target *url.URL, token string, op *operation, into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeouts.Login)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return notSent(ClassInvalid, "the URL of %s cannot be used", op.route)
	}
	if token != "" {
		request.Header.Set("X-Auth-Type", "token")
		request.Header.Set("X-Auth-Token", token)
	}
	answer, err := c.wire.send(request, op)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer.body, into); err != nil {
		return unreadable(op.kind, answer.status, "the answer cannot be read", c.wire.cause(err))
	}
	return nil
}

const tokenRoute = "/token"

// The requests that are not the API's calls.
var (
	opLogin        = &operation{route: tokenRoute, kind: kindCreate}
	opReadServices = &operation{route: "/auth/service", kind: kindList}
)

// login logs in, and reads where the services are. gobizfly never does: it has no deadline there, and recurses when the
// login itself is rejected. The last session is that of the login before, if there was one.
func (c *connection) login(ctx context.Context, last session) (session, error) {
	value, err := c.requestToken(ctx, last)
	outcome := "success"
	switch {
	case IsAuth(err):
		outcome = "refused"
	case err != nil:
		outcome = "failure"
	}
	c.wire.metrics.logins.WithLabelValues(outcome).Inc()
	return value, err
}

func (c *connection) requestToken(ctx context.Context, last session) (none session, err error) {
	request := &gobizfly.TokenCreateRequest{AuthMethod: c.config.AuthMethod, ProjectID: c.config.ProjectID}
	if c.config.AuthMethod == AuthMethodPassword {
		request.Username, request.Password = c.config.Email, c.config.Password
	} else {
		request.AppCredID, request.AppCredSecret = c.config.AppCredID, c.config.AppCredSecret
	}
	body, err := json.Marshal(request) //nolint:gosec // a login sends its password
	if err != nil {
		return none, notSent(ClassInvalid, "the credentials cannot be encoded")
	}
	httpRequest, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.JoinPath(tokenRoute).String(),
		bytes.NewReader(body))
	if err != nil {
		return none, notSent(ClassInvalid, "the endpoint is no valid URL")
	}
	httpRequest.Header.Set("X-Auth-Type", "token")
	answer, err := c.wire.send(httpRequest, opLogin)
	if err != nil {
		return none, loginError(err)
	}
	return c.readToken(ctx, answer, last)
}

// loginError classifies the rejections of a login.
func loginError(err error) error {
	apiError := typed(err)
	switch {
	case apiError.Status == http.StatusBadRequest, apiError.Status == http.StatusUnauthorized,
		apiError.Status == http.StatusForbidden:
		apiError.Class = ClassAuth
	case errors.Is(apiError.Err, context.Canceled):
	case apiError.Ambiguous, apiError.Status == 0, apiError.Status == http.StatusNotFound:
		apiError.Class = ClassOutage
	}
	return prefixed("login", apiError)
}

func (c *connection) readToken(ctx context.Context, answer *answer, last session) (none session, err error) {
	var reply struct {
		Token     string `json:"token"`
		ProjectID string `json:"project_id"`
		// The struct of gobizfly reads the first name, the recorded replies of the API have the second.
		ExpireAt  string `json:"expire_at"`
		ExpiresAt string `json:"expires_at"`
	}
	if err := json.Unmarshal(answer.body, &reply); err != nil || reply.Token == "" || !validHeader(reply.Token) {
		return none, &APIError{Class: ClassOutage, Status: answer.status, Message: "login: the answer holds no token"}
	}
	c.wire.redactor.LearnToken(reply.Token)
	// Those that are known outlive an answer without any, or without that of the servers.
	services, err := c.readServices(ctx)
	if err != nil {
		services = last.services
	}
	if services == nil {
		return none, err
	}
	if reply.ProjectID == "" {
		if reply.ProjectID, err = c.projectOf(ctx, services, reply.Token); err != nil {
			return none, prefixed("login: the token's reply names no project, and it cannot be found out", typed(err))
		}
	}
	if err := c.checkProject(reply.ProjectID, last.projectID); err != nil {
		return none, err
	}
	now := c.config.Clock.Now()
	life := tokenLife(now, reply.ExpireAt, reply.ExpiresAt)
	return session{
		token: reply.Token, projectID: reply.ProjectID, services: services,
		refreshAt: now.Add(life / 5 * 4), expiresAt: now.Add(life),
	}, nil
}

// checkProject rejects the token of another project than the configured one and the last: the default project of a user
// can change behind our back, and the token of another project answers 404 to everything that we own.
func (c *connection) checkProject(replied, last string) error {
	rejected := func(format string, args ...any) error {
		return &APIError{Class: ClassAuth, Message: fmt.Sprintf("login: "+format, args...)}
	}
	switch {
	case replied == "" || !validID(replied):
		return rejected("neither the token's reply, the account's user nor a server names the project, so nothing that it " +
			"answers could be trusted")
	case c.config.ProjectID != "" && replied != c.config.ProjectID:
		return rejected("the token belongs to project %s but BIZFLY_CLOUD_PROJECT_ID is %s, use a credential of that "+
			"project or change the variable",
			replied, c.config.ProjectID)
	case last != "" && replied != last:
		return rejected("the credential's project changed from %s to %s, set BIZFLY_CLOUD_PROJECT_ID to the one that is "+
			"meant", last, replied)
	}
	return nil
}

// tokenLife is how long the token is good for, from whichever expiry can be read.
func tokenLife(now time.Time, expiries ...string) time.Duration {
	for _, expiry := range expiries {
		// A past expiry is a clock that is wrong, ours or theirs: a 401 will tell.
		if at := Time(expiry); at.After(now) {
			return min(max(at.Sub(now), ttl.MinToken), ttl.MaxToken)
		}
	}
	return ttl.DefaultToken
}

// Time returns a time that the API has written, in one of the two forms that were seen; the one without a zone is UTC.
// It is zero for any other text.
func Time(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	return time.Time{}
}

// validHeader reports whether a value can travel in a header as it is.
func validHeader(value string) bool {
	return value != "" && strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
}

// metrics are what can be seen of the traffic to the cloud. No label holds an id, so their number is bounded.
type metrics struct {
	duration      *prometheus.HistogramVec
	admissionWait *prometheus.HistogramVec
	logins        *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(cmp.Or(registerer, prometheus.Registerer(crmetrics.Registry)))
	m := &metrics{
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "karpenter_bizfly_api_request_duration_seconds",
			Help: "Duration of HTTP requests to the BizFly Cloud API, by route template, method, status (0 without an answer) " +
				"and outcome (success or the error's class).",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 13),
		}, []string{"route", "method", "status", "outcome"}),
		admissionWait: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "karpenter_bizfly_api_admission_wait_seconds",
			Help: "Time that calls waited for a pause, their rate and a free slot before they were sent, by class (delete, " +
				"read, create, leave).",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"class"}),
		logins: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "karpenter_bizfly_api_logins_total",
			Help: "Logins, by outcome (`success`, `refused` for rejected credentials, `failure`).",
		}, []string{"outcome"}),
	}
	// A counter that first appears with its first count hides that count from every rate.
	for _, outcome := range []string{"success", "refused", "failure"} {
		m.logins.WithLabelValues(outcome)
	}
	return m
}

// outcome is the label of an exchange.
func outcome(err *APIError) string {
	switch {
	case err == nil:
		return "success"
	case err.Ambiguous:
		return "Ambiguous"
	}
	return string(err.class())
}
