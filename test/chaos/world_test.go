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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/image"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const (
	clusterName   = "prod"
	clusterUID    = "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"
	strangerUID   = "11111111-2222-4333-8444-555555555555"
	nodeClassName = "default"
	// maxProcesses is how many lives the controller has in one world.
	maxProcesses = 12
)

// world is one cluster and one cloud, and the controllers that live in it one after the other.
type world struct {
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
	processes []*process
	ops       map[string]chan struct{}
	snapshots map[string]*karpv1.NodeClaim
	claims    int
	joined    map[string]bool
	unready   map[string]time.Time
	strangers []cloud.Server
	volumes   []string // of PersistentVolumes
	providers map[types.UID]string
	// grace is the age below which the garbage collector takes no server: a short one is tried too, in which only the claim
	// that has no server yet protects the one that it is about to get.
	grace time.Duration

	// hangs is the UID of the claim whose order is never answered.
	hangs types.UID
	// unknown are the answers that no table contains; nil without.
	unknown *unknownAnswers
	// wanted are the requirements of new claims; nil for those of any small flavor.
	wanted []karpv1.NodeSelectorRequirementWithMinValues

	// network and api make one request at a time meet its faults.
	network, api sync.Mutex

	mu         sync.Mutex
	weather    weather
	names      map[string]string
	asked      map[string]int
	orders     map[string]int
	built      map[string]map[string]bool // server ids by claim UID
	lines      []string
	violations []string
}

// newWorld prepares what must not be born where time stands still.
func newWorld(seed int64) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 0x6b6172)), ops: map[string]chan struct{}{},
		snapshots: map[string]*karpv1.NodeClaim{}, joined: map[string]bool{}, unready: map[string]time.Time{},
		providers: map[types.UID]string{}, names: map[string]string{}, asked: map[string]int{}, orders: map[string]int{}, built: map[string]map[string]bool{},
	}
	for range maxProcesses {
		w.cores = append(w.cores, newCore())
	}
	w.kube = newKube()
	return w
}

// begin makes the cloud, its other tenants, and the first controller.
func (w *world) begin(ctx context.Context, changes ...func(*cloud.Options)) {
	w.ctx = coreoptions.ToContext(ctx, coretest.Options())
	w.options = cloud.Options{
		Seed: w.seed, Latency: time.Duration(1+w.rng.IntN(60)) * time.Second,
		HideBuilding: w.rng.IntN(3) == 0, ConflictOnBuild: w.rng.IntN(3) == 0, AsyncRefusals: w.rng.IntN(3) == 0, Vietnamese: w.rng.IntN(2) == 0,
		TokenTTL: pick(w.rng, 4*time.Hour, 10*time.Minute),
	}
	for _, change := range changes {
		change(&w.options)
	}
	w.grace = pick(w.rng, options.Defaults().GarbageCollectionGrace, 15*time.Second)
	w.cloud = cloud.New(w.options)
	w.handler = w.cloud.Handler()
	lo.Must0(w.kube.Create(w.ctx, &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}))
	w.newProcess()
	w.populate()
}

// populate adds what is none of our business: a server that somebody made by hand, and servers of another cluster of our
// name, one of which is called like the first server that we are going to order.
func (w *world) populate() {
	w.strangers = append(w.strangers,
		w.cloud.AddServer(cloud.ServerSpec{Name: "by-hand"}),
		w.cloud.AddServer(cloud.ServerSpec{Name: instance.Name(claimName(0), string(claimUID(w.seed, 0)), clusterUID, 1), Metadata: map[string]string{
			v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: strangerUID,
			v1alpha1.MetadataNodeClaim: claimName(0), v1alpha1.MetadataNodeClaimUID: string(claimUID(w.seed, 0)), v1alpha1.MetadataAttempt: "1",
		}}),
		w.cloud.AddServer(cloud.ServerSpec{Name: "general-broken", Status: "ERROR", Metadata: map[string]string{
			v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: strangerUID,
			v1alpha1.MetadataNodeClaimUID: "99999999-2222-4333-8444-555555555555",
		}}),
	)
}

