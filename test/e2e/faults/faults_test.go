// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

// rule is a fault as the sandbox reads it.
type rule map[string]any

// fault is one way in which the cloud fails for a while.
type fault struct {
	name  string
	rules []rule
}

const servers = "/servers"

// faults are the ways in which the cloud fails. Each is injected in every run, several times and in changing combinations.
var faults = []fault{
	{"responses lost after the effect", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "lost_response", "probability": 0.6},
		{"method": http.MethodDelete, "effect": "lost_response", "probability": 0.5},
	}},
	{"errors after the effect", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "status", "status": 502, "commit": true, "probability": 0.5},
		{"method": http.MethodDelete, "effect": "html", "status": 504, "commit": true, "probability": 0.5},
	}},
	{"429", []rule{{"effect": "throttle", "retry_after": "1s", "probability": 0.3}}},
	{"5xx", []rule{{"effect": "status", "status": 503, "probability": 0.4}, {"effect": "html", "status": 502, "probability": 0.1}}},
	{"401", []rule{{"effect": "unauthorized", "probability": 0.3}}},
	{"resets and empty responses", []rule{{"effect": "reset", "probability": 0.2}, {"effect": "empty", "probability": 0.1}}},
	{"slow and reordered tasks", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "slow_task", "delay": "15s", "probability": 0.5},
		{"method": http.MethodDelete, "path": "/servers/*", "effect": "slow_task", "delay": "10s", "probability": 0.5},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "delay", "delay": "3s", "probability": 0.5},
	}},
	{"slow responses", []rule{{"effect": "delay", "delay": "4s", "probability": 0.3}}},
	{"tasks that fail", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "task_failed", "orphan": true, "probability": 0.4}, // its disk is left
		{"method": http.MethodPost, "path": servers, "effect": "error_server", "probability": 0.3},
		{"method": http.MethodPost, "path": servers, "effect": "late_error", "delay": "5s", "probability": 0.3},
		{"method": http.MethodDelete, "path": "/servers/*", "effect": "task_failed", "probability": 0.3},
	}},
	{"tasks that cannot be read", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "empty_task", "probability": 0.4},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "task_404", "probability": 0.4},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "task_string", "probability": 0.3},
	}},
	{"stale lists", []rule{{"method": http.MethodGet, "path": servers, "effect": "stale", "delay": "10s", "probability": 0.6}}},
	{"truncated lists", []rule{
		{"method": http.MethodGet, "path": servers, "effect": "truncated", "probability": 0.4},
		{"method": http.MethodGet, "path": "/volumes", "effect": "truncated", "probability": 0.4},
	}},
	{"insufficient capacity", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "no_capacity", "probability": 0.4},
		{"method": http.MethodPost, "path": servers, "effect": "no_capacity", "async": true, "probability": 0.4},
	}},
}

// inject replaces the faults of the cloud by these; none ends them all.
func (run *chaosRun) inject(chosen ...fault) {
	GinkgoHelper()
	Expect(env.Sandbox().Call(ctx, http.MethodDelete, "faults", nil, nil)).To(Succeed())
	if len(chosen) == 0 {
		event("the cloud works")
		return
	}
	event("the cloud: %s", strings.Join(lo.Map(chosen, func(s fault, _ int) string { return s.name }), "; "))
	rules := lo.FlatMap(chosen, func(s fault, _ int) []rule { return s.rules })
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "faults", map[string]any{"seed": run.random.Uint32(), "rules": rules}, nil)).To(Succeed())
}

// plenty restores the capacity and the quota of the cloud.
func plenty() {
	GinkgoHelper()
	for _, zone := range zones {
		Expect(env.Sandbox().Call(ctx, http.MethodPut, "stock", map[string]any{"flavor": "*", "zone": zone, "plan": "*", "available": -1}, nil)).To(Succeed())
	}
	quota(nil)
}

var zones = []string{"HN1", "HN2"}
