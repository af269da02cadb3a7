// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coretest "sigs.k8s.io/karpenter/pkg/test"
)

// syncedClient is core's client of a suite, which reads from a cache and waits after each write until the cache has it. Core's waits its
// longest, more than a second, for what never comes: the end of an object that has finalizers, and a Binding, which is never read.
type syncedClient struct{ *coretest.CacheSyncingClient }

// Create implements client.Writer.
func (c syncedClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if _, binding := object.(*corev1.Binding); binding {
		return c.Client.Create(ctx, object, opts...)
	}
	return c.CacheSyncingClient.Create(ctx, object, opts...)
}

// Delete implements client.Writer.
func (c syncedClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if err := c.Client.Delete(ctx, object, opts...); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || err == nil && !object.GetDeletionTimestamp().IsZero(), client.IgnoreNotFound(err)
	})
}
