/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package server_test

import (
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestServer(t *testing.T) { suite.Run(t, "NodeClaim/Server") }

func newController() *server.Controller {
	return server.NewController(env.Client, env.Instances, env.CloudProvider, nil, env.Recorder, env.Clock)
}

var _ = unit.Suite(ctx, &env, unit.WithNodeClass)
