// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"fmt"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// LeaveForeign leaves NodePools of other providers out, with a note: no controller here serves them.
func (s *Set) LeaveForeign() {
	s.Objects = lo.Reject(s.Objects, func(object client.Object, _ int) bool {
		pool, _ := object.(*karpv1.NodePool)
		ref := lo.FromPtr(lo.FromPtr(pool).Spec.Template.Spec.NodeClassRef)
		if pool == nil || ref.Group == v1alpha1.Group {
			return false
		}
		s.noteOf("NodePools of other providers are left out: %s; write BizflyNodeClass of "+v1alpha1.Group+" as nodeClassRef",
			fmt.Sprintf("%s (%s of %s)", pool.Name, ref.Kind, ref.Group))
		return true
	})
	s.flush()
}
