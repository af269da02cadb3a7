// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

const (
	// consolidateAgain is after how long core considers again what it has considered, with the 20 s for which it leaves new nodes alone.
	consolidateAgain = 6 * time.Minute
	// pollPeriod is after how long core decides again where there was nothing to do.
	pollPeriod = 10 * time.Second
	// maxConsolidations bounds the commands of one plan.
	maxConsolidations = 300
)

// ErrNoPlace says that evicted pods fit nowhere.
var ErrNoPlace = errors.New("evicted pods fit nowhere")

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

// bind runs a pod on a node; on none, it waits as the scheduler reports it.
func (s *Simulation) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	pod = pod.DeepCopy()
	if input.Unbind(pod); node != "" {
		pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodPending}
	}
	return s.put(ctx, pod)
}

// Join launches a NodeClaim of the copy, and its node joins. Daemons is what DaemonSets will request there.
func (s *Simulation) Join(ctx context.Context, name string, daemons corev1.ResourceList) error {
	claim, err := s.launch(ctx, name)
	if err != nil {
		return err
	}
	pool, err := s.pool(ctx, claim.Labels[karpv1.NodePoolLabelKey])
	if err != nil {
		return err
	}
	claim.Status.NodeName = claim.Name
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions().SetTrue(condition)
	}
	if pool.Spec.Disruption.ConsolidateAfter.Duration != nil {
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable)
	}
	s.daemons[claim.Name] = daemons
	if err := s.put(ctx, claim); err != nil {
		return err
	}
	return s.put(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Annotations: claim.Annotations, Labels: lo.Assign(claim.Labels, map[string]string{
			corev1.LabelHostname: claim.Name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		})},
		Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: claim.Status.Capacity, Allocatable: claim.Status.Allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
}

// daemonsOf is what core has added to the requests of the pods for which it wants a NodeClaim.
func daemonsOf(requests corev1.ResourceList, pods []*corev1.Pod) corev1.ResourceList {
	return resources.Subtract(requests, resources.RequestsForPods(pods...))
}

// leave removes a node and its NodeClaim.
func (s *Simulation) leave(m *member) {
	s.replaced = append(s.replaced, m)
	delete(s.daemons, m.claim.Name)
	s.remove(m.node)
	s.remove(m.claim)
}

