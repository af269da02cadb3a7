// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// yes is what a rule that holds lets why say.
func yes(detail string) outcome { return positive(Known{Value: detail}) }

// podRules decide whether a NodePool can run a pod, in the order in which they are shown.
var podRules = append(slices.Clone(nodePoolRules), []rule{
	{code: "PoolStatic", about: "static", remedies: []remedy{raiseReplicas},
		given: given1(factServed, func(q question) outcome {
			return failsIf(q.pool.Spec.Replicas != nil, "it is static: Karpenter launches the %d nodes of its spec.replicas, "+
				"and none for a pod", lo.FromPtr(q.pool.Spec.Replicas))
		})},
	{code: "PoolTaintNotTolerated", about: "taints", remedies: []remedy{tolerateTaints},
		given: given1(factServed, func(q question) outcome {
			if err := scheduling.Taints(q.pool.Spec.Template.Spec.Taints).ToleratesPod(q.pod); err != nil {
				return no("%s", err)
			}
			return yes("the pod tolerates its taints")
		})},
	{code: "PodRequirementConflicts", about: "requirement", given: given1(factServed, conflicts)},
	{code: "LaunchesHeldBack", about: "launches", remedies: []remedy{freeLaunches},
		given: given2(factProviderConfig, factNodeClassOf, heldBack)},
	{code: "AccountUnpaid", about: "launches", remedies: []remedy{freeLaunches},
		given: given1(factAccount, func(account bizfly.Account) outcome {
			if account.Unpaid != "" {
				return no("%s", account.Unpaid)
			}
			return yes("nothing holds them back")
		})},
	{code: "PodVolumeUnusable", about: "volumes", given: given1(factZones, func(z zones) outcome {
		return failsIf(z.unusable != nil, "%s", z.unusable)
	})},
	{code: "PodZoneMissing", about: "zone", remedies: []remedy{relaxZone}, given: given1(factZones, func(z zones) outcome {
		causes := strings.Join(z.causes, " and ")
		switch {
		case causes == "":
			return positive()
		case len(z.left) == 0:
			return no("%s let it run in no zone of the NodePool's flavors (%s)", causes, strings.Join(z.exist, ", "))
		}
		return yes(fmt.Sprintf("%s let it run in %s", causes, strings.Join(z.left, ", ")))
	})},
	noFlavorSatisfies,
	{code: "MinValuesNotMet", about: "minValues", remedies: []remedy{lowerMinValues},
		given: given1(factFit, func(f fit) outcome {
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
		what, remedies := tooLittle(f)
		return found(Finding{What: text + what, remedies: remedies})
	})},
	{code: "PoolLimitTooSmall", about: "limits", remedies: []remedy{raiseLimits},
		given: given3(factServed, factUsable, factFit, func(q question, usable []*corecloudprovider.InstanceType,
			f fit) outcome {
			if len(f.fitting) == 0 || limitReached(q, usable) != nil {
				return inapplicable("there is no flavor for the pod")
			}
			// Flavors that are too small for the pod may fit into what the limits leave.
			err := limitReached(q, f.fitting)
			return failsIf(err != nil, "of the flavors that are large enough, %s", err)
		})},
	offeringsUnavailable,
}...)

var noFlavorSatisfies = rule{code: "NoFlavorSatisfies", about: "flavors", severity: Error,
	why: "no node is launched for it", fix: "kubectl bizfly flavors --nodepool NAME",
	given: given1(factFit, func(f fit) outcome {
		text := fmt.Sprintf("%d of %d flavors satisfy the requirements of pod and NodePool", len(f.compatible), len(f.all))
		if len(f.compatible) > 0 {
			return yes(text)
		}
		requirements, keys := blockedBy(f)
		return found(Finding{What: text + ": " + requirements, remedies: lo.Map(keys, func(key string, _ int) remedy {
			return relaxRequirement(key)
		})})
	})}

