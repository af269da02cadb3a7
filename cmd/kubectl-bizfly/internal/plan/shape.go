// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Shape is which flavors a NodePool has. Zero values narrow nothing.
type Shape struct {
	// MinCPU and MaxCPU are vCPUs.
	MinCPU int `json:"minCpu,omitempty"`
	MaxCPU int `json:"maxCpu,omitempty"`
	// Category is one of those that the NodePool allows.
	Category string `json:"category,omitempty"`
	// MemoryPerCPU are the ratios of flavors, in GiB per vCPU.
	MemoryPerCPU []float64 `json:"memoryPerCpuGiB,omitempty"`
	// Fallback adds a second NodePool of all sizes for pods that need a larger flavor.
	Fallback bool `json:"fallback,omitempty"`
}

// String describes it in a line.
func (s Shape) String() string {
	var parts []string
	switch {
	case s.MinCPU > 0 && s.MaxCPU > 0:
		parts = append(parts, fmt.Sprintf("%d to %d vCPU", s.MinCPU, s.MaxCPU))
	case s.MaxCPU > 0:
		parts = append(parts, fmt.Sprintf("up to %d vCPU", s.MaxCPU))
	case s.MinCPU > 0:
		parts = append(parts, fmt.Sprintf("from %d vCPU", s.MinCPU))
	default:
		parts = append(parts, "any size")
	}
	if s.Category != "" {
		parts = append(parts, s.Category)
	}
	if len(s.MemoryPerCPU) > 0 {
		parts = append(parts, strings.Join(lo.Map(s.MemoryPerCPU, func(r float64, _ int) string { return strconv.FormatFloat(r, 'g', 3, 64) }), " or ")+
			" GiB per vCPU")
	}
	if s.Fallback {
		parts = append(parts, "larger ones for pods that need them")
	}
	return strings.Join(parts, ", ")
}

// narrowed is how many of its values narrow something: of two shapes at one price the simpler one is suggested.
func (s Shape) narrowed() int {
	return lo.CountBy([]bool{s.MinCPU > 0, s.MaxCPU > 0, s.Category != "", len(s.MemoryPerCPU) > 0, s.Fallback}, func(set bool) bool { return set })
}

// flavorOf is what a shape depends on of a flavor.
type flavorOf struct {
	name, category string
	cpu            int
	memoryPerCPU   float64
}

// sizeKeys are the requirements that a shape replaces.
var sizeKeys = []string{v1alpha1.LabelInstanceCPU, v1alpha1.LabelInstanceMemory}

// upper reports whether a requirement limits the size from above. From below it stays: smaller nodes may not join.
func upper(r karpv1.NodeSelectorRequirementWithMinValues) bool {
	return slices.Contains(sizeKeys, r.Key) && !slices.Contains([]corev1.NodeSelectorOperator{corev1.NodeSelectorOpGt, karpv1.NodeSelectorOpGte}, r.Operator)
}

// unlimited is a NodePool without limits of the size of a node.
func unlimited(pool *karpv1.NodePool) *karpv1.NodePool {
	pool = pool.DeepCopy()
	pool.Spec.Template.Spec.Requirements = lo.Reject(pool.Spec.Template.Spec.Requirements,
		func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool { return upper(r) })
	return pool
}

