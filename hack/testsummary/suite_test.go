// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestTestSummary(t *testing.T) { suite.Run(t, "Test summary") }
