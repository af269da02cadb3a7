// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodesize_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestNodeSize(t *testing.T) { suite.Run(t, "NodeClaim/NodeSize") }

var _ = unit.Suite(ctx, &env, unit.WithNodeClass)
