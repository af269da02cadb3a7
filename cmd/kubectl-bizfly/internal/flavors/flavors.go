// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flavors lists what can be launched: every flavor in every zone, with its size as nodes see it, its price, and
// what excludes it.
package flavors

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/offerings"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Row is one flavor in one zone.
type Row struct {
	Flavor   string `json:"flavor"`
	Zone     string `json:"zone,omitempty"`
	Category string `json:"category,omitempty"`
	CPU      int    `json:"cpu"`
	// MemoryMiB is what is sold; NodeMemoryMiB what nodes report, Allocatable what is left for pods.
	MemoryMiB     int                 `json:"memoryMiB"`
	NodeMemoryMiB int64               `json:"nodeMemoryMiB,omitempty"`
	Allocatable   corev1.ResourceList `json:"allocatable,omitempty"`
	GPU           string              `json:"gpu,omitempty"`
	VNDPerHour    float64             `json:"vndPerHour,omitempty"`
	VNDPerMonth   float64             `json:"vndPerMonth,omitempty"`
	// Price is the least certain source of its numbers: configured, published, derived or assumed.
	Price     string `json:"price,omitempty"`
	Available bool   `json:"available"`
	// Reason says why it is not available, or not for this NodePool.
	Reason string `json:"reason,omitempty"`
}

// Options say what to list.
type Options struct {
	// NodePool lists what NodeClaims of the NodePool may be launched with, and what excludes the others.
	NodePool string
	// NodeClass lists for a NodeClass; empty is one of defaults, unless NodePool names another.
	NodeClass string
	// Pod lists what could run this pod too, and what excludes the others.
	Pod types.NamespacedName
	// Requirements filter like those of a NodePool.
	Requirements scheduling.Requirements
}

// ParseRequirements reads requirements as a label selector writes them: "cpu in (4,8),zone=HN1,gpu-count notin (0)", with
// Gt and Lt as "key>4". Keys without a domain are those of this provider: "category" is its instance-category.
func ParseRequirements(text string) (scheduling.Requirements, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--requirements %q: %w; write for example 'category=premium,cpu>3,zone in (HN1,HN2)'", text, err)
	}
	operators := map[selection.Operator]corev1.NodeSelectorOperator{
		selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn, selection.In: corev1.NodeSelectorOpIn,
		selection.NotEquals: corev1.NodeSelectorOpNotIn, selection.NotIn: corev1.NodeSelectorOpNotIn, selection.Exists: corev1.NodeSelectorOpExists,
		selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist, selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
	}
	parsed, _ := selector.Requirements()
	requirements := scheduling.NewRequirements()
	for _, r := range parsed {
		key := lo.CoalesceOrEmpty(shortKeys[r.Key()], r.Key())
		requirements.Add(scheduling.NewRequirement(key, operators[r.Operator()], r.ValuesUnsorted()...))
	}
	return requirements, nil
}

// shortKeys are what a user may write for a label.
var shortKeys = map[string]string{
	"zone": corev1.LabelTopologyZone, "flavor": corev1.LabelInstanceTypeStable, "arch": corev1.LabelArchStable, "os": corev1.LabelOSStable,
	"category": v1alpha1.LabelInstanceCategory, "generation": v1alpha1.LabelInstanceGeneration, "cpu": v1alpha1.LabelInstanceCPU,
	"memory": v1alpha1.LabelInstanceMemory, "gpu-name": v1alpha1.LabelInstanceGPUName, "gpu-count": v1alpha1.LabelInstanceGPUCount,
}

