// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestManifests(t *testing.T) { suite.Run(t, "Manifests") }
