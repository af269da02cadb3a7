// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	podoptions "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	coreconversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	schedulingdefaults "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/capabilities"
	evaluator "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// admission does with new pods what an API server does, with its code: defaults, LimitRanges, PriorityClasses,
// RuntimeClasses, validation, ResourceQuotas.
type admission struct {
	limits   map[string][]*corev1.LimitRange
	quotas   map[string][]corev1.ResourceQuota
	usage    quota.Evaluator
	priority *priority.Plugin
	runtime  *runtimeclass.RuntimeClass
	// priorities and runtimes are the classes that these plugins know.
	priorities, runtimes cache.Store
	note                 func(text, name string)
}

func newAdmission(objects, existing memory.Objects, note func(text, name string)) *admission {
	capabilities.Setup(true, 0) // as API servers are started: privileged pods are valid
	// The informers are not started: what the plugins find are the objects of the input.
	stores := informers.NewSharedInformerFactory(nil, 0)
	pods := stores.Core().V1().Pods().Informer().GetIndexer()
	a := &admission{
		limits: map[string][]*corev1.LimitRange{}, quotas: map[string][]corev1.ResourceQuota{}, note: note,
		priority: priority.NewPlugin(), runtime: runtimeclass.NewRuntimeClass(),
		priorities: stores.Scheduling().V1().PriorityClasses().Informer().GetStore(),
		runtimes:   stores.Node().V1().RuntimeClasses().Informer().GetStore(),
		usage: evaluator.NewPodEvaluator(func(kind schema.GroupVersionResource) (cache.GenericLister, error) {
			return cache.NewGenericLister(pods, kind.GroupResource()), nil
		}, clock.RealClock{}),
	}
	a.priority.SetExternalKubeInformerFactory(stores)
	a.runtime.SetExternalKubeInformerFactory(stores)
	fill(pods, memory.Of[*corev1.Pod](existing))
	fill(a.priorities, schedulingdefaults.SystemPriorityClasses())
	fill(a.priorities, memory.Of[*schedulingv1.PriorityClass](objects))
	fill(a.runtimes, memory.Of[*nodev1.RuntimeClass](objects))
	for _, limits := range memory.Of[*corev1.LimitRange](objects) {
		limits = limits.DeepCopy()
		coreconversion.SetObjectDefaults_LimitRange(limits)
		a.limits[limits.Namespace] = append(a.limits[limits.Namespace], limits)
	}
	for _, of := range memory.Of[*corev1.ResourceQuota](objects) {
		a.quotas[of.Namespace] = append(a.quotas[of.Namespace], a.calculated(of))
	}
	return a
}

func fill[T client.Object](store cache.Store, objects []T) {
	for _, object := range objects {
		lo.Must0(store.Add(object))
	}
}

// calculated is a quota with what the existing pods use of it, as its controller writes.
func (a *admission) calculated(of *corev1.ResourceQuota) corev1.ResourceQuota {
	names := quota.ResourceNames(of.Spec.Hard)
	ofPods := a.usage.MatchingResources(names)
	if others := quota.ToSet(names).Difference(quota.ToSet(ofPods)); len(others) > 0 {
		a.note("of ResourceQuotas only what they say of pods is applied: compare the rest yourself (%s)",
			fmt.Sprintf("%s/%s: %s", of.Namespace, of.Name, strings.Join(others.List(), ", ")))
	}
	// Without usage, which a selector can make unknown, the API server rejects what the quota is for.
	stats, _ := a.usage.UsageStats(quota.UsageStatsOptions{
		Namespace: of.Namespace, Resources: ofPods, Scopes: of.Spec.Scopes, ScopeSelector: of.Spec.ScopeSelector,
	})
	of = of.DeepCopy()
	of.Status = corev1.ResourceQuotaStatus{Hard: of.Spec.Hard, Used: stats.Used}
	return *of
}

// create completes a pod as an API server does, or returns why one rejects it.
func (a *admission) create(owner string, pod *corev1.Pod) error {
	coreconversion.SetObjectDefaults_Pod(pod)
	mergeLabelKeys(pod)
	created := &core.Pod{}
	if err := coreconversion.Convert_v1_Pod_To_core_Pod(pod, created, nil); err != nil {
		return err
	}
	for _, limits := range a.limits[pod.Namespace] {
		if err := limitranger.PodMutateLimitFunc(limits, created); err != nil {
			return err
		}
	}
	if err := a.applyClasses(owner, created); err != nil {
		return err
	}
	a.noteTiny(owner, created)
	if err := validate(created); err != nil {
		return err
	}
	for _, limits := range a.limits[pod.Namespace] {
		if err := limitranger.PodValidateLimitFunc(limits, created); err != nil {
			return fmt.Errorf("LimitRange %s/%s: %w", limits.Namespace, limits.Name, firstOf(err))
		}
	}
	return coreconversion.Convert_core_Pod_To_v1_Pod(created, pod, nil)
}

