// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// The bounds that docs/contribute/testing.md states.
const (
	unknownPods = 4
	// nodeWithin is how long a pending pod waits for its node at most while one offering works.
	nodeWithin = 90 * time.Minute
	// requestsPerOffering is how many create requests a broken offering gets at most in that time: those of three bursts, of one for each pod.
	requestsPerOffering = 12
	// stalledFor is how long a NodeClaim may be without provider ID, during which core schedules nothing for any NodePool.
	stalledFor = 4 * time.Minute
	// settledWithin is how long after the answers are normal again new pods wait for their nodes at most.
	settledWithin = 45 * time.Minute
)

// unknownAnswers is a cloud that answers some of the offerings in ways that no table contains.
type unknownAnswers struct {
	// broken is how the create requests of an offering ("flavor/zone") are answered.
	broken map[string]cloud.Fault
	// reads is the chance of a read to be answered so.
	reads float64
}

// oddTexts contain no word of the tables of internal/bizfly.
var oddTexts = []string{
	"", "?", "E_4711", "Gói này hiện tại chưa mở bán cho bạn", "Có sự cố ngoài ý muốn", "Hệ thống bận, mong quý khách thông cảm", "Unexpected condition Q17",
	"placement: group 12 rejected by weigher", "Cấu hình chưa sẵn sàng", "ошибка", "<nil>", strings.Repeat("lỗi ", 2000),
}

// oddBodies are shapes that the API has never been seen to answer with.
var oddBodies = []string{
	`{"errors":[{"field":"x","reasons":[1,2]}]}`, `[]`, `"no"`, `{"error":{"a":{"b":{"c":"d"}}}}`, `null`, `{"message":{"vi":"Chưa được","en":"Not yet"}}`,
	"plain text", "<xml/>", `{"task_id":`,
}

// oddStatuses are those that no row of the classification names, and the least specific ones.
var oddStatuses = []int{400, 410, 403, 404, 405, 407, 409, 418, 421, 422, 424, 426, 428, 451, 498, 500, 501, 505, 507, 508, 511, 530, 599}

// oddAnswer is one way to fail a request.
func oddAnswer(r *rand.Rand) cloud.Fault {
	fault := cloud.Fault{Effect: cloud.EffectStatus, Status: pick(r, oddStatuses...), Message: pick(r, oddTexts...),
		Code: pick(r, "", "UNKNOWN", "QX-1", "vi.err.77")}
	if r.IntN(3) == 0 {
		fault.Body = pick(r, oddBodies...)
	}
	if r.IntN(4) == 0 {
		fault.RetryAfter = time.Duration(1+r.IntN(120)) * time.Second
	}
	return fault
}

// oddLaunch is one way to fail a launch.
func oddLaunch(r *rand.Rand) cloud.Fault {
	switch r.IntN(8) {
	case 0:
		return cloud.Fault{Effect: cloud.EffectErrorServer, Message: pick(r, oddTexts...)}
	case 1:
		return cloud.Fault{Effect: cloud.EffectTaskFailed, Message: pick(r, oddTexts...), Orphan: r.IntN(2) == 0}
	case 2:
		return cloud.Fault{Effect: pick(r, cloud.EffectEmpty, cloud.EffectHTML), Status: pick(r, 200, 202, 299)}
	case 3:
		return cloud.Fault{Effect: cloud.EffectBody, Body: pick(r, oddBodies...)}
	}
	return oddAnswer(r)
}

// newUnknownAnswers breaks offerings of these flavors and zones, all but at least one: whole zones, whole flavors, or any.
func newUnknownAnswers(r *rand.Rand, flavors, zones []string) *unknownAnswers {
	u := &unknownAnswers{broken: map[string]cloud.Fault{}, reads: pick(r, 0, 0, 0.1)}
	works := pick(r, flavors...) + "/" + pick(r, zones...)
	how, same := r.IntN(3), oddLaunch(r)
	zone, share := pick(r, zones...), r.Float64()
	for _, f := range flavors {
		flavorBroken := r.Float64() < 0.7
		for _, z := range zones {
			isBroken := [...]bool{z == zone, flavorBroken, r.Float64() < share+0.3}[how]
			if key := f + "/" + z; isBroken && key != works {
				u.broken[key] = lo.Ternary(r.IntN(2) == 0, same, oddLaunch(r))
			}
		}
	}
	// One node may never join: that takes a quarter of an hour to find out.
	if keys := lo.Keys(u.broken); len(keys) > 0 && r.IntN(3) == 0 {
		u.broken[lo.Min(keys)] = cloud.Fault{Effect: cloud.EffectNoJoin}
	}
	return u
}

func (u *unknownAnswers) faults(r *rand.Rand, request *http.Request, body []byte) []cloud.Fault {
	if !isCreate(request) {
		if request.Method == http.MethodGet && r.Float64() < u.reads {
			return []cloud.Fault{oddAnswer(r)}
		}
		return nil
	}
	fault, broken := u.broken[fieldOf(body, `"flavor":"`)+"/"+fieldOf(body, `"availability_zone":"`)]
	return lo.Ternary(broken, []cloud.Fault{fault}, nil)
}

