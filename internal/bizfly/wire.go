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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds what is read of an answer: a list of some ten thousand servers.
	maxBody = 32 << 20
	// maxErrorBody bounds what is read of a rejection, of which only a sentence is kept.
	maxErrorBody = 64 << 10
	// maxHeader bounds the headers of an answer.
	maxHeader = 256 << 10
)

// newTransport returns the one transport that all calls of a connection share.
func newTransport(config Config) (*http.Transport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if len(config.CABundle) > 0 && !roots.AppendCertsFromPEM(config.CABundle) {
		return nil, errors.New("the CA bundle holds no PEM certificate")
	}
	parallel := config.Limits.Delete.Concurrency + config.Limits.Read.Concurrency + config.Limits.Create.Concurrency
	timeouts := config.Timeouts
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: timeouts.Dial, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    timeouts.TLSHandshake,
		ResponseHeaderTimeout:  max(timeouts.Delete, timeouts.Read, timeouts.Create, timeouts.Login),
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           parallel,
		MaxIdleConnsPerHost:    parallel,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		// A connection that a firewall dropped silently would otherwise swallow requests until the kernel notices.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}, nil
}

// wire sends single requests and reads their answers whole. It knows nothing of gobizfly, tokens or retries.
type wire struct {
	transport http.RoundTripper
	redactor  *redactor
	metrics   *metrics
	health    *health
	userAgent string
}

// exchangeInfo is what the wire must know of a request beyond the request itself.
type exchangeInfo struct {
	kind  kind
	route string
	// classifier is nil for the built-in one.
	classifier *classifier
}

// answer is a 2xx, read whole.
type answer struct {
	status int
	body   []byte
}

// send performs one request. Every status but 2xx is an *APIError, and so is everything that keeps an answer away.
func (w *wire) send(request *http.Request, info exchangeInfo) (*answer, error) {
	started := time.Now()
	result, apiError := w.exchange(request, info)
	status := 0
	switch {
	case apiError != nil:
		status = apiError.Status
	case result != nil:
		status = result.status
	}
	w.metrics.duration.WithLabelValues(info.route, request.Method, statusLabel(status), outcome(apiError)).Observe(time.Since(started).Seconds())
	w.observeHealth(request.Context(), apiError)
	if apiError != nil {
		return nil, apiError
	}
	return result, nil
}

func (w *wire) observeHealth(ctx context.Context, err *APIError) {
	switch {
	case err == nil:
		w.health.answered()
	// A caller that went away says nothing about the cloud.
	case errors.Is(ctx.Err(), context.Canceled):
	case err.Status == 0 || err.Status >= 500 || err.class() == ClassOutage:
		w.health.failed()
	default:
		w.health.answered()
	}
}

func (w *wire) exchange(request *http.Request, info exchangeInfo) (*answer, *APIError) {
	// GotConn comes before the first byte is handed over, in this goroutine. GetConn comes again when the transport
	// tries another connection, which for anything but reads it only does when nothing was written to the first.
	var handedOver atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { handedOver.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { handedOver.Store(true) },
	})
	request = request.WithContext(ctx)
	request.Header.Set("User-Agent", w.userAgent)
	if request.Header.Get("Accept") == "" {
		request.Header.Set("Accept", "application/json; charset=utf-8")
	}
	if request.Body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	response, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, w.lost(ctx, err, 0, handedOver.Load(), info)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode < 200:
		return nil, w.rejection(response, nil, info)
	case response.StatusCode >= 300:
		// A rejection whose text cannot be read whole is still a rejection.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
		return nil, w.rejection(response, body, info)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, w.lost(ctx, err, response.StatusCode, true, info)
	}
	if len(body) > maxBody {
		return nil, unreadable(info.kind, response.StatusCode, fmt.Sprintf("the answer is larger than %d MiB", maxBody>>20), nil)
	}
	return &answer{status: response.StatusCode, body: body}, nil
}

// lost is the error of a request whose answer did not come, or not whole.
func (w *wire) lost(ctx context.Context, cause error, status int, handedOver bool, info exchangeInfo) *APIError {
	err := &APIError{
		Status: status, Class: ClassOutage, NotSent: !handedOver, Ambiguous: handedOver && info.kind.changes(),
		Err: w.redactor.cause(cause), unanswered: true,
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
func (w *wire) rejection(response *http.Response, body []byte, info exchangeInfo) *APIError {
	parsed := parseErrorBody(w.redactor.clean(string(body)), response.Header.Get("Content-Type"))
	err := &APIError{
		Status: response.StatusCode, Code: shorten(parsed.code, 64), Message: shorten(parsed.message, maxMessage),
		RetryAfter: retryAfter(response.Header.Get("Retry-After")),
	}
	rules := info.classifier
	if rules == nil {
		rules = defaultClassifier
	}
	err.Class, err.Scope = rules.classify(failure{
		kind: info.kind, status: err.Status, json: parsed.json, retryAfter: err.RetryAfter, message: parsed.message,
	})
	if response.StatusCode/100 == 3 {
		err.Message = "a redirect is not followed, since it would carry the token elsewhere"
	}
	// After a 5xx the work may have been done, unless the application itself said, in JSON and in words that we know,
	// why it was not, or the gateway said when to come back.
	rejectedInWords := parsed.json && err.Class != ClassOutage && err.Class != ClassUnknown
	if info.kind.changes() && err.Status >= 500 && !rejectedInWords && (err.Status != http.StatusServiceUnavailable || err.RetryAfter == 0) {
		err.Ambiguous, err.Class, err.Scope = true, ClassUnknown, ScopeOffering
	}
	return err
}

// unreadable is the error of a 2xx that makes no sense: harmless for a read, and an unknown outcome for the rest.
func unreadable(kind kind, status int, message string, cause error) *APIError {
	if kind.changes() {
		return &APIError{Status: status, Class: ClassUnknown, Ambiguous: true, Message: message, Err: cause}
	}
	return &APIError{Status: status, Class: ClassOutage, Message: message, Err: cause}
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
