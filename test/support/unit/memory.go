// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// InMemory is an environment whose API server is objects in memory, for what runs the same steps thousands of times and
// depends on nothing that only a real API server does: benchmarks, and properties over many seeds. It has neither
// defaults (see WithDefaults) nor validation.
func InMemory() *Environment {
	e := &Environment{Environment: &coretest.Environment{}, IDWait: time.Minute, VisibilityWindow: 2 * time.Minute}
	e.Client = e.objects()
	e.APIReader = e.Client
	return e
}

// WithDefaults fills in what a real API server takes from the definition of the resource for "spec: {}".
func WithDefaults(nodeClass *v1alpha1.BizflyNodeClass) {
	nodeClass.Spec = v1alpha1.BizflyNodeClassSpec{
		ImageSelectorTerms: []v1alpha1.ImageSelectorTerm{{Alias: "bke@latest"}},
		RootDisk:           &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("40Gi")), Medium: v1alpha1.DiskMediumSSD},
		NetworkPlan:        v1alpha1.NetworkPlanFreeDataTransfer, BillingPlan: v1alpha1.BillingPlanOnDemand,
		BootstrapMode: v1alpha1.BootstrapModeBKE, PlacementStrategy: v1alpha1.PlacementStrategyBalanced,
	}
}

// FakeClientBuilder builds clients of objects in memory, with the indexes of core and without managed fields, which take most of
// the time and are not used.
func FakeClientBuilder() *fake.ClientBuilder {
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme.Scheme, serializer.NewCodecFactory(scheme.Scheme).UniversalDecoder())).
		WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{}, &v1alpha1.BizflyNodeClass{}, &v1alpha1.ProviderConfig{})
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
	return builder
}

// objects returns the client of an environment in memory.
func (e *Environment) objects() client.Client {
	created := atomic.Int64{}
	return &podClient{pods: map[client.ObjectKey]*corev1.Pod{}, WithWatch: FakeClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			// A real API server sets both, and core and provider distinguish NodeClaims by them.
			if object.GetUID() == "" {
				object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", created.Add(1))))
			}
			object.SetGeneration(1)
			object.SetCreationTimestamp(metav1.NewTime(e.Clock.Now()))
			return c.Create(ctx, object, options...)
		},
	}).Build()}
}
