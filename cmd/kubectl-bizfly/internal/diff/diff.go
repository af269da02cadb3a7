// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diff says what a change of NodePools and BizflyNodeClasses does to the nodes that run. Whether a node is
// replaced, Karpenter core's controller of drift and this provider decide, in a copy of the cluster with the change.
package diff

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// What happens to a node.
const (
	Replaced       = "Replaced"
	AlreadyDrifted = "AlreadyDrifted" // replaced without the change, too
	InPlace        = "InPlace"
	Stays          = "Stays"
)

// Object is a NodePool or BizflyNodeClass of the files.
type Object struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// New is true where the cluster has none of this name; Fields are those of the spec that change.
	New    bool     `json:"new,omitempty"`
	Fields []string `json:"fields,omitempty"`
}

// Node is a node, or a NodeClaim without one yet, that an object of the files concerns and that is not being deleted.
type Node struct {
	Name     string `json:"name"`
	NodePool string `json:"nodePool"`
	Flavor   string `json:"flavor"`
	Zone     string `json:"zone"`
	// Pods are those that would move to another node.
	Pods       int     `json:"pods"`
	VNDPerHour float64 `json:"vndPerHour,omitempty"`
	Change     string  `json:"change"`
	// Reason is that of the drift, or what changes in place.
	Reason string `json:"reason,omitempty"`
}

// Diff is what a change does.
type Diff struct {
	Objects []Object `json:"objects"`
	// Nodes are those that an object of the files concerns, the replaced ones first.
	Nodes []Node `json:"nodes"`
	// Pods is how many pods the replaced nodes have, and VNDPerHour what these nodes cost.
	Pods       int     `json:"pods"`
	VNDPerHour float64 `json:"vndPerHour"`
}

// Count is how many nodes have a change.
func (d *Diff) Count(change string) int {
	return lo.CountBy(d.Nodes, func(n Node) bool { return n.Change == change })
}

// Compute compares the files with the cluster.
func Compute(ctx context.Context, s *connect.Session, stdin io.Reader, files []string) (*Diff, error) {
	wanted, err := wantedIn(s, stdin, files)
	if err != nil {
		return nil, err
	}
	running, err := top.Read(ctx, s)
	if err != nil {
		return nil, err
	}
	if running.ClaimsErr != nil {
		return nil, running.ClaimsErr
	}
	cluster, err := s.Copy(ctx)
	if err != nil {
		return nil, err
	}
	cloud, err := s.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	result := &Diff{Objects: []Object{}, Nodes: []Node{}}
	simulation, err := sim.New(ctx, cloud, result.change(s, cluster, wanted))
	if err != nil {
		return nil, err
	}
	reasons, err := simulation.Drift(ctx)
	if err != nil {
		return nil, err
	}
	for _, assumption := range simulation.Assumptions {
		s.Note("%s", assumption)
	}
	result.compare(running.Nodes, reasons, result.firewallsChanged(simulation, cluster))
	order := []string{Replaced, AlreadyDrifted, InPlace, Stays}
	slices.SortStableFunc(result.Nodes, func(a, b Node) int {
		return cmp.Compare(slices.Index(order, a.Change), slices.Index(order, b.Change))
	})
	return result, nil
}

// change notes what becomes of each object, and returns the cluster with it.
func (d *Diff) change(s *connect.Session, cluster memory.Objects, wanted []client.Object) memory.Objects {
	changed := cluster
	for _, object := range wanted {
		stored, exists := lo.Find(cluster, func(o client.Object) bool {
			return kindOf(o) == kindOf(object) && o.GetName() == object.GetName()
		})
		compared := Object{Kind: kindOf(object), Name: object.GetName(), New: !exists}
		if exists {
			object = apply(s, stored, object)
			compared.Fields = fieldsOf(stored, object)
		}
		changed, d.Objects = changed.With(object), append(d.Objects, compared)
	}
	return changed
}

// compare says of each node what becomes of it.
func (d *Diff) compare(running []top.Node, reasons map[string]string, rewired map[string]bool) {
	for _, node := range running {
		if !lo.ContainsBy(d.Objects, func(o Object) bool { return o.concerns(node.Claim) }) {
			continue
		}
		n := Node{Name: node.Name, NodePool: node.NodePool, Flavor: node.Flavor, Zone: node.Zone,
			VNDPerHour: node.VNDPerHour, Pods: lo.CountBy(node.Running, podutils.IsReschedulable), Change: Stays, Reason: reasons[node.Claim.Name]}
		switch {
		case n.Reason != "" && node.Claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue():
			n.Change = AlreadyDrifted
		case n.Reason != "":
			n.Change, d.Pods, d.VNDPerHour = Replaced, d.Pods+n.Pods, d.VNDPerHour+n.VNDPerHour
		case rewired[node.Claim.Spec.NodeClassRef.Name]:
			n.Change, n.Reason = InPlace, "firewalls"
		}
		d.Nodes = append(d.Nodes, n)
	}
}

