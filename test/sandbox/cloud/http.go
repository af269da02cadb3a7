// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const maxBody = 1 << 20

// call is one request on its way through the sandbox.
type call struct {
	method, path string
	vars         []string
	query        url.Values
	header       http.Header
	body         []byte
	base         string // scheme and host that the client used
	region       string // short name, of the service URL that was used
	project      string
	fx           effects
	route        *route
}

// reply is what a handler answers. The body is marshaled after the lock is released, so it must not share anything
// that changes.
type reply struct {
	status      int
	body        any
	raw         []byte // instead of body
	contentType string
	header      map[string]string
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

type apiMessage struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// reject is an error in the longer of the two forms that are known.
func reject(status int, message string) reply {
	return reply{status: status, body: apiMessage{Code: "UNKNOWN", Message: message}}
}

// problem is an error in the shorter form.
func problem(status int, message string) reply {
	return reply{status: status, body: apiMessage{Message: message}}
}

const gatewayPage = `<!DOCTYPE html>
<html><head><title>404 Not Found</title></head><body>
<svg xmlns="http://www.w3.org/2000/svg" width="120" height="40"><text x="0" y="20">404 Not Found</text></svg>
<hr><center>BizFly Gateway</center></body></html>
`

// gateway is the page of a gateway that knows no such path: not JSON, for any request.
func gateway(status int) reply {
	return reply{status: status, raw: []byte(gatewayPage), contentType: "text/html; charset=utf-8"}
}

// Handler serves the complete API and, under /_sandbox/, the ground truth.
func (c *Cloud) Handler() http.Handler {
	truth := c.truthHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect, r.URL.IsAbs():
			c.serveForeign(w, r)
		case strings.HasPrefix(r.URL.Path, "/_sandbox"):
			truth.ServeHTTP(w, r)
		default:
			c.serveAPI(w, r)
		}
	})
}

// serveForeign counts a request that was meant for another host: with HTTP_PROXY pointing here, a client that falls
// back to a production host is caught instead of accepted.
func (c *Cloud) serveForeign(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.foreign++
	c.mu.Unlock()
	c.record(Request{Method: r.Method, Path: r.Host + r.URL.Path, Route: "foreign", Status: http.StatusForbidden, Time: c.opts.Clock.Now()})
	http.Error(w, "the sandbox forwards nothing", http.StatusForbidden)
}

func (c *Cloud) serveAPI(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		c.write(w, problem(http.StatusRequestEntityTooLarge, "Request entity too large"))
		return
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	q := &call{
		method: r.Method, path: r.URL.EscapedPath(), query: r.URL.Query(), header: r.Header, body: body, base: scheme + "://" + r.Host,
	}
	rt, svc, vars, known := lookup(q.method, q.path)
	entry := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Route: "unknown", Time: c.opts.Clock.Now(), Body: body, Header: r.Header.Clone()}
	relative := q.path
	if rt != nil {
		q.vars, q.region, q.route = vars, svc.region, rt
		entry.Route = svc.prefix + "/" + strings.Join(rt.template, "/")
		relative = strings.TrimPrefix(q.path, svc.prefix)
		if svc.prefix == authPrefix {
			relative = strings.TrimPrefix(q.path, "/api")
		}
	}
	q.fx = c.fire(q, relative)
	entry.Fault = q.fx.String()

	answer, aborted := c.answer(r, q, svc, known)
	entry.Status = answer.status
	if aborted {
		entry.Status = 0
	}
	c.record(entry)
	if aborted {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	c.write(w, answer)
}

// answer makes the reply with all injected effects; aborted means that the connection is to be closed instead.
func (c *Cloud) answer(r *http.Request, q *call, svc *service, known bool) (answer reply, aborted bool) {
	if d := q.fx.delay(); d > 0 {
		timer := c.opts.Clock.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-r.Context().Done():
			return reply{}, true
		}
	}
	if answer, aborted, done := q.fx.before(); done {
		return answer, aborted
	}
	c.with(func() { answer = c.handle(q, svc, known) })
	return q.fx.after(answer)
}

func (c *Cloud) handle(q *call, svc *service, known bool) reply {
	switch {
	case q.route == nil && known:
		return problem(http.StatusMethodNotAllowed, "The method is not allowed for the requested URL.")
	case q.route == nil && svc != nil && len(svc.api.routes) == 0:
		return problem(http.StatusNotFound, "The sandbox has no "+svc.api.name)
	case q.route == nil:
		return gateway(http.StatusNotFound)
	case !q.route.open:
		project, ok := c.authenticate(q.header)
		if !ok {
			return problem(http.StatusUnauthorized, "The request you have made requires authentication.")
		}
		q.project = project
	}
	if c.isDown(q) {
		return problem(http.StatusServiceUnavailable, "Service temporarily unavailable")
	}
	if rejection := q.route.rejection(q); rejection != nil {
		return *rejection
	}
	return q.route.handle(c, q)
}

// marshal turns a reply into bytes, once.
func (a reply) marshal() reply {
	if a.raw != nil || a.body == nil {
		return a
	}
	raw, err := json.Marshal(a.body)
	if err != nil {
		return problem(http.StatusInternalServerError, err.Error()).marshal()
	}
	a.raw, a.body = raw, nil
	return a
}

func (c *Cloud) write(w http.ResponseWriter, a reply) {
	a = a.marshal()
	contentType := a.contentType
	if contentType == "" {
		contentType = "application/json; charset=utf-8"
	}
	if a.status != http.StatusNoContent {
		w.Header().Set("Content-Type", contentType)
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.raw)
}

// requestLog keeps the last requests and counts them all by route.
type requestLog struct {
	entries []Request
	start   int
	counts  map[string]int
}

func (c *Cloud) record(entry Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const maxKept = 32 << 10
	if len(entry.Body) > maxKept {
		entry.Body = entry.Body[:maxKept:maxKept]
	}
	if c.log.counts == nil {
		c.log.counts = map[string]int{}
	}
	c.log.counts[entry.Method+" "+entry.Route]++
	if len(c.log.entries) < maxRequests {
		c.log.entries = append(c.log.entries, entry)
		return
	}
	c.log.entries[c.log.start] = entry
	c.log.start = (c.log.start + 1) % maxRequests
}

// Requests returns the last 10,000 requests, oldest first.
func (c *Cloud) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Request, 0, len(c.log.entries))
	all = append(all, c.log.entries[c.log.start:]...)
	return append(all, c.log.entries[:c.log.start]...)
}

// RequestCounts counts all requests by method and route, for example "GET /iaas-cloud/api/servers".
func (c *Cloud) RequestCounts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[string]int, len(c.log.counts))
	for name, n := range c.log.counts {
		counts[name] = n
	}
	return counts
}

// ResetRequests forgets all requests.
func (c *Cloud) ResetRequests() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = requestLog{}
}

// retryAfter writes a delay as the header does: whole seconds, at least one.
func retryAfter(d time.Duration) int { return max(1, int((d+time.Second-1)/time.Second)) }
