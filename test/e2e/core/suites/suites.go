// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suites asks for what Karpenter core's end-to-end suites are compiled with, so that this module's go.sum knows it:
// those packages consist of tests only and cannot be imported themselves.
package suites

import (
	_ "sigs.k8s.io/karpenter/test/pkg/environment/common" // what every suite stands on
)
