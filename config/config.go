// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config embeds manifests for the kubectl plugin: the samples that it plans with where its user has no NodePool
// of their own, the rights that doctor looks for, and the admission policy that plan applies.
package config

import _ "embed"

var (
	// NodeClass is the BizflyNodeClass of nodeclass-default.yaml.
	//go:embed samples/nodeclass-default.yaml
	NodeClass []byte
	// NodePool is the NodePool of nodepool-default.yaml.
	//go:embed samples/nodepool-default.yaml
	NodePool []byte
	// ClusterRole is what the controller needs in every configuration; its chart adds what feature gates need.
	//go:embed rbac/clusterrole.yaml
	ClusterRole []byte
	// NodePoolPolicy rejects NodePools that could never get a node.
	//go:embed admission/validatingadmissionpolicy-nodepools.yaml
	NodePoolPolicy []byte
)
