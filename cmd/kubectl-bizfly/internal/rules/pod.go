// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// Check is one thing that decides whether a NodePool can run the pod.
type Check struct {
	// Code is stable, in CamelCase.
	Code string `json:"code"`
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Unknown is true where it is not known, for the reason in Detail.
	Unknown bool   `json:"unknown,omitempty"`
	Detail  string `json:"detail"`

	remedies []remedy
}

// failed reports whether it is known to be in the way.
func (c Check) failed() bool { return !c.OK && !c.Unknown }

// Pool is the answer for one NodePool.
type Pool struct {
	Name   string  `json:"name"`
	Fits   bool    `json:"fits"`
	Checks []Check `json:"checks"`
}

// Obstacles are the same text for NodePools with the same obstacles, such as a NodeClass that is not ready.
func (p Pool) Obstacles() string {
	failed := lo.Filter(p.Checks, func(c Check, _ int) bool { return c.failed() })
	texts := lo.Map(failed, func(c Check, _ int) string { return c.Name + ": " + c.Detail })
	return lo.CoalesceOrEmpty(strings.Join(texts, "\n"), p.Name)
}

// Pod is the answer for a pod.
type Pod struct {
	Name string `json:"name"`
	// State says where the pod stands.
	State string `json:"state"`
	// Outcome is what Karpenter would do for the pod alone, with the capacity that is known to be available.
	Outcome string `json:"outcome,omitempty"`
	Pools   []Pool `json:"nodePools,omitempty"`
	// Help is what was tried in a simulation and lets the pod run, and where to look next.
	Help   []string `json:"help,omitempty"`
	Events []Entry  `json:"events,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// ForPod explains a pod. Without BizFly Cloud it answers from the cluster alone.
func ForPod(ctx context.Context, s *connect.Session, key types.NamespacedName) (*Pod, error) {
	pod := &corev1.Pod{}
	if err := s.Get(ctx, key, pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	answer := &Pod{Name: key.String(), State: stateOf(pod)}
	answer.Events = eventsOf(ctx, s, "Pod", pod)
	if pod.Spec.NodeName != "" || !input.Counts(pod) || waitsForScheduler(pod) {
		return answer, nil
	}
	return answer, answer.explain(ctx, newReading(s), pod)
}

// workloads are the kinds of which one pod is explained, by the names that kubectl knows, without an s at the end.
var workloads = map[string]schema.GroupVersionKind{
	"deployment":  appsv1.SchemeGroupVersion.WithKind("Deployment"),
	"deploy":      appsv1.SchemeGroupVersion.WithKind("Deployment"),
	"statefulset": appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	"st":          appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	"replicaset":  appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
	"r":           appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
	"job":         batchv1.SchemeGroupVersion.WithKind("Job"),
}

// ForWorkload explains one of the pods of a workload, one that is pending if there is any.
func ForWorkload(ctx context.Context, s *connect.Session, kind string, key types.NamespacedName) (answer *Pod,
	known bool, err error) {
	of, known := workloads[strings.TrimSuffix(kind, "s")]
	if !known {
		return nil, false, nil
	}
	workload, selector := &unstructured.Unstructured{}, &metav1.LabelSelector{}
	workload.SetGroupVersionKind(of)
	if err := s.Get(ctx, key, workload); err != nil {
		return nil, true, fmt.Errorf("reading the workload: %w", err)
	}
	written, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(written, selector); err != nil {
		return nil, true, fmt.Errorf("reading the workload: %w", err)
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, true, fmt.Errorf("reading the workload: %w", err)
	}
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(key.Namespace),
		client.MatchingLabelsSelector{Selector: selects}); err != nil {
		return nil, true, fmt.Errorf("reading the pods of the workload: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, true, fmt.Errorf("%s/%s has no pod: kubectl describe %[1]s %[2]s says why", kind, key.Name)
	}
	pending := lo.Filter(pods.Items, func(pod corev1.Pod, _ int) bool {
		return pod.Spec.NodeName == "" && input.Counts(&pod)
	})
	chosen, _ := lo.First(append(pending, pods.Items...))
	s.Note("%d of the %d pods of %s/%s are pending; this is about %s", len(pending), len(pods.Items), kind, key.Name,
		chosen.Name)
	answer, err = ForPod(ctx, s, client.ObjectKeyFromObject(&chosen))
	return answer, true, err
}

// poolsIn are the NodePools as the copy of the cluster has them; as the cluster has them, where there is no copy.
func poolsIn(ctx context.Context, facts *reading) ([]*karpv1.NodePool, *world, error) {
	pools, err := factNodePools.in(ctx, facts)
	if err != nil {
		return nil, nil, err
	}
	w, err := factWorld.in(ctx, facts)
	if _, cloudErr := facts.Cloud(ctx); cloudErr != nil {
		facts.Note("flavors and offerings were not looked at: %s", cloudErr)
		return lo.ToSlicePtr(pools.Items), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return w.pools, w, nil
}

// explain applies the rules about a pod to each NodePool.
func (p *Pod) explain(ctx context.Context, facts *reading, pod *corev1.Pod) error {
	s := facts.Session
	if _, err := factNodePools.in(ctx, facts); err != nil {
		s.Note("NodePools were not looked at: %s", err)
		return nil
	}
	launches, _ := factLaunches.in(ctx, facts)
	list, w, err := poolsIn(ctx, facts)
	if err != nil {
		return err
	}
	for _, pool := range list {
		p.Pools = append(p.Pools, askPool(ctx, facts.ask(question{pod: pod, pool: pool})))
	}
	if w != nil {
		p.Notes = w.simulation.Notes()
		placed, err := p.decide(ctx, w, pod)
		if err != nil {
			return err
		}
		if !placed {
			p.help(ctx, w, pod)
		}
	}
	if len(list) == 0 {
		p.Help = append(p.Help, "create a NodePool and a BizflyNodeClass (config/samples)")
	}
	nodes, err := factNodes.in(ctx, facts)
	if err != nil {
		s.Note("nodes were not looked at: %s", err)
	}
	p.report(ctx, s, launches, nodes)
	return nil
}

// waitsForScheduler reports whether Karpenter plans nothing for the pod, whatever NodePools there are: kube-scheduler
// has chosen a node, has failed with it, or does not look at it.
func waitsForScheduler(pod *corev1.Pod) bool {
	scheduled, _ := lo.Find(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	return pod.Status.NominatedNodeName != "" || len(pod.Spec.SchedulingGates) > 0 ||
		scheduled.Reason == corev1.PodReasonSchedulerError
}

// stateOf says where the pod stands.
func stateOf(pod *corev1.Pod) string {
	switch {
	case pod.Spec.NodeName != "":
		bound := fmt.Sprintf("it is bound to node %s and %s", pod.Spec.NodeName, strings.ToLower(string(pod.Status.Phase)))
		resize, waits := lo.Find(pod.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
		if waits {
			return fmt.Sprintf("%s, and its resize is %s (%s); Karpenter launches no node for a resize: delete the pod, so "+
				"that it launches one for its replacement "+
				"where that needs one", bound, resize.Reason, resize.Message)
		}
		return bound + "; Karpenter has nothing to do for it"
	case !input.Counts(pod):
		return "Karpenter launches no node for it: it has ended, is being deleted, or belongs to a DaemonSet or to a node"
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("it is held back by the scheduling gate %q; until that is removed neither the scheduler nor "+
			"Karpenter look at it",
			pod.Spec.SchedulingGates[0].Name)
	}
	scheduler := lo.CoalesceOrEmpty(pod.Spec.SchedulerName, "default-scheduler")
	scheduled, tried := lo.Find(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	switch {
	case pod.Status.NominatedNodeName != "":
		return fmt.Sprintf("kube-scheduler (%s) has chosen node %s, where its volumes are being created or pods make room "+
			"for it; Karpenter plans nothing "+
			"for it meanwhile, and keeps the node", scheduler, pod.Status.NominatedNodeName)
	case !tried || scheduled.Reason == "":
		return fmt.Sprintf("kube-scheduler (%s) has not tried it yet; Karpenter waits for its answer", scheduler)
	case scheduled.Reason != corev1.PodReasonUnschedulable:
		return fmt.Sprintf("kube-scheduler (%s) failed with it (%s), so that Karpenter launches nothing for it: %s",
			scheduler, scheduled.Reason,
			scheduled.Message)
	}
	return "kube-scheduler found no node: " + scheduled.Message
}

// askPool applies the rules about a pod to the NodePool that is asked about.
func askPool(ctx context.Context, facts *reading) Pool {
	pool := Pool{Name: facts.asked.pool.Name, Checks: []Check{}}
	byAbout := map[string][]outcome{}
	for i := range podRules {
		byAbout[podRules[i].about] = append(byAbout[podRules[i].about], podRules[i].apply(ctx, facts))
	}
	for _, about := range lo.Uniq(lo.Map(podRules, func(r rule, _ int) string { return r.about })) {
		pool.Checks = append(pool.Checks, checksOf(about, byAbout[about])...)
	}
	pool.Fits = lo.EveryBy(pool.Checks, func(c Check) bool { return c.OK })
	return pool
}

// checksOf are the lines of all rules about one thing. What a rule that holds says is left out where another one fails
// or is not known.
func checksOf(about string, outcomes []outcome) []Check {
	var checks []Check
	for i, o := range outcomes {
		others := slices.Concat(outcomes[:i], outcomes[i+1:])
		for _, f := range o.findings {
			checks = append(checks, Check{Code: o.code, Name: lo.CoalesceOrEmpty(f.name, about), Detail: f.What,
				remedies: f.remedies})
		}
		if o.state == notKnown && !lo.ContainsBy(outcomes, func(other outcome) bool { return other.state == fails }) {
			checks = append(checks, Check{Code: o.code, Name: about, Unknown: true, Detail: o.reason})
		}
		for _, k := range o.known {
			if !lo.ContainsBy(others, func(other outcome) bool { return other.state == fails || other.state == notKnown }) {
				checks = append(checks, Check{Code: o.code, Name: lo.CoalesceOrEmpty(k.Name, about), OK: true, Detail: k.Value})
			}
		}
	}
	return checks
}

// podRequirements are what a pod asks of its node, sorted by key. Of alternatives the scheduler tries the first one
// first.
func podRequirements(pod *corev1.Pod) []*scheduling.Requirement {
	all := scheduling.NewStrictPodRequirements(pod).Values()
	slices.SortFunc(all, func(a, b *scheduling.Requirement) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// requirementsOf are what a NodePool asks of its nodes.
func requirementsOf(pool *karpv1.NodePool) scheduling.Requirements {
	requirements := sim.RequirementsOf(pool)
	requirements.Add(scheduling.NewRequirement(karpv1.NodePoolLabelKey, corev1.NodeSelectorOpIn, pool.Name))
	return requirements
}

// decide asks core what it would do for the pod alone, and reports whether nothing keeps it from that.
func (p *Pod) decide(ctx context.Context, w *world, pod *corev1.Pod) (placed bool, err error) {
	if err := waitAlone(ctx, w.simulation, pod); err != nil {
		return false, err
	}
	planned, err := w.simulation.Run(ctx)
	switch {
	case err != nil:
		p.Outcome = "the scheduler failed: " + err.Error()
		return false, nil //nolint:nilerr // the error is the outcome
	case len(planned.Unplaced)+len(planned.Elsewhere) > 0:
		p.Outcome = "Karpenter cannot place it: " + append(planned.Unplaced, planned.Elsewhere...)[0].Reason
		return false, nil
	case len(planned.Nodes) == 0 && planned.OnExisting > 0:
		p.Outcome = "it fits on a node that exists or is being launched; kube-scheduler binds it when that node is ready"
		return true, nil
	case len(planned.Nodes) == 0:
		p.Outcome = "Karpenter does not look at it: kube-scheduler has not reported it as unschedulable"
		return true, nil
	}
	n := planned.Nodes[0]
	launch := fmt.Sprintf("launch a %s in %s for %s VND per hour (NodePool %s)", n.Flavor, n.Zone,
		output.VND(n.VNDPerHour), n.NodePool)
	p.Outcome = "Karpenter can " + launch
	chosen, _ := lo.Find(p.Pools, func(pool Pool) bool { return pool.Name == n.NodePool })
	held, isHeld := lo.Find(chosen.Checks, func(c Check) bool { return c.failed() && c.Name == "launches" })
	unknown, isUnknown := lo.Find(chosen.Checks, func(c Check) bool { return c.Unknown && c.Name == "launches" })
	switch {
	case isHeld:
		p.Outcome = "Karpenter would " + launch + ", but launches are held back: " + held.Detail
	case isUnknown:
		p.Outcome += ", if nothing holds launches back, which is not known: " + unknown.Detail
	default:
		return true, nil
	}
	return false, nil
}

// memoryOf is the memory that an instance type leaves for pods and DaemonSets.
func memoryOf(it *corecloudprovider.InstanceType) *resource.Quantity {
	allocatable := it.Allocatable()
	return allocatable.Memory()
}
