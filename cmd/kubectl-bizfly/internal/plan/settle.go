// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
)

const (
	// lookAgain is after how long core looks again at what it has looked at, with the 20 s for which it leaves new nodes alone.
	lookAgain = 6 * time.Minute
	// maxLooks bounds the commands of one plan.
	maxLooks = 300
)

// skippingClock is the real time, but for waits, which take none: core looks at each disruption again after 15 s.
type skippingClock struct {
	clock.RealClock
	skipped atomic.Int64
}

// Now implements clock.PassiveClock.
func (c *skippingClock) Now() time.Time {
	return c.RealClock.Now().Add(time.Duration(c.skipped.Load()))
}

// Since implements clock.PassiveClock.
func (c *skippingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// After implements clock.Clock.
func (c *skippingClock) After(d time.Duration) <-chan time.Time {
	c.skipped.Add(int64(d))
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

// running is one node of the plan.
type running struct {
	claim *karpv1.NodeClaim
	node  *corev1.Node
	pods  map[types.UID]*corev1.Pod
	// daemons is what the pods of DaemonSets request there.
	daemons corev1.ResourceList
}

func newRunning(claim *karpv1.NodeClaim, pods []*corev1.Pod) *running {
	return &running{
		claim: claim, pods: lo.KeyBy(pods, func(pod *corev1.Pod) types.UID { return pod.UID }),
		daemons: resources.Subtract(claim.Spec.Resources.Requests, resources.RequestsForPods(pods...)),
	}
}

// requests are those of its pods, DaemonSets included.
func (r *running) requests() corev1.ResourceList {
	return resources.Merge(r.daemons, resources.RequestsForPods(lo.Values(r.pods)...))
}

// settled launches nodes for all pods that wait, and lets core consolidate them.
func (s *Simulation) settled(ctx context.Context) (*Plan, error) {
	p, err := s.Run(ctx)
	if err != nil {
		return nil, err
	}
	return p, s.Settle(ctx, p)
}

// Settle lets core consolidate the planned nodes until it finds nothing to do any more, and replaces those of the plan by what is left: what
// is paid for after the first hour. Nodes that exist are no part of it.
func (s *Simulation) Settle(ctx context.Context, p *Plan) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	queue, controller := s.consolidation(ctx)
	for look, quiet := 0, 0; quiet < 2; look++ {
		if look == maxLooks || ctx.Err() != nil {
			s.note("the plan has not settled: consolidation still found something after %d changes", look)
			break
		}
		s.clock.skipped.Add(int64(lookAgain))
		if _, err := controller.Reconcile(ctx); err != nil {
			return fmt.Errorf("looking for nodes to consolidate: %w", err)
		}
		commands := queue.GetCommands()
		quiet = lo.Ternary(len(commands) == 0, quiet+1, 0)
		for _, command := range commands {
			if err := s.carryOut(ctx, queue, command); err != nil {
				return fmt.Errorf("carrying out %s: %w", command, err)
			}
		}
	}
	p.Nodes, p.VNDPerHour = []Node{}, 0
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		node, err := s.describe(ctx, s.running[name])
		if err != nil {
			return err
		}
		p.Nodes = append(p.Nodes, *node)
		p.VNDPerHour += node.VNDPerHour
	}
	p.VNDPerMonth, p.Notes = p.VNDPerHour*HoursPerMonth, s.Notes
	return nil
}

// consolidation is core's, of the copy.
func (s *Simulation) consolidation(ctx context.Context) (*disruption.Queue, *disruption.Controller) {
	planning := cloudprovider.PlanningClient(s.Objects)
	queue := disruption.NewQueue(planning, discarded{}, s.Cluster, s.clock, s.Provisioner)
	return queue, disruption.NewController(ctx, s.clock, planning, s.Provisioner, s.Provider, discarded{}, s.Cluster, queue,
		cost.NewClusterCost(ctx, s.Provider, planning))
}

