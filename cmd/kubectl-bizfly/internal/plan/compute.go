// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Options say what to plan.
type Options struct {
	// Files are manifests; none plans the pods of the cluster.
	Files []string
	// Alternatives are files of NodePools and NodeClasses, each planned in place of the others.
	Alternatives []string
	// Pending keeps the nodes of the cluster and plans the pods that wait.
	Pending bool
	// Stdin is read for the file "-".
	Stdin io.Reader
	// OnStart is called when scheduling begins, with the number of pods; it may be nil.
	OnStart func(pods int)
}

// Compute plans, once for each alternative.
func Compute(ctx context.Context, s *session.Session, o Options) ([]*Plan, error) {
	base, err := input(ctx, s, o)
	if err != nil {
		return nil, err
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.Alternatives) == 0 {
		p, err := compute(ctx, s, cloud, base, o)
		return []*Plan{p}, err
	}
	var plans []*Plan
	for _, file := range o.Alternatives {
		objects, err := alternative(base, file)
		if err != nil {
			return nil, err
		}
		p, err := compute(ctx, s, cloud, objects, o)
		if err != nil {
			return nil, fmt.Errorf("planning %s: %w", file, err)
		}
		p.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		plans = append(plans, p)
	}
	return plans, nil
}

// input is the copy of the cluster, with the manifests in place of its pods where there are any.
func input(ctx context.Context, s *session.Session, o Options) (memory.Objects, error) {
	var set *manifests.Set
	if len(o.Files) > 0 {
		var err error
		if set, err = manifests.Read(o.Stdin, o.Files...); err != nil {
			return nil, err
		}
		for _, note := range set.Notes {
			s.Note("%s", note)
		}
	}
	if s.Cluster == nil {
		if set == nil {
			return nil, fmt.Errorf("there is nothing to plan: %w; or give manifests with -f", s.ClusterErr)
		}
		s.Note("planned without a cluster, so without its NodePools, DaemonSets and volumes")
		return withSet(nil, set), nil
	}
	objects, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	if set == nil {
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

// alternative returns the objects with the NodePools of a file in place of all others. Its NodeClasses replace those of the
// same name, since NodePools may use ones that exist.
func alternative(base memory.Objects, file string) (memory.Objects, error) {
	set, err := manifests.Read(nil, file)
	if err != nil {
		return nil, err
	}
	switch {
	case len(memory.Of[*karpv1.NodePool](set.Objects)) > 0:
		base = lo.Reject(base, func(object client.Object, _ int) bool { _, ok := object.(*karpv1.NodePool); return ok })
	case len(memory.Of[*v1alpha1.BizflyNodeClass](set.Objects)) == 0:
		kinds := slices.Sorted(maps.Keys(set.Skipped))
		return nil, fmt.Errorf("%s has neither a NodePool nor a BizflyNodeClass to compare (it has %s)", file, strings.Join(kinds, ", "))
	}
	return base.With(set.Objects...), nil
}

// measure prices the nodes of today, and those that the pods without a node would need beside them.
func measure(ctx context.Context, cloud *session.Cloud, simulation *Simulation, objects memory.Objects) (*Today, error) {
	today, err := simulation.Measure(ctx, cloud)
	if err != nil {
		return nil, err
	}
	waiting, err := simulation.waiting(ctx)
	if err != nil || len(waiting) == 0 {
		return today, err
	}
	beside, err := NewSimulation(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	if err := beside.Observe(ctx); err != nil {
		return nil, err
	}
	added, err := beside.Run(ctx)
	if err != nil {
		return nil, err
	}
	today.Waiting, today.AddedNodes, today.AddedVNDPerHour = len(waiting), len(added.Nodes), added.VNDPerHour
	return today, nil
}

func compute(ctx context.Context, s *session.Session, cloud *session.Cloud, objects memory.Objects, o Options) (*Plan, error) {
	simulation, err := NewSimulation(ctx, cloud, objects)
	if err != nil {
		return nil, err
	}
	var today *Today
	if s.Cluster != nil && len(o.Files) == 0 && !o.Pending {
		if today, err = measure(ctx, cloud, simulation, objects); err != nil {
			s.Note("today's cost is not known: %s", err)
		}
	}
	prepare := simulation.Empty
	if o.Pending {
		prepare = simulation.Observe
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	if o.OnStart != nil {
		pods, err := simulation.waiting(ctx)
		if err != nil {
			return nil, err
		}
		o.OnStart(len(pods))
	}
	p, err := simulation.Run(ctx)
	if err != nil {
		return nil, err
	}
	if !o.Pending {
		if err := simulation.Settle(ctx, p); err != nil {
			return nil, err
		}
	}
	p.Today = today
	return p, nil
}
