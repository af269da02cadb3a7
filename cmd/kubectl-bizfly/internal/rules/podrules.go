// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	ourevents "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// question is what is asked: whether a NodePool can run a pod.
type question struct {
	pod  *corev1.Pod
	pool *karpv1.NodePool
}

// zones are those that a pod may run in.
type zones struct {
	// causes are what limits them; nothing does where there is none.
	causes []string
	wants  *scheduling.Requirement
	// left are those of exist, the zones of the NodePool's flavors, that the pod may run in.
	left, exist []string
}

// fit is what of a NodePool's flavors is left for a pod.
type fit struct {
	wanted                   scheduling.Requirements
	all, compatible, fitting []*corecloudprovider.InstanceType
	requests                 corev1.ResourceList
	rootDisk                 string
	written                  map[string]string
	unavailable              []string
	available                int
}

var (
	// factAsked is the NodePool, of whatever provider.
	factAsked = newAsked("NodePool", func(_ context.Context, r *reading) (question, error) { return r.asked, nil })

	// factServed is the NodePool that a controller here serves.
	factServed = newAsked("NodePool of this provider", func(_ context.Context, r *reading) (question, error) {
		if of := foreign(r.asked.pool); of != "" {
			return question{}, nothingToCheckError(of)
		}
		return r.asked, nil
	})

	// factNodeClassOf is the NodePool's NodeClass as the controller has stored it; nil where there is none.
	factNodeClassOf = newAsked("BizflyNodeClass", func(ctx context.Context, r *reading) (*v1alpha1.BizflyNodeClass,
		error) {
		q, err := factServed.in(ctx, r)
		if err != nil {
			return nil, err
		}
		return optional(ctx, r, types.NamespacedName{Name: lo.FromPtr(q.pool.Spec.Template.Spec.NodeClassRef).Name},
			&v1alpha1.BizflyNodeClass{})
	})

	// factLimit is what the controller reports of a limit of the whole cluster that holds launches back; empty where none
	// does.
	factLimit = newFact("limits of the cluster", func(ctx context.Context, r *reading) (string, error) {
		config, err := factProviderConfig.in(ctx, r)
		return falseMessage(lo.FromPtr(config).Status.Conditions, v1alpha1.ConditionTypeWithinSpendingLimits), err
	})

	factTypes = newAsked("instance types", func(ctx context.Context, r *reading) ([]*corecloudprovider.InstanceType,
		error) {
		q, err := factServed.in(ctx, r)
		if err != nil {
			return nil, err
		}
		w, err := factWorld.in(ctx, r)
		if err != nil {
			return nil, err
		}
		all, err := w.simulation.Provider.GetInstanceTypes(ctx, q.pool)
		if err != nil {
			return nil, nothingToCheckError(err.Error())
		}
		return all, nil
	})

	factUsable = newAsked("flavors of the NodePool", func(ctx context.Context,
		r *reading) ([]*corecloudprovider.InstanceType, error) {
		q, err := factServed.in(ctx, r)
		if err != nil {
			return nil, err
		}
		w, err := factWorld.in(ctx, r)
		if err != nil {
			return nil, err
		}
		usable, _ := w.simulation.FlavorsOf(ctx, q.pool) // where it fails, the rule about flavors says so
		return usable, nil
	})

	factZones = newAsked("zones of the pod", readZones)

	factFit = newAsked("flavors for the pod", readFit)
)

func readZones(ctx context.Context, r *reading) (zones, error) {
	all, err := factTypes.in(ctx, r)
	if err != nil {
		return zones{}, err
	}
	w, err := factWorld.in(ctx, r)
	if err != nil {
		return zones{}, err
	}
	found := zones{wants: scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpExists)}
	if own := scheduling.NewStrictPodRequirements(r.asked.pod); own.Has(corev1.LabelTopologyZone) {
		found.wants, found.causes = found.wants.Intersection(own.Get(corev1.LabelTopologyZone)), append(found.causes,
			"its node selector and affinity")
	}
	alternatives, err := corescheduling.NewVolumeTopology(w.simulation.Objects).GetRequirements(ctx, r.asked.pod)
	if err != nil {
		return zones{}, &volumeError{err}
	}
	// Of alternatives, which only volumes with several terms have, the first is what the scheduler tries first.
	if volumes := lo.FirstOrEmpty(alternatives); volumes.Has(corev1.LabelTopologyZone) {
		found.wants, found.causes = found.wants.Intersection(volumes.Get(corev1.LabelTopologyZone)), append(found.causes,
			"its volumes")
	}
	found.exist = lo.Uniq(lo.FlatMap(all, func(it *corecloudprovider.InstanceType, _ int) []string {
		return lo.Map(it.Offerings, func(o *corecloudprovider.Offering, _ int) string { return o.Zone() })
	}))
	slices.Sort(found.exist)
	found.left = lo.Filter(found.exist, func(zone string, _ int) bool { return found.wants.Has(zone) })
	return found, nil
}

