// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// maxBody is the most that is read of one answer.
const maxBody = 32 << 20

// services are the parts of the cloud by what their URLs have before the route: hosts and what stands before it differ
// between regions, and between the cloud and the sandbox.
var services = []struct{ name, prefix string }{
	{"cloud_server", "/iaas-cloud/api"},
	{"kubernetes_engine", "/api/kubernetes-engine"},
	{"bizfly_account", "/api/account"},
	{"api", "/api"},
}

// identifiers are the segments of a path that identify an object of the project.
var identifiers = regexp.MustCompile(`^([0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12})$`)

// Recorder is a transport that writes down what is answered.
type Recorder struct {
	base http.RoundTripper
	mu   sync.Mutex
	// private are texts that must not be written down: secrets, and segments of paths that identify an object of the project without the
	// form of an id.
	private []string
	answers map[string]*Answer
	// bases are where services are that have answered well, and credentials are the headers of the last request that had any.
	bases       map[string]*url.URL
	credentials http.Header
}

// NewRecorder writes down what base is answered, without the texts that are private.
func NewRecorder(base http.RoundTripper, private ...string) *Recorder {
	return &Recorder{base: base, private: private, answers: map[string]*Answer{}, bases: map[string]*url.URL{}}
}

// RoundTrip implements http.RoundTripper.
func (r *Recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	if len(body) > maxBody {
		return nil, errors.New("a response is longer than any that the cloud should send")
	}
	response.Body = io.NopCloser(bytes.NewReader(body))

	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	r.mu.Lock()
	defer r.mu.Unlock()
	service, route := r.route(request)
	key := fmt.Sprintf("%s %s%s %d", request.Method, service, route, response.StatusCode)
	if r.answers[key] == nil {
		r.answers[key] = &Answer{}
	}
	for _, private := range r.private {
		if len(private) >= minSecret {
			body = bytes.ReplaceAll(body, []byte(private), []byte("<private>"))
		}
	}
	r.answers[key].add(strings.SplitN(route, "?", 2)[0], mediaType, response.StatusCode, body)
	if response.StatusCode < http.StatusMultipleChoices {
		r.bases[service] = request.URL
		if request.Header.Get("X-Auth-Token") != "" {
			r.credentials = request.Header.Clone()
		}
	}
	return response, nil
}

// Hide adds texts that must not be written down, as they become known. Answers by routes that have one are dropped.
func (r *Recorder) Hide(private ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.private = append(r.private, private...)
	maps.DeleteFunc(r.answers, func(key string, _ *Answer) bool {
		return slices.ContainsFunc(private, func(text string) bool { return len(text) >= minSecret && strings.Contains(key, text) })
	})
}

// route returns the service that a request is for, and its path without identifiers.
func (r *Recorder) route(request *http.Request) (service, route string) {
	path := request.URL.Path
	for _, s := range services {
		if _, below, found := strings.Cut(path, s.prefix); found {
			service, path = s.name, below
			break
		}
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if identifiers.MatchString(segment) || segment != "" && slices.Contains(r.private, segment) {
			segments[i] = "{id}"
		}
	}
	route = strings.Join(segments, "/")
	if query := request.URL.Query(); len(query) > 0 {
		keys := make([]string, 0, len(query))
		for key := range query {
			keys = insert(keys, key)
		}
		route += "?" + strings.Join(keys, "&")
	}
	return service, route
}

// Ask sends a GET that no client of ours sends.
func (r *Recorder) Ask(ctx context.Context, service, pathAndQuery string) (status int, body []byte, err error) {
	return r.Send(ctx, http.MethodGet, service, pathAndQuery, nil)
}

// Send sends a request that no client of ours sends: to a service that the client has had an answer of already, with the
// client's credentials, and to no other host. It is recorded like any other. The content is sent as JSON unless it is nil.
func (r *Recorder) Send(ctx context.Context, method, service, pathAndQuery string, content any) (status int, body []byte, err error) {
	r.mu.Lock()
	base, credentials := r.bases[service], r.credentials.Clone()
	r.mu.Unlock()
	if base == nil || credentials == nil {
		return 0, nil, fmt.Errorf("%s was not asked yet, so it is not known where it is", service)
	}
	i := slices.IndexFunc(services, func(s struct{ name, prefix string }) bool { return s.name == service })
	before, _, _ := strings.Cut(base.Path, services[i].prefix)
	var sent io.Reader = http.NoBody
	if content != nil {
		raw, err := json.Marshal(content)
		if err != nil {
			return 0, nil, fmt.Errorf("encoding a request: %w", err)
		}
		sent = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, base.Scheme+"://"+base.Host+before+services[i].prefix+pathAndQuery, sent)
	if err != nil {
		return 0, nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header = credentials
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := r.RoundTrip(request)
	if err != nil {
		return 0, nil, fmt.Errorf("asking %s: %w", service, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// Answers returns what was written down so far.
func (r *Recorder) Answers() map[string]*Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := make(map[string]*Answer, len(r.answers))
	for key, answer := range r.answers {
		answers[key] = &Answer{Count: answer.Count, ContentTypes: slices.Clone(answer.ContentTypes), Shape: clone(answer.Shape), Values: clone(answer.Values)}
	}
	return answers
}

func clone(of map[string][]string) map[string][]string {
	if of == nil {
		return nil
	}
	result := make(map[string][]string, len(of))
	for key, list := range of {
		result[key] = slices.Clone(list)
	}
	return result
}
