// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package properties_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/properties/randomcluster"
)

// seeds is how many simulations are tried; PROPERTY_SEEDS overrides it for a long search, PROPERTY_SEED replays one.
const seeds = 12

// history is what happened in a randomcluster.
type history struct {
	// commands are all commands, costs what all nodes cost before the first and after each, in VND per hour.
	commands []string
	costs    []float64
	// nodes is how many nodes there have been, spent and saved what they cost before and less after consolidation.
	nodes        int
	spent, saved float64
}

// consolidation fills a simulation at random, ends some of the pods, and lets core consolidate until it finds nothing more to
// do; then more pods come, some go, and once more. It returns an error when the cost did not fall with a command, when
// there was no end, or when a pod lost its place.
func consolidation(ctx context.Context, seed uint64, wrap func(*cloudprovider.CloudProvider) corecloudprovider.CloudProvider) (*history, error) {
	sim := randomcluster.New(ctx, seed, wrap)
	defer sim.CloseCloud()
	sim.AddPools(ctx)
	sim.Reprice()
	sim.MarkUnavailable(ctx)
	h := &history{}
	for range 2 {
		sim.AddOversized(ctx, sim.Random.IntN(5))
		for range 1 + sim.Random.IntN(3) {
			sim.AddPods(ctx, 2+sim.Random.IntN(12))
			if unplaced := sim.Provision(ctx); unplaced > 0 {
				return h, fmt.Errorf("%d pods found no place", unplaced)
			}
		}
		sim.RemovePods(ctx, randomcluster.Pick(sim, 0, 0.3, 0.7))
		if err := settle(ctx, sim, h); err != nil {
			return h, err
		}
	}
	h.nodes = sim.Nodes
	return h, nil
}

// settle consolidates until there is nothing to do.
func settle(ctx context.Context, sim *randomcluster.Simulation, h *history) error {
	before := sim.Cost(ctx)
	h.costs = append(h.costs, before)
	h.spent += before
	// Each command either removes nodes or makes one of them smaller. A node is replaced by the cheapest that fits, so
	// more than a few replacements per node would be a loop that has not closed yet.
	claims := &karpv1.NodeClaimList{}
	lo.Must0(sim.Client.List(ctx, claims))
	bound := 5 + 4*len(claims.Items)
	quiet := 0
	for range bound {
		done := sim.Consolidate(ctx)
		if len(done) == 0 {
			// Once more: core also aborts when a validation finds that something has changed.
			if quiet++; quiet == 2 {
				return nil
			}
			continue
		}
		quiet = 0
		h.commands = append(h.commands, done...)
		after := sim.Cost(ctx)
		h.costs = append(h.costs, after)
		if after >= before {
			return fmt.Errorf("the cost went from %.2f to %.2f VND per hour", before, after)
		}
		h.saved += before - after
		before = after
		homeless, overfull := sim.Homeless(ctx)
		if len(homeless)+len(overfull) > 0 {
			return fmt.Errorf("pods without a node: %v; nodes with too many pods: %v", homeless, overfull)
		}
	}
	return fmt.Errorf("there is no end after %d passes", bound)
}

// story is what is printed of a failure.
func (h *history) story(seed uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d; again: PROPERTY_SEED=%d go test -count=1 ./test/component/properties\n", seed, seed)
	b.WriteString("(core looks at nodes in the order of a Go map: where a replay passes, repeat it)\n")
	if h != nil {
		fmt.Fprintf(&b, "costs: %.0f\ncommands:\n  %s\n", h.costs, strings.Join(h.commands, "\n  "))
	}
	return b.String()
}

// honest is our provider as it is.
func honest(provider *cloudprovider.CloudProvider) corecloudprovider.CloudProvider { return provider }

// fickle prices anew with every question.
type fickle struct {
	corecloudprovider.CloudProvider
	random *rand.Rand
}

func (f *fickle) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*corecloudprovider.InstanceType, error) {
	types, err := f.CloudProvider.GetInstanceTypes(ctx, pool)
	return lo.Map(types, func(it *corecloudprovider.InstanceType, _ int) *corecloudprovider.InstanceType {
		return &corecloudprovider.InstanceType{
			Name: it.Name, Requirements: it.Requirements, Capacity: it.Capacity, Overhead: it.Overhead,
			Offerings: lo.Map(it.Offerings, func(o *corecloudprovider.Offering, _ int) *corecloudprovider.Offering {
				return &corecloudprovider.Offering{Requirements: o.Requirements, Available: o.Available, Price: o.Price * (0.2 + f.random.Float64())}
			}),
		}
	}), err
}

var _ = Describe("Consolidation by core's disruption controller with our instance types and prices", func() {
	It("should come to an end, and lower the cost with every command on the way", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		tried := lo.Times(setting("PROPERTY_SEEDS", seeds), func(int) uint64 { return random.Uint64N(1 << 40) })
		replay := setting("PROPERTY_SEED", -1)
		if replay >= 0 {
			tried = []uint64{uint64(replay)}
		}
		commands, replacements, nodes, spent, saved := 0, 0, 0, 0.0, 0.0
		for _, seed := range tried {
			By(fmt.Sprintf("seed %d", seed))
			h, err := consolidation(ctx, seed, honest)
			Expect(err).ToNot(HaveOccurred(), func() string { return h.story(seed) })
			commands += len(h.commands)
			replacements += lo.CountBy(h.commands, func(c string) bool { return strings.Contains(c, "replace: ") })
			nodes += h.nodes
			spent += h.spent
			saved += h.saved
		}
		AddReportEntry("simulations", fmt.Sprintf("%d simulations, %d nodes, %d commands of which %d replaced nodes, %.0f %% saved",
			len(tried), nodes, commands, replacements, 100*saved/spent))
		if replay < 0 {
			Expect(replacements).To(BeNumerically(">", len(tried)/4), "there was hardly anything to consolidate")
			Expect(commands).To(BeNumerically(">", len(tried)), "there was hardly anything to consolidate")
		}
	})
	It("should notice prices that are not the same twice", func() {
		random := rand.New(rand.NewPCG(1, 2))
		unstable := func(provider *cloudprovider.CloudProvider) corecloudprovider.CloudProvider {
			return &fickle{CloudProvider: provider, random: random}
		}
		for seed := range uint64(20) {
			if _, err := consolidation(ctx, seed, unstable); err != nil {
				Expect(err).To(MatchError(Or(ContainSubstring("the cost went from"), ContainSubstring("there is no end"))))
				return
			}
		}
		Fail("random prices went unnoticed, so the property above proves nothing")
	})
})

// setting is a whole number of the environment.
func setting(name string, otherwise int) int {
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	number, err := strconv.Atoi(value)
	Expect(err).ToNot(HaveOccurred(), "%s must be a whole number", name)
	return number
}
