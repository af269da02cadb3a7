// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// admission is what an API server does with new pods, in its order: LimitRanges, PriorityClasses, RuntimeClasses, ResourceQuotas.
type admission struct {
	limits     map[string][]*corev1.LimitRange
	quotas     map[string][]*corev1.ResourceQuota
	priorities map[string]*schedulingv1.PriorityClass
	runtimes   map[string]*nodev1.RuntimeClass
	// used is what pods use of each quota, by the quota's namespace and name.
	used map[client.ObjectKey]corev1.ResourceList
	note func(text, name string)
}

func newAdmission(objects memory.Objects, note func(text, name string)) *admission {
	a := &admission{note: note, used: map[client.ObjectKey]corev1.ResourceList{},
		limits:     lo.GroupBy(memory.Of[*corev1.LimitRange](objects), func(l *corev1.LimitRange) string { return l.Namespace }),
		quotas:     lo.GroupBy(memory.Of[*corev1.ResourceQuota](objects), func(q *corev1.ResourceQuota) string { return q.Namespace }),
		priorities: lo.KeyBy(memory.Of[*schedulingv1.PriorityClass](objects), func(p *schedulingv1.PriorityClass) string { return p.Name }),
		runtimes:   lo.KeyBy(memory.Of[*nodev1.RuntimeClass](objects), func(r *nodev1.RuntimeClass) string { return r.Name }),
	}
	for _, quota := range memory.Of[*corev1.ResourceQuota](objects) {
		if others := lo.Reject(slices.Sorted(maps.Keys(toStrings(quota.Spec.Hard))), func(name string, _ int) bool { return isOfPods(name) }); len(others) > 0 {
			note("of ResourceQuotas only what they say of pods is applied: compare the rest yourself (%s)",
				fmt.Sprintf("%s/%s: %s", quota.Namespace, quota.Name, strings.Join(others, ", ")))
		}
	}
	return a
}

func toStrings(list corev1.ResourceList) map[string]bool {
	return lo.MapKeys(lo.MapValues(list, func(resource.Quantity, corev1.ResourceName) bool { return true }),
		func(_ bool, name corev1.ResourceName) string { return string(name) })
}

