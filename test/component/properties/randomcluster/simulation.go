// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package randomcluster is clusters of random NodePools, prices and pods in which core's provisioner and disruption controller run over this
// provider, for properties that hold of all of them.
package randomcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// Simulation is one cluster: core's provisioner and disruption controller over our provider over the sandbox, and in place of
// everything else (kubelet, scheduler, lifecycle and termination controllers) the few lines below.
type Simulation struct {
	*unit.Environment
	// Random is the seed's; every choice is its.
	Random *rand.Rand
	// Cluster is core's state.
	Cluster *state.Cluster
	// Pools are all NodePools, Nodes is how many nodes there have been.
	Pools []*karpv1.NodePool
	Nodes int

	clock       clock.Clock
	provider    corecloudprovider.CloudProvider
	provisioner *provisioning.Provisioner
	queue       *disruption.Queue
	disruption  *disruption.Controller
}

// New makes an empty cluster with an account and a NodeClass. The provider that core sees is ours, or what wrap
// makes of it.
func New(ctx context.Context, seed uint64, wrap func(*cloudprovider.CloudProvider) corecloudprovider.CloudProvider) (*Simulation, error) {
	sim := newSimulation(ctx, seed, cloud.Options{Seed: int64(seed % (1 << 31))})
	return sim, sim.begin(ctx, unit.SteppingClock{FakeClock: sim.Environment.Clock}, wrap)
}

func newSimulation(ctx context.Context, seed uint64, options cloud.Options) *Simulation {
	sim := &Simulation{
		// An API server over HTTP would leave time for a tenth of the seeds.
		Environment: unit.InMemory(),
		Random:      rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a seed is tried again
	}
	sim.Reset(ctx, options)
	return sim
}

// begin makes the NodeClass and core's controllers, whose time is that of the clock.
func (sim *Simulation) begin(ctx context.Context, clk clock.Clock, wrap func(*cloudprovider.CloudProvider) corecloudprovider.CloudProvider) error {
	sim.clock = clk
	if _, err := sim.NodeClass(ctx, unit.WithDefaults); err != nil {
		return fmt.Errorf("making the NodeClass: %w", err)
	}
	sim.provider = wrap(sim.CloudProvider)
	core, err := wiring.NewCore(ctx, sim.clock, sim.Client, sim.provider, nodeoverlay.NewInstanceTypeStore())
	if err != nil {
		return fmt.Errorf("wiring core: %w", err)
	}
	deciders := core.Deciders(ctx, sim.Recorder)
	sim.Cluster, sim.provisioner, sim.queue, sim.disruption = core.Cluster, deciders.Provisioner, deciders.Queue, deciders.Disruption
	return nil
}

// Provision runs pending pods as core's provisioner decides, and returns how many found no place.
func (sim *Simulation) Provision(ctx context.Context) (unplaced int, err error) {
	results, err := sim.provisioner.Schedule(ctx)
	if err != nil {
		return 0, fmt.Errorf("scheduling: %w", err)
	}
	names, err := sim.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims)
	if err != nil {
		return 0, fmt.Errorf("creating NodeClaims: %w", err)
	}
	for i, name := range names {
		if err := sim.launch(ctx, name, results.NewNodeClaims[i].Pods); err != nil {
			return 0, err
		}
	}
	return len(results.PodErrors), sim.place(ctx, results.ExistingNodes)
}

// Consolidate lets core look once and does what it decided. It returns a description of every command.
func (sim *Simulation) Consolidate(ctx context.Context) ([]string, error) {
	// What was nominated is left alone for 20 s, and what has changed is looked at again after 5 minutes.
	sim.Environment.Clock.Step(6 * time.Minute)
	if _, err := sim.disruption.Reconcile(ctx); err != nil {
		return nil, fmt.Errorf("looking for something to disrupt: %w", err)
	}
	commands := sim.queue.GetCommands()
	var done []string
	for _, command := range commands {
		text, err := sim.apply(ctx, command)
		if err != nil {
			return nil, fmt.Errorf("applying %s: %w", command, err)
		}
		done = append(done, text)
	}
	return done, nil
}

// apply carries a command out: replacements come up, pods move to where core's simulation put them, candidates go.
func (sim *Simulation) apply(ctx context.Context, command *disruption.Command) (string, error) {
	text := command.String()
	for _, replacement := range command.Replacements {
		if err := sim.launch(ctx, replacement.Name, replacement.Pods); err != nil {
			return "", err
		}
		claim := &karpv1.NodeClaim{}
		if err := sim.Client.Get(ctx, client.ObjectKey{Name: replacement.Name}, claim); err != nil {
			return "", err
		}
		text += fmt.Sprintf(" %s in %s", claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone])
	}
	if err := sim.place(ctx, command.Results.ExistingNodes); err != nil {
		return "", err
	}
	if _, err := sim.queue.Reconcile(ctx, command.Candidates[0].NodeClaim); err != nil {
		return "", fmt.Errorf("ending the command: %w", err)
	}
	if !command.Succeeded {
		return "", errors.New("the command did not succeed")
	}
	for _, candidate := range command.Candidates {
		if err := sim.remove(ctx, candidate.NodeClaim.Name, candidate.Node); err != nil {
			return "", err
		}
	}
	return text, nil
}

