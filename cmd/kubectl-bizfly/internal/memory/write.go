// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Create implements client.Writer.
func (c *Client) Create(_ context.Context, object client.Object, opts ...client.CreateOption) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.find(gvk, client.ObjectKeyFromObject(object)); err == nil {
		return apierrors.NewAlreadyExists(resourceOf(gvk), object.GetName())
	}
	if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return nil
	}
	c.stamp(object)
	stored := object.DeepCopyObject().(client.Object)
	if withStatus(gvk) {
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
	case withStatus(gvk):
		if err := copyStatus(result, stored.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	if !result.GetDeletionTimestamp().IsZero() && len(result.GetFinalizers()) == 0 && len(stored.GetFinalizers()) > 0 {
		c.forget(gvk, stored)
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
		c.forget(gvk, stored)
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
