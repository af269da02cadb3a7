// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples embeds the samples that the kubectl plugin plans with where its user has no NodePool of their own.
package samples

import _ "embed"

var (
	// NodeClass is the BizflyNodeClass of nodeclass-default.yaml.
	//go:embed nodeclass-default.yaml
	NodeClass []byte
	// NodePool is the NodePool of nodepool-default.yaml.
	//go:embed nodepool-default.yaml
	NodePool []byte
)