// plan simulates the provisioner: as long as every claim has a provider ID, each pod without a node gets a claim, if core sees an
// offering for it. It returns how many pods have their node.
func (sim *simulation) plan(pods []int, types []*corecloudprovider.InstanceType) (served int) {
	claims := sim.liveClaims()
	byUID := lo.KeyBy(claims, func(c karpv1.NodeClaim) string { return string(c.UID) })
	synced := lo.EveryBy(claims, func(c karpv1.NodeClaim) bool { return c.Status.ProviderID != "" })
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(sim.requirements()...)
	possible := lo.SomeBy(types, func(it *corecloudprovider.InstanceType) bool {
		return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) && it.Offerings.Available().HasCompatible(requirements)
	})
	for i, n := range pods {
		claim, exists := byUID[string(claimUID(sim.seed, n))]
		if exists && claim.DeletionTimestamp.IsZero() {
			served += lo.Ternary(claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue(), 1, 0)
			continue
		}
		if synced && possible && !exists {
			pods[i] = sim.claims
			sim.claims++
			sim.makeClaim(pods[i], claimName(pods[i]))
		}
	}
	return served
}

// serve lets core and our controllers work until every pod has its node, and returns how long that took and the longest time
// in which a claim was without provider ID.
func (sim *simulation) serve(pods []int, most time.Duration) (took, stalled time.Duration) {
	began, p := time.Now(), sim.leader()
	pool := &karpv1.NodePool{}
	pool.Name, pool.UID = "general", "9001"
	pool.Spec.Template.Spec.NodeClassRef = nodeClassRef()
	without := map[string]time.Time{}
	for round := 0; time.Since(began) < most; round++ {
		types, err := p.cloudProvider.GetInstanceTypes(sim.ctx, pool)
		if err == nil && sim.plan(pods, types) == len(pods) {
			return time.Since(began), stalled
		}
		for _, claim := range sim.liveClaims() {
			if claim.Status.ProviderID == "" {
				if _, known := without[string(claim.UID)]; !known {
					without[string(claim.UID)] = time.Now()
				}
				stalled = max(stalled, time.Since(without[string(claim.UID)]))
			}
			for _, controller := range []string{"lifecycle", "server"} {
				sim.reconcile(controller, claim.DeepCopy())
				sim.wait(p, controller+claim.Name, 500*time.Millisecond)
			}
		}
		if round%12 == 0 {
			sim.reconcileSingleton("collector")
		}
		time.Sleep(10 * time.Second)
		sim.observe()
	}
	return most, stalled
}

var _ = Describe("Answers that no table contains", func() {
	first, runs := suite.Number("SEED", 1), (min(suite.Number("RUNS", 6), 100)+1)/2
	for seed := first; seed < first+runs; seed++ {
		It(fmt.Sprintf("should keep no pod from its node as long as one offering works, in simulation %d", seed), func() {
			sim := newSimulation(seed)
			var took, stalled, afterwards time.Duration
			var creates, broken int
			synctest.Test(root, func(t *testing.T) {
				defer settle()
				sim.begin(t.Context(), func(o *cloud.Options) {
					o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections, o.TokenTTL = false, false, false, 12*time.Hour
					o.Latency = min(o.Latency, 20*time.Second)
				})
				flavors := []string{"nix.2c_4g", "nix.4c_8g", "nix.2c_2g", "nix.8c_16g"}
				sim.wanted = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: flavors}}
				sim.unknown = newUnknownAnswers(sim.rng, flavors, []string{"HN1", "HN2"})
				broken = len(sim.unknown.broken)
				sim.trace("broken: %v", sim.unknown.broken)
				pods := lo.Times(unknownPods, func(int) int { return -1 })
				took, stalled = sim.serve(pods, nodeWithin)
				sim.mu.Lock()
				creates = lo.Sum(lo.Values(maps.Clone(sim.creates)))
				sim.mu.Unlock()

				sim.unknown = nil
				sim.trace("normal again")
				afterwards, _ = sim.serve(append(pods, -1, -1), settledWithin)
				sim.calm()
				for _, p := range sim.processes {
					p.cancel()
				}
				time.Sleep(2 * time.Hour)
			})
			GinkgoWriter.Printf("simulation %d: %d broken offerings, %d create requests, nodes after %s, stalled %s, afterwards %s\n", seed, broken, creates, took,
				stalled, afterwards)
			Expect(sim.violations).To(BeEmpty(), report(sim))
			Expect(took).To(BeNumerically("<", nodeWithin), report(sim))
			Expect(creates).To(BeNumerically("<=", requestsPerOffering*broken+2*unknownPods), report(sim))
			Expect(stalled).To(BeNumerically("<=", stalledFor), report(sim))
			Expect(afterwards).To(BeNumerically("<", settledWithin), report(sim))
		})
	}
})
