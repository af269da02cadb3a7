// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// member is a node of a NodeClaim of the copy.
type member struct {
	claim *karpv1.NodeClaim
	node  *corev1.Node
	// pods are all on the node that have not ended, and daemons what DaemonSets request there whose pods the copy does not have.
	pods    []*corev1.Pod
	daemons corev1.ResourceList
}

// movable are the pods that a drain moves.
func (m *member) movable() []*corev1.Pod {
	return lo.Filter(m.pods, func(pod *corev1.Pod, _ int) bool { return podutils.IsReschedulable(pod) })
}

// requests are those of all that runs there.
func (m *member) requests() corev1.ResourceList {
	return resources.Merge(m.daemons, resources.RequestsForPods(m.pods...))
}

// members are the nodes of NodeClaims, in the order of the NodeClaims' names.
func (s *Simulation) members() []*member {
	return lo.FilterMap(memory.All[*karpv1.NodeClaim](s.Objects), func(claim *karpv1.NodeClaim, _ int) (*member, bool) {
		node, joined := memory.Find[*corev1.Node](s.Objects, client.ObjectKey{Name: claim.Status.NodeName})
		return &member{claim, node, s.podsOn(node.Name), s.daemons[claim.Name]}, joined && claim.DeletionTimestamp.IsZero()
	})
}

// podsOn returns the pods of a node that have not ended; those that wait are on none.
func (s *Simulation) podsOn(node string) []*corev1.Pod {
	all := memory.All[*corev1.Pod](s.Objects, client.MatchingFields{"spec.nodeName": node}, client.UnsafeDisableDeepCopy)
	return lo.Reject(all, func(pod *corev1.Pod, _ int) bool { return podutils.IsTerminal(pod) })
}

// put writes an object, and lets core know.
func (s *Simulation) put(ctx context.Context, object client.Object) error {
	s.Objects.Put(object)
	switch o := object.(type) {
	case *corev1.Pod:
		return s.Cluster.UpdatePod(ctx, o)
	case *corev1.Node:
		return s.Cluster.UpdateNode(ctx, o)
	case *karpv1.NodeClaim:
		s.Cluster.UpdateNodeClaim(o)
	}
	return nil
}

// remove deletes an object, which nothing keeps in the copy, and lets core know.
func (s *Simulation) remove(object client.Object) {
	s.Objects.Remove(object)
	switch o := object.(type) {
	case *corev1.Pod:
		s.Cluster.DeletePod(client.ObjectKeyFromObject(o))
	case *corev1.Node:
		s.Cluster.DeleteNode(o.Name)
	case *karpv1.NodeClaim:
		s.Cluster.DeleteNodeClaim(o.Name)
	}
}
