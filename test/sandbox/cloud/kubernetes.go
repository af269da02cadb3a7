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

package cloud

import (
	"net/http"
	"slices"
)

type cluster struct {
	UID                  string            `json:"uid"`
	Name                 string            `json:"name"`
	Version              KubernetesVersion `json:"version"`
	Package              clusterPackage    `json:"package"`
	PrivateNetworkID     string            `json:"private_network_id"`
	PrivateSubnetID      string            `json:"private_subnet_id"`
	AccessMode           string            `json:"access_mode"`
	AutoUpgrade          bool              `json:"auto_upgrade"`
	ProvisionStatus      string            `json:"provision_status"`
	ClusterStatus        string            `json:"cluster_status"`
	ProvisionType        string            `json:"provision_type"`
	KubeletCommunication string            `json:"kubelet_communication"`
	LocalDNS             bool              `json:"local_dns"`
	BCRIntegrated        bool              `json:"bcr_integrated"`
	CNIPlugin            string            `json:"cni_plugin"`
	NodesCount           int               `json:"nodes_count"`
	WorkerPoolsCount     int               `json:"worker_pools_count"`
	Tags                 []string          `json:"tags"`
	CreatedAt            string            `json:"created_at"`
	WorkerPools          []struct{}        `json:"worker_pools"`
	Stats                clusterStats      `json:"stats"`
}

type clusterPackage struct {
	ID       string       `json:"id"`
	Name     string       `json:"name"`
	MaxNodes int          `json:"max_nodes"`
	Memory   int          `json:"memory"`
	Price    clusterPrice `json:"price"`
}

type clusterPrice struct {
	Amount       int    `json:"amount"`
	BillingCycle string `json:"billing_cycle"`
}

type clusterStats struct {
	WorkerPools int            `json:"worker_pools"`
	TotalCPU    *int           `json:"total_cpu"`
	TotalMemory *int           `json:"total_memory"`
	TotalDisk   map[string]int `json:"total_disk"`
}

var _ = engineAPI.serve(
	on(http.MethodGet, "/k8s_versions", (*Cloud).listVersions, "all"),
	on(http.MethodGet, "/_", (*Cloud).listClusters),
	on(http.MethodGet, "/_/{uid}", (*Cloud).getCluster),
	// The cluster's token is what counts here: nodes, which have no other, call it as well.
	openTo(on(http.MethodPost, "/engine/cluster_leave/{uid}", (*Cloud).leaveCluster)),
)

func (c *Cloud) listVersions(q *call) reply {
	versions := []KubernetesVersion{}
	for _, version := range c.opts.Catalog.Versions {
		// Without all=true only what a new cluster may be made of is shown, which leaves out the oldest minor.
		if q.query.Get("all") == "true" || version.KubernetesVersion >= "v1.34" {
			versions = append(versions, version)
		}
	}
	return ok(map[string]any{"controller_versions": versions, "worker_versions": []struct{}{}})
}

// clusters is the one cluster, where the call's project and region have it.
func (c *Cloud) clusters(q *call) []cluster {
	if q.project != c.opts.Project || q.region != c.opts.Region {
		return []cluster{}
	}
	network := c.clusterNetwork()
	vpc, _ := c.vpc(q, network)
	version := KubernetesVersion{KubernetesVersion: c.opts.Version, Name: c.opts.Version}
	if i := slices.IndexFunc(c.opts.Catalog.Versions, func(v KubernetesVersion) bool { return v.KubernetesVersion == c.opts.Version }); i >= 0 {
		version = c.opts.Catalog.Versions[i]
	}
	subnet := ""
	if len(vpc.Subnets) > 0 {
		subnet = vpc.Subnets[0].ID
	}
	return []cluster{{
		UID: c.opts.ClusterUID, Name: c.opts.ClusterName, Version: version,
		Package: clusterPackage{
			ID: stableID("package", "STANDARD - 1"), Name: "STANDARD - 1", MaxNodes: 50, Memory: 8,
			Price: clusterPrice{Amount: 1260000, BillingCycle: "month"},
		},
		PrivateNetworkID: network, PrivateSubnetID: subnet, AccessMode: "PUBLIC", ProvisionStatus: "PROVISIONED", ClusterStatus: "PROVISIONED",
		ProvisionType: "standard", KubeletCommunication: "INTERNAL", CNIPlugin: "cilium", NodesCount: 1, Tags: []string{}, CreatedAt: catalogTime,
		WorkerPools: []struct{}{}, Stats: clusterStats{TotalDisk: map[string]int{}},
	}}
}

func (c *Cloud) listClusters(q *call) reply {
	return ok(map[string]any{"clusters": c.clusters(q)})
}

func (c *Cloud) getCluster(q *call) reply {
	for _, cluster := range c.clusters(q) {
		if cluster.UID == q.vars[0] {
			return ok(cluster)
		}
	}
	return problem(http.StatusNotFound, "Cluster not found")
}

type leaveRequest struct {
	NodeName string `json:"node_name"`
}

// leaveCluster may be called any number of times for a node.
func (c *Cloud) leaveCluster(q *call) reply {
	if q.vars[0] != c.opts.ClusterUID {
		return problem(http.StatusNotFound, "Cluster not found")
	}
	if q.header.Get("X-Cluster-Token") != c.opts.ClusterToken {
		return problem(http.StatusUnauthorized, "Invalid cluster token")
	}
	request, refusal := decode[leaveRequest](q)
	if refusal != nil {
		return *refusal
	}
	if request.NodeName == "" {
		return refuse(http.StatusBadRequest, "node_name is required")
	}
	if !slices.Contains(c.left, request.NodeName) {
		c.left = append(c.left, request.NodeName)
	}
	if len(c.left) > maxLeftNodes {
		c.left = c.left[1:]
	}
	return ok(apiMessage{Message: "Node " + request.NodeName + " has left the cluster"})
}
