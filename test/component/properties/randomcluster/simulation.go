// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package randomcluster is clusters of random NodePools, prices and pods in which core's provisioner and disruption controller run over this
// provider, for properties that hold of all of them. A step that fails panics, which fails the spec with the way to that step.
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
func New(ctx context.Context, seed uint64, wrap func(*cloudprovider.CloudProvider) corecloudprovider.CloudProvider) *Simulation {
	sim := newSimulation(ctx, seed, cloud.Options{Seed: int64(seed % (1 << 31))})
	sim.begin(ctx, unit.SteppingClock{FakeClock: sim.Environment.Clock}, wrap)
	return sim
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
func (sim *Simulation) begin(ctx context.Context, clk clock.Clock, wrap func(*cloudprovider.CloudProvider) corecloudprovider.CloudProvider) {
	sim.clock = clk
	lo.Must(sim.NodeClass(ctx, unit.WithDefaults))
	sim.provider = wrap(sim.CloudProvider)
	core := lo.Must(wiring.NewCore(ctx, sim.clock, sim.Client, sim.provider, nodeoverlay.NewInstanceTypeStore()))
	deciders := core.Deciders(ctx, sim.Recorder)
	sim.Cluster, sim.provisioner, sim.queue, sim.disruption = core.Cluster, deciders.Provisioner, deciders.Queue, deciders.Disruption
}

// Provision runs pending pods as core's provisioner decides, and returns how many found no place.
func (sim *Simulation) Provision(ctx context.Context) (unplaced int) {
	results := lo.Must(sim.provisioner.Schedule(ctx))
	names := lo.Must(sim.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims))
	for i, name := range names {
		sim.launch(ctx, name, results.NewNodeClaims[i].Pods)
	}
	sim.place(ctx, results.ExistingNodes)
	return len(results.PodErrors)
}

// Consolidate lets core look once and does what it decided. It returns a description of every command.
func (sim *Simulation) Consolidate(ctx context.Context) []string {
	// What was nominated is left alone for 20 s, and what has changed is looked at again after 5 minutes.
	sim.Environment.Clock.Step(6 * time.Minute)
	lo.Must(sim.disruption.Reconcile(ctx))
	commands := sim.queue.GetCommands()
	var done []string
	for _, command := range commands {
		text := sim.apply(ctx, command)
		done = append(done, text)
	}
	return done
}

// apply carries a command out: replacements come up, pods move to where core's simulation put them, candidates go.
func (sim *Simulation) apply(ctx context.Context, command *disruption.Command) string {
	text := command.String()
	for _, replacement := range command.Replacements {
		sim.launch(ctx, replacement.Name, replacement.Pods)
		claim := &karpv1.NodeClaim{}
		lo.Must0(sim.Client.Get(ctx, client.ObjectKey{Name: replacement.Name}, claim))
		text += fmt.Sprintf(" %s in %s", claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone])
	}
	sim.place(ctx, command.Results.ExistingNodes)
	lo.Must(sim.queue.Reconcile(ctx, command.Candidates[0].NodeClaim))
	if !command.Succeeded {
		panic(errors.New("the command did not succeed"))
	}
	for _, candidate := range command.Candidates {
		sim.remove(ctx, candidate.NodeClaim.Name, candidate.Node)
	}
	return text
}

// launch makes a server and a node of a claim and runs the pods there.
func (sim *Simulation) launch(ctx context.Context, name string, pods []*corev1.Pod) {
	claim := sim.create(ctx, name)
	// A real node has a little more memory than was assumed of it.
	node := sim.join(ctx, claim, claim.Status.Capacity.Memory().Value()*int64(sim.Random.IntN(6))/100)
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
	lo.Must0(sim.Client.Status().Update(ctx, claim))
	sim.Cluster.UpdateNodeClaim(claim)
	sim.bind(ctx, node.Name, pods)
}