// volumeError says why a volume of the pod cannot be used.
type volumeError struct{ error }

func readFit(ctx context.Context, r *reading) (fit, error) {
	in, err := factZones.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	if len(in.left) == 0 && len(in.causes) > 0 {
		return fit{}, nothingToCheckError("there is no zone for the pod")
	}
	all, err := factTypes.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	w, err := factWorld.in(ctx, r)
	if err != nil {
		return fit{}, err
	}
	f := fit{wanted: requirementsOf(r.asked.pool), all: all, requests: resources.RequestsForPods(r.asked.pod),
		written: written(r.asked)}
	f.wanted.Add(podRequirements(r.asked.pod)...)
	if len(in.causes) > 0 {
		f.wanted.Add(in.wants)
	}
	f.compatible = compatibleWith(all, f.wanted)
	f.fitting = lo.Filter(f.compatible, func(it *corecloudprovider.InstanceType, _ int) bool {
		return resources.Fits(f.requests, it.Allocatable())
	})
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := w.simulation.Objects.Get(ctx, types.NamespacedName{Name: r.asked.pool.Spec.Template.Spec.NodeClassRef.Name},
		nodeClass); err != nil {
		return f, err
	}
	f.rootDisk = v1alpha1.DefaultRootDiskSize
	if size := lo.FromPtr(nodeClass.Spec.RootDisk).Size; size != nil {
		f.rootDisk = size.String()
	}
	explained, err := w.simulation.Flavors.Explain(nodeClass)
	if err != nil {
		return f, err
	}
	fitting := lo.KeyBy(f.fitting, func(it *corecloudprovider.InstanceType) string { return it.Name })
	for _, e := range explained {
		if fitting[e.Flavor] != nil && e.Unavailable != "" && f.wanted.Get(corev1.LabelTopologyZone).Has(e.Zone) {
			f.unavailable = append(f.unavailable, fmt.Sprintf("%s in %s: %s", e.Flavor, e.Zone, e.Unavailable))
		}
	}
	for _, it := range f.fitting {
		f.available += len(it.Offerings.Compatible(f.wanted).Available())
	}
	return f, nil
}

func compatibleWith(all []*corecloudprovider.InstanceType,
	wanted scheduling.Requirements) []*corecloudprovider.InstanceType {
	return lo.Filter(all, func(it *corecloudprovider.InstanceType, _ int) bool {
		return wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			it.Offerings.HasCompatible(wanted)
	})
}

// yes is what a rule that holds lets why say; no is what is in the way.
func yes(detail string) outcome { return positive(Known{Value: detail}) }

func no(format string, args ...any) outcome {
	return found(Finding{What: fmt.Sprintf(format, args...)})
}

