// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

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
