// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package edits_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestEdits(t *testing.T) { suite.Run(t, "Edits") }

var _ = unit.Suite(ctx, &env)
