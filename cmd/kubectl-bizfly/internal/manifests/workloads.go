// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxPods bounds what a typing error in a number of replicas can ask for.
const maxPods = 200000

// add stores an object that scheduling depends on, and the pods of a workload in its place.
func (s *Set) add(where string, object client.Object) error {
	switch o := object.(type) {
	case *corev1.Pod:
		s.addPod(o)
	case *appsv1.Deployment:
		return s.replicas(o, "ReplicaSet", o.Spec.Replicas, &o.Spec.Template, nil)
	case *appsv1.ReplicaSet:
		return s.replicas(o, "ReplicaSet", o.Spec.Replicas, &o.Spec.Template, nil)
	case *appsv1.StatefulSet:
		return s.replicas(o, "StatefulSet", o.Spec.Replicas, &o.Spec.Template, o.Spec.VolumeClaimTemplates)
	case *batchv1.Job:
		return s.replicas(o, "Job", o.Spec.Parallelism, &o.Spec.Template, nil)
	case *batchv1.CronJob:
		s.note("CronJobs count with the pods of one run at a time")
		return s.replicas(o, "Job", o.Spec.JobTemplate.Spec.Parallelism, &o.Spec.JobTemplate.Spec.Template, nil)
	case *appsv1.DaemonSet:
		inNamespace(o)
		applyRequests(&o.Spec.Template.Spec)
		s.Objects = append(s.Objects, o)
	case *corev1.PersistentVolumeClaim:
		inNamespace(o)
		s.Objects = append(s.Objects, o)
	case *corev1.PersistentVolume, *storagev1.StorageClass, *corev1.Namespace,
		*karpv1.NodePool, *karpv1alpha1.NodeOverlay, *v1alpha1.BizflyNodeClass:
		s.Objects = append(s.Objects, o)
	default:
		s.Skipped[strings.Fields(where)[0]]++
	}
	return nil
}

func (s *Set) note(text string) {
	if !lo.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

func inNamespace(object client.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
}

// replicas adds the pods of a workload, as its controller would create them.
func (s *Set) replicas(owner client.Object, kind string, count *int32, template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) error {
	inNamespace(owner)
	wanted := int(lo.FromPtrOr(count, 1))
	if wanted < 0 || len(s.Objects)+wanted > maxPods {
		return fmt.Errorf("%s %s has %d replicas; %d pods are the most that can be planned", kind, owner.GetName(), wanted, maxPods)
	}
	for i := range wanted {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", owner.GetName(), i), Namespace: owner.GetNamespace(),
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: types.UID(kind + "/" + owner.GetNamespace() + "/" + owner.GetName()),
					Controller: lo.ToPtr(true),
				}},
			},
			Spec: *template.Spec.DeepCopy(),
		}
		for c := range claims {
			claim := claims[c].DeepCopy()
			volume := claim.Name
			claim.Name, claim.Namespace = fmt.Sprintf("%s-%s", volume, pod.Name), pod.Namespace
			s.Objects = append(s.Objects, claim)
			pod.Spec.Volumes = append(lo.Reject(pod.Spec.Volumes, func(v corev1.Volume, _ int) bool { return v.Name == volume }), corev1.Volume{
				Name: volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
			})
		}
		s.addPod(pod)
	}
	return nil
}

func (s *Set) addPod(pod *corev1.Pod) {
	inNamespace(pod)
	applyRequests(&pod.Spec)
	Unbind(pod)
	s.Objects = append(s.Objects, pod)
}

// Unbind makes a pod one that waits for a node, as the scheduler reports it.
func Unbind(pod *corev1.Pod) {
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
}

// applyRequests does what the API server does: a container that has a limit and no request of a resource requests its limit.
func applyRequests(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			for name, quantity := range resources.Limits {
				if _, given := resources.Requests[name]; given {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[name] = quantity
			}
		}
	}
}

// columns are those that a table of pods may have.
var columns = []string{"name", "namespace", "count", "cpu", "memory", "gpu", "zone", "category"}

// csv reads a table of pods, whose first line names the columns; name, cpu and memory are required.
func (s *Set) csv(name string, from io.Reader) error {
	reader := csv.NewReader(io.LimitReader(from, maxDocument))
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: reading the line that names the columns: %w", name, err)
	}
	for i := range header {
		header[i] = strings.ToLower(strings.TrimSpace(header[i]))
	}
	if unknown, _ := lo.Difference(header, columns); len(unknown) > 0 {
		return fmt.Errorf("%s: unknown column %q, use %s", name, unknown[0], strings.Join(columns, ", "))
	}
	if missing, _ := lo.Difference([]string{"name", "cpu", "memory"}, header); len(missing) > 0 {
		return fmt.Errorf("%s: the column %q is missing", name, missing[0])
	}
	var errs []error
	for line := 2; ; line++ {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(errs...)
		}
		if err == nil {
			err = s.row(lo.SliceToMap(lo.Range(len(row)), func(i int) (string, string) { return header[i], strings.TrimSpace(row[i]) }))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: line %d: %w", name, line, err))
		}
	}
}

// row adds the pods of one line.
func (s *Set) row(values map[string]string) error {
	requests, selector := corev1.ResourceList{}, map[string]string{}
	for column, resourceName := range map[string]corev1.ResourceName{"cpu": corev1.ResourceCPU, "memory": corev1.ResourceMemory,
		"gpu": v1alpha1.ResourceNVIDIAGPU} {
		if values[column] == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(values[column])
		if err != nil || quantity.Sign() < 0 {
			return fmt.Errorf("%s %q is no quantity, use for example 500m or 2Gi", column, values[column])
		}
		requests[resourceName] = quantity
	}
	for column, label := range map[string]string{"zone": corev1.LabelTopologyZone, "category": v1alpha1.LabelInstanceCategory} {
		if values[column] != "" {
			selector[label] = values[column]
		}
	}
	count := 1
	if values["count"] != "" {
		var err error
		if count, err = strconv.Atoi(values["count"]); err != nil || count < 0 {
			return fmt.Errorf("count %q is no number of pods", values["count"])
		}
	}
	limits := corev1.ResourceList{}
	if quantity, ok := requests[v1alpha1.ResourceNVIDIAGPU]; ok {
		limits[v1alpha1.ResourceNVIDIAGPU] = quantity
	}
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: values["name"], Namespace: values["namespace"]}}
	if slices.Contains([]string{"", "-"}, owner.Name) {
		return errors.New("the name is missing")
	}
	return s.replicas(owner, "ReplicaSet", lo.ToPtr(int32(min(count, maxPods+1))), &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": owner.Name}},
		Spec: corev1.PodSpec{NodeSelector: selector, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}, nil)
}