// launch makes a server and a node of a claim and runs the pods there.
func (sim *Simulation) launch(ctx context.Context, name string, pods []*corev1.Pod) error {
	claim, err := sim.create(ctx, name)
	if err != nil {
		return err
	}
	// A real node has a little more memory than was assumed of it.
	node, err := sim.join(ctx, claim, claim.Status.Capacity.Memory().Value()*int64(sim.Random.IntN(6))/100)
	if err != nil {
		return err
	}
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
	if err := sim.Client.Status().Update(ctx, claim); err != nil {
		return err
	}
	sim.Cluster.UpdateNodeClaim(claim)
	return sim.bind(ctx, node.Name, pods)
}

// create makes a server of a claim.
func (sim *Simulation) create(ctx context.Context, name string) (*karpv1.NodeClaim, error) {
	claim := &karpv1.NodeClaim{}
	if err := sim.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return nil, err
	}
	claim.Finalizers = []string{karpv1.TerminationFinalizer}
	if err := sim.Client.Update(ctx, claim); err != nil {
		return nil, err
	}
	claim, err := sim.Launch(ctx, claim)
	if err != nil {
		return nil, err
	}
	sim.Nodes++
	sim.Cluster.UpdateNodeClaim(claim)
	return claim, nil
}

// join makes the node of a claim that has a server, with so many bytes of memory more than were assumed.
func (sim *Simulation) join(ctx context.Context, claim *karpv1.NodeClaim, more int64) (*corev1.Node, error) {
	claim.Status.NodeName = "node-" + claim.Name
	for _, condition := range []string{karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions(status.WithClock(sim.clock)).SetTrue(condition)
	}
	if err := sim.Client.Status().Update(ctx, claim); err != nil {
		return nil, err
	}
	node := coretest.NodeClaimLinkedNode(claim)
	node.Namespace, node.Name = "", claim.Status.NodeName
	node.Labels = lo.Assign(node.Labels, map[string]string{
		corev1.LabelHostname: node.Name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
	})
	node.Spec.Taints = nil
	node.Status.Allocatable = node.Status.Allocatable.DeepCopy()
	memory := node.Status.Allocatable[corev1.ResourceMemory]
	memory.Add(*resource.NewQuantity(more, resource.BinarySI))
	node.Status.Allocatable[corev1.ResourceMemory] = memory
	if err := sim.Client.Create(ctx, node); err != nil {
		return nil, err
	}
	sim.Cluster.UpdateNodeClaim(claim)
	return node, sim.Cluster.UpdateNode(ctx, node)
}

// place runs pods on the nodes where the simulation put them.
func (sim *Simulation) place(ctx context.Context, nodes []*scheduling.ExistingNode) error {
	for _, node := range nodes {
		if err := sim.bind(ctx, node.Name(), node.Pods); err != nil {
			return err
		}
	}
	return nil
}

func (sim *Simulation) bind(ctx context.Context, node string, pods []*corev1.Pod) error {
	for _, pod := range pods {
		live := &corev1.Pod{}
		if err := sim.Client.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return err
		}
		live.Spec.NodeName = node
		live.Status.Conditions = nil
		if err := sim.Client.Update(ctx, live); err != nil {
			return err
		}
		if err := sim.Cluster.UpdatePod(ctx, live); err != nil {
			return err
		}
	}
	return nil
}

// remove ends a node whose pods have left.
func (sim *Simulation) remove(ctx context.Context, name string, node *corev1.Node) error {
	claim := &karpv1.NodeClaim{}
	if err := sim.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return err
	}
	if claim.DeletionTimestamp.IsZero() {
		return fmt.Errorf("core did not delete NodeClaim %s", name)
	}
	claim.Finalizers = nil
	if err := sim.Client.Update(ctx, claim); err != nil {
		return err
	}
	live := &corev1.Node{}
	if err := sim.Client.Get(ctx, client.ObjectKeyFromObject(node), live); err != nil {
		return err
	}
	if live.Finalizers = nil; len(node.Finalizers) > 0 {
		if err := sim.Client.Update(ctx, live); err != nil {
			return err
		}
	}
	if err := sim.Client.Delete(ctx, live); err != nil {
		return err
	}
	sim.Cluster.DeleteNodeClaim(claim.Name)
	sim.Cluster.DeleteNode(live.Name)
	return nil
}

// Cost is what all nodes cost together, in VND per hour by our own prices.
func (sim *Simulation) Cost(ctx context.Context) (float64, error) {
	claims := &karpv1.NodeClaimList{}
	if err := sim.Client.List(ctx, claims); err != nil {
		return 0, err
	}
	total := 0.0
	for i := range claims.Items {
		labels := claims.Items[i].Labels
		pool, found := lo.Find(sim.Pools, func(p *karpv1.NodePool) bool { return p.Name == labels[karpv1.NodePoolLabelKey] })
		if !found {
			return 0, fmt.Errorf("NodeClaim %s has no NodePool", claims.Items[i].Name)
		}
		instanceTypes, err := sim.CloudProvider.GetInstanceTypes(ctx, pool)
		if err != nil {
			return 0, err
		}
		it, found := lo.Find(instanceTypes, func(it *corecloudprovider.InstanceType) bool {
			return it.Name == labels[corev1.LabelInstanceTypeStable]
		})
		if !found {
			return 0, fmt.Errorf("there is no instance type %s", labels[corev1.LabelInstanceTypeStable])
		}
		price, found := it.OfferingPrice(labels[corev1.LabelTopologyZone], labels[karpv1.CapacityTypeLabelKey])
		if !found || price <= 0 {
			return 0, fmt.Errorf("%s in %s has no price", it.Name, labels[corev1.LabelTopologyZone])
		}
		total += price
	}
	return total, nil
}
