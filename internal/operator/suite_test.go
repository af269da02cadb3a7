// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"

	coretest "sigs.k8s.io/karpenter/pkg/test"
)

var env *coretest.Environment

func TestOperator(t *testing.T) { suite.Run(t, "Operator") }

var _ = unit.APIServer(&env)
