// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// blow is what happens to one call of the controller, to the cloud or to the API server.
type blow string

const (
	diesBefore  blow = "the process dies before it"
	diesAfter   blow = "the process dies after it"
	losesAnswer blow = "its answer is lost"
	isRepeated  blow = "a gateway sends it twice"
	isNotSeen   blow = "the next list and the next read show what was before it"
	isOvertaken blow = "another process leads before it is sent"
)

var blows = []blow{diesBefore, diesAfter, losesAnswer, isRepeated, isNotSeen, isOvertaken}

// overtaken is how late a call is sent of a process that was overtaken: long enough for the next one to act.
const overtaken = 100 * time.Second

// nextBlow counts a call of a life and returns what happens to it.
func (sim *simulation) nextBlow(what string) blow {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if sim.blows == nil {
		return ""
	}
	sim.calls = append(sim.calls, what)
	return sim.blows[len(sim.calls)-1]
}

// uncounted makes calls that are no part of the life.
func (sim *simulation) uncounted(do func()) {
	set := func(to map[int]blow) (before map[int]blow) {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		before, sim.blows = sim.blows, to
		return before
	}
	counted := set(nil)
	do()
	set(counted)
}

// strike makes one call to which something happens.
func (p *process) strike(b blow, what string, call func() error) error {
	p.sim.trace("%d: %s: %s", p.number, what, b)
	switch b {
	case diesBefore, diesAfter:
		if b == diesAfter {
			_ = call()
		}
		p.kill()
		return errDead
	case losesAnswer:
		_ = call()
		return errReset
	case isRepeated:
		if request, name, found := strings.Cut(what, "/servers "); found && strings.HasPrefix(request, http.MethodPost) {
			p.sim.checker.AddDuplicate(name)
		}
		_ = call()
	case isNotSeen:
		p.sim.mu.Lock()
		p.sim.listsOf = time.Now()
		p.sim.mu.Unlock()
		for _, claim := range p.sim.liveClaims() {
			p.sim.oldClaims.Insert(claim.UID)
		}
	case isOvertaken:
		p.mu.Lock()
		p.deposed = true
		p.mu.Unlock()
		p.freeze(overtaken)
		if err := p.enter(p.ctx); err != nil {
			return err
		}
	}
	return call()
}

// answerLife adds what a life does to a request.
func (sim *simulation) answerLife(f *outcome, request *http.Request) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	switch {
	case sim.failsNext && isCreate(request):
		sim.failsNext = false
		f.faults = append(f.faults, cloud.Fault{Effect: cloud.EffectErrorServer, Message: "No valid host was found."})
	case !sim.listsOf.IsZero() && request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/servers"):
		f.faults = append(f.faults, cloud.Fault{Effect: cloud.EffectStale, Delay: time.Since(sim.listsOf) + f.latency})
		sim.listsOf = time.Time{}
	}
}

// life is what happens to one node, from its pods to its end, in a cluster in which nothing else happens.
type life struct {
	name string
	// class is the NodeClass of the node; nil is the default one.
	class func(*v1alpha1.BizflyNodeClass)
	// acts are what users, core and the cloud do, one when the one before has settled.
	acts []act
}

// act is one event of a life.
type act struct {
	do func(*simulation)
	// nodes is how many nodes there are when it has settled.
	nodes int
	// shows is true once it has settled, beside the number of nodes; nil is always true.
	shows func(*simulation) bool
}

func lives() []life {
	launch := act{func(*simulation) {}, 1, nil}
	remove := act{func(sim *simulation) {
		for _, claim := range sim.liveClaims() {
			sim.deleteClaim(&claim)
		}
	}, 0, nil}
	change := func(spec func(*v1alpha1.BizflyNodeClassSpec), shows func(cloud.Server) bool) act {
		return act{
			do: func(sim *simulation) {
				spec(&sim.nodeClass.Spec)
				sim.nodeClass.Generation++
				sim.leader()
				sim.uncounted(func() { sim.resolve(sim.nodeClass) })
			},
			nodes: 1,
			shows: func(sim *simulation) bool { return lo.EveryBy(ourServers(sim), shows) },
		}
	}
	move := func(project string, shows func(*simulation) bool) act {
		return act{func(sim *simulation) {
			sim.moveServers(project, ourServers(sim)...)
		}, 1, shows}
	}
	var all []life
	for name, class := range map[string]func(*v1alpha1.BizflyNodeClass){
		"a node of BizFly Kubernetes Engine": nil,
		"a node with user data of its own":   custom("#!/bin/sh\njoin {{ .JoinToken }}\n"),
	} {
		all = append(all,
			life{name + " is launched, joins and is deleted", class, []act{launch, remove}},
			life{name + " follows one whose server failed, and is deleted", class,
				[]act{{func(sim *simulation) { sim.failsNext = true }, 1, nil}, remove}},
			life{name + " is changed in place", class, []act{launch, change(
				func(spec *v1alpha1.BizflyNodeClassSpec) {
					spec.FirewallSelectorTerms = []v1alpha1.FirewallSelectorTerm{{Name: "web"}}
				}, func(s cloud.Server) bool {
					return lo.EveryBy(s.SecurityGroups, func(g cloud.SecurityGroup) bool { return g.Name == "web" })
				}), remove}},
			life{name + " has drifted and is replaced", class, []act{launch, change(
				func(spec *v1alpha1.BizflyNodeClassSpec) {
					spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{Alias: "bke@" + otherVersion}}
				}, func(cloud.Server) bool { return true }), remove}},
			life{name + " is moved to another project and back, as the same node", class, []act{launch,
				move("another", func(sim *simulation) bool { return lo.Contains(sim.warned(), events.ReasonServerElsewhere) }),
				move("", nil), remove}},
			life{name + " loses its NodeClaim, and its server is collected", class, []act{launch, {func(sim *simulation) {
				for _, claim := range sim.liveClaims() {
					claim.Finalizers = nil
					lo.Must0(sim.kube.Update(sim.ctx, &claim))
					sim.deleteClaim(&claim)
				}
			}, 0, nil}}})
	}
	slices.SortFunc(all, func(a, b life) int { return strings.Compare(a.name, b.name) })
	return all
}

