/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
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
		objects, err := alternative(ctx, base, file)
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
func input(ctx context.Context, s *session.Session, o Options) (*memory.Client, error) {
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
		objects := memory.New(clock.RealClock{})
		return objects, addSet(ctx, objects, set)
	}
	objects, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	if set == nil {
		return objects, nil
	}
	if !o.Pending {
		pods := &corev1.PodList{}
		if err := objects.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range pods.Items {
			if Counts(&pods.Items[i]) {
				_ = objects.Delete(ctx, &pods.Items[i])
			}
		}
	}
	return objects, addSet(ctx, objects, set)
}

// addSet adds manifests, their namespaces and the claims and classes of volumes that they assume.
func addSet(ctx context.Context, objects *memory.Client, set *manifests.Set) error {
	if err := objects.Put(set.Objects...); err != nil {
		return err
	}
	for _, object := range set.Objects {
		if namespace := object.GetNamespace(); namespace != "" {
			key, found := types.NamespacedName{Name: namespace}, &corev1.Namespace{}
			if objects.Get(ctx, key, found) != nil {
				if err := objects.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
					Labels: map[string]string{corev1.LabelMetadataName: namespace}}}); err != nil {
					return err
				}
			}
		}
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			if err := assumeClass(ctx, objects, claim); err != nil {
				return err
			}
		}
	}
	return nil
}

// assumeClass gives a claim the class that the cluster would give it. One that is not known binds to the node's zone, as those
// of BizFly Cloud do.
func assumeClass(ctx context.Context, objects *memory.Client, claim *corev1.PersistentVolumeClaim) error {
	classes := &storagev1.StorageClassList{}
	if err := objects.List(ctx, classes); err != nil {
		return err
	}
	name := lo.FromPtr(claim.Spec.StorageClassName)
	if name == "" {
		chosen, _ := lo.Find(classes.Items, func(class storagev1.StorageClass) bool {
			return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
		})
		name = lo.CoalesceOrEmpty(chosen.Name, "assumed-default")
		claim.Spec.StorageClassName = &name
		if err := objects.Put(claim); err != nil {
			return err
		}
	}
	if lo.ContainsBy(classes.Items, func(class storagev1.StorageClass) bool { return class.Name == name }) {
		return nil
	}
	return objects.Put(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: v1alpha1.CSIBlockDriver, VolumeBindingMode: lo.ToPtr(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}

// alternative returns the objects with the NodePools of a file in place of all others. Its NodeClasses replace those of the
// same name, since NodePools may use ones that exist.
func alternative(ctx context.Context, base *memory.Client, file string) (*memory.Client, error) {
	set, err := manifests.Read(nil, file)
	if err != nil {
		return nil, err
	}
	objects := base.Clone()
	if lo.ContainsBy(set.Objects, func(object client.Object) bool { _, ok := object.(*karpv1.NodePool); return ok }) {
		pools := &karpv1.NodePoolList{}
		if err := objects.List(ctx, pools); err != nil {
			return nil, err
		}
		for i := range pools.Items {
			_ = objects.Delete(ctx, &pools.Items[i])
		}
	} else if !lo.ContainsBy(set.Objects, func(object client.Object) bool { _, ok := object.(*v1alpha1.BizflyNodeClass); return ok }) {
		kinds := slices.Sorted(maps.Keys(set.Skipped))
		return nil, fmt.Errorf("%s has neither a NodePool nor a BizflyNodeClass to compare (it has %s)", file, strings.Join(kinds, ", "))
	}
	return objects, objects.Put(set.Objects...)
}

func compute(ctx context.Context, s *session.Session, cloud *session.Cloud, objects *memory.Client, o Options) (*Plan, error) {
	simulation, err := NewSimulation(ctx, cloud, objects.Clone(), nil)
	if err != nil {
		return nil, err
	}
	var today *Today
	if s.Cluster != nil && len(o.Files) == 0 && !o.Pending {
		if today, err = simulation.Measure(ctx, cloud); err != nil {
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
	p.Today = today
	return p, nil
}
