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
	"github.com/samber/lo"
)

var (
	opRenameServer           = change("RenameServer", "/servers/{id}/action")
	opChangeNetworkPlan      = change("ChangeNetworkPlan", "/servers/{id}/action")
	opStartServer            = change("StartServer", "/servers/{id}/action")
	opRebootServer           = with(change("RebootServer", "/servers/{id}/action"), func(op *operation) { op.kind = kindAction })
	opAddFirewalls           = change("AddFirewalls", "/network-interfaces/{id}/action")
	opRemoveFirewalls        = change("RemoveFirewalls", "/network-interfaces/{id}/action")
	opDeleteNetworkInterface = remove("DeleteNetworkInterface", "/network-interfaces/{id}")
	opDeleteWanIP            = remove("DeleteWanIP", "/wanips/{id}")

	opListKubernetesVersions = offer("ListKubernetesVersions", "/k8s_versions", serviceKubernetes, wrappedBody("controller_versions", "kubernetes_version"))
	opGetCluster             = with(item("GetCluster", "/_/{uid}", serviceKubernetes), func(op *operation) { op.anyScope = true })
	opGetClusterMaxNodes     = with(item("GetClusterMaxNodes", "/_/{uid}", serviceKubernetes), func(op *operation) { op.anyScope = true })
	// opLeaveCluster is a POST, but ends in the same state however often it is sent.
	opLeaveCluster = &operation{
		name: "LeaveCluster", method: http.MethodPost, route: "/engine/cluster_leave/{uid}", service: serviceKubernetes,
		class: classDelete, kind: kindDelete, idempotent: true, body: acknowledgement, ownToken: true,
	}
)

// The actions of a network interface.
const (
	actionAddFirewall    = "add_firewall"
	actionRemoveFirewall = "remove_firewall"
)

// RenameServer implements API.
func (c *Client) RenameServer(ctx context.Context, id, name string) error {
	return c.doWith(ctx, opRenameServer, []argument{{"server id", id}, {"name", name}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.Rename(ctx, id, name)
	})
}

// ChangeNetworkPlan implements API.
func (c *Client) ChangeNetworkPlan(ctx context.Context, id, plan string) error {
	return c.doWith(ctx, opChangeNetworkPlan, []argument{{"server id", id}, {"network plan", plan}}, nil,
		func(ctx context.Context, client *gobizfly.Client) error {
			return client.CloudServer.ChangeNetworkPlan(ctx, id, plan)
		})
}

// StartServer implements API.
func (c *Client) StartServer(ctx context.Context, id string) error {
	return c.doWith(ctx, opStartServer, []argument{{"server id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.Start(ctx, id)
		return err
	})
}

// RebootServer implements API.
func (c *Client) RebootServer(ctx context.Context, id string) error {
	return c.doWith(ctx, opRebootServer, []argument{{"server id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.HardReboot(ctx, id)
		return err
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
	if len(firewallIDs) == 0 {
		return invalid(op, "no firewall is named")
	}
	if err := checkIDs(op, "firewall id", firewallIDs...); err != nil {
		return err
	}
	return c.doWith(ctx, op, []argument{{"network interface id", interfaceID}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.CloudServer.NetworkInterfaces().Action(ctx, interfaceID,
			&gobizfly.ActionNetworkInterfacePayload{Action: action, SecurityGroups: firewallIDs})
		return err
	})
}

// DeleteNetworkInterface implements API.
func (c *Client) DeleteNetworkInterface(ctx context.Context, id string) error {
	return c.doWith(ctx, opDeleteNetworkInterface, []argument{{"network interface id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.NetworkInterfaces().Delete(ctx, id)
	})
}

// DeleteWanIP implements API.
func (c *Client) DeleteWanIP(ctx context.Context, id string) error {
	return c.doWith(ctx, opDeleteWanIP, []argument{{"public address id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.PublicNetworkInterfaces().Delete(ctx, id)
	})
}

// ListKubernetesVersions implements API.
func (c *Client) ListKubernetesVersions(ctx context.Context) ([]gobizfly.ControllerVersion, error) {
	return listOf(ctx, c, opListKubernetesVersions, func(ctx context.Context, client *gobizfly.Client) ([]gobizfly.ControllerVersion, error) {
		// Without all, the API may leave out versions that a cluster still runs.
		versions, err := client.KubernetesEngine.GetKubernetesVersion(ctx, gobizfly.GetKubernetesVersionOpts{All: lo.ToPtr(true)})
		if err != nil {
			return nil, err
		}
		if versions == nil {
			return nil, errUnexpected
		}
		return versions.ControllerVersions, nil
	})
}

// GetCluster implements API.
func (c *Client) GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error) {
	var cluster *gobizfly.FullCluster
	err := c.doWith(ctx, opGetCluster, []argument{{"cluster uid", uid}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		found, err := client.KubernetesEngine.Get(ctx, uid)
		if err != nil {
			return err
		}
		if found == nil || found.UID != uid {
			return unreadable(kindItem, http.StatusOK, "the answer is not about the cluster that was asked for", nil)
		}
		cluster = found
		return nil
	})
	return cluster, err
}

// LeaveCluster implements API.
func (c *Client) LeaveCluster(ctx context.Context, clusterUID, clusterToken, nodeName string) error {
	if !validHeader(clusterToken) {
		return invalid(opLeaveCluster, "BKE_CLUSTER_TOKEN is empty or holds characters that a header cannot carry, set it to the join token of cluster %s",
			clusterUID)
	}
	err := c.doWith(ctx, opLeaveCluster, []argument{{"cluster uid", clusterUID}, {"node name", nodeName}}, []string{clusterToken},
		func(ctx context.Context, client *gobizfly.Client) error {
			_, err := client.KubernetesEngine.ClusterLeave(ctx, clusterUID, clusterToken, &gobizfly.ClusterLeaveRequest{NodeName: nodeName})
			return err
		})
	// A node that BKE does not know has left.
	if IsNotFound(err) {
		return nil
	}
	return err
}

// GetClusterMaxNodes implements API. gobizfly's package has no field for it.
func (c *Client) GetClusterMaxNodes(ctx context.Context, uid string) (int, error) {
	maxNodes := 0
	err := c.doWith(ctx, opGetClusterMaxNodes, []argument{{"cluster uid", uid}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
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
