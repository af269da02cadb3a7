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

// faults are the ways in which the cloud fails while processes end: the work of one must be found by the next.
var faults = []fault{
	{"responses lost after the effect", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "lost_response", "probability": 0.6},
		{"method": http.MethodDelete, "effect": "lost_response", "probability": 0.5},
	}},
	{"errors after the effect", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "status", "status": 502, "commit": true, "probability": 0.5},
		{"method": http.MethodDelete, "effect": "html", "status": 504, "commit": true, "probability": 0.5},
	}},
	{"5xx", []rule{{"effect": "status", "status": 503, "probability": 0.4}, {"effect": "html", "status": 502, "probability": 0.1}}},
	{"slow and reordered tasks", []rule{
		{"method": http.MethodPost, "path": servers, "effect": "slow_task", "delay": "15s", "probability": 0.5},
		{"method": http.MethodDelete, "path": "/servers/*", "effect": "slow_task", "delay": "10s", "probability": 0.5},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "delay", "delay": "3s", "probability": 0.5},
	}},
}

// inject replaces the faults of the cloud by these; none ends them all.
func (run *faultsRun) inject(chosen ...fault) {
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
