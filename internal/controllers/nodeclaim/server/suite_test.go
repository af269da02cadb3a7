// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestServer(t *testing.T) { suite.Run(t, "NodeClaim/Server") }

func newController() *server.Controller {
	return server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
}

var _ = unit.Suite(ctx, &env, unit.WithNodeClass)
