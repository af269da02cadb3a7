// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package properties_test lets core's disruption controller consolidate random clusters of this provider's flavors until it finds nothing.
package properties_test

import (
	"context"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"
)

var ctx = coreoptions.ToContext(context.Background(), coretest.Options())

func TestProperties(t *testing.T) { suite.Run(t, "Properties") }
