// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

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
	dto "github.com/prometheus/client_model/go"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/invariants"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
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

// subject is one part of the cloud or of the cluster that never works.
type subject struct {
	name string
	// matches selects the requests that it affects, and fault is how they are answered.
	matches func(*http.Request, []byte) bool
	fault   cloud.Fault
	// hangs lets these requests have no answer instead.
	hangs bool
	// kube is a kind of call to the API server that always fails; nil for none.
	kube *brokenCall
	// change changes the NodeClass "other" before it is created.
	change func(*v1alpha1.BizflyNodeClass)
	// stops are the workloads that need it, stopsStart those that a controller needs it for that has just started.
	stops, stopsStart []string
	// breaksLaunches reports that launches fail, and not only the start of a controller.
	breaksLaunches bool
	// pool is a workload whose NodePool wants a flavor that does not exist.
	pool string
	// orphan reports that the server without a NodeClaim cannot be deleted.
	orphan bool
	// leaves reports that nodes cannot leave BKE.
	leaves bool
}

type brokenCall struct {
	call string
	err  error
}

// answer adds what happens to a request.
func (s subject) answer(f *outcome, request *http.Request, body []byte) {
	switch {
	case s.matches == nil || !s.matches(request, body):
	case s.hangs:
		f.latency = time.Hour
	default:
		f.faults = append(f.faults, s.fault)
	}
}

// creates selects the create requests with each of these texts in their body.
func creates(texts ...string) func(*http.Request, []byte) bool {
	return func(request *http.Request, body []byte) bool {
		return isCreate(request) && lo.EveryBy(texts, func(text string) bool { return strings.Contains(string(body), text) })
	}
}

// route selects the requests of one method whose path has this in it.
func route(method, path string) func(*http.Request, []byte) bool {
	return func(request *http.Request, _ []byte) bool {
		return request.Method == method && strings.Contains(request.URL.Path, path)
	}
}

// custom lets the NodeClass "other" join by its own user data.
func custom(userData string) func(*v1alpha1.BizflyNodeClass) {
	return func(class *v1alpha1.BizflyNodeClass) {
		class.Spec.BootstrapMode, class.Spec.UserData = v1alpha1.BootstrapModeCustom, &userData
		class.Spec.JoinToken = &v1alpha1.JoinToken{}
	}
}

// oneSubject chooses what is broken.
func oneSubject(r *rand.Rand) subject {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "bootstrap-token", fmt.Errorf("exceeded quota"))
	quota := cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusForbidden,
		Message: "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes_PREMIUM-HDD1 quota"}
	other := []string{"class"}
	return pick(r,
		subject{name: "an offering", matches: creates(`"nix.2c_2g"`, `"HN1"`), fault: oddAnswer(r), stops: []string{"offering"}},
		subject{name: "a flavor", matches: creates(`"nix.4c_8g"`), fault: oddLaunch(r), stops: []string{"flavor"}},
		subject{name: "a zone", matches: creates(`"HN1"`), fault: oddLaunch(r), stops: []string{"zone", "offering"}},
		subject{name: "a volume type", matches: creates(`-HDD1"`), fault: oddAnswer(r), stops: other},
		subject{name: "a quota of disks", matches: creates(`-HDD1"`), fault: quota, stops: other},
		subject{name: "a network", matches: creates(otherNetwork), fault: cloud.Fault{Effect: cloud.EffectNoAddress}, stops: other},
		subject{name: "an image", matches: creates(otherImage), fault: oddLaunch(r), stops: other},
		subject{name: "a template", change: custom("#!/bin/sh\n{{ .NodeName.Missing }}\n"), stops: other},
		subject{name: "join tokens", change: custom("#!/bin/sh\njoin {{ .JoinToken }}\n"), kube: &brokenCall{"create *v1.Secret", forbidden}, stops: other},
		subject{name: "a NodePool", pool: "flavor", stops: []string{"flavor"}},
		brokenRoute(r),
		brokenEngine(r),
		subject{name: "an orphan", orphan: true, fault: cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusForbidden}},
		lyingList(r),
	)
}

// brokenRoute breaks a route that neither a launch nor a deletion needs.
func brokenRoute(r *rand.Rand) subject {
	path := pick(r, "/network-interfaces", "/wanips", "/images", "/user/images", "/snapshots", "/vpc-networks", "/firewalls", "/keypairs", "/regions",
		"/server-types", "/k8s_versions")
	return brokenPath("the route "+path, http.MethodGet, path, r)
}

// brokenEngine breaks the Kubernetes Engine as a whole, or the call by which a deleted node leaves its cluster.
func brokenEngine(r *rand.Rand) subject {
	if r.IntN(2) == 0 {
		leaving := brokenPath("leaving BKE", http.MethodPost, "/cluster_leave", r)
		leaving.leaves = true
		return leaving
	}
	whole := brokenPath("BKE", "", "kubernetes-engine", r)
	whole.leaves = true
	// Nodes join by what the cluster is like, which a controller that starts does not know yet. Those of their own user data do not.
	whole.change, whole.stopsStart = custom("#!/bin/sh\n"), []string{"anything", "flavor", "zone", "offering"}
	whole.matches = func(request *http.Request, _ []byte) bool {
		return strings.Contains(request.URL.Path, "kubernetes-engine")
	}
	return whole
}

