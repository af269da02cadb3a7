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

package properties_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// hasty is a clock on which nobody waits: who waits for a time sets the clock forward to it. Core validates every
// command again after 15 s; here that costs nothing.
type hasty struct{ *clocktesting.FakeClock }

// After steps and fires.
func (h hasty) After(d time.Duration) <-chan time.Time {
	h.Step(d)
	fired := make(chan time.Time, 1)
	fired <- h.Now()
	return fired
}

// newAPI is an API server in memory, with the indexes that core makes. One over HTTP would leave time for a tenth of the
// seeds, and nothing here depends on what only a real one does: nobody else writes.
func newAPI(clock *clocktesting.FakeClock) client.Client {
	created := atomic.Int64{}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).
		WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{}, &v1alpha1.BizflyNodeClass{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				// A real API server gives both, and core and provider tell claims apart by them.
				if object.GetUID() == "" {
					object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", created.Add(1))))
				}
				object.SetCreationTimestamp(metav1.NewTime(clock.Now()))
				return c.Create(ctx, object, options...)
			},
		})
	index := func(object client.Object, field string, value func(client.Object) string) {
		builder.WithIndex(object, field, func(o client.Object) []string { return []string{value(o)} })
	}
	index(&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName })
	index(&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID })
	index(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName })
	index(&karpv1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*karpv1.NodeClaim).Status.ProviderID })
	index(&karpv1.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Group })
	index(&karpv1.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Kind })
	index(&karpv1.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Name })
	index(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) string {
		return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Group
	})
	index(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) string {
		return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Kind
	})
	index(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) string {
		return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Name
	})
	return builder.Build()
}
