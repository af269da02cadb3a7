// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"testing"

	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

var ctx = coreoptions.ToContext(context.Background(), coretest.Options())

func TestPlan(t *testing.T) { suite.Run(t, "Plan") }