// create makes a server of a claim.
func (sim *Simulation) create(ctx context.Context, name string) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{}
	lo.Must0(sim.Client.Get(ctx, client.ObjectKey{Name: name}, claim))
	claim.Finalizers = []string{karpv1.TerminationFinalizer}
	lo.Must0(sim.Client.Update(ctx, claim))
	claim = lo.Must(sim.Launch(ctx, claim))
	sim.Nodes++
	sim.Cluster.UpdateNodeClaim(claim)
	return claim
}

// join makes the node of a claim that has a server, with so many bytes of memory more than were assumed.
func (sim *Simulation) join(ctx context.Context, claim *karpv1.NodeClaim, more int64) *corev1.Node {
	claim.Status.NodeName = "node-" + claim.Name
	for _, condition := range []string{karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions(status.WithClock(sim.clock)).SetTrue(condition)
	}
	lo.Must0(sim.Client.Status().Update(ctx, claim))
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
	lo.Must0(sim.Client.Create(ctx, node))
	sim.Cluster.UpdateNodeClaim(claim)
	lo.Must0(sim.Cluster.UpdateNode(ctx, node))
	return node
}

// place runs pods on the nodes where the simulation put them.
func (sim *Simulation) place(ctx context.Context, nodes []*scheduling.ExistingNode) {
	for _, node := range nodes {
		sim.bind(ctx, node.Name(), node.Pods)
	}
}

func (sim *Simulation) bind(ctx context.Context, node string, pods []*corev1.Pod) {
	for _, pod := range pods {
		live := &corev1.Pod{}
		lo.Must0(sim.Client.Get(ctx, client.ObjectKeyFromObject(pod), live))
		live.Spec.NodeName = node
		live.Status.Conditions = nil
		lo.Must0(sim.Client.Update(ctx, live))
		lo.Must0(sim.Cluster.UpdatePod(ctx, live))
	}
}

// remove ends a node whose pods have left.
func (sim *Simulation) remove(ctx context.Context, name string, node *corev1.Node) {
	claim := &karpv1.NodeClaim{}
	lo.Must0(sim.Client.Get(ctx, client.ObjectKey{Name: name}, claim))
	if claim.DeletionTimestamp.IsZero() {
		panic(fmt.Errorf("core did not delete NodeClaim %s", name))
	}
	claim.Finalizers = nil
	lo.Must0(sim.Client.Update(ctx, claim))
	live := &corev1.Node{}
	lo.Must0(sim.Client.Get(ctx, client.ObjectKeyFromObject(node), live))
	if live.Finalizers = nil; len(node.Finalizers) > 0 {
		lo.Must0(sim.Client.Update(ctx, live))
	}
	lo.Must0(sim.Client.Delete(ctx, live))
	sim.Cluster.DeleteNodeClaim(claim.Name)
	sim.Cluster.DeleteNode(live.Name)
}

// Cost is what all nodes cost together, in VND per hour by our own prices.
func (sim *Simulation) Cost(ctx context.Context) float64 {
	claims := &karpv1.NodeClaimList{}
	lo.Must0(sim.Client.List(ctx, claims))
	total := 0.0
	for i := range claims.Items {
		labels := claims.Items[i].Labels
		pool, found := lo.Find(sim.Pools, func(p *karpv1.NodePool) bool { return p.Name == labels[karpv1.NodePoolLabelKey] })
		if !found {
			panic(fmt.Errorf("NodeClaim %s has no NodePool", claims.Items[i].Name))
		}
		instanceTypes := lo.Must(sim.CloudProvider.GetInstanceTypes(ctx, pool))
		it, found := lo.Find(instanceTypes, func(it *corecloudprovider.InstanceType) bool {
			return it.Name == labels[corev1.LabelInstanceTypeStable]
		})
		if !found {
			panic(fmt.Errorf("there is no instance type %s", labels[corev1.LabelInstanceTypeStable]))
		}
		price, found := it.OfferingPrice(labels[corev1.LabelTopologyZone], labels[karpv1.CapacityTypeLabelKey])
		if !found || price <= 0 {
			panic(fmt.Errorf("%s in %s has no price", it.Name, labels[corev1.LabelTopologyZone]))
		}
		total += price
	}
	return total
}
