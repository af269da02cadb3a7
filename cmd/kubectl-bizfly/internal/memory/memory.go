// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory is the copy of a cluster in which the scheduler of Karpenter core and the controllers of this provider run when nothing
// may be written to the real one: controller-runtime's fake client over the objects of the cluster.
package memory

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Objects are what a client starts with.
type Objects []client.Object

// With returns the objects with others, which take the place of those of the same kind, namespace and name.
func (o Objects) With(others ...client.Object) Objects {
	type id struct {
		kind reflect.Type
		key  client.ObjectKey
	}
	idOf := func(object client.Object) id { return id{reflect.TypeOf(object), client.ObjectKeyFromObject(object)} }
	result, at := slices.Clone(o), map[id]int{}
	for i, object := range o {
		at[idOf(object)] = i
	}
	for _, object := range others {
		if i, ok := at[idOf(object)]; ok {
			result[i] = object
			continue
		}
		at[idOf(object)] = len(result)
		result = append(result, object)
	}
	return result
}

// Of returns the objects of a kind.
func Of[T client.Object](objects Objects) []T {
	return lo.FilterMap(objects, func(object client.Object, _ int) (T, bool) {
		typed, ok := object.(T)
		return typed, ok
	})
}

// Client is the fake client without its pods. The fake client encodes and decodes all objects of a kind for each list, 0.4 s for
// 5,000 pods, and core lists the pods of each node and of each topology spread constraint. So pods are only listed here, by node,
// and SetPods replaces them. All other kinds are the fake client's.
type Client struct {
	client.Client
	pods   []*corev1.Pod
	byNode map[string][]*corev1.Pod
	// created is how many objects have got a UID here.
	created int
}

// New returns a client of copies of the objects. Those without UID get one, as from an API server: core tells pods apart by it.
func New(objects Objects) *Client {
	c := &Client{}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).
		// Managed fields take most of the time, and nothing here uses them.
		WithObjectTracker(clienttesting.NewObjectTracker(scheme.Scheme, serializer.NewCodecFactory(scheme.Scheme).UniversalDecoder())).
		// The status of all other kinds is written with the object.
		WithStatusSubresource(&v1alpha1.BizflyNodeClass{}, &karpv1.NodeClaim{})
	var pods []*corev1.Pod
	for _, object := range objects {
		object = object.DeepCopyObject().(client.Object)
		c.stamp(object)
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
			continue
		}
		// The fake client rejects an object that is being deleted and that nothing keeps, such as a Namespace, whose finalizer is in its spec.
		if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
			object.SetFinalizers([]string{"bizfly.kubectl/copied"})
		}
		builder.WithObjects(object)
	}
	c.Client = builder.Build()
	c.SetPods(pods)
	return c
}

// stamp sets what an API server sets when it creates an object.
func (c *Client) stamp(object client.Object) {
	c.created++
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.created)))
	}
	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.Now())
	}
}

// SetPods replaces all pods. They belong to the client then.
func (c *Client) SetPods(pods []*corev1.Pod) {
	c.pods, c.byNode = pods, lo.GroupBy(pods, func(pod *corev1.Pod) string { return pod.Spec.NodeName })
}

// Bind runs a pod on a node, "" on none.
func (c *Client) Bind(uid types.UID, node string) *corev1.Pod {
	for i, pod := range c.pods {
		if pod.UID != uid {
			continue
		}
		bound := pod.DeepCopy()
		bound.Spec.NodeName, bound.Status.Conditions = node, nil
		c.pods[i] = bound
		c.SetPods(c.pods)
		return bound
	}
	return nil
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	c.stamp(object)
	return c.Client.Create(ctx, object, opts...)
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if _, ok := into.(*corev1.PersistentVolume); ok {
		key.Namespace = "" // core asks with the namespace of the claim, which a client of an API server ignores
	}
	return c.Client.Get(ctx, key, into, opts...)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	list, ok := into.(*corev1.PodList)
	if !ok {
		return c.Client.List(ctx, into, opts...)
	}
	options, pods := (&client.ListOptions{}).ApplyOptions(opts), c.pods
	if options.FieldSelector != nil {
		node, exact := options.FieldSelector.RequiresExactMatch("spec.nodeName")
		if !exact || len(options.FieldSelector.Requirements()) != 1 {
			return fmt.Errorf("listing pods by %s: only spec.nodeName is indexed", options.FieldSelector)
		}
		pods = c.byNode[node]
	}
	list.Items = lo.FilterMap(pods, func(pod *corev1.Pod, _ int) (corev1.Pod, bool) {
		if options.Namespace != "" && pod.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(pod.Labels)) {
			return corev1.Pod{}, false
		}
		if lo.FromPtr(options.UnsafeDisableDeepCopy) {
			return *pod, true
		}
		return *pod.DeepCopy(), true
	})
	return nil
}
