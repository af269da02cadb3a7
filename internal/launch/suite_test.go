// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestLaunch(t *testing.T) { suite.Run(t, "Launch") }
