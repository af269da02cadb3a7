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
	opListKubernetesVersions = offer("ListKubernetesVersions", "/k8s_versions", serviceKubernetes, wrappedBody("controller_versions", "kubernetes_version"))
	opGetCluster             = &operation{
		name: "GetCluster", method: http.MethodGet, route: "/_/{uid}", service: serviceKubernetes,
		class: classRead, kind: kindItem, idempotent: true, body: objectBody, anyScope: true,
	}
	// opLeaveCluster is a POST, but ends in the same state however often it is sent.
	opLeaveCluster = &operation{
		name: "LeaveCluster", method: http.MethodPost, route: "/engine/cluster_leave/{uid}", service: serviceKubernetes,
		class: classDelete, kind: kindDelete, idempotent: true, body: acknowledgement, ownToken: true,
	}
)

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
	if err := checkIDs(opGetCluster, "cluster uid", uid); err != nil {
		return nil, err
	}
	var cluster *gobizfly.FullCluster
	err := c.do(ctx, opGetCluster, nil, func(ctx context.Context, client *gobizfly.Client) error {
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
	if err != nil {
		return nil, err
	}
	return cluster, nil
}

// LeaveCluster implements API.
func (c *Client) LeaveCluster(ctx context.Context, clusterUID, clusterToken, nodeName string) error {
	if err := checkIDs(opLeaveCluster, "cluster uid", clusterUID); err != nil {
		return err
	}
	if err := checkIDs(opLeaveCluster, "node name", nodeName); err != nil {
		return err
	}
	if !validHeader(clusterToken) {
		return invalid(opLeaveCluster, "BKE_CLUSTER_TOKEN is empty or holds characters that a header cannot carry, set it to the join token of cluster %s", clusterUID)
	}
	err := c.do(ctx, opLeaveCluster, []string{clusterToken}, func(ctx context.Context, client *gobizfly.Client) error {
		_, err := client.KubernetesEngine.ClusterLeave(ctx, clusterUID, clusterToken, &gobizfly.ClusterLeaveRequest{NodeName: nodeName})
		return err
	})
	// A node that BKE does not know has left.
	if IsNotFound(err) {
		return nil
	}
	return err
}

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
