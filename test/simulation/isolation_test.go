// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

const (
	// isolatedWithin is how much longer pods that do not need the broken subject wait for their nodes at most, and how much longer
	// deletions of servers that do not need it take.
	isolatedWithin = 3 * time.Minute
	// toldWithin is how long it takes at most until a user is told of what is broken: an answer that leaves open whether there is a server
	// is a failure only when the launch has timed out.
	toldWithin = 10 * time.Minute
	// isolationLimit ends a run; what is not done by then counts as never done.
	isolationLimit = time.Hour
	otherClassName = "other"
)

// workload is pending pods that need the same nodes.
type workload struct {
	name, class string
	// flavors and zones restrict the nodes; no zone means any.
	flavors, zones []string
	// claims are the numbers of the pods' NodeClaims; -1 without one.
	claims []int
	// served and removed are how long it took until every pod had its node, and until all of its servers were deleted.
	served, removed time.Duration
}

func workloads() []*workload {
	pods := func() []int { return []int{-1, -1} }
	all := []string{"nix.2c_2g", "nix.2c_4g", "nix.4c_8g", "nix.8c_16g"}
	return []*workload{
		{name: "anything", class: nodeClassName, flavors: all, claims: pods()},
		{name: "flavor", class: nodeClassName, flavors: []string{"nix.4c_8g"}, claims: pods()},
		{name: "zone", class: nodeClassName, flavors: all, zones: []string{"HN1"}, claims: pods()},
		{name: "offering", class: nodeClassName, flavors: []string{"nix.2c_2g"}, zones: []string{"HN1"}, claims: pods()},
		{name: "class", class: otherClassName, flavors: all, claims: pods()},
	}
}

func (w *workload) requirements() []karpv1.NodeSelectorRequirementWithMinValues {
	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	requirements := []karpv1.NodeSelectorRequirementWithMinValues{
		in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand), in(corev1.LabelInstanceTypeStable, w.flavors...),
	}
	if len(w.zones) > 0 {
		requirements = append(requirements, in(corev1.LabelTopologyZone, w.zones...))
	}
	return requirements
}

// isolate runs a cluster in which the subjects never work: all workloads come at once, and when those that do not need a subject
// have their nodes, everything is deleted.
func isolate(seed int64, broken []subject, restarts bool) (*simulation, []*workload) {
	sim, all := newSimulation(seed), workloads()
	synctest.Test(root, func(t *testing.T) {
		defer settle()
		sim.begin(t.Context(), func(o *cloud.Options) {
			o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections, o.TokenTTL = false, false, false, 12*time.Hour
			o.Latency = min(o.Latency, 20*time.Second)
		})
		sim.boot = 40 * time.Second // the times of two runs are compared
		sim.addOtherClass(broken)
		orphan := sim.addOrphan()
		for i := range broken {
			if broken[i].orphan {
				broken[i].matches = route(http.MethodDelete, "/servers/"+orphan)
			}
		}
		for _, w := range all {
			if lo.SomeBy(broken, func(s subject) bool { return s.pool == w.name }) {
				w.flavors = []string{"nix.none"}
			}
		}
		sim.broken, sim.launchFailures, sim.passFailures = broken, total(launchFailures), total(passFailures)
		sim.trace("broken: %v", lo.Map(broken, func(s subject, _ int) string { return s.name }))
		if restarts {
			// The next process reads everything anew, without what was learned before.
			sim.leader().kill()
			sim.shared = nil
		}
		sim.serveAll(all, broken)
		sim.removeAll(all, broken)
		sim.broken = nil
		sim.calm()
		for _, p := range sim.processes {
			p.cancel()
		}
		time.Sleep(2 * time.Hour)
	})
	return sim, all
}

