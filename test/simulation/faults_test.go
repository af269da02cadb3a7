// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// faultRates is how likely each kind of fault is at the moment. The zero value has no faults.
type faultRates struct {
	// transport is the chance that a request is answered wrongly or not at all, create that of create requests on top of it,
	// build that of a launch to fail after it was accepted, kube that of a call to Kubernetes to fail or conflict.
	transport, create, build, kube float64
	// slow is the chance of a request to take up to a minute and a half.
	slow float64
	// stale is the chance of a list of servers to be up to a minute old.
	stale float64
}

func (sim *simulation) currentFaults() faultRates {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.faults
}

// chances is a source of randomness that depends on nothing but the seed and what is asked how many times.
func (sim *simulation) chances(subject string) *rand.Rand {
	sim.mu.Lock()
	sim.asked[subject]++
	n := sim.asked[subject]
	sim.mu.Unlock()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%s/%d", sim.seed, subject, n)
	return rand.New(rand.NewPCG(uint64(sim.seed), h.Sum64()))
}

func (sim *simulation) outcomeOf(subject string, request *http.Request, body []byte) outcome {
	now, r := sim.currentFaults(), sim.chances(subject)
	f := outcome{latency: between(r, 20*time.Millisecond, 400*time.Millisecond)}
	if sim.unknown != nil {
		f.faults = append(f.faults, sim.unknown.faults(r, request, body)...)
	}
	for _, broken := range sim.broken {
		broken.answer(&f, request, body)
	}
	sim.answerLife(&f, request)
	if r.Float64() < now.slow {
		f.latency = between(r, 0, 90*time.Second)
	}
	if r.Float64() < now.transport || (isCreate(request) && r.Float64() < now.create) {
		f.misanswer(r, request)
	}
	if strings.HasSuffix(request.URL.Path, "/servers") && request.Method == http.MethodGet && r.Float64() < now.stale {
		f.faults = append(f.faults, cloud.Fault{Effect: cloud.EffectStale, Delay: time.Duration(1+r.IntN(60)) * time.Second})
	}
	if r.Float64() < now.build {
		switch {
		case isCreate(request):
			f.misbuild(r, sim)
		case request.Method == http.MethodDelete:
			f.faults = append(f.faults, pick(r,
				cloud.Fault{Effect: cloud.EffectSlowTask, Delay: time.Duration(r.IntN(200)) * time.Second},
				cloud.Fault{Effect: cloud.EffectTaskFailed},
			))
		case strings.Contains(request.URL.Path, "/tasks/"):
			f.faults = append(f.faults, cloud.Fault{Effect: pick(r, cloud.EffectTask404, cloud.EffectTaskString, cloud.EffectTaskNull)})
		}
	}
	return f
}

// between returns a duration to the nanosecond, so that no two events happen at the same moment by chance: their order would
// be undefined.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// misanswer lets the request fail, or its response.
func (f *outcome) misanswer(r *rand.Rand, request *http.Request) {
	writes := request.Method != http.MethodGet
	status := pick(r, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	faults := []cloud.Fault{
		{Effect: cloud.EffectReset},
		{Effect: cloud.EffectLostResponse},
		{Effect: cloud.EffectThrottle, RetryAfter: time.Duration(1+r.IntN(10)) * time.Second},
		{Effect: cloud.EffectStatus, Status: status},
		{Effect: cloud.EffectStatus, Status: status, Commit: writes},
		{Effect: cloud.EffectHTML, Status: http.StatusBadGateway, Commit: writes && r.IntN(2) == 0},
		{Effect: cloud.EffectHTML, Status: http.StatusNotFound},
		{Effect: cloud.EffectTruncated},
		{Effect: cloud.EffectEmpty, Commit: writes},
		{Effect: cloud.EffectUnauthorized},
	}
	f.faults = append(f.faults, pick(r, faults...))
	if isCreate(request) && r.IntN(4) == 0 {
		f.faults, f.lateBy = nil, between(r, time.Second, 200*time.Second)
	}
}

// misbuild lets a create request be rejected, or its launch fail after it was accepted.
func (f *outcome) misbuild(r *rand.Rand, sim *simulation) {
	faults := []cloud.Fault{
		{Effect: cloud.EffectErrorServer},
		{Effect: cloud.EffectErrorServer, Message: "No valid host was found. There are not enough hosts available."},
		{Effect: cloud.EffectTaskFailed},
		{Effect: cloud.EffectTaskFailed, Orphan: true},
		{Effect: cloud.EffectLateError, Delay: time.Duration(r.IntN(300)) * time.Second},
		{Effect: cloud.EffectSlowTask, Delay: time.Duration(r.IntN(400)) * time.Second},
		{Effect: cloud.EffectEmptyTask},
		{Effect: cloud.EffectNoJoin},
		{Effect: cloud.EffectNoCapacity}, {Effect: cloud.EffectNoCapacity, Async: true},
		{Effect: cloud.EffectNoAddress}, {Effect: cloud.EffectQuota}, {Effect: cloud.EffectQuota, Async: true},
		{Effect: cloud.EffectBalance},
		{Effect: cloud.EffectTask404}, {Effect: cloud.EffectTaskString}, {Effect: cloud.EffectTaskNull},
	}
	if !sim.options.HideBuilding && !sim.options.ConflictOnBuild {
		// Otherwise such a server could be neither listed nor deleted.
		faults = append(faults, cloud.Fault{Effect: cloud.EffectStuck})
	}
	f.faults = append(f.faults, pick(r, faults...))
}