// wantedIn are the NodePools and BizflyNodeClasses of files.
func wantedIn(s *connect.Session, stdin io.Reader, files []string) ([]client.Object, error) {
	set, err := input.Read(stdin, files...)
	if err != nil {
		return nil, err
	}
	read := set.Kinds()
	set.LeaveForeign()
	for _, note := range set.Notes {
		s.Note("%s", note)
	}
	wanted := lo.Filter(set.Objects, func(object client.Object, _ int) bool { return kindOf(object) != "" })
	if len(wanted) == 0 {
		return nil, fmt.Errorf("the files have neither a NodePool nor a BizflyNodeClass to compare, only %s", read)
	}
	if len(wanted) < len(set.Objects) || len(set.Skipped) > 0 {
		s.Note("of %s, only NodePools and BizflyNodeClasses are compared: nothing else replaces a node by drift", read)
	}
	return wanted, nil
}

// kindOf is empty for what decides about no node.
func kindOf(object client.Object) string {
	switch object.(type) {
	case *karpv1.NodePool:
		return "NodePool"
	case *v1alpha1.BizflyNodeClass:
		return v1alpha1.NodeClassKind
	}
	return ""
}

func (o Object) concerns(claim *karpv1.NodeClaim) bool {
	if claim == nil || claim.DeletionTimestamp != nil || !v1alpha1.IsOurs(claim.Spec.NodeClassRef) {
		return false
	}
	return o.Name == lo.Ternary(o.Kind == "NodePool", claim.Labels[karpv1.NodePoolLabelKey], claim.Spec.NodeClassRef.Name)
}

// apply is the stored object with the spec of another one, and the hash that its controller would write. Hashes of
// another version are of another release of the controller, and prove nothing.
func apply(s *connect.Session, stored, object client.Object) client.Object {
	hash, version := karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey
	present, written := karpv1.NodePoolHashVersion, ""
	applied := stored.DeepCopyObject().(client.Object)
	switch applied := applied.(type) {
	case *karpv1.NodePool:
		applied.Spec = object.(*karpv1.NodePool).Spec
		was, is := lo.FromPtr(stored.(*karpv1.NodePool).Spec.Replicas), lo.FromPtr(applied.Spec.Replicas)
		if was != is {
			s.Note("NodePool %s: spec.replicas changes from %d to %d, which adds or removes nodes without drift",
				applied.Name, was, is)
		}
		written = applied.Hash()
	case *v1alpha1.BizflyNodeClass:
		hash, version = v1alpha1.AnnotationNodeClassHash, v1alpha1.AnnotationNodeClassHashVersion
		present = v1alpha1.NodeClassHashVersion
		applied.Spec = object.(*v1alpha1.BizflyNodeClass).Spec
		written = applied.Hash()
	}
	if len(fieldsOf(stored, applied)) > 0 {
		applied.SetGeneration(stored.GetGeneration() + 1)
	}
	if was := stored.GetAnnotations()[version]; was != "" && was != present {
		s.Note("%s %s was hashed by another version of the controller, so no node is known to drift: use the plugin of it",
			kindOf(stored), stored.GetName())
	}
	applied.SetAnnotations(lo.Assign(stored.GetAnnotations(), map[string]string{hash: written, version: present}))
	return applied
}

// fieldsOf are the fields of the specs that differ.
func fieldsOf(a, b client.Object) []string {
	specs := lo.Map([]client.Object{a, b}, func(object client.Object, _ int) map[string]any {
		decoded := struct{ Spec map[string]any }{}
		lo.Must0(json.Unmarshal(lo.Must(json.Marshal(object)), &decoded))
		return decoded.Spec
	})
	return lo.Filter(slices.Sorted(maps.Keys(lo.Assign(specs...))), func(field string, _ int) bool {
		return !reflect.DeepEqual(specs[0][field], specs[1][field])
	})
}

// firewallsChanged are the NodeClasses of which another selection gives servers other firewalls.
func (d *Diff) firewallsChanged(simulation *sim.Simulation, cluster memory.Objects) map[string]bool {
	changed := map[string]bool{}
	idsOf := func(nodeClass *v1alpha1.BizflyNodeClass) []string {
		return lo.Uniq(lo.Map(nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID }))
	}
	for _, before := range memory.Of[*v1alpha1.BizflyNodeClass](cluster) {
		after, _ := memory.Find[*v1alpha1.BizflyNodeClass](simulation.Objects, client.ObjectKeyFromObject(before))
		selected := lo.ContainsBy(d.Objects, func(o Object) bool {
			return o.Kind == kindOf(before) && o.Name == before.Name && slices.Contains(o.Fields, "firewallSelectorTerms")
		})
		changed[before.Name] = selected && !lo.ElementsMatch(idsOf(before), idsOf(after))
	}
	return changed
}
