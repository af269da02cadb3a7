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
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/bizflycloud/gobizfly"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// operation is one call of the API interface.
type operation struct {
	name string
	// route is the path with its ids replaced, for metrics.
	route   string
	service string
	class   class
	kind    kind
	// idempotent calls may be repeated: reads, and what ends in the same state however often it is sent.
	idempotent bool
	method     string
	body       bodyRule
	// ownToken calls carry a second token, so that a 401 need not be about the session.
	ownToken bool
	// anyScope calls are sent while no scope is confirmed too: they only read what is no cluster's own.
	anyScope bool
}

// exchange is the RoundTripper of one gobizfly client that lives for one call. It binds the call's context, which
// gobizfly forgets, and owns the headers of authentication, the replay after a 401 and the check of the answer.
type exchange struct {
	//nolint:containedctx // gobizfly drops the context that it is given; this is where it comes back
	ctx        context.Context
	operation  *operation
	connection *connection
	classifier *classifier
	session    stamped[session]
	catalog    *catalog
	base       *url.URL

	// warm is set once gobizfly has been given its catalog; until then its requests stay in the process.
	warm   bool
	sent   bool
	answer *answer
}

// client makes the gobizfly client of this exchange and feeds it the catalog. It gets no token: the exchange adds it.
func (x *exchange) client() (*gobizfly.Client, error) {
	client, err := gobizfly.NewClient(
		gobizfly.WithAPIURL(x.connection.endpoint.String()),
		gobizfly.WithRegionName(x.connection.region),
		gobizfly.WithHTTPClient(&http.Client{
			Transport:     x,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	)
	if err != nil {
		return nil, err
	}
	if _, err := client.Token.Init(x.ctx, &gobizfly.TokenCreateRequest{AuthMethod: AuthMethodPassword}); err != nil {
		return nil, err
	}
	x.warm = true
	return client, nil
}

// RoundTrip implements http.RoundTripper. It never returns a status but 200, on which gobizfly cannot stumble.
func (x *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer func() { _ = request.Body.Close() }()
	}
	if !x.warm {
		return x.local(request)
	}
	if x.sent {
		return nil, unreadable(x.operation.kind, 0, "gobizfly tried to send a second request for one call", nil)
	}
	if !permits(x.base, request.URL) {
		return nil, notSent(ClassInvalid, "%s on host %s is not below the %s of the service catalog", request.Method, request.URL.Host, x.operation.service)
	}
	x.sent = true
	answer, err := x.send(request, x.session.value)
	if isStatus(err, http.StatusUnauthorized) {
		answer, err = x.replay(request, err)
	}
	if err != nil {
		return nil, err
	}
	body, err := x.operation.body(answer.body)
	if err != nil {
		return nil, unreadable(x.operation.kind, answer.status, "the answer cannot be read", x.connection.wire.redactor.cause(err))
	}
	x.answer = answer
	return reply(request, body), nil
}

// replay sends the request once more with a new token. A 401 means that the first one had no effect.
func (x *exchange) replay(request *http.Request, first error) (*answer, error) {
	// A rejected join token must not cause a login per call.
	if age := x.connection.config.Clock.Since(x.session.value.issuedAt); x.operation.ownToken && age < ttl.OwnToken {
		return nil, first
	}
	renewed, err := x.connection.sessions.renew(x.ctx, x.session.generation)
	if err != nil {
		return nil, loginFailed(err)
	}
	x.session = renewed
	answer, err := x.send(request, renewed.value)
	rejected := isStatus(err, http.StatusUnauthorized)
	if !x.operation.ownToken {
		x.connection.sessions.recordAcceptance(!rejected)
	}
	if rejected {
		apiError, _ := asAPIError(err)
		apiError.Message = strings.TrimSuffix("a fresh token was rejected too: "+apiError.Message, ": ")
		return nil, apiError
	}
	return answer, err
}

// send gives the wire a copy of the request with a body of its own.
func (x *exchange) send(request *http.Request, session session) (*answer, error) {
	clone := request.Clone(x.ctx)
	if request.Body != nil && request.Body != http.NoBody {
		if request.GetBody == nil {
			return nil, notSent(ClassInvalid, "the request's body cannot be sent twice")
		}
		body, err := request.GetBody()
		if err != nil {
			return nil, notSent(ClassInvalid, "the request's body cannot be read")
		}
		clone.Body = body
	}
	// gobizfly always sends an empty Basic authorization, on which a gateway may stumble.
	clone.Header.Del("Authorization")
	clone.Header.Set("X-Auth-Type", "token")
	clone.Header.Set("X-Auth-Token", session.token)
	clone.Header.Set("X-Project-ID", session.projectID)
	return x.connection.wire.send(clone, exchangeInfo{
		kind: x.operation.kind, route: x.operation.route, classifier: x.classifier,
	})
}

// local answers what gobizfly asks before its first real call: a token, which it does not need, and the catalog.
func (x *exchange) local(request *http.Request) (*http.Response, error) {
	switch {
	case request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, tokenRoute):
		return reply(request, []byte(`{"token":"","project_id":""}`)), nil
	case request.Method == http.MethodGet && request.URL.Path == catalogPath:
		return reply(request, x.catalog.document), nil
	}
	return nil, notSent(ClassInvalid, "gobizfly asked for something else than a token or the catalog")
}

func reply(request *http.Request, body []byte) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": []string{"application/json; charset=utf-8"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       request,
	}
}

func isStatus(err error, status int) bool {
	var apiError *APIError
	return errors.As(err, &apiError) && apiError.Status == status
}

// loginFailed is the error of a call that could not be sent for want of a token or catalog.
func loginFailed(err error) *APIError {
	apiError, ok := asAPIError(err)
	if !ok {
		apiError = &APIError{Class: ClassUnknown, Err: err}
	}
	apiError.NotSent, apiError.Ambiguous = true, false
	return apiError
}
