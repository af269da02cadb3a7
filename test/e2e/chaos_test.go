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

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// trouble is how long everything goes wrong, and rest how long the controllers then have to put it right: a launch that
// was given up, its garbage collection, and the back-offs of core.
const (
	trouble = 75 * time.Second
	rest    = 4 * time.Minute
)

// misfortunes are the rules of which some are in force at a time.
var misfortunes = []map[string]any{
	{"method": "POST", "path": "/servers", "effect": "lost_response", "probability": 0.4},
	{"method": "POST", "path": "/servers", "effect": "error_server", "probability": 0.4},
	{"method": "POST", "path": "/servers", "effect": "task_failed", "probability": 0.3},
	{"method": "POST", "path": "/servers", "effect": "slow_task", "delay": "15s", "probability": 0.4},
	{"method": "POST", "path": "/servers", "effect": "empty_task", "probability": 0.4},
	{"method": "POST", "path": "/servers", "effect": "no_capacity", "probability": 0.4},
	{"method": "GET", "path": "/servers", "effect": "truncated", "probability": 0.3},
	{"method": "GET", "path": "/servers", "effect": "stale", "delay": "10s", "probability": 0.5},
	{"method": "GET", "path": "/tasks/*", "effect": "task_404", "probability": 0.3},
	{"effect": "throttle", "retry_after": "1s", "probability": 0.2},
	{"effect": "status", "status": 503, "probability": 0.3},
	{"method": "DELETE", "effect": "lost_response", "probability": 0.5},
	{"effect": "unauthorized", "probability": 0.2},
}

func fromEnvironment(name string, fallback uint64) uint64 {
	value, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	return lo.Ternary(err == nil, value, fallback)
}

var _ = Describe("Chaos", Label("chaos"), func() {
	BeforeEach(func() {
		if os.Getenv("CHAOS") == "" {
			Skip("run `make chaos-processes`")
		}
	})

	first, runs := fromEnvironment("SEED", 1), fromEnvironment("RUNS", 1)
	for seed := first; seed < first+runs; seed++ {
		It(fmt.Sprintf("should keep every promise with two replicas that are killed and a cloud that fails, seed %d", seed), func() {
			live(rand.New(rand.NewPCG(seed, 1)), seed)
		})
	}
})

// live is one seed: trouble, calm, and the end of the workload.
func live(random *rand.Rand, seed uint64) {
	GinkgoHelper()
	Expect(env.Controller().Stop()).To(Succeed())
	replica := func() *environment.Controller {
		GinkgoHelper()
		started, err := env.StartController(ctx, map[string]string{
			"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": "kube-system",
		})
		Expect(err).NotTo(HaveOccurred())
		return started
	}
	replicas := []*environment.Controller{replica(), replica()}
	DeferCleanup(func() {
		for _, r := range replicas {
			Expect(r.Kill()).To(Succeed())
		}
		_, err := env.StartController(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
	})
	pool := readyPool()
	web := deployment(pool, 4, apart)
	create(web)

	began := time.Now()
	for time.Since(began) < trouble {
		Expect(env.Sandbox().Call(ctx, http.MethodDelete, "faults", nil, nil)).To(Succeed())
		rules := lo.Filter(misfortunes, func(map[string]any, int) bool { return random.IntN(4) == 0 })
		Expect(env.Sandbox().Call(ctx, http.MethodPost, "faults", map[string]any{"seed": seed, "rules": rules}, nil)).To(Succeed())
		switch random.IntN(4) {
		case 0, 1:
			i := random.IntN(len(replicas))
			Expect(replicas[i].Kill()).To(Succeed())
			replicas[i] = replica()
		case 2:
			Expect(env.Sandbox().Call(ctx, http.MethodPost, "tokens/expire", nil, nil)).To(Succeed())
		}
		Consistently(func(g Gomega) { oneServerPerClaim(g, pool) }).WithTimeout(time.Duration(3+random.IntN(8)) * time.Second).Should(Succeed())
	}
	Expect(env.Sandbox().Call(ctx, http.MethodDelete, "faults", nil, nil)).To(Succeed())

	Eventually(func(g Gomega) {
		g.Expect(running(g, web)).To(HaveLen(4))
		claimed := lo.Map(claims(g, pool), func(c karpv1.NodeClaim, _ int) string { return c.Status.ProviderID })
		g.Expect(lo.Map(servers(g, pool), func(s cloud.Server, _ int) string { return providerid.New(s.ID) })).To(ConsistOf(claimed))
	}).WithTimeout(rest).Should(Succeed())
	Expect(env.Client().Delete(ctx, web)).To(Succeed())
	expectNothingLeft(pool)
}

// oneServerPerClaim is what must hold at any time.
func oneServerPerClaim(g Gomega, pool *karpv1.NodePool) {
	owners := lo.SliceToMap(servers(g, pool), func(s cloud.Server) (string, string) {
		return providerid.New(s.ID), s.Metadata[v1alpha1.MetadataNodeClaimUID]
	})
	registered := lo.Filter(listed(g, &corev1.NodeList{}).Items, func(n corev1.Node, _ int) bool {
		return n.Labels[karpv1.NodeRegisteredLabelKey] != "" && owners[n.Spec.ProviderID] != ""
	})
	g.Expect(lo.FindDuplicatesBy(registered, func(n corev1.Node) string { return owners[n.Spec.ProviderID] })).To(BeEmpty())
}
