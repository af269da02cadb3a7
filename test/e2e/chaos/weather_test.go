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
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

// rule is a fault as the sandbox reads it.
type rule map[string]any

// storm is a way in which the cloud fails for a while.
type storm struct {
	name  string
	rules []rule
}

const (
	order   = http.MethodPost
	servers = "/servers"
)

// storms are what can be wrong with the cloud. Each blows in every run, several times and in changing company.
var storms = []storm{
	{"answers lost after the deed", []rule{
		{"method": order, "path": servers, "effect": "lost_response", "probability": 0.6},
		{"method": http.MethodDelete, "effect": "lost_response", "probability": 0.5},
	}},
	{"errors after the deed", []rule{
		{"method": order, "path": servers, "effect": "status", "status": 502, "commit": true, "probability": 0.5},
		{"method": http.MethodDelete, "effect": "html", "status": 504, "commit": true, "probability": 0.5},
	}},
	{"429", []rule{{"effect": "throttle", "retry_after": "1s", "probability": 0.3}}},
	{"5xx", []rule{{"effect": "status", "status": 503, "probability": 0.4}, {"effect": "html", "status": 502, "probability": 0.1}}},
	{"401", []rule{{"effect": "unauthorized", "probability": 0.3}}},
	{"resets and empty answers", []rule{{"effect": "reset", "probability": 0.2}, {"effect": "empty", "probability": 0.1}}},
	{"slow and reordered tasks", []rule{
		{"method": order, "path": servers, "effect": "slow_task", "delay": "15s", "probability": 0.5},
		{"method": http.MethodDelete, "path": "/servers/*", "effect": "slow_task", "delay": "10s", "probability": 0.5},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "delay", "delay": "3s", "probability": 0.5},
	}},
	{"slow answers", []rule{{"effect": "delay", "delay": "4s", "probability": 0.3}}},
	{"tasks that fail", []rule{
		{"method": order, "path": servers, "effect": "task_failed", "orphan": true, "probability": 0.4}, // its disk is left
		{"method": order, "path": servers, "effect": "error_server", "probability": 0.3},
		{"method": order, "path": servers, "effect": "late_error", "delay": "5s", "probability": 0.3},
		{"method": http.MethodDelete, "path": "/servers/*", "effect": "task_failed", "probability": 0.3},
	}},
	{"tasks that cannot be read", []rule{
		{"method": order, "path": servers, "effect": "empty_task", "probability": 0.4},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "task_404", "probability": 0.4},
		{"method": http.MethodGet, "path": "/tasks/*", "effect": "task_string", "probability": 0.3},
	}},
	{"stale lists", []rule{{"method": http.MethodGet, "path": servers, "effect": "stale", "delay": "10s", "probability": 0.6}}},
	{"truncated lists", []rule{
		{"method": http.MethodGet, "path": servers, "effect": "truncated", "probability": 0.4},
		{"method": http.MethodGet, "path": "/volumes", "effect": "truncated", "probability": 0.4},
	}},
	{"no room", []rule{
		{"method": order, "path": servers, "effect": "no_capacity", "probability": 0.4},
		{"method": order, "path": servers, "effect": "no_capacity", "async": true, "probability": 0.4},
	}},
}

// blow lets storms begin and those before them end; none is calm.
func (w *world) blow(chosen ...storm) {
	GinkgoHelper()
	Expect(env.Sandbox().Call(ctx, http.MethodDelete, "faults", nil, nil)).To(Succeed())
	if len(chosen) == 0 {
		happened("the cloud is well")
		return
	}
	happened("the cloud: %s", strings.Join(lo.Map(chosen, func(s storm, _ int) string { return s.name }), "; "))
	rules := lo.FlatMap(chosen, func(s storm, _ int) []rule { return s.rules })
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "faults", map[string]any{"seed": w.random.Uint32(), "rules": rules}, nil)).To(Succeed())
}

// plenty gives the cloud its stock and its quota back.
func plenty() {
	GinkgoHelper()
	for _, zone := range zones {
		Expect(env.Sandbox().Call(ctx, http.MethodPut, "stock", map[string]any{"flavor": "*", "zone": zone, "plan": "*", "available": -1}, nil)).To(Succeed())
	}
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "quota", map[string]any{}, nil)).To(Succeed())
}

var zones = []string{"HN1", "HN2"}
