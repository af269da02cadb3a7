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
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
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

// byKey are objects of one kind.
type byKey map[client.ObjectKey]client.Object

// Client is a client of the copy. Its objects are never changed, only replaced, so that lists may share them.
type Client struct {
	mu     sync.RWMutex
	kinds  map[schema.GroupVersionKind]byKey
	byNode map[string]byKey // pods: core lists those of each node again and again
	// created is how many objects have got a UID here, version the last resource version, and named the names that were given.
	created, version int
	named            map[string]bool
}

// New returns a client of copies of the objects. Those without UID get one, as from an API server: core tells pods apart by it.
func New(objects Objects) *Client {
	c := &Client{kinds: map[schema.GroupVersionKind]byKey{}, byNode: map[string]byKey{}, named: map[string]bool{}}
	for _, object := range objects {
		object = object.DeepCopyObject().(client.Object)
		c.stamp(object)
		c.store(lo.Must(c.GroupVersionKindFor(object)), object)
	}
	return c
}

// withStatus are the kinds whose definitions say that their status is written apart from the object.
var withStatus = sync.OnceValue(func() map[schema.GroupVersionKind]bool {
	found := map[schema.GroupVersionKind]bool{}
	for _, crd := range apis.CRDs {
		for _, version := range crd.Spec.Versions {
			found[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] =
				version.Subresources != nil && version.Subresources.Status != nil
		}
	}
	return found
})

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
	key := client.ObjectKeyFromObject(object)
	c.named[key.Name] = true
	c.forget(gvk, key)
	if c.kinds[gvk] == nil {
		c.kinds[gvk] = byKey{}
	}
	c.kinds[gvk][key] = object
	if pod, ok := object.(*corev1.Pod); ok {
		if c.byNode[pod.Spec.NodeName] == nil {
			c.byNode[pod.Spec.NodeName] = byKey{}
		}
		c.byNode[pod.Spec.NodeName][key] = pod
	}
}

func (c *Client) forget(gvk schema.GroupVersionKind, key client.ObjectKey) {
	if pod, ok := c.kinds[gvk][key].(*corev1.Pod); ok {
		delete(c.byNode[pod.Spec.NodeName], key)
	}
	delete(c.kinds[gvk], key)
}

// find returns the stored object. Core asks for PersistentVolumes with the namespace of the claim, which an API server ignores.
func (c *Client) find(gvk schema.GroupVersionKind, key client.ObjectKey) (client.Object, error) {
	for _, key := range []client.ObjectKey{key, {Name: key.Name}} {
		if object, ok := c.kinds[gvk][key]; ok {
			return object, nil
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
func (c *Client) Put(object client.Object) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if object.GetUID() == "" {
		c.stamp(object)
	}
	stored := object.DeepCopyObject().(client.Object)
	c.store(gvk, stored)
	object.SetResourceVersion(stored.GetResourceVersion())
	return nil
}

// Remove deletes an object that nothing keeps.
func (c *Client) Remove(object client.Object) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(gvk, client.ObjectKeyFromObject(object))
	return nil
}

// SetPods replaces all pods. They belong to the client then.
func (c *Client) SetPods(pods []*corev1.Pod) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[gvk], c.byNode = byKey{}, map[string]byKey{}
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

// fields are what lists can be selected by, as the controller's cache indexes it.
var fields = map[string]func(client.Object) (string, bool){
	"spec.providerID": func(object client.Object) (string, bool) {
		node, ok := object.(*corev1.Node)
		return lo.FromPtr(node).Spec.ProviderID, ok
	},
	"status.providerID": func(object client.Object) (string, bool) {
		claim, ok := object.(*karpv1.NodeClaim)
		return lo.FromPtr(claim).Status.ProviderID, ok
	},
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
	slices.SortFunc(selected, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
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
	from := c.kinds[gvk]
	matches := func(client.Object) bool { return true }
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		requirement := options.FieldSelector.Requirements()[0]
		value, exact := options.FieldSelector.RequiresExactMatch(requirement.Field)
		field, known := fields[requirement.Field]
		switch {
		case !exact || len(options.FieldSelector.Requirements()) != 1:
			known = false
		case gvk.Kind == "Pod" && requirement.Field == "spec.nodeName":
			from, known = c.byNode[value], true
		case known:
			matches = func(object client.Object) bool {
				has, ok := field(object)
				return ok && has == value
			}
		}
		if !known {
			return nil, fmt.Errorf("listing %s by %s is not supported", resourceOf(gvk).Resource, options.FieldSelector)
		}
	}
	return lo.Filter(slices.Collect(maps.Values(from)), func(object client.Object, _ int) bool {
		return (options.Namespace == "" || object.GetNamespace() == options.Namespace) && matches(object) &&
			(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels())))
	}), nil
}