// live lives a life, and returns it with its calls and with what it has violated.
func live(l life, struck map[int]blow, changes ...func(*cloud.Options)) *simulation {
	sim := newSimulation(1)
	synctest.Test(root, func(t *testing.T) {
		defer settle()
		sim.configure = l.class
		sim.begin(t.Context(), append(changes, func(o *cloud.Options) {
			o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections, o.TokenTTL, o.Latency = false, false, false, 12*time.Hour, 10*time.Second
		})...)
		sim.boot, sim.oldClaims = 20*time.Second, sets.New[types.UID]()
		sim.blows = lo.CoalesceMapOrEmpty(struck, map[int]blow{})
		for i, a := range l.acts {
			a.do(sim)
			if !sim.liveUntil(a) {
				sim.violated("an hour after act %d: %d nodes instead of %d; %s", i+1, len(sim.liveClaims()), a.nodes,
					strings.Join(sim.checker.Unsettled(sim.seen()), "; "))
				break
			}
			sim.ends = append(sim.ends, sim.settled())
		}
		for _, p := range sim.processes {
			p.cancel()
		}
		time.Sleep(5 * time.Minute)
	})
	return sim
}

// settled describes what there is, without what differs from run to run: names, ids and times, how many attempts a launch took, and where,
// since an attempt whose outcome is not known is followed by one with another offering.
func (sim *simulation) settled() (lines []string) {
	disks := lo.GroupBy(sim.cloud.State().Volumes, func(v cloud.Volume) string { return lo.FirstOr(v.Attachments, cloud.VolumeAttachment{}).ServerID })
	for _, s := range ourServers(sim) {
		lines = append(lines, fmt.Sprintf("a server: %s, image %s, %s, %s, %v, metadata %v", s.Status, s.Truth.ImageID, s.BillingPlan, s.NetworkPlan,
			s.SecurityGroups, keys(s.Metadata)))
		for _, disk := range disks[s.ID] {
			lines = append(lines, fmt.Sprintf("its disk: %d GiB, %s", disk.Size, disk.VolumeType))
		}
	}
	for _, claim := range sim.liveClaims() {
		conditions := lo.FilterMap(claim.Status.Conditions, func(c status.Condition, _ int) (string, bool) { return c.Type, c.IsTrue() })
		slices.Sort(conditions)
		lines = append(lines, fmt.Sprintf("a NodeClaim: %v, image %s, %v, labels %v, annotations %v", conditions, claim.Status.ImageID, claim.Finalizers,
			keys(claim.Labels), keys(claim.Annotations)))
	}
	for _, node := range sim.liveNodes() {
		// Its annotations are those that the NodeClaim had at some moment before it registered.
		lines = append(lines, fmt.Sprintf("a Node: %v, taints %v, labels %v", node.Finalizers, node.Spec.Taints, keys(node.Labels)))
	}
	return lines
}

func keys(of map[string]string) []string { return slices.Sorted(maps.Keys(of)) }

// liveUntil lets time pass until the act has settled, and reports whether that took less than an hour.
func (sim *simulation) liveUntil(a act) bool {
	done := func() bool {
		return len(sim.liveClaims()) == a.nodes && len(sim.checker.Unsettled(sim.seen())) == 0 && (a.shows == nil || a.shows(sim)) &&
			!lo.SomeBy(sim.liveClaims(), func(claim karpv1.NodeClaim) bool {
				// Of a node that registers first, the disks are recorded later.
				return !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() ||
					claim.Annotations[v1alpha1.AnnotationDelivered] == "" || sim.drifted(&claim)
			})
	}
	for began, n := time.Now(), 0; time.Since(began) < time.Hour; n++ {
		sim.liveOnce(a.nodes, n%4 == 0)
		if done() {
			return true
		}
		time.Sleep(10 * time.Second)
		sim.observe()
	}
	return false
}

