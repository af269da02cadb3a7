// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	// maxBody bounds what is read of an answer: a list of some ten thousand servers.
	maxBody = 32 << 20
	// maxErrorBody bounds what is read of a rejection, of which only a sentence is kept.
	maxErrorBody = 64 << 10
	// maxHeader bounds the headers of an answer.
	maxHeader = 256 << 10
	// maxConnecting bounds a connection's dial, and then its TLS handshake.
	maxConnecting = 10 * time.Second

	mediaType = "application/json; charset=utf-8"
)

// newTransport returns the one transport that all calls of a connection share. Each request has a deadline of its own.
func newTransport(config Config) *http.Transport {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(config.CABundle)
	parallel := config.Limits.Delete.Concurrency + config.Limits.Read.Concurrency + config.Limits.Create.Concurrency
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: maxConnecting, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    maxConnecting,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           parallel,
		MaxIdleConnsPerHost:    parallel,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		// A connection that a firewall dropped silently would otherwise swallow requests until the kernel notices.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// wire sends single requests and reads their answers whole. It knows nothing of gobizfly, tokens or retries.
type wire struct {
	transport http.RoundTripper
	redactor  *redact.Redactor
	metrics   *metrics
	userAgent string
}

// answer is a 2xx, read whole.
type answer struct {
	status int
	body   []byte
}

// send performs one request. Every status but 2xx is an *APIError, and so is everything that keeps an answer away.
func (w *wire) send(request *http.Request, op *operation) (*answer, error) {
	started := time.Now()
	result, err := w.exchange(request, op)
	status := lo.FromPtr(result).status
	if err != nil {
		status = err.Status
	}
	w.metrics.duration.WithLabelValues(op.route, request.Method, strconv.Itoa(status),
		outcome(err)).Observe(time.Since(started).Seconds())
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (w *wire) exchange(request *http.Request, op *operation) (*answer, *APIError) {
	// GotConn comes before the first byte is handed over, in this goroutine. GetConn comes again when the transport
	// tries another connection, which for anything but reads it only does when nothing was written to the first.
	var handedOver atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { handedOver.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { handedOver.Store(true) },
	})
	request = request.WithContext(ctx)
	request.Header.Set("User-Agent", w.userAgent)
	request.Header.Set("Accept", mediaType)
	if request.Body != nil {
		request.Header.Set("Content-Type", mediaType)
	}
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, w.lost(ctx, err, 0, handedOver.Load(), op)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode < 200:
		return nil, w.rejection(response, nil, op)
	case response.StatusCode >= 300:
		// A rejection whose text cannot be read whole is still a rejection.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
		return nil, w.rejection(response, body, op)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, w.lost(ctx, err, response.StatusCode, true, op)
	}
	if len(body) > maxBody {
		return nil, unreadable(op.kind, response.StatusCode, fmt.Sprintf("the answer is larger than %d MiB", maxBody>>20),
			nil)
	}
	return &answer{status: response.StatusCode, body: body}, nil
}

// lost is the error of a request whose answer did not come, or not whole.
func (w *wire) lost(ctx context.Context, cause error, status int, handedOver bool, op *operation) *APIError {
	err := &APIError{
		Status: status, Class: ClassOutage, NotSent: !handedOver, Ambiguous: handedOver && op.kind.changes(),
		Err: w.cause(cause), unanswered: true,
	}
	if contextCause := ctx.Err(); contextCause != nil {
		err.unanswered = false
		err.Err = contextCause
		err.Message = "the call's deadline passed before the answer came"
		if errors.Is(contextCause, context.Canceled) {
			err.Class, err.Message = ClassUnknown, "the caller gave up before the answer came"
		}
	}
	if err.Ambiguous {
		err.Class = ClassUnknown
	}
	return err
}

// rejection is the error of a status that is not 2xx.
func (w *wire) rejection(response *http.Response, body []byte, op *operation) *APIError {
	// It is classified by its own words, and cleaned where it is shown: a message that lost one may mean something
	// else.
	parsed := parseErrorBody(string(body), response.Header.Get("Content-Type"))
	err := &APIError{
		Status:     response.StatusCode,
		Code:       shorten(w.redactor.Text(parsed.code), 64),
		Message:    shorten(w.redactor.Text(parsed.message), maxMessage),
		RetryAfter: retryAfter(response.Header.Get("Retry-After")),
	}
	err.Class, err.Scope = classify(failure{kind: op.kind, status: err.Status, json: parsed.json, message: parsed.message})
	if response.StatusCode/100 == 3 {
		err.Message = "a redirect is not followed, since it would carry the token elsewhere"
	}
	// After a 5xx the work may have been done, unless the application itself said, in JSON, why it was not, or the gateway
	// said when to come back.
	if op.kind.changes() && err.Status >= 500 && (!parsed.json || !err.saysWhyNot(op.kind)) &&
		(err.Status != http.StatusServiceUnavailable || err.RetryAfter == 0) {
		err.Ambiguous, err.Class, err.Scope = true, ClassUnknown, ScopeOffering
	}
	return err
}