// isOfPods reports whether a resource of a quota is one that pods use.
func isOfPods(name string) bool {
	return slices.Contains([]string{"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}, name) || strings.HasPrefix(name, "limits.") ||
		strings.HasPrefix(name, "requests.") && name != "requests.storage" || strings.HasPrefix(name, "hugepages-")
}

// mutate gives a pod what admission gives it, and returns why it rejects the pod otherwise.
func (a *admission) mutate(owner, namespace string, spec *corev1.PodSpec) (rejected string) {
	for _, limits := range a.limits[namespace] {
		for i := range limits.Spec.Limits {
			applyLimits(withDefaults(limits.Spec.Limits[i]), spec)
		}
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		if requested := container.Resources.Requests.Memory(); requested.Sign() > 0 && requested.Value() < 1<<20 {
			a.note("containers request less than 1 MiB of memory (%s): without a unit it is bytes, and m is a thousandth; write Mi or Gi",
				container.Name+" of "+owner)
		}
	}
	a.prioritize(owner, spec)
	return a.sandbox(owner, spec)
}

// withDefaults completes the defaults for containers as an API server does.
func withDefaults(item corev1.LimitRangeItem) corev1.LimitRangeItem {
	if item.Type == corev1.LimitTypeContainer {
		item.Default = lo.Assign(item.Max, item.Default)
		item.DefaultRequest = lo.Assign(item.Min, item.Default, item.DefaultRequest)
	}
	return item
}

func applyLimits(item corev1.LimitRangeItem, spec *corev1.PodSpec) {
	if item.Type != corev1.LimitTypeContainer {
		return
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Limits, r.Requests = lo.Assign(item.Default, r.Limits), lo.Assign(item.DefaultRequest, r.Requests)
		}
	}
}

func (a *admission) prioritize(owner string, spec *corev1.PodSpec) {
	name := spec.PriorityClassName
	class, known := a.priorities[name]
	switch {
	case name == "":
		for _, other := range a.priorities {
			if other.GlobalDefault && (class == nil || other.Value < class.Value) {
				class = other
			}
		}
	case !known && !strings.HasPrefix(name, "system-"):
		a.note("PriorityClasses are not in the files (%s), without which an API server rejects pods: they are planned as if there were; add them",
			name+" of "+owner)
	}
	if class != nil {
		spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = class.Name, &class.Value, class.PreemptionPolicy
	}
}

func (a *admission) sandbox(owner string, spec *corev1.PodSpec) (rejected string) {
	name := lo.FromPtr(spec.RuntimeClassName)
	if name == "" {
		return ""
	}
	class, known := a.runtimes[name]
	if !known {
		a.note("RuntimeClasses are not in the files (%s), without which an API server rejects pods: they are planned without overhead; add them",
			name+" of "+owner)
		return ""
	}
	if class.Overhead != nil {
		spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return ""
	}
	for key, value := range class.Scheduling.NodeSelector {
		if own, given := spec.NodeSelector[key]; given && own != value {
			return fmt.Sprintf("its nodeSelector %s=%s contradicts RuntimeClass %s, which has %s; change one of them", key, own, name, value)
		}
	}
	spec.NodeSelector = lo.Assign(spec.NodeSelector, class.Scheduling.NodeSelector)
	spec.Tolerations = lo.UniqBy(append(slices.Clone(spec.Tolerations), class.Scheduling.Tolerations...), func(t corev1.Toleration) string { return t.String() })
	return ""
}

// mergeLabelKeys writes what matchLabelKeys and mismatchLabelKeys of a pod's affinity select into the selectors.
func mergeLabelKeys(pod *corev1.Pod) {
	affinity := lo.FromPtr(pod.Spec.Affinity)
	with, apart := lo.FromPtr(affinity.PodAffinity), lo.FromPtr(affinity.PodAntiAffinity)
	merge := func(term *corev1.PodAffinityTerm) {
		add := func(operator metav1.LabelSelectorOperator, keys []string) {
			for _, key := range keys {
				if value, has := pod.Labels[key]; has && term.LabelSelector != nil {
					term.LabelSelector.MatchExpressions = append(term.LabelSelector.MatchExpressions,
						metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
				}
			}
		}
		add(metav1.LabelSelectorOpIn, term.MatchLabelKeys)
		add(metav1.LabelSelectorOpNotIn, term.MismatchLabelKeys)
	}
	for _, required := range [][]corev1.PodAffinityTerm{with.RequiredDuringSchedulingIgnoredDuringExecution,
		apart.RequiredDuringSchedulingIgnoredDuringExecution} {
		for i := range required {
			merge(&required[i])
		}
	}
	for _, preferred := range [][]corev1.WeightedPodAffinityTerm{with.PreferredDuringSchedulingIgnoredDuringExecution,
		apart.PreferredDuringSchedulingIgnoredDuringExecution} {
		for i := range preferred {
			merge(&preferred[i].PodAffinityTerm)
		}
	}
}

// overLimit returns why an API server rejects what a container requests: more than its limit or, of resources that cannot be shared, another amount.
func overLimit(container *corev1.Container) string {
	for _, name := range slices.Sorted(maps.Keys(container.Resources.Requests)) {
		request := container.Resources.Requests[name]
		limit, limited := container.Resources.Limits[name]
		whole := strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
			strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
		if request.Sign() < 0 || limited && request.Cmp(limit) > 0 || whole && request.Cmp(limit) != 0 {
			return fmt.Sprintf("container %s requests %s %s, and its limit is %s; change one of them", container.Name, request.String(), name, limit.String())
		}
	}
	return ""
}

// limit returns why a LimitRange, or a limit of its own, rejects a pod.
func (a *admission) limit(namespace string, spec *corev1.PodSpec) (rejected string) {
	for _, limits := range a.limits[namespace] {
		for _, item := range limits.Spec.Limits {
			if why := exceeded(item, &corev1.Pod{Spec: *spec}); why != "" {
				return fmt.Sprintf("LimitRange %s/%s allows %s; change it, or their resources", limits.Namespace, limits.Name, why)
			}
		}
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		if why := overLimit(&container); why != "" {
			return why
		}
	}
	return ""
}

// count returns why a ResourceQuota rejects a pod, and counts it otherwise.
func (a *admission) count(pod *corev1.Pod) (rejected string) {
	usage, total := usageOf(pod), map[client.ObjectKey]corev1.ResourceList{}
	for _, quota := range a.quotas[pod.Namespace] {
		key := client.ObjectKeyFromObject(quota)
		if !a.concerns(quota, pod) {
			continue
		}
		total[key] = maps.Clone(a.used[key])
		if total[key] == nil {
			total[key] = corev1.ResourceList{}
		}
		for name, hard := range quota.Spec.Hard {
			more, given := usage[name]
			sum := total[key][name].DeepCopy()
			sum.Add(more)
			total[key][name] = sum
			switch {
			case !given && slices.Contains([]corev1.ResourceName{"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}, name):
				return fmt.Sprintf("ResourceQuota %s needs %s of each container; write it", key, name)
			case given && !more.IsZero() && sum.Cmp(hard) > 0:
				return fmt.Sprintf("ResourceQuota %s allows %s %s, and with each of them it would be %s; raise it, or request less", key, hard.String(), name,
					sum.String())
			}
		}
	}
	maps.Copy(a.used, total)
	return ""
}

// bounded is what a LimitRange bounds of a pod: each container's resources, or those of all together.
func bounded(item corev1.LimitRangeItem, pod *corev1.Pod) (all []corev1.ResourceRequirements) {
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			all = append(all, container.Resources)
		}
	case corev1.LimitTypePod:
		without := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		all = append(all, corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, without), Limits: resourcehelper.PodLimits(pod, without)})
	}
	return all
}

