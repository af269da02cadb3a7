// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const (
	clusterName   = "prod"
	clusterUID    = "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"
	foreignUID    = "11111111-2222-4333-8444-555555555555"
	nodeClassName = "default"
	// maxProcesses is how many processes the controller has in one sim.
	maxProcesses = 12
)

// simulation is one cluster and one cloud, and the processes of the controller, one after the other.
type simulation struct {
	seed    int64
	ctx     context.Context
	rng     *rand.Rand // the driver's alone
	options cloud.Options
	cloud   *cloud.Cloud
	handler http.Handler
	kube    client.WithWatch
	cores   []*core

	shared    *catalog.DefaultProvider
	nodeClass *v1alpha1.BizflyNodeClass
	// providers are those of the process that started last.
	providers *wiring.Providers
	processes []*process
	ops       map[string]chan struct{}
	snapshots map[string]*karpv1.NodeClaim
	claims    int
	joined    map[string]bool
	unready   map[string]time.Time
	checker   *invariants.Checker
	volumes   int // how many PersistentVolumes there are
	// grace is the age below which the garbage collector deletes no server. A short one is tried too, so that only the NodeClaim
	// without a server protects the server that is being created for it.
	grace time.Duration

	// boot is how long a server takes from ACTIVE to its node; 0 is a time that follows from its name.
	boot time.Duration
	// hangs is the UID of the NodeClaim whose create request is never answered.
	hangs types.UID
	// createsPerSecond is how many create requests the cloud accepts in a second, 0 without a limit; createTimes are the last.
	createsPerSecond int
	createTimes      []time.Time
	// unknown are the responses that no table contains; nil without.
	unknown *unknownAnswers
	// broken are the parts of the cloud and of the cluster that never work.
	broken []subject
	// told are the events that were published.
	told recorder
	// shown reports that a condition has shown that launches with the NodeClass "other" fail.
	shown bool
	// doubted are the conditions of the NodeClass "other" that have been something else than true on what was just found.
	doubted sets.Set[string]
	// launchFailures and passFailures are what the metrics of this name were when something broke.
	launchFailures, passFailures float64
	// wanted are the requirements of new NodeClaims; nil for those of any small flavor.
	wanted []karpv1.NodeSelectorRequirementWithMinValues

	// blows are what happens to the n-th call of a life; nil where calls are not counted.
	blows map[int]blow
	// calls are those of the life so far, in their order.
	calls []string
	// ends are what there was when the acts of a life had settled.
	ends [][]string
	// listsOf is the moment that the next list of servers shows; zero for the present.
	listsOf time.Time
	// oldClaims are the NodeClaims whose next reconcile gets the version before the last one.
	oldClaims sets.Set[types.UID]
	// failsNext reports that the next server that is created ends in ERROR.
	failsNext bool
	// configure changes the NodeClass before it is created; nil changes nothing.
	configure func(*v1alpha1.BizflyNodeClass)

	// network and api serialise requests, so that each gets its own faults.
	network, api sync.Mutex

	mu         sync.Mutex
	faults     faultRates
	names      map[string]string
	asked      map[string]int
	creates    map[string]int
	lines      []string
	violations []string
}

// newSimulation creates what must not start in simulated time.
func newSimulation(seed int64) *simulation {
	sim := &simulation{
		seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 0x6b6172)), ops: map[string]chan struct{}{},
		snapshots: map[string]*karpv1.NodeClaim{}, joined: map[string]bool{}, unready: map[string]time.Time{},
		checker: invariants.NewChecker(), names: map[string]string{}, asked: map[string]int{}, creates: map[string]int{},
		doubted: sets.New[string](),
	}
	for range maxProcesses {
		sim.cores = append(sim.cores, newCore(&sim.told))
	}
	sim.kube = newKube()
	return sim
}

// begin creates the cloud, its other tenants, and the first process of the controller.
func (sim *simulation) begin(ctx context.Context, changes ...func(*cloud.Options)) {
	sim.ctx = coreoptions.ToContext(ctx, coretest.Options())
	sim.options = cloud.Options{
		Seed: sim.seed, Latency: time.Duration(1+sim.rng.IntN(60)) * time.Second,
		HideBuilding: sim.rng.IntN(3) == 0, ConflictOnBuild: sim.rng.IntN(3) == 0, AsyncRejections: sim.rng.IntN(3) == 0, Vietnamese: sim.rng.IntN(2) == 0,
		TokenTTL: pick(sim.rng, 4*time.Hour, 10*time.Minute),
	}
	for _, change := range changes {
		change(&sim.options)
	}
	sim.grace = pick(sim.rng, options.Defaults().GarbageCollectionGrace, 15*time.Second)
	sim.cloud = cloud.New(sim.options)
	sim.handler = sim.cloud.Handler()
	lo.Must0(sim.kube.Create(sim.ctx, &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}))
	sim.newProcess()
	sim.populate()
}

// foreignServers is how many servers populate adds.
const foreignServers = 3

