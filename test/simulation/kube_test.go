// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// newKube returns an API server in memory: hundreds of simulations cannot have a real one each. It has optimistic locking,
// finalizers, the status subresource and the indexes that core and we ask for; managed fields are left out, which takes half the time.
func newKube() client.WithWatch {
	return unit.FakeClientBuilder().WithStatusSubresource(&corev1.Node{}).Build()
}

// kubeFor is the API server as one process sees it.
func (sim *simulation) kubeFor(p *process) client.Client {
	write := func(ctx context.Context, verb string, object client.Object, call func() error) error {
		return sim.kubeCall(ctx, p, fmt.Sprintf("%s %T %s", verb, object, object.GetName()), true, call)
	}
	return interceptor.NewClient(sim.kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return sim.kubeCall(ctx, p, fmt.Sprintf("get %T %s", o, key.Name), false, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return sim.kubeCall(ctx, p, fmt.Sprintf("list %T", list), false, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(ctx, "create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(ctx, "delete", o, func() error { return sim.deleteIf(ctx, c, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write(ctx, "update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write(ctx, "patch", o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(ctx, "update "+name, o, func() error { return c.SubResource(name).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(ctx, "patch "+name, o, func() error { return c.SubResource(name).Patch(ctx, o, patch, opts...) })
		},
	})
}

// kubeCall makes one call to the API server, which may fail before it has an effect or lose its answer afterwards.
func (sim *simulation) kubeCall(ctx context.Context, p *process, what string, writes bool, call func() error) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	r := sim.chances(what)
	if err := sleep(ctx, between(r, time.Millisecond, 16*time.Millisecond)); err != nil {
		return err
	}
	fails := r.Float64() < sim.currentFaults().kube
	kind := r.IntN(3)
	return p.step(what, func() error {
		sim.api.Lock()
		defer sim.api.Unlock()
		switch {
		case fails && !writes:
			return apierrors.NewTimeoutError("the API server is busy", 1)
		case fails && kind == 0:
			return apierrors.NewServerTimeout(schema.GroupResource{Resource: "things"}, "write", 1)
		case fails && kind == 1:
			return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, what, errors.New("the object has been modified"))
		}
		for _, broken := range sim.broken {
			if broken.kube != nil && strings.HasPrefix(what, broken.kube.call) {
				return broken.kube.err
			}
		}
		err := call()
		if fails && err == nil {
			return errors.New("http2: client connection lost")
		}
		return err
	})
}

// deleteIf deletes under the precondition of the UID, which the client in memory does not know.
func (sim *simulation) deleteIf(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		stored := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
			return err
		}
		if stored.GetUID() != *options.Preconditions.UID {
			return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, o.GetName(), errors.New("another UID"))
		}
	}
	return c.Delete(ctx, o, opts...)
}