// addOtherClass creates a second NodeClass, with a network, an image and a medium of its own.
func (sim *simulation) addOtherClass(broken []subject) {
	class := sim.nodeClass.DeepCopy()
	class.ObjectMeta = metav1.ObjectMeta{Name: otherClassName, UID: "c1a55000-0000-4000-8000-000000000001", Generation: 1}
	class.Status = v1alpha1.BizflyNodeClassStatus{}
	class.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{Alias: "bke@" + otherVersion}}
	class.Spec.NetworkSelectorTerms = []v1alpha1.NetworkSelectorTerm{{ID: otherNetwork}}
	class.Spec.RootDisk.Medium = v1alpha1.DiskMediumHDD
	for _, s := range broken {
		if s.change != nil {
			s.change(class)
		}
	}
	lo.Must0(sim.kube.Create(sim.ctx, class))
	sim.resolve(class)
}

// addOrphan adds a server of this cluster without a NodeClaim, and returns its id.
func (sim *simulation) addOrphan() string {
	uid := claimUID(sim.seed, 4711)
	return sim.cloud.AddServer(cloud.ServerSpec{Name: instance.Name("orphan", string(uid), clusterUID, 1), Metadata: map[string]string{
		v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: clusterUID,
		v1alpha1.MetadataNodeClaim: "orphan", v1alpha1.MetadataNodeClaimUID: string(uid), v1alpha1.MetadataAttempt: "1",
	}}).ID
}

// untouched returns the workloads that need none of the subjects.
func untouched(all []*workload, broken []subject) []*workload {
	return lo.Reject(all, func(w *workload, _ int) bool {
		return lo.SomeBy(broken, func(s subject) bool { return lo.Contains(s.stops, w.name) })
	})
}

// round lets core and our controllers work for a while.
func (sim *simulation) round(n int) {
	p := sim.leader()
	for _, claim := range sim.liveClaims() {
		for _, controller := range []string{"lifecycle", "server"} {
			sim.reconcile(controller, claim.DeepCopy())
			sim.wait(p, controller+claim.Name, 500*time.Millisecond)
		}
	}
	if n%6 == 0 {
		sim.start(p, "catalog", func() error { return sim.shared.Refresh(p.ctx) })
	}
	if n%12 == 0 {
		sim.start(p, "collector", func() error { _, err := p.collector.Reconcile(p.ctx); return err })
	}
	if n%4 == 0 {
		sim.resolveAgain(p)
	}
	sim.witness(p)
	time.Sleep(5 * time.Second)
	sim.observe()
}

// resolveAgain lets NodeClasses be looked up anew where a condition is to tell of what is broken.
func (sim *simulation) resolveAgain(p *process) {
	if lo.NoneBy(sim.broken, func(s subject) bool { return s.condition != "" }) {
		return
	}
	for _, name := range []string{nodeClassName, otherClassName} {
		class := &v1alpha1.BizflyNodeClass{}
		lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: name}, class))
		sim.start(p, "status of "+name, func() error { _, err := p.status.Reconcile(p.ctx, class); return err })
		sim.wait(p, "status of "+name, 500*time.Millisecond)
	}
}

// witness notes whether conditions show a user now that launches with the NodeClass "other" fail.
func (sim *simulation) witness(p *process) {
	class := &v1alpha1.BizflyNodeClass{}
	lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: otherClassName}, class))
	lo.Must(usage.NewController(sim.kube, &sim.told, clock.RealClock{}, p.cloudProvider).Reconcile(sim.ctx, class.DeepCopy()))
	lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: otherClassName}, class))
	shown := class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsFalse() || !class.StatusConditions().Root().IsTrue()
	for _, claim := range sim.liveClaims() {
		launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
		shown = shown || claim.Spec.NodeClassRef.Name == otherClassName && launched != nil && launched.Reason == launch.ReasonAwaitingServerID
	}
	sim.shown = sim.shown || shown
	for _, c := range class.Status.Conditions {
		if !c.IsTrue() || c.Reason != c.Type {
			sim.doubted.Insert(c.Type)
		}
	}
}

