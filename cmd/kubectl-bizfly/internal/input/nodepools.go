// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// platform is what every flavor is.
var platform = map[string]string{corev1.LabelArchStable: karpv1.ArchitectureAmd64, corev1.LabelOSStable: string(corev1.Linux)}

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

// validateNodePool rejects what the admission policy of the chart rejects, since no flavor has it.
func validateNodePool(where string, pool *karpv1.NodePool) error {
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref == nil || ref.Group != v1alpha1.Group {
		return nil
	}
	for _, r := range pool.Spec.Template.Spec.Requirements {
		domain, _, _ := strings.Cut(r.Key, "/")
		if lo.SomeBy(v1alpha1.ForeignLabelDomains, func(other string) bool { return domain == other || strings.HasSuffix(domain, "."+other) }) {
			return fmt.Errorf("%s: requirements may not have %s, which is a label of another provider: write one of %s", where, r.Key, v1alpha1.Group)
		}
		only, known := platform[r.Key]
		listed := slices.Contains(r.Values, only)
		if known && (r.Operator == corev1.NodeSelectorOpIn && !listed || r.Operator == corev1.NodeSelectorOpNotIn && listed ||
			r.Operator == corev1.NodeSelectorOpDoesNotExist) {
			return fmt.Errorf("%s: all nodes are amd64 with Linux: add %s to the values of %s, or leave this requirement out", where, only, r.Key)
		}
	}
	return nil
}
