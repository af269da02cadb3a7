// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package why explains why a pod is pending, and shows the timeline of a NodeClaim or Node.
package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	corescheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Check is one thing that decides whether a NodePool can run the pod.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Pool is the answer for one NodePool.
type Pool struct {
	Name   string  `json:"name"`
	Fits   bool    `json:"fits"`
	Checks []Check `json:"checks"`
}

// Pod is the answer for a pod.
type Pod struct {
	Name string `json:"name"`
	// State says where the pod stands.
	State string `json:"state"`
	// Outcome is what Karpenter would do for the pod alone, with the capacity that is known to be available.
	Outcome string   `json:"outcome,omitempty"`
	Pools   []Pool   `json:"nodePools,omitempty"`
	Help    []string `json:"help,omitempty"`
	Events  []Entry  `json:"events,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// ForPod explains a pod. Without BizFly Cloud it answers from the cluster alone.
func ForPod(ctx context.Context, s *connect.Session, key types.NamespacedName) (*Pod, error) {
	pod := &corev1.Pod{}
	if err := s.Get(ctx, key, pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	answer := &Pod{Name: key.String()}
	answer.Events = events(ctx, s, "Pod", pod)
	answer.State = stateOf(pod)
	if pod.Spec.NodeName != "" || !input.Counts(pod) {
		return answer, nil
	}
	pools := &karpv1.NodePoolList{}
	if err := s.List(ctx, pools); err != nil {
		s.Note("NodePools were not looked at: %s", err)
		return answer, nil
	}
	launches := readLaunches(ctx, s)
	cloud, err := s.Cloud(ctx)
	if err != nil {
		s.Note("flavors and offerings were not looked at: %s", err)
		answer.fromCluster(pools, pod)
		answer.report(s, launches)
		return answer, nil
	}
	objects, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	simulation, err := sim.New(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	answer.Notes = simulation.Notes
	if err := simulation.Objects.List(ctx, pools); err != nil {
		return nil, err
	}
	if err := launches.mark(ctx, s, simulation, objects, pools.Items); err != nil {
		return nil, err
	}
	limit := limitReached(ctx, s)
	for i := range pools.Items {
		held := launchesHeld(ctx, simulation, &pools.Items[i], limit)
		answer.Pools = append(answer.Pools, look(ctx, simulation, &pools.Items[i], pod, held))
	}
	if err := answer.decide(ctx, simulation, pod, limit); err != nil {
		return nil, err
	}
	answer.help()
	answer.report(s, launches)
	return answer, nil
}

// stateOf says where the pod stands.
func stateOf(pod *corev1.Pod) string {
	switch {
	case pod.Spec.NodeName != "":
		bound := fmt.Sprintf("it is bound to node %s and %s", pod.Spec.NodeName, strings.ToLower(string(pod.Status.Phase)))
		resize, waits := lo.Find(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
		if waits {
			return fmt.Sprintf("%s, and its resize is %s (%s); Karpenter launches no node for a resize: delete the pod, so that it launches one for its replacement "+
				"where that needs one", bound, resize.Reason, resize.Message)
		}
		return bound + "; Karpenter has nothing to do for it"
	case !input.Counts(pod):
		return "Karpenter launches no node for it: it has ended, is being deleted, or belongs to a DaemonSet or to a node"
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("it is held back by the scheduling gate %q; until that is removed neither the scheduler nor Karpenter look at it",
			pod.Spec.SchedulingGates[0].Name)
	}
	scheduler := lo.CoalesceOrEmpty(pod.Spec.SchedulerName, "default-scheduler")
	scheduled, tried := lo.Find(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	switch {
	case pod.Status.NominatedNodeName != "":
		return fmt.Sprintf("kube-scheduler (%s) has chosen node %s, where its volumes are being created or pods make room for it; Karpenter plans nothing "+
			"for it meanwhile, and keeps the node", scheduler, pod.Status.NominatedNodeName)
	case !tried || scheduled.Reason == "":
		return fmt.Sprintf("kube-scheduler (%s) has not tried it yet; Karpenter waits for its answer", scheduler)
	case scheduled.Reason != corev1.PodReasonUnschedulable:
		return fmt.Sprintf("kube-scheduler (%s) failed with it (%s), so that Karpenter launches nothing for it: %s", scheduler, scheduled.Reason,
			scheduled.Message)
	}
	return "kube-scheduler found no node: " + scheduled.Message
}

// fromCluster looks at NodePools as far as that needs no cloud.
func (p *Pod) fromCluster(pools *karpv1.NodePoolList, pod *corev1.Pod) {
	for i := range pools.Items {
		p.Pools = append(p.Pools, newPool(&pools.Items[i], clusterChecks(&pools.Items[i], pod, nil)))
	}
	p.help()
}

func newPool(pool *karpv1.NodePool, checks []Check) Pool {
	return Pool{Name: pool.Name, Checks: checks, Fits: lo.EveryBy(checks, func(c Check) bool { return c.OK })}
}

// clusterChecks are those that need no cloud. With the flavors of the NodePool, if they are known, its limits are checked more exactly.
func clusterChecks(pool *karpv1.NodePool, pod *corev1.Pod, flavors []*corecloudprovider.InstanceType) []Check {
	checks := []Check{}
	add := func(name string, problem error, fine string) {
		checks = append(checks, Check{Name: name, OK: problem == nil,
			Detail: lo.TernaryF(problem == nil, func() string { return fine }, func() string { return problem.Error() })})
	}
	var notReady error
	if root := pool.StatusConditions().Root(); !root.IsTrue() {
		why, _ := lo.Find(pool.Status.Conditions, func(c status.Condition) bool { return c.Type != "Ready" && c.IsFalse() })
		notReady = fmt.Errorf("it is not ready: %s", lo.CoalesceOrEmpty(why.Message, root.Message, "its conditions are not known yet"))
	}
	add("ready", notReady, "it is ready")
	if pool.Spec.Replicas != nil {
		add("static", fmt.Errorf("it is static: Karpenter launches the %d nodes of its spec.replicas, and none for a pod", *pool.Spec.Replicas), "")
	}
	add("limits", sim.LimitReached(pool, flavors), "its limits leave room")
	add("taints", scheduling.Taints(pool.Spec.Template.Spec.Taints).ToleratesPod(pod), "the pod tolerates its taints")
	for _, requirement := range podRequirements(pod) {
		has := nodePoolRequirements(pool)
		one := scheduling.NewRequirements(requirement)
		var conflict error
		if err := has.Compatible(one, scheduling.AllowUndefinedWellKnownLabels); err != nil {
			conflict = fmt.Errorf("the pod requires %s, the NodePool %s", requirement, lo.TernaryF(has.Has(requirement.Key),
				func() string { return "has " + has.Get(requirement.Key).String() }, func() string { return "does not define this label" }))
		}
		add("requirement "+requirement.Key, conflict, requirement.String())
	}
	return checks
}

// podRequirements are what a pod asks of its node, sorted by key. Of alternatives the scheduler tries the first one first.
func podRequirements(pod *corev1.Pod) []*scheduling.Requirement {
	all := scheduling.NewStrictPodRequirements(pod).Values()
	slices.SortFunc(all, func(a, b *scheduling.Requirement) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func nodePoolRequirements(pool *karpv1.NodePool) scheduling.Requirements {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	requirements.Add(scheduling.NewRequirement(karpv1.NodePoolLabelKey, corev1.NodeSelectorOpIn, pool.Name))
	return requirements
}

// look checks one NodePool, down to its offerings.
func look(ctx context.Context, simulation *sim.Simulation, pool *karpv1.NodePool, pod *corev1.Pod, held string) Pool {
	flavors, _ := simulation.FlavorsOf(ctx, pool)
	checks := append(clusterChecks(pool, pod, flavors), Check{Name: "launches", OK: held == "",
		Detail: lo.CoalesceOrEmpty(held, "nothing holds them back")})
	instanceTypes, err := simulation.Provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return newPool(pool, append(checks, Check{Name: "flavors", Detail: err.Error()}))
	}
	wanted := nodePoolRequirements(pool)
	wanted.Add(podRequirements(pod)...)
	zone, zones := zoneOf(ctx, simulation, pod, instanceTypes)
	if zone.Name != "" {
		if checks = append(checks, zone); !zone.OK {
			return newPool(pool, checks)
		}
		wanted.Add(zones)
	}
	compatible := lo.Filter(instanceTypes, func(it *corecloudprovider.InstanceType, _ int) bool {
		return wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) && it.Offerings.HasCompatible(wanted)
	})
	checks = append(checks, Check{Name: "flavors", OK: len(compatible) > 0,
		Detail: fmt.Sprintf("%d of %d flavors satisfy the requirements of pod and NodePool", len(compatible), len(instanceTypes))})
	if len(compatible) == 0 {
		return newPool(pool, checks)
	}
	requests := resources.RequestsForPods(pod)
	fitting := lo.Filter(compatible, func(it *corecloudprovider.InstanceType, _ int) bool {
		return resources.Fits(requests, it.Allocatable())
	})
	largest := lo.MaxBy(compatible, func(a, b *corecloudprovider.InstanceType) bool {
		return memoryOf(a).Cmp(*memoryOf(b)) > 0
	})
	checks = append(checks, Check{Name: "size", OK: len(fitting) > 0,
		Detail: fmt.Sprintf("%d of these are large enough for %s (the largest, %s, leaves %s for pods and DaemonSets)",
			len(fitting), sizeOf(requests), largest.Name, sizeOf(largest.Allocatable()))})
	if len(fitting) == 0 {
		return newPool(pool, checks)
	}
	// Flavors that are too small for the pod may fit into what the limits leave.
	if err := sim.LimitReached(pool, fitting); err != nil && sim.LimitReached(pool, flavors) == nil {
		checks = append(checks, Check{Name: "limits", Detail: "of the flavors that are large enough, " + err.Error()})
	}
	return newPool(pool, append(checks, offerings(ctx, simulation, pool, fitting, wanted)))
}

// zoneOf checks the zones that the pod's volumes and its own requirements leave, and returns them. The check has no name where they leave all.
func zoneOf(ctx context.Context, simulation *sim.Simulation, pod *corev1.Pod, instanceTypes []*corecloudprovider.InstanceType) (Check,
	*scheduling.Requirement) {
	wants, causes := scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpExists), []string{}
	if own := scheduling.NewStrictPodRequirements(pod); own.Has(corev1.LabelTopologyZone) {
		wants, causes = wants.Intersection(own.Get(corev1.LabelTopologyZone)), append(causes, "its node selector and affinity")
	}
	alternatives, err := corescheduling.NewVolumeTopology(simulation.Objects).GetRequirements(ctx, pod)
	if err != nil {
		return Check{Name: "volumes", Detail: err.Error()}, nil
	}
	// Of alternatives, which only volumes with several terms have, the first is what the scheduler tries first.
	if volumes := lo.FirstOrEmpty(alternatives); volumes.Has(corev1.LabelTopologyZone) {
		wants, causes = wants.Intersection(volumes.Get(corev1.LabelTopologyZone)), append(causes, "its volumes")
	}
	if len(causes) == 0 {
		return Check{}, nil
	}
	exist := lo.Uniq(lo.FlatMap(instanceTypes, func(it *corecloudprovider.InstanceType, _ int) []string {
		return lo.Map(it.Offerings, func(o *corecloudprovider.Offering, _ int) string { return o.Zone() })
	}))
	slices.Sort(exist)
	left := lo.Filter(exist, func(zone string, _ int) bool { return wants.Has(zone) })
	where := lo.Ternary(len(left) > 0, "in "+strings.Join(left, ", "), fmt.Sprintf("in no zone of the NodePool's flavors (%s)", strings.Join(exist, ", ")))
	return Check{Name: "zone", OK: len(left) > 0, Detail: fmt.Sprintf("%s let it run %s", strings.Join(causes, " and "), where)}, wants
}

// sizeOf writes CPU, memory and every other requested resource.
func sizeOf(list corev1.ResourceList) string {
	text := fmt.Sprintf("%dm CPU, %d MiB", list.Cpu().MilliValue(), list.Memory().Value()>>20)
	for name, quantity := range list {
		if strings.Contains(string(name), "/") {
			text += fmt.Sprintf(", %s %s", quantity.String(), name)
		}
	}
	return text
}

// offerings says which of the fitting flavors can be launched, and what keeps the others.
func offerings(ctx context.Context, simulation *sim.Simulation, pool *karpv1.NodePool, fitting []*corecloudprovider.InstanceType,
	wanted scheduling.Requirements) Check {
	check := Check{Name: "offerings"}
	available := 0
	for _, it := range fitting {
		available += len(it.Offerings.Compatible(wanted).Available())
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := simulation.Objects.Get(ctx, types.NamespacedName{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		check.Detail = err.Error()
		return check
	}
	explained, err := simulation.Flavors.Explain(nodeClass)
	if err != nil {
		check.Detail = err.Error()
		return check
	}
	names := lo.SliceToMap(fitting, func(it *corecloudprovider.InstanceType) (string, bool) { return it.Name, true })
	var unavailable []string
	for _, e := range explained {
		if names[e.Flavor] && e.Unavailable != "" && wanted.Get(corev1.LabelTopologyZone).Has(e.Zone) {
			unavailable = append(unavailable, fmt.Sprintf("%s in %s: %s", e.Flavor, e.Zone, e.Unavailable))
		}
	}
	check.OK = available > 0
	check.Detail = fmt.Sprintf("%d offerings of these are available", available)
	const most = 8
	if len(unavailable) > 0 {
		check.Detail += fmt.Sprintf(", %d are not: %s", len(unavailable), strings.Join(unavailable[:min(most, len(unavailable))], "; "))
		if more := len(unavailable) - most; more > 0 {
			check.Detail += fmt.Sprintf("; and %d more", more)
		}
	}
	return check
}

// decide asks core what it would do for the pod alone.
func (p *Pod) decide(ctx context.Context, simulation *sim.Simulation, pod *corev1.Pod, limit string) error {
	pods := &corev1.PodList{}
	if err := simulation.Objects.List(ctx, pods); err != nil {
		return err
	}
	simulation.Objects.SetPods(lo.FilterMap(pods.Items, func(other corev1.Pod, _ int) (*corev1.Pod, bool) {
		return &other, other.Spec.NodeName != "" || other.UID == pod.UID
	}))
	if err := simulation.Observe(ctx); err != nil {
		return err
	}
	planned, err := simulation.Run(ctx)
	switch {
	case err != nil:
		p.Outcome = "the scheduler failed: " + err.Error()
	case len(planned.Unplaced) > 0:
		p.Outcome = "Karpenter cannot place it: " + planned.Unplaced[0].Reason
	case len(planned.Nodes) > 0:
		n := planned.Nodes[0]
		p.Outcome = fmt.Sprintf("Karpenter can launch a %s in %s for %s VND per hour (NodePool %s)", n.Flavor, n.Zone, output.VND(n.VNDPerHour), n.NodePool)
		if limit != "" {
			p.Outcome += ", unless a limit of the cluster holds the launch back: " + limit
		}
	case planned.OnExisting > 0:
		p.Outcome = "it fits on a node that exists or is being launched; kube-scheduler binds it when that node is ready"
	default:
		p.Outcome = "Karpenter does not look at it: kube-scheduler has not reported it as unschedulable"
	}
	return nil
}

// help says what would let the pod run.
func (p *Pod) help() {
	advice := map[string]string{
		"ready":    "make NodePool %s ready (kubectl describe nodepool %s)",
		"static":   "raise spec.replicas of NodePool %[1]s (kubectl edit nodepool %[1]s), or let the pod run on another NodePool",
		"limits":   "raise spec.limits of NodePool %s (kubectl edit nodepool %s), or let other pods of it end",
		"launches": "remove what holds launches of NodePool %[1]s back (kubectl describe providerconfig,bizflynodeclass)",
		"taints":   "add a toleration for the taints of NodePool %s to the pod (kubectl get nodepool %s -o jsonpath='{.spec.template.spec.taints}')",
		"flavors":  "relax the requirements of the pod or of NodePool %s: kubectl bizfly flavors --nodepool %s names what excludes each flavor",
		"zone": "move the pod's volume, or relax its zone; the BizflyNodeClass and the requirements of NodePool %s decide which zones there are " +
			"(kubectl bizfly flavors --nodepool %s)",
		"volumes":   "see why the pod's volume cannot be used, for NodePool %[1]s and every other (kubectl describe persistentvolumeclaim)",
		"size":      "request less in the pod, or allow larger flavors in NodePool %s: kubectl bizfly flavors --nodepool %s",
		"offerings": "wait for capacity, or allow more zones, categories or sizes in NodePool %s: kubectl bizfly flavors --nodepool %s",
	}
	for _, pool := range p.Pools {
		failed, ok := lo.Find(pool.Checks, func(c Check) bool { return !c.OK })
		if !ok {
			continue
		}
		format, known := advice[failed.Name]
		if !known {
			p.Help = append(p.Help, fmt.Sprintf("change the pod's %s, or let NodePool %s allow it", failed.Name, pool.Name))
			continue
		}
		p.Help = append(p.Help, fmt.Sprintf(format, pool.Name, pool.Name))
	}
	if len(p.Pools) == 0 {
		p.Help = append(p.Help, "create a NodePool and a BizflyNodeClass (config/samples)")
	}
}

// memoryOf is the memory that an instance type leaves for pods and DaemonSets.
func memoryOf(it *corecloudprovider.InstanceType) *resource.Quantity {
	allocatable := it.Allocatable()
	return allocatable.Memory()
}