// podRules decide whether a NodePool can run a pod, in the order in which they are shown.
var podRules = []rule{
	{code: "PoolForeign", about: "provider", given: given1(factAsked, func(q question) outcome {
		if of := foreign(q.pool); of != "" {
			return no("%s", of)
		}
		return positive()
	})},
	{code: "PoolNotReady", about: "ready", given: given1(factServed, func(q question) outcome {
		root := q.pool.StatusConditions().Root()
		if root.IsTrue() {
			return yes("it is ready")
		}
		why, _ := lo.Find(q.pool.Status.Conditions, func(c status.Condition) bool { return c.Type != "Ready" && c.IsFalse() })
		return no("it is not ready: %s", lo.CoalesceOrEmpty(why.Message, root.Message, "its conditions are not known yet"))
	})},
	{code: "PoolStatic", about: "static", given: given1(factServed, func(q question) outcome {
		if q.pool.Spec.Replicas == nil {
			return positive()
		}
		return no("it is static: Karpenter launches the %d nodes of its spec.replicas, and none for a pod",
			*q.pool.Spec.Replicas)
	})},
	{code: "PoolLimitUsedUp", about: "limits", given: given1(factServed, func(q question) outcome {
		if err := sim.LimitReached(q.pool, nil); err != nil {
			return no("%s", err)
		}
		return positive()
	})},
	{code: "PoolLimitLeavesNothing", about: "limits", given: given2(factServed, factUsable, func(q question,
		usable []*corecloudprovider.InstanceType) outcome {
		switch err := sim.LimitReached(q.pool, usable); {
		case sim.LimitReached(q.pool, nil) != nil:
			return inapplicable("they are used up")
		case err != nil:
			return no("%s", err)
		}
		return yes("its limits leave room")
	})},
	{code: "PoolTaintNotTolerated", about: "taints", given: given1(factServed, func(q question) outcome {
		if err := scheduling.Taints(q.pool.Spec.Template.Spec.Taints).ToleratesPod(q.pod); err != nil {
			return no("%s", err)
		}
		return yes("the pod tolerates its taints")
	})},
	{code: "PodRequirementConflicts", about: "requirement", given: given1(factServed, conflicts)},
	{code: "LaunchesHeldBack", about: "launches", given: given3(factProviderConfig, factNodeClassOf, factLimit, heldBack)},
	{code: "AccountRejects", about: "launches", given: given3(factEvents, factSetup, factTime, accountRejects)},
	{code: "AccountIsUnpaid", about: "launches", given: given1(factAccount, func(account bizfly.Account) outcome {
		if account.Unpaid != "" {
			return no("%s", account.Unpaid)
		}
		return yes("nothing holds them back")
	})},
	{code: "PodVolumeUnusable", about: "volumes", given: given1(factVolumeError, func(err error) outcome {
		if err != nil {
			return no("%s", err)
		}
		return positive()
	})},
	{code: "PodZoneMissing", about: "zone", given: given1(factZones, func(z zones) outcome {
		causes := strings.Join(z.causes, " and ")
		switch {
		case causes == "":
			return positive()
		case len(z.left) == 0:
			return no("%s let it run in no zone of the NodePool's flavors (%s)", causes, strings.Join(z.exist, ", "))
		}
		return yes(fmt.Sprintf("%s let it run in %s", causes, strings.Join(z.left, ", ")))
	})},
	{code: "NoFlavorSatisfies", about: "flavors", given: given1(factFit, func(f fit) outcome {
		text := fmt.Sprintf("%d of %d flavors satisfy the requirements of pod and NodePool", len(f.compatible), len(f.all))
		if len(f.compatible) > 0 {
			return yes(text)
		}
		return no("%s: %s", text, blockedBy(f))
	})},
	{code: "MinValuesNotMet", about: "minValues", given: given1(factFit, func(f fit) outcome {
		_, unsatisfied, err := corecloudprovider.InstanceTypes(f.fitting).SatisfiesMinValues(f.wanted)
		switch {
		case len(f.fitting) == 0:
			return inapplicable("there is no flavor for the pod")
		case err != nil:
			return no("%s", strings.Join(lo.Map(sortedKeys(unsatisfied), func(key string, _ int) string {
				return fmt.Sprintf("the flavors that are large enough have %d values of %s, and minValues wants %d",
					unsatisfied[key], key,
					lo.FromPtr(f.wanted.Get(key).MinValues()))
			}), "; "))
		case f.wanted.HasMinValues():
			return yes("the flavors that are large enough have enough values")
		}
		return positive()
	})},
	{code: "PodTooLarge", about: "size", given: given1(factFit, func(f fit) outcome {
		if len(f.compatible) == 0 {
			return inapplicable("no flavor satisfies the requirements")
		}
		largest := largestOf(f.compatible)
		text := fmt.Sprintf("%d of these are large enough for %s (the largest, %s, leaves %s for pods and DaemonSets)",
			len(f.fitting), sizeOf(f.requests, f.requests),
			largest.Name, sizeOf(largest.Allocatable(), f.requests))
		if len(f.fitting) > 0 {
			return yes(text)
		}
		return no("%s%s", text, tooLittle(f))
	})},
	{code: "PoolLimitTooSmall", about: "limits", given: given3(factServed, factUsable, factFit, func(q question,
		usable []*corecloudprovider.InstanceType, f fit) outcome {
		if len(f.fitting) == 0 || sim.LimitReached(q.pool, usable) != nil {
			return inapplicable("there is no flavor for the pod")
		}
		// Flavors that are too small for the pod may fit into what the limits leave.
		if err := sim.LimitReached(q.pool, f.fitting); err != nil {
			return no("of the flavors that are large enough, %s", err)
		}
		return positive()
	})},
	{code: "OfferingsUnavailable", about: "offerings", given: given1(factFit, func(f fit) outcome {
		if len(f.fitting) == 0 {
			return inapplicable("there is no flavor for the pod")
		}
		const most = 8
		text := fmt.Sprintf("%d offerings of these are available", f.available)
		if len(f.unavailable) > 0 {
			text += fmt.Sprintf(", %d are not: %s", len(f.unavailable), strings.Join(f.unavailable[:min(most,
				len(f.unavailable))], "; "))
		}
		if more := len(f.unavailable) - most; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		if f.available == 0 {
			return no("%s", text)
		}
		return yes(text)
	})},
}

