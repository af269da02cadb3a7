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

var (
	opDeleteNetworkInterface = &operation{
		name: "DeleteNetworkInterface", method: http.MethodDelete, route: "/network-interfaces/{id}", service: serviceServers,
		class: classDelete, kind: kindDelete, idempotent: true, body: acknowledgement,
	}
	opDeleteWanIP = &operation{
		name: "DeleteWanIP", method: http.MethodDelete, route: "/wanips/{id}", service: serviceServers,
		class: classDelete, kind: kindDelete, idempotent: true, body: acknowledgement,
	}
)

// DeleteNetworkInterface implements API.
func (c *Client) DeleteNetworkInterface(ctx context.Context, id string) error {
	if err := checkIDs(opDeleteNetworkInterface, "network interface id", id); err != nil {
		return err
	}
	return c.do(ctx, opDeleteNetworkInterface, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.NetworkInterfaces().Delete(ctx, id)
	})
}

// DeleteWanIP implements API.
func (c *Client) DeleteWanIP(ctx context.Context, id string) error {
	if err := checkIDs(opDeleteWanIP, "public address id", id); err != nil {
		return err
	}
	return c.do(ctx, opDeleteWanIP, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.PublicNetworkInterfaces().Delete(ctx, id)
	})
}