// applyClasses gives a pod what its PriorityClass and RuntimeClass say. A dump has what those of its cluster said.
func (a *admission) applyClasses(owner string, pod *core.Pod) error {
	if name := pod.Spec.PriorityClassName; name != "" && !has(a.priorities, name) {
		a.note("PriorityClasses are not in the files (%s), without which an API server rejects pods: "+
			"they are planned as if there were; add them", name+" of "+owner)
	} else {
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
		if err := a.priority.Admit(context.Background(), requestOf(pod, pod), nil); err != nil {
			return err
		}
	}
	if name := lo.FromPtr(pod.Spec.RuntimeClassName); has(a.runtimes, name) {
		pod.Spec.Overhead = nil
		return a.runtime.Admit(context.Background(), requestOf(pod, pod), nil)
	} else if name != "" {
		a.note("RuntimeClasses are not in the files (%s), without which an API server rejects pods: "+
			"they are planned without overhead; add them", name+" of "+owner)
	}
	return nil
}

func has(store cache.Store, name string) bool {
	_, known, _ := store.GetByKey(name)
	return known
}

// requestOf is the request that creates a pod.
func requestOf(pod metav1.Object, object runtime.Object) apiadmission.Attributes {
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	return apiadmission.NewAttributesRecord(object, nil, kind, pod.GetNamespace(), pod.GetName(), resource, "",
		apiadmission.Create, &metav1.CreateOptions{}, false, nil)
}

// noteTiny notes what is valid and hardly meant.
func (a *admission) noteTiny(owner string, pod *core.Pod) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if requested := container.Resources.Requests.Memory(); requested.Sign() > 0 && requested.Value() < 1<<20 {
			a.note("containers request less than 1 MiB of memory (%s): "+
				"without a unit it is bytes, and m is a thousandth; write Mi or Gi", container.Name+" of "+owner)
		}
	}
}

// validate returns why an API server rejects a pod. A plan needs no image.
func validate(pod *core.Pod) error {
	options := podoptions.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	options.ResourceIsPod = true
	found := validation.ValidatePodSpec(&pod.Spec, &pod.ObjectMeta, field.NewPath("spec"), options)
	return firstOf(lo.Reject(found, func(err *field.Error, _ int) bool {
		return err.Type == field.ErrorTypeRequired && strings.HasSuffix(err.Field, ".image")
	}).ToAggregate())
}

// firstOf is the first error by its text: the order in which the API server finds them is that of a map.
func firstOf(err error) error {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return err
	}
	return slices.MinFunc(all.Errors(), func(x, y error) int { return cmp.Compare(x.Error(), y.Error()) })
}

// count returns why a ResourceQuota rejects a pod, and counts it otherwise.
func (a *admission) count(pod *corev1.Pod) error {
	counted, err := resourcequota.CheckRequest(a.quotas[pod.Namespace], requestOf(pod, pod), a.usage, nil)
	if err == nil {
		a.quotas[pod.Namespace] = counted
	}
	return err
}

// mergeLabelKeys writes what matchLabelKeys and mismatchLabelKeys of a pod's affinity select into the selectors.
func mergeLabelKeys(pod *corev1.Pod) {
	affinity := lo.FromPtr(pod.Spec.Affinity)
	with, apart := lo.FromPtr(affinity.PodAffinity), lo.FromPtr(affinity.PodAntiAffinity)
	terms := slices.Concat(with.RequiredDuringSchedulingIgnoredDuringExecution,
		apart.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, preferred := range slices.Concat(with.PreferredDuringSchedulingIgnoredDuringExecution,
		apart.PreferredDuringSchedulingIgnoredDuringExecution) {
		terms = append(terms, preferred.PodAffinityTerm)
	}
	for _, term := range terms {
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
}

// admit does with the pods and DaemonSets of the set what the API server would do, by the rules of the set and of the
// cluster, and leaves out what it would reject.
func (s *Set) admit(cluster memory.Objects) {
	a := newAdmission(cluster.With(s.Objects...), cluster, s.noteOf)
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool {
		var err error
		switch o := object.(type) {
		case *corev1.Pod:
			if err = a.create(s.ownerOf(o), o); err == nil {
				err = a.count(o)
			}
		case *appsv1.DaemonSet:
			pod := &corev1.Pod{ObjectMeta: *o.Spec.Template.ObjectMeta.DeepCopy(), Spec: o.Spec.Template.Spec}
			pod.Namespace = o.Namespace
			err = a.create("DaemonSet "+o.Namespace+"/"+o.Name, pod)
			o.Spec.Template.Spec = pod.Spec
		}
		if err != nil {
			// The name of the pod is in the note once.
			_, reason, _ := strings.Cut(err.Error(), " is forbidden: ")
			s.noteOf("not planned, since an API server rejects them: %s; "+cmp.Or(reason, err.Error()),
				object.GetNamespace()+"/"+object.GetName())
		}
		return err != nil
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