// untold returns what does not tell yet of what is broken.
func (sim *simulation) untold(broken []subject) (missing []string) {
	// What a controller has never read is told by the age of its catalog, and core tells of a NodePool that nothing suits.
	fails := lo.SomeBy(broken, func(s subject) bool { return s.breaksLaunches }) && lo.NoneBy(broken, func(s subject) bool { return s.pool != "" })
	if fails && total(launchFailures) <= sim.launchFailures {
		missing = append(missing, "no metric counts the failed launches")
	}
	warned := sim.warned()
	if fails && len(warned) == 0 {
		missing = append(missing, "no event tells of the failed launches")
	}
	for _, s := range broken {
		if s.condition != "" && !sim.doubted.Has(s.condition) {
			missing = append(missing, fmt.Sprintf("the condition %s does not tell of %s", s.condition, s.name))
		}
		if s.part != "" && gauge(partFailed, s.part) != 1 {
			missing = append(missing, fmt.Sprintf("no metric tells of %s", s.name))
		}
	}
	orphan := lo.SomeBy(broken, func(s subject) bool { return s.orphan })
	if orphan && total(passFailures) <= sim.passFailures {
		missing = append(missing, "no metric counts the orphan that cannot be deleted")
	}
	if orphan && !lo.Contains(warned, events.ReasonServerDeletionFailed) {
		missing = append(missing, "no event tells of the orphan that cannot be deleted")
	}
	if !sim.shown && lo.SomeBy(broken, func(s subject) bool { return lo.Contains(s.stops, "class") }) {
		missing = append(missing, "no condition shows that launches with the NodeClass fail")
	}
	return missing
}

// warned are the reasons of the warnings that were published.
func (sim *simulation) warned() []string {
	sim.told.mu.Lock()
	defer sim.told.mu.Unlock()
	return lo.Keys(sim.told.warnings)
}

// The metrics of what fails: launches, passes of the garbage collector, and reads of the catalog.
const (
	launchFailures = "karpenter_bizfly_launch_failures_total"
	passFailures   = "karpenter_bizfly_garbage_collection_failures_total"
	partFailed     = "karpenter_bizfly_catalog_last_read_failed"
)

// gauge is the value of the series of a gauge with this value of its only label.
func gauge(name, label string) (value float64) {
	for _, sample := range lo.Must(metrics.Gather(crmetrics.Registry, name)) {
		if lo.Contains(lo.Values(sample.Labels), label) {
			value = sample.Value
		}
	}
	return value
}

// total is the sum of a counter's series.
func total(counter string) (sum float64) {
	samples := lo.Must(metrics.Gather(crmetrics.Registry, counter))
	return lo.SumBy(samples, func(s metrics.Sample) float64 { return s.Value })
}

// serveAll waits until every untouched workload has its nodes.
func (sim *simulation) serveAll(all []*workload, broken []subject) {
	waiting := untouched(all, broken)
	for began, n := time.Now(), 0; time.Since(began) < isolationLimit; n++ {
		// One pass of core's provisioner plans for all pending pods.
		claims := sim.liveClaims()
		for _, w := range all {
			if sim.planFor(w, claims) == len(w.claims) && w.served == 0 {
				w.served = time.Since(began)
			}
		}
		untold := sim.untold(broken)
		if lo.EveryBy(waiting, func(w *workload) bool { return w.served > 0 }) && (len(untold) == 0 || time.Since(began) > toldWithin) {
			lo.ForEach(untold, func(missing string, _ int) { sim.violated("%s", missing) })
			return
		}
		sim.round(n)
	}
}

// planFor gives each pod of the workload that has none a NodeClaim, as core's provisioner does: only while every NodeClaim has a
// provider ID, while its NodeClass is ready and while an offering is available. It returns how many pods have their node.
func (sim *simulation) planFor(w *workload, claims []karpv1.NodeClaim) (served int) {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: w.name, UID: types.UID("9001-" + w.name)}}
	pool.Spec.Template.Spec.NodeClassRef = nodeClassRef()
	pool.Spec.Template.Spec.NodeClassRef.Name = w.class
	byUID := lo.KeyBy(claims, func(c karpv1.NodeClaim) string { return string(c.UID) })
	synced := lo.EveryBy(claims, func(c karpv1.NodeClaim) bool { return c.Status.ProviderID != "" })
	instanceTypes, err := sim.leader().cloudProvider.GetInstanceTypes(sim.ctx, pool)
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(w.requirements()...)
	class := &v1alpha1.BizflyNodeClass{}
	lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: w.class}, class))
	possible := err == nil && class.StatusConditions().Root().IsTrue() && lo.SomeBy(instanceTypes, func(it *corecloudprovider.InstanceType) bool {
		return requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) && it.Offerings.Available().HasCompatible(requirements)
	})
	for i, n := range w.claims {
		claim, exists := byUID[string(claimUID(sim.seed, n))]
		if exists && claim.DeletionTimestamp.IsZero() {
			served += lo.Ternary(claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue(), 1, 0)
			continue
		}
		if synced && possible && !exists {
			w.claims[i] = sim.claims
			sim.claims++
			sim.makeClaimOf(w.claims[i], fmt.Sprintf("%s-%d", w.name, w.claims[i]), w.class, w.requirements())
		}
	}
	return served
}