// populate adds foreign servers: one that was created by hand, and two of another cluster of the same name, one of which has
// the name of the first server that will be launched.
func (sim *simulation) populate() {
	sim.checker.AddForeignServers(
		sim.cloud.AddServer(cloud.ServerSpec{Name: "by-hand"}),
		sim.cloud.AddServer(cloud.ServerSpec{Name: instance.Name(claimName(0), string(claimUID(sim.seed, 0)), clusterUID, 1), Metadata: map[string]string{
			v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: foreignUID,
			v1alpha1.MetadataNodeClaim: claimName(0), v1alpha1.MetadataNodeClaimUID: string(claimUID(sim.seed, 0)), v1alpha1.MetadataAttempt: "1",
		}}),
		sim.cloud.AddServer(cloud.ServerSpec{Name: "general-broken", Status: "ERROR", Metadata: map[string]string{
			v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: foreignUID,
			v1alpha1.MetadataNodeClaimUID: "99999999-2222-4333-8444-555555555555",
		}}),
	)
}

// makeNodeClass creates a NodeClass and resolves it, as its controllers would.
func (sim *simulation) makeNodeClass() {
	class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: nodeClassName, UID: "c1a55000-0000-4000-8000-000000000000", Generation: 1}}
	unit.WithDefaults(class)
	class.Spec.PlacementStrategy = pick(sim.rng, v1alpha1.PlacementStrategyBalanced, v1alpha1.PlacementStrategySpread, v1alpha1.PlacementStrategyBinPack)
	if sim.configure != nil {
		sim.configure(class)
	}
	lo.Must0(sim.kube.Create(sim.ctx, class))
	sim.resolve(class)
	sim.nodeClass = class
}

// resolve fills the status of a NodeClass as its controllers would, in the process that started last.
func (sim *simulation) resolve(class *v1alpha1.BizflyNodeClass) {
	env := &unit.Environment{Environment: &coretest.Environment{Client: sim.kube}, Providers: sim.providers}
	lo.Must0(env.Resolve(sim.ctx, class))
}

func claimName(n int) string { return fmt.Sprintf("general-%d", n) }

// claimUID returns the UID of the n-th NodeClaim, the same in every run.
func claimUID(seed int64, n int) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(seed), n, seed))
}

// newClaim creates the next NodeClaim, as the provisioner does.
func (sim *simulation) newClaim() {
	n := sim.claims
	sim.claims++
	name := claimName(n)
	if n > 3 && n%4 == 0 {
		name = claimName(n - 4) // names are used again, UIDs are not
	}
	sim.makeClaim(n, name)
}

// makeClaim creates the n-th NodeClaim.
func (sim *simulation) makeClaim(n int, name string) {
	sim.makeClaimOf(n, name, nodeClassName, sim.requirements())
}

// makeClaimOf creates the n-th NodeClaim, of this NodeClass and with these requirements.
func (sim *simulation) makeClaimOf(n int, name, class string, requirements []karpv1.NodeSelectorRequirementWithMinValues) {
	ref := nodeClassRef()
	ref.Name = class
	lo.Must0(client.IgnoreAlreadyExists(sim.kube.Create(sim.ctx, &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: claimUID(sim.seed, n), CreationTimestamp: metav1.Now(), Generation: 1,
			Labels: map[string]string{karpv1.NodeClassLabelKey(ref.GroupKind()): class},
		},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: ref, Requirements: requirements},
	})))
	sim.trace("claim %s (%s)", name, claimUID(sim.seed, n))
}

// requirements returns those of new NodeClaims.
func (sim *simulation) requirements() []karpv1.NodeSelectorRequirementWithMinValues {
	onDemand := karpv1.NodeSelectorRequirementWithMinValues{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
		Values: []string{karpv1.CapacityTypeOnDemand}}
	if sim.wanted != nil {
		return append([]karpv1.NodeSelectorRequirementWithMinValues{onDemand}, sim.wanted...)
	}
	return []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpIn, Values: []string{"2", "4"}}, onDemand,
	}
}

func nodeClassRef() *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClassName}
}

// liveClaims returns the NodeClaims as the API server has them.
func (sim *simulation) liveClaims() []karpv1.NodeClaim {
	list := &karpv1.NodeClaimList{}
	lo.Must0(sim.kube.List(sim.ctx, list))
	return list.Items
}

func (sim *simulation) liveNodes() []corev1.Node {
	list := &corev1.NodeList{}
	lo.Must0(sim.kube.List(sim.ctx, list))
	return list.Items
}

// ours reports whether a server belongs to the cluster under test.
func ours(s cloud.Server) bool { return s.Metadata[v1alpha1.MetadataClusterUID] == clusterUID }

var pauses = regexp.MustCompile(`\b[0-9.]+m?s\b`)

// trace adds a line to the timeline, for the log of a seed that fails.
func (sim *simulation) trace(format string, args ...any) {
	// The pause that a client is asked for is random, and no event.
	text := pauses.ReplaceAllString(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "), "some time")
	line := time.Now().UTC().Format("15:04:05.000 ") + text
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.lines = append(sim.lines, line[:min(len(line), 400)])
}

// violated records a violated invariant, each once.
func (sim *simulation) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	sim.trace("VIOLATION: %s", text)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if !lo.Contains(sim.violations, text) {
		sim.violations = append(sim.violations, text)
	}
}