// FlavorsOf are the flavors that NodeClaims of a NodePool can be launched with, sorted by name.
func (s *Simulation) FlavorsOf(ctx context.Context, pool *karpv1.NodePool) ([]*corecloudprovider.InstanceType, error) {
	instanceTypes, err := s.Provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, err
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	possible := lo.Filter(instanceTypes, func(it *corecloudprovider.InstanceType, _ int) bool {
		return wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) && it.Offerings.Available().HasCompatible(wanted)
	})
	slices.SortFunc(possible, func(a, b *corecloudprovider.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return possible, nil
}

func newFlavorOf(it *corecloudprovider.InstanceType) flavorOf {
	number := func(label string) float64 {
		value, _ := strconv.ParseFloat(it.Requirements.Get(label).Any(), 64)
		return value
	}
	f := flavorOf{name: it.Name, category: it.Requirements.Get(v1alpha1.LabelInstanceCategory).Any(), cpu: int(number(v1alpha1.LabelInstanceCPU))}
	// In quarters: 3.75 and 4 GiB per vCPU are different, 3.99 and 4 are not.
	f.memoryPerCPU = math.Round(number(v1alpha1.LabelInstanceMemory)/1024/max(number(v1alpha1.LabelInstanceCPU), 1)*4) / 4
	return f
}

// matches reports whether a flavor is of the shape.
func (s Shape) matches(f flavorOf) bool {
	return f.cpu >= s.MinCPU && (s.MaxCPU == 0 || f.cpu <= s.MaxCPU) && (s.Category == "" || f.category == s.Category) &&
		(len(s.MemoryPerCPU) == 0 || slices.Contains(s.MemoryPerCPU, f.memoryPerCPU))
}

// apply gives a NodePool the shape. There is none where no flavor has it.
func (s Shape) apply(pool *karpv1.NodePool, flavors []flavorOf) []*karpv1.NodePool {
	matching := lo.Filter(flavors, func(f flavorOf, _ int) bool { return s.matches(f) })
	if len(matching) == 0 {
		return nil
	}
	shaped := unlimited(pool)
	require := func(key string, operator corev1.NodeSelectorOperator, values ...string) {
		shaped.Spec.Template.Spec.Requirements = append(shaped.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values})
	}
	without := func(key string, operators ...corev1.NodeSelectorOperator) {
		shaped.Spec.Template.Spec.Requirements = lo.Reject(shaped.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues, _ int) bool {
			return r.Key == key && slices.Contains(operators, r.Operator)
		})
	}
	if s.MinCPU > 0 {
		without(v1alpha1.LabelInstanceCPU, corev1.NodeSelectorOpGt, karpv1.NodeSelectorOpGte)
		require(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpGte, strconv.Itoa(s.MinCPU))
	}
	if s.MaxCPU > 0 {
		require(v1alpha1.LabelInstanceCPU, karpv1.NodeSelectorOpLte, strconv.Itoa(s.MaxCPU))
	}
	if s.Category != "" {
		without(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn)
		require(v1alpha1.LabelInstanceCategory, corev1.NodeSelectorOpIn, s.Category)
	}
	if len(s.MemoryPerCPU) > 0 { // there is no label of the ratio
		without(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn)
		require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, lo.Map(matching, func(f flavorOf, _ int) string { return f.name })...)
	}
	if !s.Fallback {
		return []*karpv1.NodePool{shaped}
	}
	larger := unlimited(pool)
	larger.Name, larger.UID, larger.ResourceVersion = pool.Name+"-larger", "", ""
	// Core tries the heavier NodePool first.
	shaped.Spec.Weight = lo.ToPtr(min(lo.FromPtr(pool.Spec.Weight)+1, 100))
	larger.Spec.Weight = lo.ToPtr(max(*shaped.Spec.Weight-1, 1))
	return []*karpv1.NodePool{shaped, larger}
}

// cpus are the sizes of flavors, ratios and categories what else they differ in, each sorted.
func cpus(flavors []flavorOf) []int {
	return distinct(flavors, func(f flavorOf) int { return f.cpu })
}

func ratios(flavors []flavorOf) []float64 {
	return distinct(flavors, func(f flavorOf) float64 { return f.memoryPerCPU })
}

func categories(flavors []flavorOf) []string {
	return distinct(flavors, func(f flavorOf) string { return f.category })
}

func distinct[T cmp.Ordered](flavors []flavorOf, of func(flavorOf) T) []T {
	return slices.Compact(slices.Sorted(slices.Values(lo.Map(flavors, func(f flavorOf, _ int) T { return of(f) }))))
}
