// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// kind is a list that is copied; without one that is needed there is no answer.
type kind struct {
	list   client.ObjectList
	needed bool
}

// Copy reads everything of the cluster that scheduling depends on. Definitions that are not installed and kinds that may
// not be read are noted, unless they are needed. Any other error is returned: a list that failed is not an empty one.
func (s *Session) Copy(ctx context.Context) (memory.Objects, error) {
	kinds := []kind{
		{&corev1.PodList{}, true}, {&corev1.NodeList{}, true}, {&appsv1.DaemonSetList{}, true},
		{&karpv1.NodePoolList{}, false}, {&karpv1.NodeClaimList{}, false}, {&v1alpha1.BizflyNodeClassList{}, false},
		{&corev1.PersistentVolumeClaimList{}, false}, {&corev1.PersistentVolumeList{}, false}, {&storagev1.StorageClassList{}, false},
		{&storagev1.CSINodeList{}, false}, {&corev1.NamespaceList{}, false},
	}
	if s.Core.FeatureGates.NodeOverlay {
		kinds = append(kinds, kind{&karpv1alpha1.NodeOverlayList{}, false})
	}
	if s.Core.SchedulerConfig != nil {
		kinds = append(kinds, kind{&corev1.ServiceList{}, false}, kind{&appsv1.ReplicaSetList{}, false}, kind{&appsv1.StatefulSetList{}, false},
			kind{&corev1.ReplicationControllerList{}, false})
	}
	return s.copyKinds(ctx, kinds)
}

// CopyAdmission reads by which rules the API server completes and rejects pods.
func (s *Session) CopyAdmission(ctx context.Context) (memory.Objects, error) {
	return s.copyKinds(ctx, []kind{{&corev1.LimitRangeList{}, false}, {&corev1.ResourceQuotaList{}, false},
		{&schedulingv1.PriorityClassList{}, false}, {&nodev1.RuntimeClassList{}, false}})
}

func (s *Session) copyKinds(ctx context.Context, kinds []kind) (memory.Objects, error) {
	var copied memory.Objects
	for _, k := range kinds {
		if err := s.List(ctx, k.list); err != nil {
			if k.needed || !IsMissing(err) && !IsForbidden(err) {
				return nil, fmt.Errorf("copying the cluster: %w", err)
			}
			s.Note("%s", err)
			continue
		}
		items, err := meta.ExtractList(k.list)
		if err != nil {
			return nil, fmt.Errorf("copying the cluster: %w", err)
		}
		for _, item := range items {
			copied = append(copied, item.(client.Object))
		}
	}
	return copied, nil
}