// start makes the planned nodes the only ones of the copy.
func (s *Simulation) start(ctx context.Context) error {
	nodes, claims, budgets, pools := &corev1.NodeList{}, &karpv1.NodeClaimList{}, &policyv1.PodDisruptionBudgetList{}, &karpv1.NodePoolList{}
	for _, list := range []client.ObjectList{nodes, claims, budgets, pools} {
		if err := s.Objects.List(ctx, list); err != nil {
			return err
		}
	}
	var gone []client.Object
	for i := range nodes.Items {
		gone = append(gone, &nodes.Items[i])
	}
	for i := range claims.Items {
		if s.running[claims.Items[i].Name] == nil {
			gone = append(gone, &claims.Items[i])
		}
	}
	// What a budget allows at a time makes consolidation slower and changes nothing about where it ends.
	for i := range budgets.Items {
		gone = append(gone, &budgets.Items[i])
	}
	// Nor does one of a NodePool that applies at times: a plan must not depend on the time of day.
	for i := range pools.Items {
		pool := &pools.Items[i]
		pool.Spec.Disruption.Budgets = lo.Filter(pool.Spec.Disruption.Budgets, func(b karpv1.Budget, _ int) bool { return b.Schedule == nil })
		if err := s.Objects.Update(ctx, pool); err != nil {
			return err
		}
	}
	for _, object := range gone {
		if err := s.remove(ctx, object); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		if err := s.register(ctx, s.running[name]); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object of the copy, which nothing keeps there.
func (s *Simulation) remove(ctx context.Context, object client.Object) error {
	// Core may have changed it since it was read.
	if err := s.Objects.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if len(object.GetFinalizers()) > 0 {
		object.SetFinalizers(nil)
		if err := s.Objects.Update(ctx, object); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return client.IgnoreNotFound(s.Objects.Delete(ctx, object))
}

// register makes a Node of a NodeClaim, and runs its pods there.
func (s *Simulation) register(ctx context.Context, r *running) error {
	pool := &karpv1.NodePool{}
	if err := s.Objects.Get(ctx, types.NamespacedName{Name: r.claim.Labels[karpv1.NodePoolLabelKey]}, pool); err != nil {
		return err
	}
	if err := s.Objects.Get(ctx, client.ObjectKeyFromObject(r.claim), r.claim); err != nil {
		return err
	}
	r.claim.Status.NodeName = r.claim.Name
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		r.claim.StatusConditions().SetTrue(condition)
	}
	if pool.Spec.Disruption.ConsolidateAfter.Duration != nil {
		r.claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
	}
	if err := s.Objects.Status().Update(ctx, r.claim); err != nil {
		return err
	}
	r.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.claim.Name, Annotations: r.claim.Annotations, Labels: lo.Assign(r.claim.Labels, map[string]string{
			corev1.LabelHostname: r.claim.Name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		})},
		Spec: corev1.NodeSpec{ProviderID: r.claim.Status.ProviderID, Taints: r.claim.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: r.claim.Status.Capacity, Allocatable: r.claim.Status.Allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if err := s.Objects.Create(ctx, r.node); err != nil {
		return err
	}
	s.Cluster.UpdateNodeClaim(r.claim)
	if err := s.Cluster.UpdateNode(ctx, r.node); err != nil {
		return err
	}
	for uid := range r.pods {
		if err := s.bind(ctx, r, uid); err != nil {
			return err
		}
	}
	return nil
}

// bind runs a pod on a node.
func (s *Simulation) bind(ctx context.Context, r *running, uid types.UID) error {
	bound := s.Objects.Bind(uid, r.node.Name)
	if bound == nil {
		return fmt.Errorf("the pod %s is not in the copy", uid)
	}
	for _, other := range s.running {
		if other != r {
			delete(other.pods, uid)
		}
	}
	r.pods[uid] = bound
	return s.Cluster.UpdatePod(ctx, bound)
}

// carryOut does what core has decided: replacements come up, pods move to where core's simulation has put them, and candidates go.
func (s *Simulation) carryOut(ctx context.Context, queue *disruption.Queue, command *disruption.Command) error {
	for _, replacement := range command.Replacements {
		if err := s.join(ctx, replacement.Name, replacement.Pods); err != nil {
			return err
		}
	}
	if err := s.place(ctx, command.Results.ExistingNodes); err != nil {
		return err
	}
	if _, err := queue.Reconcile(ctx, command.Candidates[0].NodeClaim); err != nil {
		return err
	}
	if !command.Succeeded {
		return fmt.Errorf("core did not end it")
	}
	for _, candidate := range command.Candidates {
		left := s.running[candidate.NodeClaim.Name]
		if left == nil || len(left.pods) > 0 {
			return fmt.Errorf("node %s still has pods", candidate.NodeClaim.Name)
		}
		if err := s.leave(ctx, left); err != nil {
			return err
		}
	}
	return nil
}

// join launches a NodeClaim of the copy, and its node joins with its pods.
func (s *Simulation) join(ctx context.Context, name string, pods []*corev1.Pod) error {
	claim, err := s.launch(ctx, name)
	if err != nil {
		return err
	}
	s.running[name] = newRunning(claim, pods)
	return s.register(ctx, s.running[name])
}

// leave removes a node and its NodeClaim.
func (s *Simulation) leave(ctx context.Context, r *running) error {
	if err := s.remove(ctx, r.node); err != nil {
		return err
	}
	if err := s.remove(ctx, r.claim); err != nil {
		return err
	}
	s.Cluster.DeleteNodeClaim(r.claim.Name)
	s.Cluster.DeleteNode(r.node.Name)
	delete(s.running, r.claim.Name)
	return nil
}

// place runs pods on the nodes where core's simulation has put them.
func (s *Simulation) place(ctx context.Context, nodes []*scheduling.ExistingNode) error {
	for _, node := range nodes {
		for _, pod := range node.Pods {
			if r := s.running[node.Name()]; r != nil {
				if err := s.bind(ctx, r, pod.UID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
