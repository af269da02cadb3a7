// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Options say what is read.
type Options struct {
	// Files are manifests; none reads the pods of the cluster.
	Files []string
	// Namespace is that of manifests which name none; empty is default.
	Namespace string
	// Pending keeps the nodes of the cluster, so that the pods that wait are placed.
	Pending bool
	// Stdin is read for the file "-".
	Stdin io.Reader
}

// Objects is the copy of the cluster, with the manifests in place of its pods where there are any.
func Objects(ctx context.Context, s *connect.Session, o Options) (memory.Objects, error) {
	var set *Set
	if len(o.Files) > 0 {
		var err error
		if set, err = ReadIn(cmp.Or(o.Namespace, metav1.NamespaceDefault), o.Stdin, o.Files...); err != nil {
			return nil, err
		}
		defer func() {
			for _, note := range set.Notes {
				s.Note("%s", note)
			}
		}()
		if len(set.Pods()) == 0 && !o.Pending {
			return nil, fmt.Errorf("the files have no pod to plan, only %s; give workloads, or a table of pods", set.Kinds())
		}
	}
	if s.Cluster == nil {
		if set == nil {
			return nil, fmt.Errorf("there is nothing to plan: %w; or give manifests with -f", s.ClusterErr)
		}
		s.Note("planned without a cluster (%s), so without its NodePools, DaemonSets and volumes", s.ClusterErr)
		return set.Within(nil), nil
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
	rules, err := s.CopyAdmission(ctx)
	if err != nil {
		return nil, err
	}
	return set.Within(slices.Concat(objects, rules)), nil
}

// Kinds counts what was read.
func (s *Set) Kinds() string {
	counts := maps.Clone(s.Skipped)
	for _, object := range s.Objects {
		counts[reflect.TypeOf(object).Elem().Name()]++
	}
	return cmp.Or(strings.Join(lo.Map(slices.Sorted(maps.Keys(counts)), func(kind string, _ int) string {
		return fmt.Sprintf("%d %s", counts[kind], kind)
	}), ", "), "nothing")
}

// Within is the cluster, or nothing, with the set in it: with the namespaces and the DaemonSets that the files imply, and with pods and claims such
// as the API server and its controllers make them.
func (s *Set) Within(cluster memory.Objects) memory.Objects {
	s.LeaveForeign()
	s.addDaemonSets(cluster)
	s.admit(cluster)
	s.takeClaims(cluster)
	objects := slices.Clip(cluster)
	known := lo.SliceToMap(memory.Of[*corev1.Namespace](objects.With(s.Objects...)), func(ns *corev1.Namespace) (string, bool) { return ns.Name, true })
	for _, object := range s.Objects {
		if name := object.GetNamespace(); name != "" && !known[name] {
			known[name] = true
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
		}
	}
	objects = s.bindVolumes(objects.With(s.Objects...))
	s.flush()
	return objects
}

// addDaemonSets adds those whose pods are in the files, as dumps of pods have them: each node needs room for their pods.
func (s *Set) addDaemonSets(cluster memory.Objects) {
	there := lo.SliceToMap(memory.Of[*appsv1.DaemonSet](cluster), func(d *appsv1.DaemonSet) (client.ObjectKey, bool) {
		return client.ObjectKeyFromObject(d), true
	})
	for _, id := range slices.Sorted(maps.Keys(s.daemons)) {
		pod := s.daemons[id]
		daemon := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: metav1.GetControllerOf(pod).Name}}
		if key := client.ObjectKeyFromObject(daemon); !there[key] {
			daemon.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: *pod.Spec.DeepCopy()}
			if affinity := daemon.Spec.Template.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
				affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil // it names the node
			}
			s.Objects = append(s.Objects, daemon)
			s.noteOf("DaemonSets are not in the files, and their pods are (%s): each node is planned with one of each; "+
				"add them if they run on some nodes alone (kubectl get daemonsets -A -o yaml)", key.String())
		}
	}
}

// WithSamples adds the default sample's NodePool where there is none, without its limits, which are for beginners, and its
// NodeClass under each name that a NodePool refers to and that does not exist. It returns what was added, by kind and name.
func WithSamples(objects memory.Objects) (memory.Objects, []string) {
	var added []string
	if len(memory.Of[*karpv1.NodePool](objects)) == 0 {
		pool := BuiltIn[*karpv1.NodePool](config.NodePool)
		pool.Spec.Limits = nil
		objects, added = append(slices.Clip(objects), pool), append(added, "NodePool "+pool.Name)
	}
	known := lo.KeyBy(memory.Of[*v1alpha1.BizflyNodeClass](objects), func(n *v1alpha1.BizflyNodeClass) string { return n.Name })
	for _, pool := range memory.Of[*karpv1.NodePool](objects) {
		name := lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef).Name
		if name == "" || known[name] != nil {
			continue
		}
		known[name] = BuiltIn[*v1alpha1.BizflyNodeClass](config.NodeClass)
		known[name].Name = name
		objects, added = append(slices.Clip(objects), known[name]), append(added, "BizflyNodeClass "+name)
	}
	return objects, added
}

// BuiltIn is the object of a manifest of the plugin's own, with the defaults of its definition. No rule is applied to it: to compile them takes longer
// than a small plan.
func BuiltIn[T client.Object](manifest []byte) T {
	content := &unstructured.Unstructured{}
	lo.Must0(yaml.Unmarshal(manifest, &content.Object))
	defaulting.Default(content.Object, definitions[content.GroupVersionKind()].structural)
	typed := lo.Must(scheme.Scheme.New(content.GroupVersionKind()))
	lo.Must0(decodeStrictly(content.Object, typed))
	return typed.(T)
}