// provision lets core's provisioner place the pods that wait, and runs them there. It returns why the others have no place.
func (s *Simulation) provision(ctx context.Context) (failed map[types.UID]error, err error) {
	pods := s.Waiting()
	ctx = s.recorded(ctx)
	results, err := s.Provisioner.Schedule(ctx)
	if err != nil {
		return nil, fmt.Errorf("scheduling: %w", err)
	}
	failed = lo.MapKeys(results.PodErrors, func(_ error, pod *corev1.Pod) types.UID { return pod.UID })
	// Core also schedules the pods of nodes that are being deleted.
	pending := lo.SliceToMap(pods, func(pod *corev1.Pod) (types.UID, bool) { return pod.UID, true })
	bind := func(scheduled []*corev1.Pod, node string) error {
		for _, pod := range scheduled {
			if err := s.bind(ctx, pod, node); err != nil {
				return err
			}
		}
		return nil
	}
	ours := func(scheduled []*corev1.Pod) []*corev1.Pod {
		return lo.Filter(scheduled, func(pod *corev1.Pod, _ int) bool { return pending[pod.UID] })
	}
	for _, existing := range results.ExistingNodes {
		if err := bind(ours(existing.Pods), existing.Name()); err != nil {
			return nil, err
		}
	}
	for _, proposed := range results.NewNodeClaims {
		scheduled := ours(proposed.Pods)
		if len(scheduled) == 0 {
			continue
		}
		name, err := s.launched(ctx, proposed)
		if err != nil {
			for _, pod := range scheduled {
				failed[pod.UID] = err
			}
			continue
		}
		if err := bind(scheduled, name); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// launched makes a node of what core proposes.
func (s *Simulation) launched(ctx context.Context, proposed *scheduling.NodeClaim) (string, error) {
	name, err := s.Provisioner.Create(ctx, proposed)
	if err != nil {
		return "", fmt.Errorf("creating a NodeClaim of NodePool %s: %w", proposed.NodePoolName, err)
	}
	claim, _ := memory.Find[*karpv1.NodeClaim](s.Objects, client.ObjectKey{Name: name})
	if err := s.Join(ctx, name, daemonsOf(claim.Spec.Resources.Requests, proposed.Pods)); err != nil {
		s.remove(claim)
		return "", fmt.Errorf("launching a NodeClaim of NodePool %s: %w", proposed.NodePoolName, err)
	}
	return name, nil
}

// FromEmpty plans objects as if nothing ran yet: what is launched at first or, settled, what is left after consolidation.
func FromEmpty(ctx context.Context, cloud *connect.Cloud, objects memory.Objects, settled bool) (*Result, *Simulation, error) {
	s, err := New(ctx, cloud, objects)
	if err == nil {
		err = s.Empty(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	result, err := lo.Ternary(settled, s.Settle, s.Run)(ctx)
	return result, s, err
}

// Settle launches nodes for all pods that wait, and lets core consolidate until it finds nothing to do any more: what is paid for after the first
// hour. Where a started hour is charged in full, it notes what the servers cost that do not live for theirs.
func (s *Simulation) Settle(ctx context.Context) (*Result, error) {
	result, err := s.Run(ctx)
	if err != nil {
		return nil, err
	}
	switch done, err := s.consolidate(ctx); {
	case err != nil:
		return nil, err
	case !done:
		s.note("the plan has not settled: consolidation still found something after %d changes", maxConsolidations)
	}
	if err := s.noteReplaced(ctx); err != nil {
		return nil, err
	}
	return result, s.fill(ctx, result, nil)
}

// noteReplaced says what the servers cost that consolidation replaces, where a started period is charged in full.
func (s *Simulation) noteReplaced(ctx context.Context) error {
	period := s.Providers.CloudProviderConfig.Settings.Load().BillingPeriod
	if period <= time.Second || len(s.replaced) == 0 {
		return nil
	}
	vnd := 0.0
	for _, m := range s.replaced {
		node, err := s.describe(ctx, m)
		if err != nil {
			return err
		}
		vnd += node.VNDPerHour * period.Hours()
	}
	s.note("the first %s costs %s VND more: %s that consolidation replaces are charged for it in full",
		duration.ShortHumanDuration(period), output.VND(vnd), output.Plural(len(s.replaced), "server"))
	return nil
}

// Rest lets core consolidate until it finds nothing any more.
func (s *Simulation) Rest(ctx context.Context) error {
	done, err := s.consolidate(ctx)
	if err == nil && !done {
		err = fmt.Errorf("consolidation still found something after %d changes", maxConsolidations)
	}
	return err
}

// ConsolidateOnce lets time pass, and core decide once what to consolidate, and does it. It reports whether there was something.
func (s *Simulation) ConsolidateOnce(ctx context.Context, after time.Duration) (bool, error) {
	s.clock.skipped.Add(int64(after))
	ctx = s.recorded(ctx)
	result, err := s.deciders.Disruption.Reconcile(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for nodes to consolidate: %w", err)
	}
	commands := s.deciders.Queue.GetCommands()
	if len(commands) == 0 && result.RequeueAfter < pollPeriod {
		return false, fmt.Errorf("looking for nodes to consolidate: Karpenter has not looked, and would try again after %s", result.RequeueAfter)
	}
	for _, command := range commands {
		if err := s.carryOut(ctx, command); err != nil {
			return false, fmt.Errorf("carrying out %s: %w", command, err)
		}
	}
	return len(commands) > 0, nil
}

// moving is an evicted pod, with the zone that it comes from.
type moving struct {
	pod  *corev1.Pod
	zone string
}

// carryOut does what core has decided: replacements join, candidates drain, and what has nowhere to go waits for core's provisioner.
func (s *Simulation) carryOut(ctx context.Context, command *disruption.Command) error {
	planned := map[types.UID]string{}
	for _, existing := range command.Results.ExistingNodes {
		for _, pod := range existing.Pods {
			planned[pod.UID] = existing.Name()
		}
	}
	for _, replacement := range command.Replacements {
		claim := &karpv1.NodeClaim{}
		if err := s.Objects.Get(ctx, client.ObjectKey{Name: replacement.Name}, claim); err != nil {
			return err
		}
		if err := s.Join(ctx, replacement.Name, daemonsOf(claim.Spec.Resources.Requests, replacement.Pods)); err != nil {
			return err
		}
		for _, pod := range replacement.Pods {
			planned[pod.UID] = replacement.Name
		}
	}
	names := lo.SliceToMap(command.Candidates, func(c *disruption.Candidate) (string, bool) { return c.NodeClaim.Name, true })
	leaving, staying := lo.FilterReject(s.members(), func(m *member, _ int) bool { return names[m.claim.Name] })
	if len(leaving) < len(command.Candidates) {
		return fmt.Errorf("only %d of its nodes are known", len(leaving))
	}
	switch result, err := s.deciders.Queue.Reconcile(ctx, command.Candidates[0].NodeClaim); {
	case err != nil:
		return err
	case !command.Succeeded:
		return fmt.Errorf("core did not end it, and would try again after %s", result.RequeueAfter)
	}
	return s.drain(ctx, leaving, staying, planned)
}

// drain moves the pods of nodes, one at a time, and removes the nodes.
func (s *Simulation) drain(ctx context.Context, leaving, staying []*member, planned map[types.UID]string) error {
	var pods []moving
	for _, m := range leaving {
		for _, pod := range m.movable() {
			pods = append(pods, moving{pod, m.claim.Labels[corev1.LabelTopologyZone]})
		}
		// What no drain evicts ends with its node.
		for _, pod := range lo.Without(m.pods, m.movable()...) {
			s.remove(pod)
		}
	}
	slices.SortFunc(pods, func(a, b moving) int { return cmp.Compare(a.pod.UID, b.pod.UID) })
	if s.random != nil {
		s.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	}
	waiting := false
	for _, m := range pods {
		s.Moved[m.pod.UID]++
		node := planned[m.pod.UID]
		if s.random != nil {
			node = target(staying, m)
		}
		if err := s.bind(ctx, m.pod, node); err != nil {
			return err
		}
		waiting = waiting || node == ""
	}
	for _, m := range leaving {
		s.leave(m)
	}
	if !waiting {
		return nil
	}
	failed, err := s.provision(ctx)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%w: %d", ErrNoPlace, len(failed))
	}
	return err
}