// liveOnce lets core plan for so many nodes, and each controller look once at each NodeClaim.
func (sim *simulation) liveOnce(nodes int, collect bool) {
	waiting := lo.CountBy(sim.liveClaims(), func(claim karpv1.NodeClaim) bool { return claim.DeletionTimestamp.IsZero() })
	for ; waiting < nodes; waiting++ {
		sim.makeClaim(sim.claims, claimName(sim.claims)) // as core plans for the pods anew
		sim.claims++
	}
	for _, claim := range sim.liveClaims() {
		if claim.DeletionTimestamp.IsZero() && sim.drifted(&claim) {
			sim.deleteClaim(&claim)
		}
		for _, controller := range []string{"lifecycle", "server"} {
			sim.reconcile(controller, sim.read(&claim))
			sim.wait(sim.leader(), controller+claim.Name, 40*time.Second)
		}
	}
	if collect {
		for _, controller := range []string{"collector", "core collector"} {
			sim.reconcileSingleton(controller)
			sim.wait(sim.leader(), controller, 40*time.Second)
		}
	}
	sim.observe()
}

// drifted reports whether core would replace the node: it compares what is cached, so that this is no call.
func (sim *simulation) drifted(claim *karpv1.NodeClaim) bool {
	got, wanted := claim.Status.ImageID, sim.nodeClass.Status.Image()
	return got != "" && wanted != nil && got != wanted.ID
}

// read returns a NodeClaim as the informer has it: as it is or, once after a call that is not seen, as it was when it was last read.
func (sim *simulation) read(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	now := &karpv1.NodeClaim{}
	if err := sim.kube.Get(context.Background(), client.ObjectKeyFromObject(claim), now); err != nil {
		now = claim.DeepCopy()
	}
	old := sim.snapshots[string(now.UID)]
	sim.snapshots[string(now.UID)] = now.DeepCopy()
	if sim.oldClaims.Has(now.UID) && old != nil {
		sim.oldClaims.Delete(now.UID)
		return old
	}
	return now
}

// point is one call of a life and what happens to it.
type point struct {
	call int
	blow blow
}

// pairs is how many pairs of points with different calls there are in so many calls.
func pairs(calls int) int { return calls * (calls - 1) / 2 * len(blows) * len(blows) }

// pair returns the i-th of them.
func pair(i int) []point {
	n := len(blows)
	first, second := i/(n*n), 1
	for ; first >= second; second++ {
		first -= second
	}
	return []point{{first, blows[i/n%n]}, {second, blows[i%n]}}
}

var _ = Describe("The life in which", func() {
	It("BizFly Cloud gives the server another name should end like any other", func() {
		sim := live(lives()[0], nil, func(o *cloud.Options) { o.ChangeNames = true })
		Expect(sim.violations).To(BeEmpty(), report(sim))
		Expect(sim.lines).To(ContainElement(MatchRegexp("node vm-[0-9a-f]{8} joins")))
	})
	points, twice := int(suite.Number("POINTS", 8)), int(suite.Number("PAIRS", 4))
	for _, l := range lives() {
		It(l.name+" should end like the undisturbed one, whatever happens to one of its calls, or to two", func() {
			undisturbed := live(l, nil)
			Expect(undisturbed.violations).To(BeEmpty(), report(undisturbed))
			if strings.Contains(l.name, "as the same node") {
				Expect(undisturbed.claims).To(Equal(1))
			}
			calls := len(undisturbed.calls)
			r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0x6c696665))
			tried := lo.FlatMap(lo.Range(calls), func(call, _ int) [][]point {
				return lo.Map(blows, func(b blow, _ int) []point { return []point{{call, b}} })
			})
			all := len(tried)
			r.Shuffle(all, func(i, j int) { tried[i], tried[j] = tried[j], tried[i] })
			tried = lo.Slice(tried, 0, points)
			// The order is that of every run, so that runs with other beginnings try all in the end.
			order := rand.New(rand.NewPCG(1, 0x6c696665)).Perm(pairs(calls))
			from := int(suite.Number("PAIRS_FROM", int64(r.IntN(len(order)))))
			AddReportEntry("points", fmt.Sprintf("%d of %d points and %d of %d pairs from %d at %d calls", len(tried), all, twice, len(order), from, calls))
			for i := range min(twice, len(order)) {
				tried = append(tried, pair(order[(from+i)%len(order)]))
			}
			var failures []string
			for _, at := range tried {
				struck := lo.SliceToMap(at, func(p point) (int, blow) { return p.call, p.blow })
				sim := live(l, struck)
				for i, end := range sim.ends {
					if more, less := lo.Difference(end, undisturbed.ends[i]); len(more)+len(less) > 0 {
						sim.violated("act %d ends with %s instead of %s", i+1, strings.Join(more, "; "), strings.Join(less, "; "))
					}
				}
				if len(sim.violations) > 0 {
					failures = append(failures, fmt.Sprintf("%s:\n  %s", strings.Join(lo.Map(at, func(p point, _ int) string {
						return fmt.Sprintf("call %d, %s: %s", p.call, lo.NthOr(sim.calls, p.call, "not made"), p.blow)
					}), "; "), strings.Join(sim.violations, "\n  ")))
				}
			}
			slices.Sort(failures)
			Expect(failures).To(BeEmpty(), strings.Join(failures, "\n"))
		})
	}
})