// makeNodeClass makes a NodeClass that is resolved, as its controllers would.
func (w *world) makeNodeClass(images *image.DefaultProvider, networks *network.DefaultProvider, zones *zone.DefaultProvider) {
	class := &v1alpha1.BizflyNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: nodeClassName, UID: "c1a55000-0000-4000-8000-000000000000", Generation: 1},
		Spec: v1alpha1.BizflyNodeClassSpec{ // the defaults, which a real API server fills in
			ImageSelectorTerms: []v1alpha1.ImageSelectorTerm{{Alias: "bke@latest"}},
			RootDisk:           &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("40Gi")), Medium: v1alpha1.DiskMediumSSD},
			NetworkPlan:        v1alpha1.NetworkPlanFreeDataTransfer, BillingPlan: v1alpha1.BillingPlanOnDemand, PublicIPv4: lo.ToPtr(true),
			BootstrapMode:       v1alpha1.BootstrapModeBKE,
			PlacementStrategy:   pick(w.rng, v1alpha1.PlacementStrategyBalanced, v1alpha1.PlacementStrategySpread, v1alpha1.PlacementStrategyBinPack),
			StoppedServerPolicy: pick(w.rng, v1alpha1.StoppedServerPolicyRepair, v1alpha1.StoppedServerPolicyStart, v1alpha1.StoppedServerPolicyIgnore),
		},
	}
	class.Annotations = map[string]string{
		v1alpha1.AnnotationNodeClassHash: class.Hash(), v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
	}
	resolved := lo.Must(images.Resolve(w.ctx, class))
	class.Status.Images = []v1alpha1.ImageStatus{{ID: resolved.ID, Name: resolved.Name}}
	class.Status.KubernetesVersion = resolved.KubernetesVersion
	class.Status.Networks = lo.Map(lo.Must(networks.Networks(w.ctx, class)), func(n network.Network, _ int) v1alpha1.NetworkStatus {
		return v1alpha1.NetworkStatus{ID: n.ID, Name: n.Name}
	})
	class.Status.Zones = lo.FilterMap(lo.Must(zones.Zones()), func(z zone.Zone, _ int) (string, bool) { return z.Name, z.Active })
	for _, condition := range []string{
		v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady,
		v1alpha1.ConditionTypeSSHKeyReady, v1alpha1.ConditionTypeBootstrapReady, v1alpha1.ConditionTypeDisksReady,
		v1alpha1.ConditionTypeFlavorsReady,
	} {
		class.StatusConditions().SetTrue(condition)
	}
	status := class.Status
	lo.Must0(w.kube.Create(w.ctx, class))
	class.Status = status
	lo.Must0(w.kube.Status().Update(w.ctx, class))
	w.nodeClass = class
}

func claimName(n int) string { return fmt.Sprintf("general-%d", n) }

// claimUID is the UID of the n-th claim, the same in every run.
func claimUID(seed int64, n int) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(seed), n, seed))
}

// newClaim plays the provisioner.
func (w *world) newClaim() {
	n := w.claims
	w.claims++
	name := claimName(n)
	if n > 3 && n%4 == 0 {
		name = claimName(n - 4) // names come again, UIDs do not
	}
	w.makeClaim(n, name)
}

// makeClaim makes the n-th claim.
func (w *world) makeClaim(n int, name string) {
	lo.Must0(client.IgnoreAlreadyExists(w.kube.Create(w.ctx, &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: claimUID(w.seed, n), CreationTimestamp: metav1.Now(), Generation: 1,
			Labels: map[string]string{karpv1.NodeClassLabelKey(nodeClassRef().GroupKind()): nodeClassName},
		},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: nodeClassRef(), Requirements: w.requirements()},
	})))
	w.trace("claim %s (%s)", name, claimUID(w.seed, n))
}

// requirements are those of new claims.
func (w *world) requirements() []karpv1.NodeSelectorRequirementWithMinValues {
	onDemand := karpv1.NodeSelectorRequirementWithMinValues{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}}
	if w.wanted != nil {
		return append([]karpv1.NodeSelectorRequirementWithMinValues{onDemand}, w.wanted...)
	}
	return []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpIn, Values: []string{"2", "4"}}, onDemand,
	}
}

func nodeClassRef() *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: nodeClassName}
}

// liveClaims are the claims as the API server has them.
func (w *world) liveClaims() []karpv1.NodeClaim {
	list := &karpv1.NodeClaimList{}
	lo.Must0(w.kube.List(w.ctx, list))
	return list.Items
}

func (w *world) liveNodes() []corev1.Node {
	list := &corev1.NodeList{}
	lo.Must0(w.kube.List(w.ctx, list))
	return list.Items
}

// ours says whether a server is of the cluster under test.
func ours(s cloud.Server) bool { return s.Metadata[v1alpha1.MetadataClusterUID] == clusterUID }

var pauses = regexp.MustCompile(`\b[0-9.]+m?s\b`)

// trace writes down what happens, for the log of a seed that fails.
func (w *world) trace(format string, args ...any) {
	// How long a client is told to pause is spread at random; it is nothing that happens.
	text := pauses.ReplaceAllString(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "), "some time")
	line := time.Now().UTC().Format("15:04:05.000 ") + text
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line[:min(len(line), 400)])
}

// violated notes a broken promise, each once.
func (w *world) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.trace("VIOLATION: %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !lo.Contains(w.violations, text) {
		w.violations = append(w.violations, text)
	}
}