// factVolumeError is why a volume of the pod cannot be used; nil where all can.
var factVolumeError = newAsked("volumes of the pod", func(ctx context.Context, r *reading) (error, error) {
	_, err := factZones.in(ctx, r)
	if of, ok := err.(*volumeError); ok { //nolint:errorlint // it is never wrapped
		return of.error, nil
	}
	return nil, err
})

// conflicts are the requirements of the pod that the NodePool contradicts.
func conflicts(q question) outcome {
	var result outcome
	has := requirementsOf(q.pool)
	for _, requirement := range podRequirements(q.pod) {
		name := "requirement " + requirement.Key
		if has.Compatible(scheduling.NewRequirements(requirement), scheduling.AllowUndefinedWellKnownLabels) == nil {
			result.known = append(result.known, Known{Name: name, Value: requirement.String()})
			continue
		}
		result.state = fails
		result.findings = append(result.findings, Finding{name: name,
			What: fmt.Sprintf("the pod requires %s, the NodePool %s", requirement,
				lo.TernaryF(has.Has(requirement.Key), func() string { return "has " + has.Get(requirement.Key).String() },
					func() string { return "does not define this label" }))})
	}
	return result
}

// heldBack is what the controller has stored that keeps it from launching.
func heldBack(config *v1alpha1.ProviderConfig, nodeClass *v1alpha1.BizflyNodeClass, limit string) outcome {
	stored := lo.FromPtr(config).Status.Conditions
	for _, condition := range []string{v1alpha1.ConditionTypeCredentialsReady, v1alpha1.ConditionTypeEndpointReachable,
		v1alpha1.ConditionTypeScopePinned,
		v1alpha1.ConditionTypeControlPlaneRecognized, v1alpha1.ConditionTypeAccountAccepted} {
		if message := falseMessage(stored, condition); message != "" {
			return no("the ProviderConfig's %s is False: %s", condition, message)
		}
	}
	if paused := falseMessage(lo.FromPtr(nodeClass).Status.Conditions,
		v1alpha1.ConditionTypeLaunchesSucceeding); paused != "" {
		return no("%s", paused)
	}
	if limit != "" {
		return no("%s", limit)
	}
	return positive()
}

// accountRejects is the event that says that all launches pause, as long as its pause lasts.
func accountRejects(all []corev1.Event, s setup, now time.Time) outcome {
	last := lo.MaxBy(lo.Filter(all, func(e corev1.Event, _ int) bool { return e.Reason == ourevents.ReasonAccountLimit }),
		func(a, b corev1.Event) bool { return lastSeen(&a).After(lastSeen(&b)) })
	if last.Message == "" || now.Sub(lastSeen(&last)) > s.Settings.AccountPause {
		return positive()
	}
	return no("%s", last.Message)
}

// falseMessage returns the message of a condition that is False, and nothing of any other.
func falseMessage(conditions []status.Condition, conditionType string) string {
	found, _ := lo.Find(conditions, func(c status.Condition) bool { return c.Type == conditionType && c.IsFalse() })
	return found.Message
}

