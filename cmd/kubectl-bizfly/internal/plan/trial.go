// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
)

// Trial is the nodes that exist under core's consolidation. Evicted pods run where the kube-scheduler would put them, one at a time and in a
// random order, and not where core's simulation did: what a trial comes to does not depend on luck alone.
type Trial struct {
	*Simulation
	// Moved is how many times each pod was evicted.
	Moved map[types.UID]int

	random     *rand.Rand
	queue      *disruption.Queue
	controller *disruption.Controller
}

// ErrNoPlace says that evicted pods fit nowhere.
var ErrNoPlace = errors.New("evicted pods fit nowhere")

// Trial begins with the nodes of the copy. Those that are old enough to be consolidated soon are treated as if they were already.
func (s *Simulation) Trial(ctx context.Context, seed uint64) (*Trial, error) {
	claims := &karpv1.NodeClaimList{}
	if err := s.Objects.List(ctx, claims); err != nil {
		return nil, err
	}
	for i := range claims.Items {
		if err := s.adopt(ctx, &claims.Items[i]); err != nil {
			return nil, err
		}
	}
	if err := s.Observe(ctx); err != nil {
		return nil, err
	}
	t := &Trial{Simulation: s, Moved: map[types.UID]int{}, random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a seed is tried again
	t.queue, t.controller = s.consolidation(ctx)
	return t, nil
}

// adopt runs the node of a NodeClaim in the simulation.
func (s *Simulation) adopt(ctx context.Context, claim *karpv1.NodeClaim) error {
	node, pool := &corev1.Node{}, &karpv1.NodePool{}
	if s.running[claim.Name] != nil || claim.Status.NodeName == "" || !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := s.Objects.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := s.Objects.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}, pool); client.IgnoreNotFound(err) != nil {
		return err
	}
	if pool.Spec.Disruption.ConsolidateAfter.Duration != nil && claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
		if err := s.Objects.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	r := &running{claim: claim, node: node, pods: map[types.UID]*corev1.Pod{}}
	pods, err := s.PodsOn(ctx, node.Name)
	if err != nil {
		return err
	}
	var others []*corev1.Pod
	for _, pod := range pods {
		if podutils.IsReschedulable(pod) {
			r.pods[pod.UID] = pod
			continue
		}
		others = append(others, pod)
	}
	r.daemons = resources.RequestsForPods(others...)
	s.running[claim.Name] = r
	return nil
}

// PodsOn returns the pods of a node that have not ended.
func (s *Simulation) PodsOn(ctx context.Context, node string) ([]*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := s.Objects.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, err
	}
	return lo.FilterMap(pods.Items, func(pod corev1.Pod, _ int) (*corev1.Pod, bool) { return &pod, !podutils.IsTerminal(&pod) }), nil
}

// Join launches a NodeClaim of the copy, and its node joins. Daemons is what DaemonSets will request there.
func (t *Trial) Join(ctx context.Context, name string, daemons corev1.ResourceList) error {
	claim, err := t.launch(ctx, name)
	if err != nil {
		return err
	}
	t.running[name] = &running{claim: claim, pods: map[types.UID]*corev1.Pod{}, daemons: daemons}
	return t.register(ctx, t.running[name])
}

// RunPod makes a pod run on a node, besides those that are there.
func (t *Trial) RunPod(ctx context.Context, pod *corev1.Pod, node string) error {
	pod = pod.DeepCopy()
	pod.UID = lo.CoalesceOrEmpty(pod.UID, types.UID(fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)))
	pod.Spec.NodeName = node
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: t.Now()}}
	if err := t.setPods(ctx, func(pods []*corev1.Pod) []*corev1.Pod { return append(pods, pod) }); err != nil {
		return err
	}
	r, known := lo.Find(lo.Values(t.running), func(r *running) bool { return r.node.Name == node })
	if !known {
		return fmt.Errorf("there is no node %s", node)
	}
	r.pods[pod.UID] = pod
	return t.Cluster.UpdatePod(ctx, pod)
}