var offeringsUnavailable = rule{code: "OfferingsUnavailable", about: "offerings", severity: Warning,
	why: "its pods stay pending until one is available again", fix: "kubectl bizfly flavors --nodepool NAME",
	remedies: []remedy{awaitCapacity}, given: given1(factFit, func(f fit) outcome {
		if len(f.fitting) == 0 {
			return inapplicable("there is no flavor for the pod")
		}
		text := fmt.Sprintf("%d offerings of flavors that are large enough are available", f.available)
		if len(f.unavailable) > 0 {
			text += fmt.Sprintf(", %d are not: %s", len(f.unavailable), list(f.unavailable))
		}
		if f.available == 0 {
			return no("%s", text)
		}
		return yes(text)
	})}

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
			remedies: []remedy{changeRequirement(requirement.Key)},
			What: fmt.Sprintf("the pod requires %s, the NodePool %s", requirement,
				lo.TernaryF(has.Has(requirement.Key), func() string { return "has " + has.Get(requirement.Key).String() },
					func() string { return "does not define this label" }))})
	}
	return result
}

// heldBack is what the controller has stored that keeps it from launching.
func heldBack(config *v1alpha1.ProviderConfig, nodeClass *v1alpha1.BizflyNodeClass) outcome {
	stored := lo.FromPtr(config).Status.Conditions
	for _, condition := range []string{v1alpha1.ConditionTypeCredentialsReady, v1alpha1.ConditionTypeEndpointReachable,
		v1alpha1.ConditionTypeScopePinned, v1alpha1.ConditionTypeControlPlaneRecognized,
		v1alpha1.ConditionTypeAccountAccepted, v1alpha1.ConditionTypeWithinSpendingLimits} {
		if message := falseMessage(stored, condition); message != "" {
			return no("the ProviderConfig's %s is False: %s", condition, message)
		}
	}
	paused := falseMessage(lo.FromPtr(nodeClass).Status.Conditions, v1alpha1.ConditionTypeLaunchesSucceeding)
	return failsIf(paused != "", "%s", paused)
}

// falseMessage returns the message of a condition that is False, and nothing of any other.
func falseMessage(conditions []status.Condition, conditionType string) string {
	found, _ := lo.Find(conditions, func(c status.Condition) bool { return c.Type == conditionType && c.IsFalse() })
	return found.Message
}

// blockedBy names the requirement after which no flavor is left, and those before it without which it would leave some.
func blockedBy(f fit) (text string, keys []string) {
	var before []string
	most := len(f.all)
	for _, of := range f.filters {
		if len(of.left) == most {
			continue
		}
		keys = append(keys, of.requirement.Key)
		if len(of.left) == 0 {
			satisfiable := len(compatibleWith(f.all, scheduling.NewRequirements(of.requirement))) > 0
			with := lo.Ternary(satisfiable && len(before) > 0, " with "+strings.Join(before, " and "), "")
			return "none" + with + " has " + of.text, keys
		}
		before, most = append(before, of.text), len(of.left)
	}
	return "together they leave none", nil
}

func largestOf(of []*corecloudprovider.InstanceType) *corecloudprovider.InstanceType {
	return lo.MaxBy(of, func(a, b *corecloudprovider.InstanceType) bool { return memoryOf(a).Cmp(*memoryOf(b)) > 0 })
}

// tooLittle names the resources of which no flavor has enough, where it is another one than CPU and memory, and what
// may help.
func tooLittle(f fit) (text string, remedies []remedy) {
	remedies = []remedy{allowLarger, requestLess}
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
			return fmt.Sprintf("; no flavor has %s", name), []remedy{}
		case name == corev1.ResourceEphemeralStorage:
			text += fmt.Sprintf("; its ephemeral-storage of %s is more than the %s that a root disk of %s leaves "+
				"(spec.rootDisk.size of the BizflyNodeClass)", wanted.String(), gib(most), f.rootDisk)
			remedies = []remedy{enlargeDisk(wanted, 125), enlargeDisk(wanted, 150)}
		default:
			text += fmt.Sprintf("; no flavor has more than %s of %s", most.String(), name)
		}
	}
	return text, remedies
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