func brokenPath(name, method, path string, r *rand.Rand) subject {
	s := subject{name: name, matches: route(method, path)}
	switch r.IntN(4) {
	case 0:
		s.hangs = true
	case 1:
		s.fault = cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: pick(r, time.Second, 5*time.Minute)}
	default:
		s.fault = cloud.Fault{Effect: cloud.EffectStatus, Status: pick(r, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable)}
	}
	return s
}

// lyingList is a list of which only an empty answer comes.
func lyingList(r *rand.Rand) subject {
	path := pick(r, "/images", "/vpc-networks", "/firewalls", "/keypairs", "/network-interfaces", "/wanips", "/k8s_versions")
	return subject{name: "the list " + path, matches: route(http.MethodGet, path), fault: cloud.Fault{Effect: cloud.EffectBody, Body: pick(r, "[]", "null", "{}")}}
}

// otherVersion is that of the worker image of the NodeClass "other".
const otherVersion = "v1.34.6"

var (
	otherNetwork = lo.Must(lo.Find(cloud.DefaultCatalog().VPCs[cloud.RegionHN], func(v cloud.VPC) bool { return v.IsDefault })).ID
	otherImage   = lo.Must(lo.Find(cloud.DefaultCatalog().Versions, func(v cloud.KubernetesVersion) bool {
		return v.KubernetesVersion == otherVersion
	})).WorkerImageID
)

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
	sim.witness(p)
	time.Sleep(5 * time.Second)
	sim.observe()
}

// witness notes whether conditions show a user now that launches with the NodeClass "other" fail.
func (sim *simulation) witness(p *process) {
	class := &v1alpha1.BizflyNodeClass{}
	lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: otherClassName}, class))
	lo.Must(usage.NewController(sim.kube, &sim.told, clock.RealClock{}, p.cloudProvider).Reconcile(sim.ctx, class.DeepCopy()))
	lo.Must0(sim.kube.Get(sim.ctx, types.NamespacedName{Name: otherClassName}, class))
	shown := class.StatusConditions().Get(v1alpha1.ConditionTypeLaunchesSucceeding).IsFalse()
	for _, claim := range sim.liveClaims() {
		launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
		shown = shown || claim.Spec.NodeClassRef.Name == otherClassName && launched != nil && launched.Reason == cloudprovider.ReasonAwaitingServerID
	}
	sim.shown = sim.shown || shown
}

// untold returns what does not tell yet of what is broken.
func (sim *simulation) untold(broken []subject) (missing []string) {
	// What a controller has never read is told by the age of its catalog, and core tells of a NodePool that nothing suits.
	fails := lo.SomeBy(broken, func(s subject) bool { return s.breaksLaunches }) && lo.NoneBy(broken, func(s subject) bool { return s.pool != "" })
	if fails && total(launchFailures) <= sim.launchFailures {
		missing = append(missing, "no metric counts the failed launches")
	}
	warned := sim.warned()
	if fails && lo.NoneBy(warned, func(reason string) bool { return reason != events.ReasonNodePoolUnlimited }) {
		missing = append(missing, "no event tells of the failed launches")
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

// The metrics of what fails: launches, and deletions of the garbage collector.
const (
	launchFailures = "karpenter_bizfly_launch_failures_total"
	passFailures   = "karpenter_bizfly_garbage_collection_failures_total"
)

// total is the sum of a counter's series.
func total(counter string) (sum float64) {
	for _, family := range lo.Must(crmetrics.Registry.Gather()) {
		if family.GetName() == counter {
			sum += lo.SumBy(family.GetMetric(), func(m *dto.Metric) float64 { return m.GetCounter().GetValue() })
		}
	}
	return sum
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
// provider ID and while an offering is available. It returns how many pods have their node.
func (sim *simulation) planFor(w *workload, claims []karpv1.NodeClaim) (served int) {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: w.name, UID: types.UID("9001-" + w.name)}}
	pool.Spec.Template.Spec.NodeClassRef = nodeClassRef()
	pool.Spec.Template.Spec.NodeClassRef.Name = w.class
	byUID := lo.KeyBy(claims, func(c karpv1.NodeClaim) string { return string(c.UID) })
	synced := lo.EveryBy(claims, func(c karpv1.NodeClaim) bool { return c.Status.ProviderID != "" })
	instanceTypes, err := sim.leader().cloudProvider.GetInstanceTypes(sim.ctx, pool)
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(w.requirements()...)
	possible := err == nil && lo.SomeBy(instanceTypes, func(it *corecloudprovider.InstanceType) bool {
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
	first, runs := suite.Number("SEED", 1), min((suite.Number("RUNS", 12)+1)/2, 2000)
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
		broken[i].breaksLaunches = len(broken[i].stops) > 0
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
