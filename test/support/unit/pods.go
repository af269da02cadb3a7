// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podClient is a client of objects in memory that lists pods from copies of its own. The fake client encodes and decodes all pods for each
// list, and core lists those of each node for each node that it looks at.
type podClient struct {
	client.WithWatch
	mu   sync.Mutex
	pods map[client.ObjectKey]*corev1.Pod
}

// refresh copies a pod that was written.
func (c *podClient) refresh(ctx context.Context, object client.Object, err error) error {
	if _, pod := object.(*corev1.Pod); !pod || err != nil {
		return err
	}
	key, written := client.ObjectKeyFromObject(object), &corev1.Pod{}
	err = c.WithWatch.Get(ctx, key, written)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.pods, key)
		return client.IgnoreNotFound(err)
	}
	c.pods[key] = written
	return nil
}

// Create implements client.Writer.
func (c *podClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return c.refresh(ctx, object, c.WithWatch.Create(ctx, object, opts...))
}

// Update implements client.Writer.
func (c *podClient) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	return c.refresh(ctx, object, c.WithWatch.Update(ctx, object, opts...))
}

// Patch implements client.Writer.
func (c *podClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.refresh(ctx, object, c.WithWatch.Patch(ctx, object, patch, opts...))
}

// Delete implements client.Writer.
func (c *podClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	return c.refresh(ctx, object, c.WithWatch.Delete(ctx, object, opts...))
}

// Status implements client.StatusClient.
func (c *podClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c *podClient) SubResource(name string) client.SubResourceClient {
	return podSubResource{c.WithWatch.SubResource(name), c}
}

type podSubResource struct {
	client.SubResourceClient
	of *podClient
}

// Create implements client.SubResourceWriter.
func (s podSubResource) Create(ctx context.Context, object, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.of.refresh(ctx, object, s.SubResourceClient.Create(ctx, object, sub, opts...))
}

// Update implements client.SubResourceWriter.
func (s podSubResource) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.of.refresh(ctx, object, s.SubResourceClient.Update(ctx, object, opts...))
}

// Patch implements client.SubResourceWriter.
func (s podSubResource) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.of.refresh(ctx, object, s.SubResourceClient.Patch(ctx, object, patch, opts...))
}

// List implements client.Reader.
func (c *podClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	list, pods := into.(*corev1.PodList)
	options := (&client.ListOptions{}).ApplyOptions(opts)
	node, byNode := "", false
	if pods && options.FieldSelector != nil {
		node, byNode = options.FieldSelector.RequiresExactMatch("spec.nodeName")
		pods = byNode && len(options.FieldSelector.Requirements()) == 1
	}
	if !pods {
		return c.WithWatch.List(ctx, into, opts...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list.Items = list.Items[:0:0]
	for pod := range maps.Values(c.pods) {
		if byNode && pod.Spec.NodeName != node || options.Namespace != "" && pod.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		list.Items = append(list.Items, *pod.DeepCopy())
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return nil
}
