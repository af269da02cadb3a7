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

package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var (
	errReset = errors.New("connection reset by peer")
	errDead  = errors.New("this process is dead")
)

// wire is the network between one process and the cloud: it delivers requests late, not at all, or loses the answers.
// The fate of a request follows from the seed and from what it asks for how many times, never from the order in which
// requests of concurrent calls happen to arrive.
type wire struct{ p *process }

// RoundTrip implements http.RoundTripper over the sandbox's own handler.
func (w wire) RoundTrip(request *http.Request) (*http.Response, error) {
	world := w.p.world
	body := []byte{}
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	subject := world.subject(request, body)
	fate := world.fateOf(subject, request, body)
	if world.hangs != "" && isOrder(request) && bytes.Contains(body, []byte(world.hangs)) {
		fate.lateBy = time.Hour
	}
	if isOrder(request) && world.overRate() {
		fate.faults = append(fate.faults, cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: time.Second})
	}
	if err := w.p.enter(request.Context()); err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(request.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if err := sleep(request.Context(), fate.latency); err != nil {
		if fate.lateBy > 0 {
			// What has left the machine arrives, although nobody waits for the answer any more.
			_, _ = world.deliver(request, body, fate)
		}
		return nil, err
	}
	if fate.lateBy > 0 {
		time.AfterFunc(fate.lateBy, func() { _, _ = world.deliver(request, body, fate) })
		if err := sleep(request.Context(), time.Hour); err != nil {
			return nil, err
		}
	}
	var response *http.Response
	err := w.p.step(subject, func() error {
		var err error
		if response, err = world.deliver(request, body, fate); err == nil && (response.StatusCode >= 300 || len(fate.faults) > 0) {
			world.trace("%s: status %d, faults %v", subject, response.StatusCode, fate.names())
		}
		return err
	})
	return response, err
}

// deliver hands one request to the cloud, with the faults that it meets and no others.
func (w *world) deliver(request *http.Request, body []byte, fate fate) (response *http.Response, err error) {
	w.network.Lock()
	defer w.network.Unlock()
	if request.Method == http.MethodDelete {
		w.mayDelete(request.URL.Path)
	}
	w.cloud.ClearFaults()
	w.cloud.AddFaults(w.seed, fate.faults...)
	defer w.cloud.ClearFaults()
	defer func() {
		if aborted := recover(); aborted != nil {
			response, err = nil, errReset
		}
	}()
	clone := request.Clone(context.WithoutCancel(request.Context()))
	clone.URL = &url.URL{Path: request.URL.Path, RawPath: request.URL.RawPath, RawQuery: request.URL.RawQuery}
	clone.Host, clone.RequestURI = request.URL.Host, clone.URL.RequestURI()
	clone.Body, clone.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, clone)
	response = recorder.Result()
	response.Request = request
	return response, nil
}

// subject names what a request is about by names, since ids depend on the order of events.
func (w *world) subject(request *http.Request, body []byte) string {
	parts := strings.Split(request.URL.Path, "/")
	for i, part := range parts {
		if len(part) == 36 {
			parts[i] = w.nameOf(part)
		}
	}
	subject := request.Method + " " + strings.Join(parts, "/")
	if isOrder(request) {
		subject += " " + fieldOf(body, `"name":"`)
		w.countOrder(body)
	}
	return subject
}

func isOrder(request *http.Request) bool {
	return request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/servers")
}

// overRate reports whether a create request exceeds what the cloud accepts in a second.
func (w *world) overRate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.createsPerSecond == 0 {
		return false
	}
	w.creates = lo.Filter(w.creates, func(at time.Time, _ int) bool { return time.Since(at) < time.Second })
	if len(w.creates) >= w.createsPerSecond {
		return true
	}
	w.creates = append(w.creates, time.Now())
	return false
}

// fieldOf reads a string out of JSON that we know not to escape it.
func fieldOf(body []byte, prefix string) string {
	_, rest, found := strings.Cut(string(body), prefix)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// countOrder counts the orders for each claim.
func (w *world) countOrder(body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders[fieldOf(body, `"`+v1alpha1.MetadataNodeClaimUID+`":"`)]++
}

// nameOf returns the name of the server, volume or task with this id.
func (w *world) nameOf(id string) string {
	w.mu.Lock()
	name, known := w.names[id]
	w.mu.Unlock()
	if known {
		return name
	}
	state := w.cloud.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, server := range state.Servers {
		w.names[server.ID] = server.Name
	}
	for _, volume := range state.Volumes {
		w.names[volume.ID] = volume.Name
	}
	for _, task := range state.Tasks {
		w.names[task.ID] = task.Action + " " + w.names[task.ServerID]
	}
	if name, known = w.names[id]; !known {
		return "unknown"
	}
	return name
}

// sleep waits in the world's own time.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fate is what happens to one request.
type fate struct {
	latency time.Duration
	// lateBy is how long after its answer was given up the request arrives.
	lateBy time.Duration
	faults []cloud.Fault
}

func (f fate) names() []cloud.Effect {
	return lo.Map(f.faults, func(fault cloud.Fault, _ int) cloud.Effect { return fault.Effect })
}
