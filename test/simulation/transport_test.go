// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

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

// wire is the network between one process and the cloud: it delivers requests late or not at all, or loses the responses.
// The outcome of a request follows from the seed, from its subject and from how often that was requested, never from the order
// in which concurrent requests arrive.
type wire struct{ p *process }

// RoundTrip implements http.RoundTripper over the sandbox's own handler.
func (w wire) RoundTrip(request *http.Request) (*http.Response, error) {
	sim := w.p.sim
	body := []byte{}
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	subject := sim.subject(request, body)
	outcome := sim.outcomeOf(subject, request, body)
	if sim.hangs != "" && isCreate(request) && bytes.Contains(body, []byte(sim.hangs)) {
		outcome.lateBy = time.Hour
	}
	if isCreate(request) && sim.overRate() {
		outcome.faults = append(outcome.faults, cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: time.Second})
	}
	if err := w.p.enter(request.Context()); err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(request.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if err := sleep(request.Context(), outcome.latency); err != nil {
		if outcome.lateBy > 0 {
			// A sent request arrives although the client no longer waits for the response.
			_, _ = sim.deliver(request, body, outcome)
		}
		return nil, err
	}
	if outcome.lateBy > 0 {
		time.AfterFunc(outcome.lateBy, func() { _, _ = sim.deliver(request, body, outcome) })
		if err := sleep(request.Context(), time.Hour); err != nil {
			return nil, err
		}
	}
	var response *http.Response
	err := w.p.step(subject, func() error {
		var err error
		if response, err = sim.deliver(request, body, outcome); err == nil && (response.StatusCode >= 300 || len(outcome.faults) > 0) {
			sim.trace("%s: status %d, faults %v", subject, response.StatusCode, outcome.names())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// deliver passes one request to the cloud, with the faults of that request and no others.
func (sim *simulation) deliver(request *http.Request, body []byte, outcome outcome) (response *http.Response, err error) {
	sim.network.Lock()
	defer sim.network.Unlock()
	if request.Method == http.MethodDelete {
		sim.mayDelete(request.URL.Path)
	}
	sim.cloud.ClearFaults()
	sim.cloud.AddFaults(sim.seed, outcome.faults...)
	defer sim.cloud.ClearFaults()
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
	sim.handler.ServeHTTP(recorder, clone)
	response = recorder.Result()
	response.Request = request
	return response, nil
}

// subject describes a request by names, since ids depend on the order of events.
func (sim *simulation) subject(request *http.Request, body []byte) string {
	parts := strings.Split(request.URL.Path, "/")
	for i, part := range parts {
		if len(part) == 36 {
			parts[i] = sim.nameOf(part)
		}
	}
	subject := request.Method + " " + strings.Join(parts, "/")
	if isCreate(request) {
		subject += " " + fieldOf(body, `"name":"`)
		sim.countCreate(body)
	}
	return subject
}

func isCreate(request *http.Request) bool {
	return request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/servers")
}

// overRate reports whether a create request exceeds what the cloud accepts in a second.
func (sim *simulation) overRate() bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if sim.createsPerSecond == 0 {
		return false
	}
	sim.createTimes = lo.Filter(sim.createTimes, func(at time.Time, _ int) bool { return time.Since(at) < time.Second })
	if len(sim.createTimes) >= sim.createsPerSecond {
		return true
	}
	sim.createTimes = append(sim.createTimes, time.Now())
	return false
}

// fieldOf reads a string from JSON that is known not to escape it.
func fieldOf(body []byte, prefix string) string {
	_, rest, found := strings.Cut(string(body), prefix)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// countCreate counts the create requests for each NodeClaim.
func (sim *simulation) countCreate(body []byte) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.creates[fieldOf(body, `"`+v1alpha1.MetadataNodeClaimUID+`":"`)]++
}

// nameOf returns the name of the server, volume or task with this id.
func (sim *simulation) nameOf(id string) string {
	sim.mu.Lock()
	name, known := sim.names[id]
	sim.mu.Unlock()
	if known {
		return name
	}
	state := sim.cloud.State()
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, server := range state.Servers {
		sim.names[server.ID] = server.Name
	}
	for _, volume := range state.Volumes {
		sim.names[volume.ID] = volume.Name
	}
	for _, task := range state.Tasks {
		sim.names[task.ID] = task.Action + " " + sim.names[task.ServerID]
	}
	if name, known = sim.names[id]; !known {
		return "unknown"
	}
	return name
}

// sleep waits in simulated time.
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

// outcome is what one request gets: latency and faults.
type outcome struct {
	latency time.Duration
	// lateBy is how long after the client has abandoned the request it arrives.
	lateBy time.Duration
	faults []cloud.Fault
}

func (f outcome) names() []cloud.Effect {
	return lo.Map(f.faults, func(fault cloud.Fault, _ int) cloud.Effect { return fault.Effect })
}
