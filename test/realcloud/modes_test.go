// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// modesVariable holds the modes of the sandbox to run in: all, or one combination, separated by commas.
const modesVariable = "E2E_CLOUD_MODES"

// oldClosed is the mode in which no old flavor can be launched. Pods ask there for what an old flavor, nix.3c_6g, is the cheapest for.
const oldClosed = "old-flavors-closed"

const (
	// maxRejected is how many create requests may be rejected until the first node exists: there are six forms, three of volume types for each of
	// two names of a flavor.
	maxRejected = 5
	// maxNodeClaims is how many NodeClaims core may have to create for the first node, each after one that ended.
	maxNodeClaims = 4
)

// combinations are the sets of modes to run in: each mode alone and some random ones together, or the one that is named.
func combinations() [][]string {
	switch named := os.Getenv(modesVariable); named {
	case "":
		return nil
	case "all":
	default:
		return [][]string{strings.Split(named, ",")}
	}
	sets := [][]string{{}}
	for _, mode := range cloud.Modes {
		sets = append(sets, []string{mode.Name})
	}
	runs, _ := strconv.Atoi(os.Getenv("MODE_RUNS"))
	seed, _ := strconv.ParseUint(os.Getenv("MODE_SEED"), 10, 64)
	random := rand.New(rand.NewPCG(seed, 0))
	for range runs {
		var set []string
		excluded := map[string]bool{}
		for _, i := range random.Perm(len(cloud.Modes))[:2+random.IntN(6)] {
			if mode := cloud.Modes[i]; mode.Excludes == "" || !excluded[mode.Excludes] {
				set, excluded[mode.Excludes] = append(set, mode.Name), true
			}
		}
		slices.Sort(set)
		sets = append(sets, set)
	}
	return sets
}

var _ = Describe("In the modes", Label("modes"), func() {
	for i, modes := range combinations() {
		It(fmt.Sprintf("should launch, join and delete: %d %s", i, lo.CoalesceOrEmpty(strings.Join(modes, ","), "plain")), func(ctx SpecContext) {
			run := newModeRun(ctx, modes)
			first := run.node(ctx, maxNodeClaims)
			rejected := run.rejected()
			Expect(rejected).To(BeNumerically("<=", maxRejected), "create requests that were rejected before the first node")

			second := run.node(ctx, 1)
			learned := run.env.Instances.Forms().Accepted()
			Expect(run.rejected()).To(Equal(rejected), "none is rejected once the first node exists")
			run.restart(ctx)
			// As the controller of the ProviderConfig does, whose status holds them.
			run.env.Instances.Forms().Restore(learned)
			closed := lo.Ternary(slices.Contains(modes, oldClosed), 1, 0)
			third := run.node(ctx, 1+closed)
			Expect(run.rejected()).To(Equal(rejected+closed), "a flavor that was closed may be launched again: one request of the new process shows it")

			if slices.Contains(modes, "pools-behind") {
				Expect(run.env.Server(third.Status.ProviderID).Truth.ImageID).To(Equal(cloud.StableID("worker-image", "v1.36.0")),
					"bke@latest follows the control plane, not the pool")
			}
			run.delete(ctx, first, second, third)
		}, SpecTimeout(2*time.Minute))
	}

	It("should launch a flavor of a generation after one rejected request for a closed one", func(ctx SpecContext) {
		run := newModeRun(ctx, []string{oldClosed})
		run.node(ctx, 1)
		Expect(run.rejected()).To(Equal(1), "nix.3c_6g, by one name in one zone")
		run.node(ctx, 1)
		Expect(run.rejected()).To(Equal(1))
	}, SpecTimeout(2*time.Minute))

	It("should go on while the catalog fails for hours, also after a restart", func(ctx SpecContext) {
		run := newModeRun(ctx, nil)
		first := run.node(ctx, 1)
		run.env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable},
			cloud.Fault{Method: http.MethodGet, Path: "/volume-types", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable},
			cloud.Fault{Method: http.MethodGet, Path: "/k8s_versions", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		Expect(run.env.Catalog.Refresh(ctx)).NotTo(Succeed())
		second := run.node(ctx, 1)
		run.env.Sandbox.ClearFaults()
		run.env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/k8s_versions", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		run.restart(ctx)
		third := run.node(ctx, 1)
		Expect(run.rejected()).To(BeZero())
		run.delete(ctx, first, second, third)
	}, SpecTimeout(2*time.Minute))
})

// modeRun is one cloud and one process of the controller, with objects in memory.
type modeRun struct {
	env          *unit.Environment
	modes        []string
	kube         *fake.Clientset
	guests       *guest.Guests
	requirements []karpv1.NodeSelectorRequirementWithMinValues
	requests     corev1.ResourceList
	// pool is the server of BKE's own pool, from which what new ones join with and have is learned.
	pool cloud.Server
	// volumes and servers are how many there are without ours.
	volumes, servers int
}

