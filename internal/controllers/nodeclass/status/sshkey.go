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

package status

import (
	"context"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// sshKeyConcern finds the SSH key.
type sshKeyConcern struct {
	networks network.Provider
}

func (*sshKeyConcern) conditionType() string { return v1alpha1.ConditionTypeSSHKeyReady }

func (c *sshKeyConcern) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) finding {
	name, err := c.networks.SSHKey(ctx, nodeClass)
	if err != nil {
		return missingOr[*network.NotFoundError](err, reasonSSHKeyNotFound)
	}
	nodeClass.Status.SSHKey = name
	return fine()
}
