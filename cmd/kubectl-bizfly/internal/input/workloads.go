// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxObjects and maxBytes bound what a typing error in a number of replicas, or the manifests of others, can ask for:
// pods with their claims, and their size as JSON. In memory an object is some times as large.
const maxObjects, maxBytes = 200_000, 256 << 20

// grow counts objects and their bytes before they are made.
func (s *Set) grow(objects, bytes int) error {
	s.bytes = min(s.bytes+bytes, maxBytes+1) // so that it does not overflow
	if len(s.Objects)+objects > maxObjects || s.bytes > maxBytes {
		return fmt.Errorf("these would be more than %d pods and claims, or more than %d MiB of them, "+
			"which is the most that can be planned", maxObjects, maxBytes>>20)
	}
	return nil
}

// sizeOf is the size of a value as JSON.
func sizeOf(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		return 0 // it was read from JSON
	}
	return len(text)
}

// add stores an object that scheduling depends on, and the pods of a workload in its place.
func (s *Set) add(where string, object client.Object) error {
	kind := strings.Fields(where)[0]
	switch o := object.(type) {
	case *corev1.Pod:
		return s.addOwn(where, o, kind)
	case *appsv1.Deployment:
		return s.replicas(o, kind, 0, o.Spec.Replicas, &o.Spec.Template, nil)
	case *appsv1.ReplicaSet:
		return s.replicas(o, kind, 0, o.Spec.Replicas, &o.Spec.Template, nil)
	case *appsv1.StatefulSet:
		return s.replicas(o, kind, int(lo.FromPtr(o.Spec.Ordinals).Start), o.Spec.Replicas, &o.Spec.Template, o.Spec.VolumeClaimTemplates)
	case *corev1.ReplicationController:
		return s.replicas(o, kind, 0, o.Spec.Replicas, lo.CoalesceOrEmpty(o.Spec.Template, &corev1.PodTemplateSpec{}), nil)
	case *autoscalingv1.HorizontalPodAutoscaler:
		return s.add(where, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: o.ObjectMeta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(o.Spec.ScaleTargetRef), MinReplicas: o.Spec.MinReplicas, MaxReplicas: o.Spec.MaxReplicas,
		}})
	case *autoscalingv2.HorizontalPodAutoscaler:
		s.inNamespace(o)
		s.Skipped["HorizontalPodAutoscaler"]++
		s.autoscalers = append(lo.Reject(s.autoscalers, func(other *autoscalingv2.HorizontalPodAutoscaler, _ int) bool {
			return client.ObjectKeyFromObject(other) == client.ObjectKeyFromObject(o)
		}), o)
	case *batchv1.Job:
		return s.replicas(o, kind, 0, podsOf(&o.Spec, ended(o)), &o.Spec.Template, nil)
	case *batchv1.CronJob:
		s.note("CronJobs count with the pods of one run at a time")
		return s.replicas(o, kind, 0, podsOf(&o.Spec.JobTemplate.Spec, lo.FromPtr(o.Spec.Suspend)), &o.Spec.JobTemplate.Spec.Template, nil)
	case *appsv1.DaemonSet:
		s.inNamespace(o)
		s.workloads[idOf(kind, o.Namespace, o.Name)] = true
		s.Objects = append(s.Objects, o)
	case *corev1.PersistentVolumeClaim, *corev1.LimitRange, *corev1.ResourceQuota:
		s.inNamespace(o)
		s.Objects = append(s.Objects, o)
	case *corev1.PersistentVolume, *storagev1.StorageClass, *corev1.Namespace, *schedulingv1.PriorityClass, *nodev1.RuntimeClass,
		*karpv1.NodePool, *karpv1alpha1.NodeOverlay, *v1alpha1.BizflyNodeClass:
		s.Objects = append(s.Objects, o)
	}
	return nil
}

// addOwn stores a pod of the files.
func (s *Set) addOwn(where string, pod *corev1.Pod, kind string) error {
	s.inNamespace(pod)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil {
		s.noteOf("pods that have ended, or are being deleted, are left out: %s", pod.Namespace+"/"+pod.Name)
		return nil
	}
	if len(pod.Spec.Containers) == 0 {
		return fmt.Errorf("%s: spec.containers is empty; write at least one", where)
	}
	s.addPod(pod, sourceOf(kind, pod))
	return nil
}

// skip counts an object that is not planned. Those that may create pods, or change how many there are, are noted.
func (s *Set) skip(where string, matters bool) {
	kind, name, _ := strings.Cut(where, " ")
	s.Skipped[kind]++
	if matters {
		s.noteOf("objects of kind "+kind+" were not planned, nor the pods that they may add: %s; add the workloads that they make", name)
	}
}