func newModeRun(ctx SpecContext, modes []string) *modeRun {
	GinkgoHelper()
	r := &modeRun{env: unit.InMemory(), modes: modes, kube: fake.NewClientset(), requirements: sampleRequirements(), requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}}
	switch {
	case slices.Contains(modes, oldClosed):
		r.requests[corev1.ResourceCPU] = resource.MustParse("2500m")
	case slices.Contains(modes, "short-flavor-names"):
		// New flavors have one name, and are preferred.
		r.requirements = append(r.requirements, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g", "nix.4c_8g"))
	}
	r.env.Sandbox = cloud.Start(cloud.Options{Modes: modes})
	DeferCleanup(r.env.CloseCloud)
	// The project of a BKE cluster holds other servers, too.
	r.env.Sandbox.AddServer(cloud.ServerSpec{Name: "database", Zone: "HN1"})
	r.env.Recorder, r.env.Clock = coretest.NewEventRecorder(), clocktesting.NewFakeClock(time.Now())
	r.pool = r.env.Sandbox.AddPool("workers")
	Expect(r.env.Client.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.pool.Name, Labels: map[string]string{"bke.bizflycloud.vn/node-id": "workers-1"}},
		Spec:       corev1.NodeSpec{ProviderID: providerid.New(r.pool.ID)},
	})).To(Succeed())
	r.volumes, r.servers = len(r.env.Sandbox.State().Volumes), len(r.env.Sandbox.State().Servers)
	r.restart(ctx)
	_, err := r.env.NodeClass(ctx, unit.WithDefaults)
	Expect(err).NotTo(HaveOccurred())
	r.guests = guest.New(r.env.Sandbox.Cloud, guest.Options{Client: r.kube, Ready: true, NodeSilence: -1})
	return r
}

// restart starts a controller that is told of BKE only what a user has to: the token, where it is in no metadata.
func (r *modeRun) restart(ctx SpecContext) {
	r.env.Restart(ctx, func(*wiring.Dependencies) {
		r.env.Tune(func(o *options.Options) {
			o.BKEClusterID, o.BKEClusterToken, o.BKEJoinEndpoint, o.BKELogEndpoint, o.BKEDiscoverFromPool = "", "", "", "", true
			o.ClusterEndpoint = r.env.Sandbox.BKE().ClusterUID + ".api.k8saas.bizflycloud.vn:443"
		})
	})
}

// delete deletes the servers, and expects that nothing is left of them.
func (r *modeRun) delete(ctx SpecContext, claims ...*karpv1.NodeClaim) {
	GinkgoHelper()
	for _, claim := range claims {
		Eventually(func() bool { return cloudprovider.IsNodeClaimNotFoundError(r.env.CloudProvider.Delete(ctx, claim)) }).Should(BeTrue())
	}
	Expect(r.env.Sandbox.State()).To(And(HaveField("Servers", HaveLen(r.servers)),
		HaveField("Volumes", HaveLen(r.volumes)), HaveField("ForeignRequests", BeZero())))
}

// sampleRequirements are those of the NodePool that the pages begin with.
func sampleRequirements() []karpv1.NodeSelectorRequirementWithMinValues {
	GinkgoHelper()
	content, err := os.ReadFile("../../config/samples/nodepool-default.yaml")
	Expect(err).NotTo(HaveOccurred())
	pool := &karpv1.NodePool{}
	Expect(yaml.UnmarshalStrict(content, pool)).To(Succeed())
	return pool.Spec.Template.Spec.Requirements
}

// node launches a server and lets it join. Core creates a NodeClaim anew where one has ended.
func (r *modeRun) node(ctx SpecContext, claims int) *karpv1.NodeClaim {
	GinkgoHelper()
	var launched *karpv1.NodeClaim
	var err error
	for range claims {
		var claim *karpv1.NodeClaim
		claim, err = r.env.NodeClaim(ctx, nil, slices.Clone(r.requirements)...)
		Expect(err).NotTo(HaveOccurred())
		claim.Spec.Resources.Requests = r.requests
		Expect(r.env.Client.Update(ctx, claim)).To(Succeed())
		if launched, err = r.env.Launch(ctx, claim); err == nil {
			break
		}
		GinkgoWriter.Println(err)
	}
	Expect(err).NotTo(HaveOccurred())
	server := r.env.Server(launched.Status.ProviderID)
	Eventually(func(g Gomega) {
		g.Expect(r.guests.Sync(ctx)).To(Succeed())
		node, err := r.kube.CoreV1().Nodes().Get(ctx, server.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred(), "%+v", server.Truth.Guest)
		g.Expect(node.Spec.ProviderID).To(Equal(providerid.New(server.ID)))
		g.Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelTopologyRegion, launched.Labels[corev1.LabelTopologyRegion]))
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
	if !slices.Contains(r.modes, "pool-servers-elsewhere") {
		Expect(server.IPAddresses.WANV4).To(HaveLen(len(r.pool.IPAddresses.WANV4)), "public as servers of pools are")
	}
	return launched
}

// rejected counts the create requests that were rejected, at once or by their task.
func (r *modeRun) rejected() int {
	created := lo.CountBy(r.env.Sandbox.Requests(), func(request cloud.Request) bool {
		return request.Method == http.MethodPost && strings.HasSuffix(request.Path, "/servers") && request.Status >= http.StatusBadRequest
	})
	return created + lo.CountBy(r.env.Sandbox.State().Tasks, func(task cloud.Task) bool { return task.Action == "create_server" && task.Ready && !task.Success })
}