// exceeded says which bound of a LimitRange a pod exceeds.
func exceeded(item corev1.LimitRangeItem, pod *corev1.Pod) string {
	for _, r := range bounded(item, pod) {
		for name, least := range item.Min {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Cmp(least) < 0 || !limit.IsZero() && limit.Cmp(least) < 0 {
				return fmt.Sprintf("at least %s %s for a %s", least.String(), name, strings.ToLower(string(item.Type)))
			}
		}
		for name, most := range item.Max {
			request, limit := r.Requests[name], r.Limits[name]
			if limit.IsZero() || limit.Cmp(most) > 0 || request.Cmp(most) > 0 {
				return fmt.Sprintf("at most %s %s for a %s", most.String(), name, strings.ToLower(string(item.Type)))
			}
		}
		for name, most := range item.MaxLimitRequestRatio {
			request, limit := r.Requests[name], r.Limits[name]
			if request.IsZero() || limit.AsApproximateFloat64()/request.AsApproximateFloat64() > most.AsApproximateFloat64() || limit.IsZero() {
				return fmt.Sprintf("limits of at most %s times the requests of %s", most.String(), name)
			}
		}
	}
	return ""
}

// usageOf is what a pod uses of quotas.
func usageOf(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{"pods": resource.MustParse("1"), "count/pods": resource.MustParse("1")}
	of := func(list func(corev1.ResourceRequirements) corev1.ResourceList, name corev1.ResourceName) bool {
		return pod.Spec.Resources != nil && lo.HasKey(list(*pod.Spec.Resources), name) || lo.EveryBy(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers),
			func(c corev1.Container) bool { return lo.HasKey(list(c.Resources), name) })
	}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if of(func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }, name) || !slices.Contains(computed, name) {
			usage[name], usage["requests."+name] = quantity, quantity
		}
	}
	for name, quantity := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if of(func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }, name) || !slices.Contains(computed, name) {
			usage["limits."+name] = quantity
		}
	}
	return usage
}

// computed are the resources that a quota wants each container to name.
var computed = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// concerns reports whether a pod is in all scopes of a quota.
func (a *admission) concerns(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	selectors := lo.Map(quota.Spec.Scopes, func(scope corev1.ResourceQuotaScope, _ int) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}
	})
	if quota.Spec.ScopeSelector != nil {
		selectors = append(selectors, quota.Spec.ScopeSelector.MatchExpressions...)
	}
	return lo.EveryBy(selectors, func(s corev1.ScopedResourceSelectorRequirement) bool {
		effort := lo.SomeBy(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return len(c.Resources.Requests)+len(c.Resources.Limits) > 0
		})
		class := pod.Spec.PriorityClassName
		switch s.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort:
			return !effort
		case corev1.ResourceQuotaScopeNotBestEffort:
			return effort
		case corev1.ResourceQuotaScopeTerminating:
			return pod.Spec.ActiveDeadlineSeconds != nil
		case corev1.ResourceQuotaScopeNotTerminating:
			return pod.Spec.ActiveDeadlineSeconds == nil
		case corev1.ResourceQuotaScopePriorityClass:
			switch s.Operator {
			case corev1.ScopeSelectorOpIn:
				return slices.Contains(s.Values, class)
			case corev1.ScopeSelectorOpNotIn:
				return !slices.Contains(s.Values, class)
			case corev1.ScopeSelectorOpDoesNotExist:
				return class == ""
			default:
				return class != ""
			}
		}
		a.note("ResourceQuotas are not applied, since their scopes are not known here (%s)",
			fmt.Sprintf("%s of %s/%s", s.ScopeName, quota.Namespace, quota.Name))
		return false
	})
}

// admit does with the pods and DaemonSets of the set what the API server would do, by the rules of the set and of the cluster, and leaves out
// what it would reject.
func (s *Set) admit(cluster memory.Objects) {
	a := newAdmission(cluster.With(s.Objects...), s.noteOf)
	for _, pod := range memory.Of[*corev1.Pod](cluster) {
		if Counts(pod) {
			_ = a.count(pod)
		}
	}
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool {
		var why string
		switch o := object.(type) {
		case *corev1.Pod:
			mergeLabelKeys(o)
			why = cmp.Or(a.mutate(s.ownerOf(o), o.Namespace, &o.Spec), a.limit(o.Namespace, &o.Spec))
			if why == "" {
				why = a.count(o)
			}
		case *appsv1.DaemonSet:
			spec := &o.Spec.Template.Spec
			why = cmp.Or(a.mutate("DaemonSet "+o.Namespace+"/"+o.Name, o.Namespace, spec), a.limit(o.Namespace, spec))
		}
		if why != "" {
			s.noteOf("not planned, since an API server rejects them: %s; "+why, object.GetNamespace()+"/"+object.GetName())
		}
		return why != ""
	})
}

// ownerOf names what a pod is of, as notes do.
func (s *Set) ownerOf(pod *corev1.Pod) string {
	kind := s.sources[pod].kind
	if kind == kindOfRow {
		kind = "row"
	}
	return kind + " " + lo.Ternary(kind == "Pod", pod.Namespace+"/"+pod.Name, WorkloadOf(pod))
}
