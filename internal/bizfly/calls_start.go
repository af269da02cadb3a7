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
	"net/http"

	"github.com/bizflycloud/gobizfly"
)

// Neither is repeated by itself: the caller reads the server before it asks again.
var (
	opStartServer = &operation{
		name: "StartServer", method: http.MethodPost, route: "/servers/{id}/action", service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
	opRebootServer = &operation{
		name: "RebootServer", method: http.MethodPost, route: "/servers/{id}/action", service: serviceServers,
		class: classCreate, kind: kindAction, body: acknowledgement,
	}
)

// StartServer implements API.
func (c *Client) StartServer(ctx context.Context, id string) error {
	if err := checkIDs(opStartServer, "server id", id); err != nil {
		return err
	}
	return c.do(ctx, opStartServer, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.Start(ctx, id)
		return err
	})
}

// RebootServer implements API.
func (c *Client) RebootServer(ctx context.Context, id string) error {
	if err := checkIDs(opRebootServer, "server id", id); err != nil {
		return err
	}
	return c.do(ctx, opRebootServer, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.HardReboot(ctx, id)
		return err
	})
}