// List returns the rows, sorted by price. Excluded ones are there only where a NodePool or NodeClass is named.
func List(ctx context.Context, s *connect.Session, o Options) ([]Row, error) {
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	var simulation *sim.Simulation
	if s.Cluster != nil {
		// What runs keeps its flavor, what NodePools ask for is theirs, and what lately failed is unavailable.
		if simulation, err = rules.Simulate(ctx, s); err != nil {
			s.Note("the cluster was not read: %s", err)
		}
	}
	if simulation == nil {
		if simulation, err = sim.New(ctx, cloud, nil); err != nil {
			return nil, err
		}
	}
	requirements := scheduling.NewRequirements(o.Requirements.Values()...)
	name := o.NodeClass
	if o.NodePool != "" {
		if name, err = addNodePool(ctx, s, o.NodePool, requirements); err != nil {
			return nil, err
		}
	}
	var requests corev1.ResourceList
	if o.Pod.Name != "" {
		if requests, err = addPod(ctx, s, o.Pod, requirements); err != nil {
			return nil, err
		}
	}
	nodeClass, err := nodeClassFor(ctx, simulation, cloud, name)
	if err != nil {
		return nil, err
	}
	instanceTypes, err := simulation.Providers.Flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, err
	}
	if err := checkLabels(o.Requirements, instanceTypes); err != nil {
		return nil, err
	}
	explained, err := offerings.Explain(simulation.Providers, nodeClass)
	if err != nil {
		return nil, err
	}
	rows := rowsOf(explained, instanceTypes, requirements, requests, o.NodePool != "" || o.Pod.Name != "", name != "")
	slices.SortStableFunc(rows, func(a, b Row) int {
		// What cannot be launched at all has no price and comes last.
		return cmp.Or(cmp.Compare(lo.Ternary(a.VNDPerHour == 0, 1, 0), lo.Ternary(b.VNDPerHour == 0, 1, 0)),
			cmp.Compare(a.VNDPerHour, b.VNDPerHour), cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Zone, b.Zone))
	})
	return rows, nil
}

// checkLabels rejects requirements of labels that no flavor has.
func checkLabels(requirements scheduling.Requirements, instanceTypes []*corecloudprovider.InstanceType) error {
	for key := range requirements {
		if len(instanceTypes) > 0 && !lo.SomeBy(instanceTypes, func(it *corecloudprovider.InstanceType) bool { return it.Requirements.Has(key) }) {
			return fmt.Errorf("--requirements: no flavor has the label %q; use %s, or a label of docs/reference/fields.md", key,
				strings.Join(slices.Sorted(maps.Keys(shortKeys)), ", "))
		}
	}
	return nil
}

// rowsOf returns a row for each flavor and zone that is asked for. What conflicts with the requirements is there only for a NodePool or a pod,
// and what a NodeClass excludes only for that NodeClass.
func rowsOf(explained []offerings.Explanation, instanceTypes []*corecloudprovider.InstanceType, requirements scheduling.Requirements,
	requests corev1.ResourceList, explain, class bool) []Row {
	byName := lo.KeyBy(instanceTypes, func(it *corecloudprovider.InstanceType) string { return it.Name })
	return lo.FilterMap(explained, func(e offerings.Explanation, _ int) (Row, bool) {
		row := newRow(e, byName[e.Flavor])
		if row.Reason != "" {
			return row, e.Excluded == "" || class
		}
		row.Reason = lo.CoalesceOrEmpty(conflict(requirements, byName[e.Flavor], e.Zone), tooSmall(byName[e.Flavor], requests))
		row.Available = row.Reason == ""
		return row, row.Available || explain
	})
}

// addPod adds what the pod requires of its node, and returns what it requests.
func addPod(ctx context.Context, s *connect.Session, key types.NamespacedName, requirements scheduling.Requirements) (corev1.ResourceList, error) {
	pod := &corev1.Pod{}
	if err := s.Get(ctx, key, pod); err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	requirements.Add(scheduling.NewStrictPodRequirements(pod).Values()...)
	return resources.RequestsForPods(pod), nil
}

// tooSmall says of what a flavor has too little for the requests.
func tooSmall(it *corecloudprovider.InstanceType, requests corev1.ResourceList) string {
	has := it.Allocatable()
	return strings.Join(lo.FilterMap(slices.Sorted(maps.Keys(requests)), func(name corev1.ResourceName, _ int) (string, bool) {
		wanted, left := requests[name], has[name]
		return fmt.Sprintf("the pod requests %s of %s, and it leaves %s", wanted.String(), name, left.String()), wanted.Cmp(left) > 0
	}), "; ")
}

