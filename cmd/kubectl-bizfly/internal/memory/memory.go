// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory is the copy of a cluster in which the controllers of Karpenter core and of this provider run when nothing may be written
// to the real one. It is the only place of its objects. What it does not support is an error, because a controller that believes
// something else than what happened makes the answer wrong.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// Client is a client of the copy. Its objects are never changed, only replaced, so that lists may share them.
type Client struct {
	mu    sync.RWMutex
	kinds map[schema.GroupVersionKind]cache.Indexer
	// created is how many objects have got a UID here, version the last resource version, and named the names that were given.
	created, version int
	named            map[string]bool
}

// New returns a client of copies of the objects. Those without UID get one, as from an API server: core tells pods apart by it.
func New(objects Objects) *Client {
	c := &Client{kinds: map[schema.GroupVersionKind]cache.Indexer{}, named: map[string]bool{}}
	for _, object := range objects {
		object = object.DeepCopyObject().(client.Object)
		c.stamp(object)
		c.store(lo.Must(c.GroupVersionKindFor(object)), object)
	}
	return c
}

// withStatus reports whether the status of a kind is written apart from the object, as all our definitions and those of
// core say.
func withStatus(gvk schema.GroupVersionKind) bool {
	return lo.ContainsBy(apis.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group == gvk.Group && crd.Spec.Names.Kind == gvk.Kind
	})
}

// stamp sets what an API server sets when it creates an object.
func (c *Client) stamp(object client.Object) {
	c.created++
	for number, prefix := c.created, object.GetGenerateName(); object.GetName() == ""; number++ {
		if !c.named[fmt.Sprintf("%s%05d", prefix, number)] {
			object.SetName(fmt.Sprintf("%s%05d", prefix, number))
		}
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.created)))
	}
	object.SetGeneration(max(object.GetGeneration(), 1))
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.Now())
	}
}

// store replaces an object by one that belongs to the client then.
func (c *Client) store(gvk schema.GroupVersionKind, object client.Object) {
	c.version++
	object.SetResourceVersion(strconv.Itoa(c.version))
	c.named[object.GetName()] = true
	if c.kinds[gvk] == nil {
		c.kinds[gvk] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers[gvk.Kind])
	}
	lo.Must0(c.kinds[gvk].Add(object), "each object has a key")
}

func (c *Client) forget(gvk schema.GroupVersionKind, object client.Object) {
	if c.kinds[gvk] != nil {
		lo.Must0(c.kinds[gvk].Delete(object), "each object has a key")
	}
}

// find returns the stored object. Core asks for PersistentVolumes with the namespace of the claim, which an API server ignores.
func (c *Client) find(gvk schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	for _, name := range []cache.ObjectName{cache.ObjectName(key), {Name: key.Name}} {
		if c.kinds[gvk] == nil {
			break
		}
		if object, ok, _ := c.kinds[gvk].GetByKey(name.String()); ok {
			return object.(client.Object), nil
		}
	}
	return nil, apierrors.NewNotFound(resourceOf(gvk), key.Name)
}

func resourceOf(gvk schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource()
}

// copyInto writes an object into the caller's.
func copyInto(into client.Object, object client.Object) error {
	if reflect.TypeOf(into) != reflect.TypeOf(object) {
		return fmt.Errorf("%T is not supported: the copy has it as %T", into, object)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	return nil
}

// Put writes an object with its status, as a simulation does in place of the kubelet and of controllers.
func (c *Client) Put(object client.Object) {
	gvk := lo.Must(c.GroupVersionKindFor(object))
	c.mu.Lock()
	defer c.mu.Unlock()
	if object.GetUID() == "" {
		c.stamp(object)
	}
	stored := object.DeepCopyObject().(client.Object)
	c.store(gvk, stored)
	object.SetResourceVersion(stored.GetResourceVersion())
}

// Remove deletes an object that nothing keeps.
func (c *Client) Remove(object client.Object) {
	gvk := lo.Must(c.GroupVersionKindFor(object))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(gvk, object)
}

// SetPods replaces all pods. They belong to the client then.
func (c *Client) SetPods(pods []*corev1.Pod) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gvk)
	for _, pod := range pods {
		c.stamp(pod)
		c.store(gvk, pod)
	}
}