// podsOf is how many pods of a Job run at a time.
func podsOf(spec *batchv1.JobSpec, none bool) *int32 {
	if none || lo.FromPtr(spec.Suspend) {
		return lo.ToPtr(int32(0))
	}
	most := lo.FromPtrOr(spec.Parallelism, 1)
	return lo.ToPtr(min(most, lo.FromPtrOr(spec.Completions, most)))
}

// ended reports whether a Job creates no more pods.
func ended(job *batchv1.Job) bool {
	return lo.ContainsBy(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// source is what a pod, or a claim of a StatefulSet, was read from.
type source struct {
	kind string
	// controller is the ID of the workload that created it; empty if there is none.
	controller string
}

func sourceOf(kind string, object client.Object) source {
	if controller := metav1.GetControllerOf(object); controller != nil {
		return source{kind, idOf(controller.Kind, object.GetNamespace(), controller.Name)}
	}
	return source{kind: kind}
}

func idOf(kind, namespace, name string) string {
	return strings.Join([]string{kind, namespace, name}, "/")
}

// finish drops pods that a workload of the set creates as well, as a dump of a cluster has them, and gives pods of different workloads different
// names. Those of StatefulSets keep theirs, because their claims are named after them.
func (s *Set) finish() error {
	if err := s.autoscale(); err != nil {
		return err
	}
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool {
		controller := s.sources[object].controller
		kind, _, _ := strings.Cut(controller, "/")
		switch pod, _ := object.(*corev1.Pod); {
		case s.workloads[controller]:
		case kind == "DaemonSet":
			s.daemons[controller] = pod
		case kind == "Node":
			s.noteOf("pods that kubelets run from files of their own (static pods) are left out: %s", pod.Namespace+"/"+pod.Name)
		default:
			return false
		}
		return true
	})
	first, others := lo.FilterReject(s.Pods(), func(pod *corev1.Pod, _ int) bool { return s.sources[pod].kind == "StatefulSet" })
	kinds := map[client.ObjectKey]string{}
	for _, pod := range append(first, others...) {
		key, kind := client.ObjectKeyFromObject(pod), s.sources[pod].kind
		if other, used := kinds[key]; used && other != kind {
			pod.Name += "-" + strings.ToLower(kind)
			continue
		}
		kinds[key] = kind
	}
	s.flush()
	return nil
}

// scaled is a workload with what makes its pods.
type scaled struct {
	replicas *int32
	add      func(count int32) error
}

// autoscale gives workloads the pods that their HorizontalPodAutoscalers keep at least, and at most.
func (s *Set) autoscale() error {
	targetOf := func(autoscaler *autoscalingv2.HorizontalPodAutoscaler) string {
		return idOf(autoscaler.Spec.ScaleTargetRef.Kind, autoscaler.Namespace, autoscaler.Spec.ScaleTargetRef.Name)
	}
	scalers := lo.CountValuesBy(s.autoscalers, targetOf)
	for _, autoscaler := range s.autoscalers {
		target, name, id := autoscaler.Spec.ScaleTargetRef, autoscaler.Namespace+"/"+autoscaler.Name, targetOf(autoscaler)
		workload, known := s.scaled[id]
		why := ""
		switch {
		case !known:
			why = fmt.Sprintf("is not planned: its target %s %s is not in the files", target.Kind, target.Name)
		case scalers[id] > 1:
			why = fmt.Sprintf("is not planned: others scale %s %s, too, so that none does", target.Kind, target.Name)
		case lo.FromPtrOr(workload.replicas, 1) == 0:
			why = fmt.Sprintf("does not scale %s %s, which has 0 replicas", target.Kind, target.Name)
		}
		if why != "" {
			s.note("HorizontalPodAutoscaler " + name + " " + why)
			continue
		}
		count := min(max(lo.FromPtrOr(workload.replicas, 1), lo.FromPtrOr(autoscaler.Spec.MinReplicas, 1)), max(autoscaler.Spec.MaxReplicas, 1))
		s.drop(s.added[id])
		if err := workload.add(count); err != nil {
			return err
		}
		s.note(fmt.Sprintf("%s %s counts with %d pods: HorizontalPodAutoscaler %s keeps %d to %d", target.Kind, target.Name, count, name,
			lo.FromPtrOr(autoscaler.Spec.MinReplicas, 1), autoscaler.Spec.MaxReplicas))
	}
	return nil
}

func (s *Set) note(text string) {
	if !lo.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// noteOf notes something of an object. The text says it once of all that it is true of, whose names it has in place of %s.
func (s *Set) noteOf(text, name string) {
	if s.collected[text] == nil {
		s.texts = append(s.texts, text)
	}
	s.collected[text] = append(s.collected[text], name)
}

// namesInNote is how many names a note has.
const namesInNote = 5

// flush writes the notes of which all names are known.
func (s *Set) flush() {
	for _, text := range s.texts {
		names := lo.Uniq(s.collected[text])
		if more := len(names) - namesInNote; more > 0 {
			names = append(names[:namesInNote:namesInNote], fmt.Sprintf("%d more", more))
		}
		s.note(strings.Replace(text, "%s", strings.Join(names, ", "), 1))
	}
	s.texts, s.collected = nil, map[string][]string{}
}

func (s *Set) inNamespace(object client.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(s.namespace)
	}
}

// kindOfRow stands for the kind of a workload in a table of pods.
const kindOfRow = "Row"

// controllers are the kinds that create the pods of a workload, where they are not its own.
var controllers = map[string]string{"Deployment": "ReplicaSet", "CronJob": "Job", kindOfRow: "ReplicaSet"}

// bytesOfVolume is the size of a volume of a claim, beside the names.
const bytesOfVolume = 80

// replicas adds the pods of a workload, as its controller would create them. The first is the number of the first one.
func (s *Set) replicas(owner client.Object, kind string, first int, count *int32, template *corev1.PodTemplateSpec,
	claims []corev1.PersistentVolumeClaim) error {
	s.inNamespace(owner)
	id := idOf(kind, owner.GetNamespace(), owner.GetName())
	s.workloads[id] = true
	if kind != kindOfRow {
		s.scaled[id] = scaled{count, func(count int32) error { return s.replicas(owner, kind, first, &count, template, claims) }}
	}
	wanted := int(lo.FromPtrOr(count, 1))
	if wanted < 0 {
		return fmt.Errorf("%s %s has %d replicas", kind, owner.GetName(), wanted)
	}
	if wanted == 0 && metav1.GetControllerOf(owner) == nil { // those of others are their past
		s.Skipped[kind]++
		s.noteOf("workloads have no pods, since they are scaled to 0, suspended or ended: %s; to plan one, change that in the file",
			fmt.Sprintf("%s %s/%s", kind, owner.GetNamespace(), owner.GetName()))
	}
	// Each pod names each claim; those of ephemeral volumes are made later.
	ephemeral := lo.CountBy(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil })
	size := sizeOf(template) + sizeOf(claims) + len(claims)*(len(owner.GetName())+bytesOfVolume)
	if err := s.grow(wanted*(1+len(claims)+ephemeral), wanted*size); err != nil {
		return fmt.Errorf("%s %s has %d replicas with %d claims each: %w", kind, owner.GetName(), wanted, len(claims), err)
	}
	named := lo.SliceToMap(claims, func(claim corev1.PersistentVolumeClaim) (string, bool) { return claim.Name, true })
	if wanted > 0 && template.Spec.Containers == nil {
		return fmt.Errorf("%s %s: its template has no containers, as in a patch; if it belongs to a kustomization, run: "+
			"kubectl kustomize DIR | kubectl bizfly plan -f - --namespace %s", kind, owner.GetName(), s.namespace)
	}
	for i := first; i < first+wanted; i++ {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", owner.GetName(), i), Namespace: owner.GetNamespace(),
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: cmp.Or(controllers[kind], kind), Name: owner.GetName(), UID: types.UID(id), Controller: lo.ToPtr(true),
				}},
			},
			Spec: *template.Spec.DeepCopy(),
		}
		pod.Spec.Volumes = lo.Reject(pod.Spec.Volumes, func(v corev1.Volume, _ int) bool { return named[v.Name] })
		for c := range claims {
			claim := claims[c].DeepCopy()
			volume := claim.Name
			claim.Name, claim.Namespace = fmt.Sprintf("%s-%s", volume, pod.Name), pod.Namespace
			s.sources[claim], s.Objects = source{kind: kind}, append(s.Objects, claim)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
				Name: volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
			})
		}
		s.addPod(pod, sourceOf(kind, owner))
	}
	return nil
}

func (s *Set) addPod(pod *corev1.Pod, from source) {
	s.sources[pod] = from
	Unbind(pod)
	s.Objects = append(s.Objects, pod)
}