// removeAll deletes every NodeClaim, and waits until the servers of the untouched workloads are deleted, and until an event tells of nodes
// that cannot leave BKE.
func (sim *simulation) removeAll(all []*workload, broken []subject) {
	for _, claim := range sim.liveClaims() {
		sim.deleteClaim(&claim)
	}
	waiting := untouched(all, broken)
	leaves := lo.SomeBy(broken, func(s subject) bool { return s.leaves }) && lo.SomeBy(waiting, func(w *workload) bool { return w.class == nodeClassName })
	for began, n := time.Now(), 0; time.Since(began) < isolationLimit; n++ {
		servers := sim.cloud.Servers()
		for _, w := range waiting {
			exists := lo.SomeBy(servers, func(s cloud.Server) bool {
				return ours(s) && lo.SomeBy(w.claims, func(n int) bool { return invariants.ClaimUID(s) == claimUID(sim.seed, n) })
			})
			if !exists && w.removed == 0 {
				w.removed = time.Since(began)
			}
		}
		told := !leaves || lo.Contains(sim.warned(), events.ReasonLeaveFailed)
		if lo.EveryBy(waiting, func(w *workload) bool { return w.removed > 0 }) && (told || time.Since(began) > toldWithin) {
			if !told {
				sim.violated("no event tells of the nodes that cannot leave BKE")
			}
			return
		}
		sim.round(n)
	}
}

var _ = Describe("Isolation", func() {
	first, runs := suite.Number("SEED", 1), min((suite.Number("RUNS", 6)+1)/2, 2000)
	for start := first; start < first+runs; start += batch {
		end := min(start+batch, first+runs)
		It(fmt.Sprintf("should serve and delete in time what does not need what is broken, with seeds %d to %d", start, end-1), func() {
			var failures []string
			for seed := start; seed < end; seed++ {
				failures = append(failures, isolated(seed)...)
			}
			Expect(failures).To(BeEmpty(), strings.Join(failures, "\n\n"))
		})
	}
})

// isolated compares the run of a seed with the same run without a broken subject, and returns what is wrong.
func isolated(seed int64) []string {
	r := rand.New(rand.NewPCG(uint64(seed), 0x69736f))
	broken := []subject{oneSubject(r)}
	if r.IntN(4) == 0 {
		broken = append(broken, oneSubject(r))
	}
	restarts := r.IntN(3) == 0
	for i := range broken {
		broken[i].breaksLaunches = len(broken[i].stops) > 0 && broken[i].condition == ""
		if restarts {
			broken[i].stops = append(broken[i].stops, broken[i].stopsStart...)
		}
	}
	_, healthy := isolate(seed, nil, false)
	sim, all := isolate(seed, broken, restarts)
	for i, w := range all {
		if !lo.Contains(untouched(all, broken), w) {
			continue
		}
		if w.served == 0 || w.served > healthy[i].served+isolatedWithin {
			sim.violated("the pods of %q had their nodes after %s instead of %s", w.name, w.served, healthy[i].served)
		}
		if w.removed == 0 || w.removed > healthy[i].removed+isolatedWithin {
			sim.violated("the servers of %q were deleted after %s instead of %s", w.name, w.removed, healthy[i].removed)
		}
	}
	if len(sim.violations) == 0 {
		return nil
	}
	names := lo.Map(broken, func(s subject, _ int) string { return s.name })
	return []string{fmt.Sprintf("broken: %s (controller restarted: %t), %s", strings.Join(names, " and "), restarts, report(sim))}
}
