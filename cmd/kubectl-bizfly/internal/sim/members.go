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
func (s *Simulation) members(ctx context.Context) ([]*member, error) {
	claims := &karpv1.NodeClaimList{}
	if err := s.Objects.List(ctx, claims); err != nil {
		return nil, err
	}
	var all []*member
	for i := range claims.Items {
		claim, node := &claims.Items[i], &corev1.Node{}
		if claim.Status.NodeName == "" || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		if err := s.Objects.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err != nil {
			continue
		}
		pods, err := s.PodsOn(ctx, node.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, &member{claim, node, pods, s.daemons[claim.Name]})
	}
	return all, nil
}

// PodsOn returns the pods of a node that have not ended.
func (s *Simulation) PodsOn(ctx context.Context, node string) ([]*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := s.Objects.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return lo.FilterMap(pods.Items, func(pod corev1.Pod, _ int) (*corev1.Pod, bool) { return &pod, !podutils.IsTerminal(&pod) }), nil
}

// put writes an object, and lets core know.
func (s *Simulation) put(ctx context.Context, object client.Object) error {
	if err := s.Objects.Put(object); err != nil {
		return err
	}
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
func (s *Simulation) remove(object client.Object) error {
	if err := s.Objects.Remove(object); err != nil {
		return err
	}
	switch o := object.(type) {
	case *corev1.Pod:
		s.Cluster.DeletePod(client.ObjectKeyFromObject(o))
	case *corev1.Node:
		s.Cluster.DeleteNode(o.Name)
	case *karpv1.NodeClaim:
		s.Cluster.DeleteNodeClaim(o.Name)
	}
	return nil
}
