// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// input is the copy of the cluster, with the manifests in place of its pods where there are any.
func input(ctx context.Context, s *session.Session, o Options) (memory.Objects, error) {
	var set *manifests.Set
	if len(o.Files) > 0 {
		var err error
		if set, err = manifests.ReadIn(cmp.Or(o.Namespace, metav1.NamespaceDefault), o.Stdin, o.Files...); err != nil {
			return nil, err
		}
		for _, note := range set.Notes {
			s.Note("%s", note)
		}
		if len(set.Pods()) == 0 && !o.Pending {
			return nil, fmt.Errorf("the files have no pod to plan, only %s; give workloads, or a table of pods", kindsOf(set))
		}
	}
	if s.Cluster == nil {
		if set == nil {
			return nil, fmt.Errorf("there is nothing to plan: %w; or give manifests with -f", s.ClusterErr)
		}
		s.Note("planned without a cluster (%s), so without its NodePools, DaemonSets and volumes", s.ClusterErr)
		return withSet(nil, set), nil
	}
	objects, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	if set == nil {
		if s.Core.FeatureGates.CapacityBuffer {
			s.Note("CapacityBuffers are not planned: the nodes that Karpenter keeps running for them are in no plan")
		}
		return objects, nil
	}
	if !o.Pending {
		objects = lo.Reject(objects, func(object client.Object, _ int) bool {
			pod, ok := object.(*corev1.Pod)
			return ok && Counts(pod)
		})
	}
	return withSet(objects, set), nil
}

// kindsOf counts what was read.
func kindsOf(set *manifests.Set) string {
	counts := maps.Clone(set.Skipped)
	for _, object := range set.Objects {
		counts[reflect.TypeOf(object).Elem().Name()]++
	}
	return cmp.Or(strings.Join(lo.Map(slices.Sorted(maps.Keys(counts)), func(kind string, _ int) string {
		return fmt.Sprintf("%d %s", counts[kind], kind)
	}), ", "), "nothing")
}

// withSet adds manifests, their namespaces and the classes of volumes that they assume.
func withSet(objects memory.Objects, set *manifests.Set) memory.Objects {
	known := lo.SliceToMap(memory.Of[*corev1.Namespace](objects.With(set.Objects...)), func(ns *corev1.Namespace) (string, bool) { return ns.Name, true })
	for _, object := range set.Objects {
		if name := object.GetNamespace(); name != "" && !known[name] {
			known[name] = true
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
		}
	}
	objects = objects.With(set.Objects...)
	for _, claim := range memory.Of[*corev1.PersistentVolumeClaim](set.Objects) {
		objects = assumeClass(objects, claim)
	}
	return objects
}

// assumeClass gives a claim the class that the cluster would give it. One that is not known binds to the node's zone, as those
// of BizFly Cloud do.
func assumeClass(objects memory.Objects, claim *corev1.PersistentVolumeClaim) memory.Objects {
	classes := memory.Of[*storagev1.StorageClass](objects)
	name := lo.FromPtr(claim.Spec.StorageClassName)
	if name == "" {
		chosen, _ := lo.Find(classes, func(class *storagev1.StorageClass) bool {
			return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
		})
		name = "assumed-default"
		if chosen != nil {
			name = chosen.Name
		}
		claim.Spec.StorageClassName = &name
	}
	if lo.ContainsBy(classes, func(class *storagev1.StorageClass) bool { return class.Name == name }) {
		return objects
	}
	return append(objects, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: v1alpha1.CSIBlockDriver, VolumeBindingMode: lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}
