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

// What these calls change ends the same however often they are sent. They are not repeated by themselves all the same:
// whoever asks looks at the server or the interface before asking again.
var (
	opRenameServer = &operation{
		name: "RenameServer", method: http.MethodPost, route: "/servers/{id}/action", service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
	opChangeNetworkPlan = &operation{
		name: "ChangeNetworkPlan", method: http.MethodPost, route: "/servers/{id}/action", service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
	opAddFirewalls = &operation{
		name: "AddFirewalls", method: http.MethodPost, route: "/network-interfaces/{id}/action", service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
	opRemoveFirewalls = &operation{
		name: "RemoveFirewalls", method: http.MethodPost, route: "/network-interfaces/{id}/action", service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
)

// The actions of a network interface.
const (
	actionAddFirewall    = "add_firewall"
	actionRemoveFirewall = "remove_firewall"
)

// RenameServer implements API.
func (c *Client) RenameServer(ctx context.Context, id, name string) error {
	if err := checkIDs(opRenameServer, "server id", id); err != nil {
		return err
	}
	if err := checkIDs(opRenameServer, "name", name); err != nil {
		return err
	}
	return c.do(ctx, opRenameServer, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.Rename(ctx, id, name)
	})
}

// ChangeNetworkPlan implements API.
func (c *Client) ChangeNetworkPlan(ctx context.Context, id, plan string) error {
	if err := checkIDs(opChangeNetworkPlan, "server id", id); err != nil {
		return err
	}
	if err := checkIDs(opChangeNetworkPlan, "network plan", plan); err != nil {
		return err
	}
	return c.do(ctx, opChangeNetworkPlan, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.ChangeNetworkPlan(ctx, id, plan)
	})
}

// AddFirewalls implements API.
func (c *Client) AddFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error {
	return c.changeFirewalls(ctx, opAddFirewalls, actionAddFirewall, interfaceID, firewallIDs)
}

// RemoveFirewalls implements API.
func (c *Client) RemoveFirewalls(ctx context.Context, interfaceID string, firewallIDs []string) error {
	return c.changeFirewalls(ctx, opRemoveFirewalls, actionRemoveFirewall, interfaceID, firewallIDs)
}

func (c *Client) changeFirewalls(ctx context.Context, op *operation, action, interfaceID string, firewallIDs []string) error {
	if err := checkIDs(op, "network interface id", interfaceID); err != nil {
		return err
	}
	if len(firewallIDs) == 0 {
		return invalid(op, "no firewall is named")
	}
	if err := checkIDs(op, "firewall id", firewallIDs...); err != nil {
		return err
	}
	return c.do(ctx, op, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.NetworkInterfaces().Action(ctx, interfaceID,
			&gobizfly.ActionNetworkInterfacePayload{Action: action, SecurityGroups: firewallIDs})
		return err
	})
}

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