// addNodePool adds the requirements and labels of a NodePool and returns the name of its NodeClass.
func addNodePool(ctx context.Context, s *connect.Session, name string, requirements scheduling.Requirements) (nodeClass string, err error) {
	pool := &karpv1.NodePool{}
	if err := s.Get(ctx, types.NamespacedName{Name: name}, pool); err != nil {
		return "", fmt.Errorf("reading NodePool %s: %w", name, err)
	}
	if other := sim.Foreign(pool); other != "" {
		return "", fmt.Errorf("NodePool %s: %s", name, other)
	}
	requirements.Add(sim.RequirementsOf(pool).Values()...)
	return pool.Spec.Template.Spec.NodeClassRef.Name, nil
}

// nodeClassFor returns the NodeClass of that name, or one of defaults.
func nodeClassFor(ctx context.Context, simulation *sim.Simulation, cloud *connect.Cloud, name string) (*v1alpha1.BizflyNodeClass, error) {
	if name == "" {
		_, nodeClass, err := price.StandardFlavors(ctx, cloud)
		return nodeClass, err
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := simulation.Objects.Get(ctx, types.NamespacedName{Name: name}, nodeClass); err != nil {
		return nil, fmt.Errorf("reading BizflyNodeClass %s: %w", name, err)
	}
	return nodeClass, nil
}

func newRow(e offerings.Explanation, it *corecloudprovider.InstanceType) Row {
	row := Row{Flavor: e.Flavor, Zone: e.Zone, CPU: e.CPU, MemoryMiB: e.MemoryMiB, Reason: lo.CoalesceOrEmpty(e.Excluded, e.Unavailable)}
	if e.GPUCount > 0 {
		row.GPU = fmt.Sprintf("%d x %s", e.GPUCount, e.GPUName)
	}
	if it == nil {
		row.Reason = lo.CoalesceOrEmpty(row.Reason, "it is in none of the NodeClass's zones")
		return row
	}
	row.Category = it.Requirements.Get(v1alpha1.LabelInstanceCategory).Any()
	row.NodeMemoryMiB = it.Capacity.Memory().Value() >> 20
	row.Allocatable = it.Allocatable()
	if vndPerHour, ok := it.OfferingPrice(e.Zone, karpv1.CapacityTypeOnDemand); ok {
		row.VNDPerHour, row.VNDPerMonth, row.Price = vndPerHour, vndPerHour*price.HoursPerMonth, e.Source
	} else if row.Reason == "" {
		row.Reason = "the price table knows no price for it"
	}
	row.Available = row.Reason == ""
	return row
}

// conflict says which requirements exclude the flavor in the zone.
func conflict(requirements scheduling.Requirements, it *corecloudprovider.InstanceType, zone string) string {
	var reasons []string
	for _, key := range slices.Sorted(slices.Values(requirements.Keys().UnsortedList())) {
		r := requirements.Get(key)
		one := scheduling.NewRequirements(r)
		has := it.Requirements
		switch key {
		case corev1.LabelTopologyZone:
			has = scheduling.NewLabelRequirements(map[string]string{key: zone})
		case karpv1.CapacityTypeLabelKey:
			has = scheduling.NewLabelRequirements(map[string]string{key: karpv1.CapacityTypeOnDemand})
		}
		if !one.IsCompatible(has, scheduling.AllowUndefinedWellKnownLabels) {
			reasons = append(reasons, fmt.Sprintf("%s, and it has %s", r, describe(has, key)))
		}
	}
	return strings.Join(reasons, "; ")
}

func describe(has scheduling.Requirements, key string) string {
	if !has.Has(key) || has.Get(key).Operator() != corev1.NodeSelectorOpIn {
		return "no such label"
	}
	values := has.Get(key).Values()
	slices.Sort(values)
	return strings.Join(values, ", ")
}
