// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/awslabs/operatorpkg/object"
	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// NodePoolManifest is a NodePool without what an API server adds.
type NodePoolManifest struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Metadata   map[string]string   `json:"metadata"`
	Spec       karpv1.NodePoolSpec `json:"spec"`
}

func manifestsOf(pools []*karpv1.NodePool) []NodePoolManifest {
	kind := object.GVK(&karpv1.NodePool{})
	return lo.Map(pools, func(pool *karpv1.NodePool, _ int) NodePoolManifest {
		return NodePoolManifest{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Metadata: map[string]string{"name": pool.Name}, Spec: pool.Spec,
		}
	})
}