// written are the requirements of pods and NodePools by key, as users have written them: core has one for each key,
// with other operators.
func written(q question) map[string]string {
	texts := map[string][]string{}
	add := func(key string, operator corev1.NodeSelectorOperator, values []string) {
		const most = 5
		if more := len(values) - most; more > 0 {
			values = append(slices.Clone(values[:most]), fmt.Sprintf("and %d others", more))
		}
		texts[key] = append(texts[key], strings.TrimSuffix(fmt.Sprintf("%s %v", operator, values), " []"))
	}
	for _, r := range q.pool.Spec.Template.Spec.Requirements {
		add(r.Key, r.Operator, r.Values)
	}
	for key, value := range q.pool.Spec.Template.Labels {
		add(key, corev1.NodeSelectorOpIn, []string{value})
	}
	for key, value := range q.pod.Spec.NodeSelector {
		add(key, corev1.NodeSelectorOpIn, []string{value})
	}
	if affinity := q.pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		// Of alternatives the scheduler tries the first one first.
		terms := lo.FromPtr(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution).NodeSelectorTerms
		for _, r := range lo.FirstOrEmpty(terms).MatchExpressions {
			add(r.Key, r.Operator, r.Values)
		}
	}
	return lo.MapValues(texts, func(of []string, key string) string { return key + " " + strings.Join(of, " and ") })
}

// blockers are the requirements without which some flavor would be left, by key.
func blockers(f fit) []string {
	var keys []string
	for _, requirement := range f.wanted.Values() {
		others := scheduling.NewRequirements(lo.Reject(f.wanted.Values(), func(r *scheduling.Requirement,
			_ int) bool {
			return r.Key == requirement.Key
		})...)
		if len(compatibleWith(f.all, others)) > 0 {
			keys = append(keys, requirement.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// blockedBy names the requirements that leave no flavor.
func blockedBy(f fit) string {
	keys := blockers(f)
	if len(keys) == 0 {
		// Several requirements leave none each on their own.
		for _, requirement := range f.wanted.Values() {
			if requirement.Key != karpv1.NodePoolLabelKey && len(compatibleWith(f.all,
				scheduling.NewRequirements(requirement))) == 0 {
				keys = append(keys, requirement.Key)
			}
		}
		slices.Sort(keys)
	}
	if len(keys) == 0 {
		return "together they leave none"
	}
	return strings.Join(lo.Map(keys, func(key string, _ int) string {
		return "none has " + lo.CoalesceOrEmpty(f.written[key], f.wanted.Get(key).String())
	}), ", ")
}

func largestOf(of []*corecloudprovider.InstanceType) *corecloudprovider.InstanceType {
	return lo.MaxBy(of, func(a, b *corecloudprovider.InstanceType) bool { return memoryOf(a).Cmp(*memoryOf(b)) > 0 })
}

// tooLittle names the resources of which no flavor has enough, where it is another one than CPU and memory.
func tooLittle(f fit) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.requests)) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourcePods {
			continue
		}
		wanted, most := f.requests[name], resource.Quantity{}
		for _, it := range f.compatible {
			if has := it.Allocatable()[name]; has.Cmp(most) > 0 {
				most = has
			}
		}
		switch {
		case wanted.Cmp(most) <= 0:
		case most.IsZero():
			_, _ = fmt.Fprintf(&text, "; no flavor has %s", name)
		case name == corev1.ResourceEphemeralStorage:
			_, _ = fmt.Fprintf(&text, "; its ephemeral-storage of %s is more than the %s that a root disk of %s leaves "+
				"(spec.rootDisk.size of the BizflyNodeClass)",
				wanted.String(), gib(most), f.rootDisk)
		default:
			_, _ = fmt.Fprintf(&text, "; no flavor has more than %s of %s", most.String(), name)
		}
	}
	return text.String()
}

// gib writes a size in GiB.
func gib(q resource.Quantity) string { return fmt.Sprintf("%.1fGi", float64(q.Value())/(1<<30)) }

// sizeOf writes CPU, memory and, of everything else, what is requested.
func sizeOf(list, requested corev1.ResourceList) string {
	text := fmt.Sprintf("%dm CPU, %d MiB", list.Cpu().MilliValue(), list.Memory().Value()>>20)
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		quantity := list[name]
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods:
		case corev1.ResourceEphemeralStorage:
			text += fmt.Sprintf(", %s %s", gib(quantity), name)
		default:
			text += fmt.Sprintf(", %s %s", quantity.String(), name)
		}
	}
	return text
}
