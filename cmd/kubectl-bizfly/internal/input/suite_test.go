// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestInput(t *testing.T) { suite.Run(t, "Input") }