// EndPods ends the pods of which a function says so. They leave no others behind.
func (t *Trial) EndPods(ctx context.Context, ends func(*corev1.Pod) bool) error {
	var ended []*corev1.Pod
	err := t.setPods(ctx, func(pods []*corev1.Pod) []*corev1.Pod {
		var left []*corev1.Pod
		ended, left = lo.FilterReject(pods, func(pod *corev1.Pod, _ int) bool { return ends(pod) })
		return left
	})
	for _, pod := range ended {
		t.Cluster.DeletePod(client.ObjectKeyFromObject(pod))
		for _, r := range t.running {
			delete(r.pods, pod.UID)
		}
	}
	return err
}

func (t *Trial) setPods(ctx context.Context, change func([]*corev1.Pod) []*corev1.Pod) error {
	list := &corev1.PodList{}
	if err := t.Objects.List(ctx, list); err != nil {
		return err
	}
	t.Objects.SetPods(change(lo.ToSlicePtr(list.Items)))
	return nil
}

// Now is the simulated time.
func (t *Trial) Now() time.Time { return t.clock.Now() }

// Nodes is how many nodes there are that core manages, and what they cost, in VND per hour.
func (t *Trial) Nodes(ctx context.Context) (count int, vndPerHour float64, err error) {
	for _, r := range t.running {
		node, err := t.describe(ctx, r)
		if err != nil {
			return 0, 0, err
		}
		vndPerHour += node.VNDPerHour
	}
	return len(t.running), vndPerHour, nil
}

// Look lets time pass, and core look once for something to consolidate and do it. It reports whether there was something.
func (t *Trial) Look(ctx context.Context, after time.Duration) (bool, error) {
	t.clock.skipped.Add(int64(after))
	if _, err := t.controller.Reconcile(ctx); err != nil {
		return false, fmt.Errorf("looking for nodes to consolidate: %w", err)
	}
	commands := t.queue.GetCommands()
	for _, command := range commands {
		if err := t.evict(ctx, command); err != nil {
			return false, fmt.Errorf("carrying out %s: %w", command, err)
		}
	}
	return len(commands) > 0, nil
}