// Create implements client.Writer.
func (c *Client) Create(_ context.Context, object client.Object, opts ...client.CreateOption) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, exists := c.kinds[gvk][client.ObjectKeyFromObject(object)]; exists {
		return apierrors.NewAlreadyExists(resourceOf(gvk), object.GetName())
	}
	if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return nil
	}
	c.stamp(object)
	stored := object.DeepCopyObject().(client.Object)
	if withStatus()[gvk] {
		status := reflect.ValueOf(stored).Elem().FieldByName("Status")
		status.Set(reflect.Zero(status.Type()))
	}
	c.store(gvk, stored)
	return copyInto(object, stored.DeepCopyObject().(client.Object))
}

// write replaces an object by what change makes of it. Object and status are written apart where the definition of the kind says so.
func (c *Client) write(object client.Object, ofStatus bool, change func(stored client.Object) (client.Object, error)) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.find(gvk, client.ObjectKeyFromObject(object))
	if err != nil {
		return err
	}
	changed, err := change(stored)
	if err != nil {
		return err
	}
	if version := changed.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return apierrors.NewConflict(resourceOf(gvk), object.GetName(), fmt.Errorf("it has changed since it was read"))
	}
	result := changed
	switch {
	case ofStatus:
		result = stored.DeepCopyObject().(client.Object)
		if err := copyStatus(result, changed); err != nil {
			return err
		}
	case withStatus()[gvk]:
		if err := copyStatus(result, stored.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	if !result.GetDeletionTimestamp().IsZero() && len(result.GetFinalizers()) == 0 && len(stored.GetFinalizers()) > 0 {
		c.forget(gvk, client.ObjectKeyFromObject(object))
	} else {
		c.store(gvk, result)
	}
	return copyInto(object, result.DeepCopyObject().(client.Object))
}

func copyStatus(into, from client.Object) error {
	status := reflect.ValueOf(into).Elem().FieldByName("Status")
	if !status.IsValid() {
		return fmt.Errorf("%T has no status", into)
	}
	status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	return nil
}

// Update implements client.Writer.
func (c *Client) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return c.write(object, false, replaced(object))
}

func replaced(by client.Object) func(client.Object) (client.Object, error) {
	return func(client.Object) (client.Object, error) { return by.DeepCopyObject().(client.Object), nil }
}

// Patch implements client.Writer.
func (c *Client) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.write(object, false, patched(object, patch))
}

// patched applies a JSON merge patch, which is the one that controllers use here.
func patched(object client.Object, patch client.Patch) func(client.Object) (client.Object, error) {
	return func(stored client.Object) (client.Object, error) {
		if patch.Type() != types.MergePatchType {
			return nil, fmt.Errorf("patches of type %s are not supported", patch.Type())
		}
		data, err := patch.Data(object)
		if err != nil {
			return nil, err
		}
		before, err := json.Marshal(stored)
		if err != nil {
			return nil, err
		}
		after, err := jsonpatch.MergePatch(before, data)
		if err != nil {
			return nil, fmt.Errorf("applying the patch of %s: %w", object.GetName(), err)
		}
		result := reflect.New(reflect.TypeOf(stored).Elem()).Interface().(client.Object)
		return result, json.Unmarshal(after, result)
	}
}

// Delete implements client.Writer. What has finalizers is marked.
func (c *Client) Delete(_ context.Context, object client.Object, opts ...client.DeleteOption) error {
	if (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions != nil {
		return fmt.Errorf("deleting %s with preconditions is not supported", object.GetName())
	}
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := c.find(gvk, client.ObjectKeyFromObject(object))
	switch {
	case err != nil:
		return err
	case len(stored.GetFinalizers()) == 0:
		c.forget(gvk, client.ObjectKeyFromObject(stored))
	case stored.GetDeletionTimestamp().IsZero():
		marked := stored.DeepCopyObject().(client.Object)
		marked.SetDeletionTimestamp(lo.ToPtr(metav1.Now()))
		c.store(gvk, marked)
	}
	return nil
}

// DeleteAllOf implements client.Writer.
func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return fmt.Errorf("deleting all of a kind is not supported")
}

// Apply implements client.Writer.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return fmt.Errorf("applying is not supported")
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return &subresource{c, "status"} }

// SubResource implements client.SubResourceClientConstructor.
func (c *Client) SubResource(name string) client.SubResourceClient { return &subresource{c, name} }

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

// subresource is the status. Others are not supported.
type subresource struct {
	client *Client
	name   string
}

func (s *subresource) unsupported(verb string) error {
	return fmt.Errorf("the subresource %s cannot be written by %s here", s.name, verb)
}

// Get implements client.SubResourceReader.
func (s *subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return s.unsupported("get")
}

// Create implements client.SubResourceWriter.
func (s *subresource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return s.unsupported("create")
}

// Apply implements client.SubResourceWriter.
func (s *subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.unsupported("apply")
}

// Update implements client.SubResourceWriter.
func (s *subresource) Update(_ context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	if s.name != "status" || len(opts) > 0 {
		return s.unsupported("update")
	}
	return s.client.write(object, true, replaced(object))
}

// Patch implements client.SubResourceWriter.
func (s *subresource) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if s.name != "status" || len(opts) > 0 {
		return s.unsupported("patch")
	}
	return s.client.write(object, true, patched(object, patch))
}
