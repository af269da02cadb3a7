// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// withoutLimits are the settings without the limits of the cluster: what they count are servers, and a simulation has none to list.
func withoutLimits(settings *options.Store) *options.Store {
	without := *settings.Load()
	without.MaxServers, without.MaxVNDPerHour = 0, 0
	return options.NewStore(&without)
}

// dryLauncher answers as if each server had been launched at once. Every other call is a defect and panics.
type dryLauncher struct {
	cloudprovider.Instances
	count atomic.Int64
}

// Intent implements cloudprovider.Instances.
func (d *dryLauncher) Intent(request *instance.LaunchRequest) (instance.Intent, error) {
	return instance.Intent{
		Attempt: request.Attempt, Name: fmt.Sprintf("planned-%d", d.count.Add(1)), Flavor: request.Flavor, Zone: request.Zone,
		BillingPlan: request.BillingPlan, RequestedAt: time.Now(),
	}, nil
}

// Doubted implements cloudprovider.Instances: whatever is listed can be launched.
func (d *dryLauncher) Doubted(string, *v1alpha1.BizflyNodeClass) bool { return false }

// Launch implements cloudprovider.Instances; it sends nothing.
func (d *dryLauncher) Launch(_ context.Context, request *instance.LaunchRequest, intent instance.Intent) (*instance.Instance, instance.Intent, error) {
	return &instance.Instance{
		ID: uuid.NewString(), Name: intent.Name, Flavor: request.Flavor, Zone: request.Zone, NodeClaim: request.NodeClaim.Name,
		NodeClaimUID: string(request.NodeClaim.UID), NodePool: request.NodeClaim.Labels[karpv1.NodePoolLabelKey], NodeClass: request.NodeClass.Name,
	}, intent, nil
}

// Last implements cloudprovider.Instances: no server is listed.
func (d *dryLauncher) Last(time.Duration) (*instance.Snapshot, *instance.Ports) { return nil, nil }

// launch decides flavor and zone of a NodeClaim by the controller's own code, and writes them down in the copy, where the
// next decision looks.
func (s *Simulation) launch(ctx context.Context, name string) (*karpv1.NodeClaim, error) {
	claim := &karpv1.NodeClaim{}
	if err := s.Objects.Get(ctx, types.NamespacedName{Name: name}, claim); err != nil {
		return nil, err
	}
	created, err := s.CloudProvider.Create(ctx, claim.DeepCopy())
	if err != nil {
		return nil, err
	}
	// The launch has written its intent meanwhile.
	if err := s.Objects.Get(ctx, types.NamespacedName{Name: name}, claim); err != nil {
		return nil, err
	}
	claim.Labels = lo.Assign(created.Labels, claim.Labels)
	claim.Status.ProviderID = lo.CoalesceOrEmpty(created.Status.ProviderID, providerid.New(name))
	claim.Status.Capacity, claim.Status.Allocatable = created.Status.Capacity, created.Status.Allocatable
	s.Objects.Put(claim)
	return claim, nil
}

// Foreign is of which other provider a NodePool is; empty where it is of this one.
func Foreign(pool *karpv1.NodePool) string {
	ref := lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef)
	if v1alpha1.IsOurs(&ref) {
		return ""
	}
	return fmt.Sprintf("it is of another provider (%s of %s): no controller here serves it",
		lo.CoalesceOrEmpty(ref.Kind, "no kind"), lo.CoalesceOrEmpty(ref.Group, "no group"))
}

// Paused reports whether a limit of 0 keeps the NodePool from launching any node.
func Paused(pool *karpv1.NodePool) bool {
	return lo.SomeBy(lo.Values(pool.Spec.Limits), func(q resource.Quantity) bool { return q.IsZero() })
}

// LimitReached returns nil if one more node of some flavor fits into the limits of the NodePool: core launches none that does not, so what is
// in use stays below the limits. Without flavors, a limit counts as reached when it is used up.
func LimitReached(pool *karpv1.NodePool, flavors []*corecloudprovider.InstanceType) error {
	sizes := lo.Map(flavors, func(it *corecloudprovider.InstanceType, _ int) corev1.ResourceList { return it.Capacity })
	if len(sizes) == 0 {
		sizes = []corev1.ResourceList{{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1")}}
	}
	if lo.SomeBy(sizes, func(size corev1.ResourceList) bool {
		return pool.Spec.Limits.ExceededBy(resources.Merge(pool.Status.Resources, size, corev1.ResourceList{resources.Node: resource.MustParse("1")})) == nil
	}) {
		return nil
	}
	return fmt.Errorf("no further node fits into them; in use: %s", strings.Join(lo.Map(slices.Sorted(maps.Keys(pool.Spec.Limits)),
		func(name corev1.ResourceName, _ int) string {
			used, limit := pool.Status.Resources[name], pool.Spec.Limits[name]
			return fmt.Sprintf("%s of %s %s", used.String(), limit.String(), name)
		}), ", "))
}