// Get implements client.Reader.
func (c *Client) Get(_ context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	gvk, err := c.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	c.mu.RLock()
	found, err := c.find(gvk, key)
	c.mu.RUnlock()
	if err != nil {
		return err
	}
	if !lo.FromPtr((&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy) {
		found = found.DeepCopyObject().(client.Object)
	}
	return copyInto(into, found)
}

// indexers are what lists can be selected by, as the controller's cache indexes it.
var indexers = map[string]cache.Indexers{
	"Pod":       {"spec.nodeName": indexBy(func(pod *corev1.Pod) string { return pod.Spec.NodeName })},
	"Node":      {"spec.providerID": indexBy(func(node *corev1.Node) string { return node.Spec.ProviderID })},
	"NodeClaim": {"status.providerID": indexBy(func(claim *karpv1.NodeClaim) string { return claim.Status.ProviderID })},
}

func indexBy[T client.Object](value func(T) string) cache.IndexFunc {
	return func(object any) ([]string, error) { return []string{value(object.(T))}, nil }
}

// List implements client.Reader. Objects are sorted by namespace and name.
func (c *Client) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	gvk, err := c.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selected, err := c.selected(gvk, options)
	if err != nil {
		return err
	}
	if limit := int(options.Limit); limit > 0 {
		selected = lo.Slice(selected, 0, limit)
	}
	items, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}
	list := reflect.ValueOf(items).Elem()
	result := reflect.MakeSlice(list.Type(), 0, len(selected))
	for _, object := range selected {
		if !lo.FromPtr(options.UnsafeDisableDeepCopy) {
			object = object.DeepCopyObject().(client.Object)
		}
		value := reflect.ValueOf(object).Elem()
		if value.Type() != list.Type().Elem() {
			return fmt.Errorf("%T is not supported: the copy has %T", into, object)
		}
		result = reflect.Append(result, value)
	}
	list.Set(result)
	return nil
}

func (c *Client) selected(gvk schema.GroupVersionKind, options *client.ListOptions) ([]client.Object, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.kinds[gvk] == nil {
		return nil, nil
	}
	from := c.kinds[gvk].List()
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		requirements := options.FieldSelector.Requirements()
		value, exact := options.FieldSelector.RequiresExactMatch(requirements[0].Field)
		indexed, err := c.kinds[gvk].ByIndex(requirements[0].Field, value)
		if err != nil || !exact || len(requirements) != 1 {
			return nil, fmt.Errorf("listing %s by %s is not supported", resourceOf(gvk).Resource, options.FieldSelector)
		}
		from = indexed
	}
	selected := lo.FilterMap(from, func(stored any, _ int) (client.Object, bool) {
		object := stored.(client.Object)
		return object, (options.Namespace == "" || object.GetNamespace() == options.Namespace) &&
			(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels())))
	})
	slices.SortFunc(selected, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return selected, nil
}

// All are the objects of a kind, copied as those of a list are. What there is none of is nothing; what List does not
// support is a defect, and panics.
func All[T client.Object](c *Client, opts ...client.ListOption) []T {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selected := lo.Must(c.selected(lo.Must(c.GroupVersionKindFor(newOf[T]())), options))
	return lo.Map(selected, func(object client.Object, _ int) T {
		into := newOf[T]()
		if !lo.FromPtr(options.UnsafeDisableDeepCopy) {
			object = object.DeepCopyObject().(client.Object)
		}
		lo.Must0(copyInto(into, object))
		return into
	})
}

// Find is the object of a kind and name, if there is one.
func Find[T client.Object](c *Client, key client.ObjectKey) (T, bool) {
	into := newOf[T]()
	err := c.Get(context.Background(), key, into)
	lo.Must0(client.IgnoreNotFound(err))
	return into, err == nil
}

func newOf[T client.Object]() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return scheme.Scheme }

// RESTMapper implements client.Client. It knows no kind.
func (c *Client) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, scheme.Scheme)
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(object runtime.Object) (bool, error) {
	return false, fmt.Errorf("whether %T has a namespace is not known here", object)
}

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
