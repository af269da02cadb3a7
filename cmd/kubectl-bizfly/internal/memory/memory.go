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

// Package memory is a Kubernetes API whose objects are in memory: the copy of a cluster in which the scheduler of Karpenter
// core and the controllers of this provider run when nothing may be written to the real one.
package memory

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Client holds objects by kind. It knows what an API server does only as far as schedulers and status controllers need
// it: UIDs, names, generations, labels and the few field selectors that core uses. Lists are sorted by namespace and name.
type Client struct {
	mu      sync.RWMutex
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object
	sorted  map[schema.GroupVersionKind][]client.ObjectKey
	clock   clock.PassiveClock
	created int
}

var _ client.Client = (*Client)(nil)

// New returns a client without objects.
func New(clk clock.PassiveClock) *Client {
	return &Client{
		objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{},
		sorted:  map[schema.GroupVersionKind][]client.ObjectKey{},
		clock:   clk,
	}
}

// Clone returns a client with the same objects, which may be changed apart.
func (c *Client) Clone() *Client {
	c.mu.RLock()
	defer c.mu.RUnlock()
	clone := New(c.clock)
	for gvk, objects := range c.objects {
		clone.objects[gvk] = maps.Clone(objects)
	}
	clone.created = c.created
	return clone
}

// Put stores objects as they are, in place of those of the same name. An object without UID gets one.
func (c *Client) Put(objects ...client.Object) error {
	for _, object := range objects {
		if err := c.put(object.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) put(object client.Object) error {
	gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		return fmt.Errorf("storing %T: %w", object, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created++
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", c.created)))
	}
	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
	}
	if c.objects[gvk] == nil {
		c.objects[gvk] = map[client.ObjectKey]client.Object{}
	}
	key := client.ObjectKeyFromObject(object)
	if _, known := c.objects[gvk][key]; !known {
		delete(c.sorted, gvk)
	}
	c.objects[gvk][key] = object
	return nil
}

// Get implements client.Reader.
func (c *Client) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.objects[gvk][key]
	if !ok {
		// A client of the API server ignores the namespace of a kind that has none, and core reads PersistentVolumes with one.
		found, ok = c.objects[gvk][client.ObjectKey{Name: key.Name}]
	}
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader.
func (c *Client) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	options := (&client.ListOptions{}).ApplyOptions(opts)
	shared := options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	found := reflect.MakeSlice(items.Type(), 0, 0)
	for _, object := range c.list(gvk) {
		if options.Namespace != "" && object.GetNamespace() != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labelSet(object.GetLabels())) ||
			options.FieldSelector != nil && !selects(options.FieldSelector, object) {
			continue
		}
		if !shared {
			object = object.DeepCopyObject().(client.Object)
		}
		value := reflect.ValueOf(object)
		if items.Type().Elem().Kind() != reflect.Pointer {
			value = value.Elem()
		}
		found = reflect.Append(found, value)
	}
	items.Set(found)
	return nil
}

// list returns the objects of a kind in order.
func (c *Client) list(gvk schema.GroupVersionKind) []client.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, ok := c.sorted[gvk]
	if !ok {
		keys = slices.SortedFunc(maps.Keys(c.objects[gvk]), func(a, b client.ObjectKey) int {
			return strings.Compare(a.String(), b.String())
		})
		c.sorted[gvk] = keys
	}
	return lo.Map(keys, func(key client.ObjectKey, _ int) client.Object { return c.objects[gvk][key] })
}

type labelSet map[string]string

// Has, Get and Lookup implement labels.Labels.
func (l labelSet) Has(key string) bool              { _, ok := l[key]; return ok }
func (l labelSet) Get(key string) string            { return l[key] }
func (l labelSet) Lookup(key string) (string, bool) { value, ok := l[key]; return value, ok }

func selects(selector fields.Selector, object client.Object) bool {
	return lo.EveryBy(selector.Requirements(), func(r fields.Requirement) bool { return fieldOf(object, r.Field) == r.Value })
}

// fieldOf returns the value of a field that core selects by.
func fieldOf(object client.Object, field string) string {
	switch o := object.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName
	case *corev1.Node:
		return o.Spec.ProviderID
	case *corev1.Event:
		if field == "involvedObject.kind" {
			return o.InvolvedObject.Kind
		}
		return o.InvolvedObject.Name
	case *storagev1.VolumeAttachment:
		return o.Spec.NodeName
	case *karpv1.NodeClaim:
		if field == "status.providerID" {
			return o.Status.ProviderID
		}
		return refField(o.Spec.NodeClassRef, field)
	case *karpv1.NodePool:
		return refField(o.Spec.Template.Spec.NodeClassRef, field)
	}
	return ""
}

func refField(ref *karpv1.NodeClassReference, field string) string {
	switch r := lo.FromPtr(ref); field[strings.LastIndex(field, ".")+1:] {
	case "group":
		return r.Group
	case "kind":
		return r.Kind
	default:
		return r.Name
	}
}

// Create implements client.Writer, in memory.
func (c *Client) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if object.GetName() == "" {
		object.SetName(object.GetGenerateName() + rand.String(5))
	}
	stored := object.DeepCopyObject().(client.Object)
	if err := c.put(stored); err != nil {
		return err
	}
	object.SetUID(stored.GetUID())
	object.SetCreationTimestamp(stored.GetCreationTimestamp())
	return nil
}

// Update implements client.Writer, in memory.
func (c *Client) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return c.Put(object)
}

// Patch implements client.Writer, in memory: callers pass the object as it shall be.
func (c *Client) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.Put(object)
}

// Apply implements client.Writer; nothing that runs here applies.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "apply")
}

// Delete implements client.Writer, in memory.
func (c *Client) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects[gvk], client.ObjectKeyFromObject(object))
	delete(c.sorted, gvk)
	return nil
}

// DeleteAllOf implements client.Writer; nothing that runs here uses it.
func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "deletecollection")
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return status{c} }

// SubResource implements client.SubResourceClientConstructor; nothing that runs here uses another than the status.
func (c *Client) SubResource(string) client.SubResourceClient { return nil }

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return scheme.Scheme }

// RESTMapper implements client.Client; nothing that runs here maps.
func (c *Client) RESTMapper() meta.RESTMapper { return nil }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, scheme.Scheme)
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(object runtime.Object) (bool, error) {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetNamespace() != "", err
}

// status writes to the same objects: callers that write a status have read the complete object.
type status struct{ client *Client }

func (s status) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "create")
}

func (s status) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.client.Put(object)
}

func (s status) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.Put(object)
}

func (s status) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "apply")
}