// Rest lets core consolidate until it finds nothing any more.
func (t *Trial) Rest(ctx context.Context) error {
	for look, quiet := 0, 0; quiet < 2; look++ {
		if look == maxLooks {
			return fmt.Errorf("consolidation still found something after %d changes", look)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		changed, err := t.Look(ctx, lookAgain)
		if err != nil {
			return err
		}
		quiet = lo.Ternary(changed, 0, quiet+1)
	}
	return nil
}

// evict carries a command out: replacements join, candidates drain one pod at a time, and what has nowhere to go waits for core's provisioner.
func (t *Trial) evict(ctx context.Context, command *disruption.Command) error {
	for _, replacement := range command.Replacements {
		claim := &karpv1.NodeClaim{}
		if err := t.Objects.Get(ctx, client.ObjectKey{Name: replacement.Name}, claim); err != nil {
			return err
		}
		if err := t.Join(ctx, replacement.Name, newRunning(claim, replacement.Pods).daemons); err != nil {
			return err
		}
	}
	if _, err := t.queue.Reconcile(ctx, command.Candidates[0].NodeClaim); err != nil {
		return err
	}
	if !command.Succeeded {
		return fmt.Errorf("core did not end it")
	}
	var leaving []*running
	for _, candidate := range command.Candidates {
		r := t.running[candidate.NodeClaim.Name]
		if r == nil {
			return fmt.Errorf("node %s is not known", candidate.NodeClaim.Name)
		}
		leaving = append(leaving, r)
		delete(t.running, candidate.NodeClaim.Name)
	}
	waiting, err := t.drain(ctx, leaving)
	if err != nil {
		return err
	}
	for _, r := range leaving {
		if err := t.leave(ctx, r); err != nil {
			return err
		}
	}
	if !waiting {
		return nil
	}
	return t.provision(ctx)
}

// drain moves the pods of nodes, in a random order. It reports whether there are pods that fit nowhere.
func (t *Trial) drain(ctx context.Context, leaving []*running) (waiting bool, err error) {
	var pods []moving
	for _, r := range leaving {
		for _, pod := range r.pods {
			pods = append(pods, moving{pod, r.claim.Labels[corev1.LabelTopologyZone]})
		}
	}
	// What no drain evicts ends with its node.
	stays, pods := lo.FilterReject(pods, func(m moving, _ int) bool { return !podutils.IsReschedulable(m.pod) })
	ended := lo.SliceToMap(stays, func(m moving) (types.UID, bool) { return m.pod.UID, true })
	if err := t.EndPods(ctx, func(pod *corev1.Pod) bool { return ended[pod.UID] }); err != nil {
		return false, err
	}
	slices.SortFunc(pods, func(a, b moving) int { return cmp.Compare(a.pod.UID, b.pod.UID) })
	t.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for _, m := range pods {
		t.Moved[m.pod.UID]++
		if target := t.target(m); target != nil {
			if err := t.bind(ctx, target, m.pod.UID); err != nil {
				return false, err
			}
			continue
		}
		manifests.Unbind(t.Objects.Bind(m.pod.UID, ""))
		waiting = true
	}
	return waiting, nil
}

// provision lets core's provisioner place the pods that wait.
func (t *Trial) provision(ctx context.Context) error {
	results, err := t.Provisioner.Schedule(ctx)
	if err != nil {
		return err
	}
	for _, existing := range results.ExistingNodes {
		for _, pod := range existing.Pods {
			r, known := lo.Find(lo.Values(t.running), func(r *running) bool { return r.node.Name == existing.Name() })
			if !known {
				return fmt.Errorf("core has placed a pod on the unknown node %s", existing.Name())
			}
			if err := t.bind(ctx, r, pod.UID); err != nil {
				return err
			}
		}
	}
	for _, proposed := range results.NewNodeClaims {
		name, err := t.Provisioner.Create(ctx, proposed)
		if err != nil {
			return err
		}
		if err := t.join(ctx, name, proposed.Pods); err != nil {
			return err
		}
	}
	if len(results.PodErrors) > 0 {
		return fmt.Errorf("%w: %d", ErrNoPlace, len(results.PodErrors))
	}
	return nil
}

// moving is an evicted pod, with the zone that it comes from.
type moving struct {
	pod  *corev1.Pod
	zone string
}

// Managed is a node that core manages.
type Managed struct {
	Claim *karpv1.NodeClaim
	Node  *corev1.Node
	// Pods are those that would move, in the order of their names, and Daemons is what all others on the node request.
	Pods    []*corev1.Pod
	Daemons corev1.ResourceList
	// VNDPerHour is its price.
	VNDPerHour float64
	// Disruptable is true where core may evict its pods now: no annotation and no PodDisruptionBudget forbids it.
	Disruptable bool
}

// Managed returns the nodes that core manages, in the order of their names.
func (t *Trial) Managed(ctx context.Context) ([]*Managed, error) {
	candidates, err := disruption.GetCandidates(ctx, t.Cluster, t.Objects, discarded{}, t.clock, t.Provider,
		func(context.Context, *disruption.Candidate) bool { return true }, disruption.GracefulDisruptionClass, t.queue)
	if err != nil {
		return nil, err
	}
	disruptable := lo.SliceToMap(candidates, func(c *disruption.Candidate) (string, bool) { return c.NodeClaim.Name, true })
	var all []*Managed
	for _, r := range t.running {
		described, err := t.describe(ctx, r)
		if err != nil {
			return nil, err
		}
		m := &Managed{Claim: r.claim, Node: r.node, Pods: lo.Values(r.pods), Daemons: r.daemons, VNDPerHour: described.VNDPerHour,
			Disruptable: disruptable[r.claim.Name] && !r.node.Spec.Unschedulable}
		slices.SortFunc(m.Pods, func(a, b *corev1.Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Managed) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return all, nil
}
