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

package bizfly

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/bizflycloud/gobizfly"
)

var opGetClusterMaxNodes = &operation{
	name: "GetClusterMaxNodes", method: http.MethodGet, route: "/_/{uid}", service: serviceKubernetes,
	class: classRead, kind: kindItem, idempotent: true, body: objectBody, anyScope: true,
}

// GetClusterMaxNodes implements API. gobizfly's package has no field for it.
func (c *Client) GetClusterMaxNodes(ctx context.Context, uid string) (int, error) {
	if err := checkIDs(opGetClusterMaxNodes, "cluster uid", uid); err != nil {
		return 0, err
	}
	maxNodes := 0
	err := c.do(ctx, opGetClusterMaxNodes, nil, func(ctx context.Context, client *gobizfly.Client) error {
		raw, err := fetch(ctx, client, opGetClusterMaxNodes.service, "/_/"+uid)
		if err != nil {
			return err
		}
		var cluster struct {
			UID     string `json:"uid"`
			Package struct {
				MaxNodes int `json:"max_nodes"`
			} `json:"package"`
		}
		if err := json.Unmarshal(raw, &cluster); err != nil {
			return err
		}
		if cluster.UID != uid {
			return unreadable(kindItem, http.StatusOK, "the answer is not about the cluster that was asked for", nil)
		}
		maxNodes = max(0, cluster.Package.MaxNodes)
		return nil
	})
	return maxNodes, err
}