// saysWhyNot reports whether the words are known and say why nothing was done. Of a create, what exists already or is
// being worked on may be ours, and what is wrong may be an answer behind this one, unless it names a part of the
// request.
func (e *APIError) saysWhyNot(kind kind) bool {
	switch {
	case e.Class == ClassOutage, e.Class == ClassUnknown, kind == kindCreate && e.Class == ClassConflict:
		return false
	case kind == kindCreate && e.Class == ClassInvalid:
		return e.Scope == ScopeNodeClass || NamesOffering(e) || NamesVolumeType(e)
	}
	return true
}

// changes reports whether a request may have an effect.
func (k kind) changes() bool {
	return k == kindCreate || k == kindDelete || k == kindAction
}

// retryAfter reads both forms of the header; 0 when there is none.
func retryAfter(value string) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// exchange is the RoundTripper of one gobizfly client that lives for one call. It binds the call's context, which
// gobizfly forgets, and owns the URL's host, the headers of authentication, the replay after a 401 and the check of the
// answer.
type exchange struct {
	//nolint:containedctx // gobizfly drops the context that it is given; this is where it comes back
	ctx        context.Context
	operation  *operation
	connection *connection
	session    session
	// base is where the operation's service is, and written what gobizfly puts in its place.
	base    *url.URL
	written string

	sent   bool
	answer *answer
}

// client makes the gobizfly client of this exchange. It gets neither a token nor the service catalog, so it writes the
// URL of each request below its production host, where none of them is sent.
func (x *exchange) client() (*gobizfly.Client, error) {
	client, err := gobizfly.NewClient(gobizfly.WithHTTPClient(&http.Client{Transport: x}))
	if err == nil {
		x.written = client.GetServiceURL(x.operation.service)
	}
	return client, err
}

// RoundTrip implements http.RoundTripper. It never returns a status but 200, on which gobizfly cannot stumble.
func (x *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer func() { _ = request.Body.Close() }()
	}
	if x.sent {
		return nil, unreadable(x.operation.kind, 0, "gobizfly tried to send a second request for one call", nil)
	}
	target := x.target(request)
	if target == nil {
		return nil, notSent(ClassInvalid, "%s on host %s is not the route %s", request.Method, request.URL.Host,
			x.operation.route)
	}
	x.sent = true
	answer, err := x.send(request, target)
	if of(err).Status == http.StatusUnauthorized {
		answer, err = x.replay(request, target, err)
	}
	if err != nil {
		return nil, err
	}
	body, err := x.operation.body.apply(answer.body)
	if err != nil {
		return nil, unreadable(x.operation.kind, answer.status, "the answer cannot be read", x.connection.wire.cause(err))
	}
	x.answer = answer
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}, nil
}

// routeID is an id in a route.
var routeID = regexp.MustCompile(`\{\w+\}`)

// target returns where the request is sent: the operation's route below the base of its service; nil for any other
// path, such as that of a login.
func (x *exchange) target(request *http.Request) *url.URL {
	route, below := strings.CutPrefix(request.URL.String(), x.written)
	route, _, _ = strings.Cut(route, "?")
	matched, err := path.Match(routeID.ReplaceAllString(x.operation.route, "*"), route)
	if !below || !matched || err != nil || request.Method != x.operation.method {
		return nil
	}
	target := x.base.JoinPath(route)
	target.RawQuery = request.URL.RawQuery
	return target
}

// replay sends the request once more with a new token. A 401 means that the first one had no effect.
func (x *exchange) replay(request *http.Request, target *url.URL, first error) (*answer, error) {
	now := x.connection.config.Clock.Now()
	last, _ := x.connection.rejected.Load(x.operation.service)
	rejected, before := last.(time.Time)
	// A rejected join token must not cause a login per call.
	if x.operation.ownToken || before && now.Sub(rejected) < ttl.RejectedToken {
		return nil, first
	}
	renewed, err := x.connection.sessions.get(x.ctx, x.session.generation)
	if err != nil {
		return nil, err
	}
	x.session = renewed
	answer, err := x.send(request, target)
	if of(err).Status == http.StatusUnauthorized {
		x.connection.rejected.Store(x.operation.service, now)
		return nil, prefixed("a fresh token was rejected too", typed(err))
	}
	return answer, err
}

// send gives the wire a copy of the request with a body of its own.
func (x *exchange) send(request *http.Request, target *url.URL) (*answer, error) {
	clone := request.Clone(x.ctx)
	clone.URL, clone.Host = target, ""
	if request.GetBody != nil {
		clone.Body, _ = request.GetBody() // of a buffer, which never fails
	}
	// gobizfly always sends an empty Basic authorization, on which a gateway may stumble.
	clone.Header.Del("Authorization")
	clone.Header.Set("X-Auth-Type", "token")
	clone.Header.Set("X-Auth-Token", x.session.token)
	clone.Header.Set("X-Project-ID", x.session.projectID)
	return x.connection.wire.send(clone, x.operation)
}

// broken is the error of an answer, or a request, that gobizfly could not handle.
func (x *exchange) broken(err error) *APIError {
	cause := x.connection.wire.cause(err)
	switch {
	case x.answer != nil:
		return unreadable(x.operation.kind, x.answer.status, "the answer cannot be read", cause)
	case x.sent:
		return unreadable(x.operation.kind, 0, "the request broke off", cause)
	}
	return &APIError{Class: ClassInvalid, NotSent: true, Message: "the request cannot be made", Err: cause}
}
