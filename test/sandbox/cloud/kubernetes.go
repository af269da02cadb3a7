// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
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
	WorkerPools          []workerPool      `json:"worker_pools"`
	Stats                clusterStats      `json:"stats"`
}

type clusterPackage struct {
	ID       string       `json:"id"`
	Name     string       `json:"name"`
	MaxNodes int          `json:"max_nodes"`
	Memory   int          `json:"memory"`
	HA       bool         `json:"high_availability"`
	SLA      string       `json:"sla"`
	Price    clusterPrice `json:"price"`
	Specify  string       `json:"specify"`
}

// standardPackage is the edition of the cluster.
var standardPackage = clusterPackage{
	ID: StableID("package", "STANDARD - 1"), Name: "STANDARD - 1", MaxNodes: 50, Memory: 8, HA: true, SLA: "99.99",
	Price: clusterPrice{Amount: 1260000, BillingCycle: "month"}, Specify: "standard",
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
		if q.query.Get("all") == "true" || minorOf(version) != minorOf(c.opts.Catalog.Versions[0]) {
			versions = append(versions, version)
		}
	}
	return ok(map[string]any{"controller_versions": versions, "worker_versions": []struct{}{}})
}

// minorOf is "v1.35" of "v1.35.4".
func minorOf(version KubernetesVersion) string {
	return strings.Join(strings.Split(version.KubernetesVersion, ".")[:2], ".")
}

// ownsCluster reports whether an id is that of the cluster, and the call may see it.
func (c *Cloud) ownsCluster(q *call, id string) bool {
	return len(c.clusters(q)) > 0 && id == c.opts.ClusterUID
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
	pools := []workerPool{}
	for _, p := range sorted(c.pools) {
		pools = append(pools, p.wire)
	}
	subnet := ""
	if len(vpc.Subnets) > 0 {
		subnet = vpc.Subnets[0].ID
	}
	return []cluster{{
		UID: c.opts.ClusterUID, Name: c.opts.ClusterName, Version: version,
		Package:          standardPackage,
		PrivateNetworkID: network, PrivateSubnetID: subnet, AccessMode: "PUBLIC", ProvisionStatus: "PROVISIONED", ClusterStatus: "PROVISIONED",
		ProvisionType: "standard", KubeletCommunication: "INTERNAL", CNIPlugin: "cilium", NodesCount: 1 + c.poolNodes(), Tags: []string{}, CreatedAt: catalogTime,
		WorkerPoolsCount: len(pools), WorkerPools: pools, Stats: clusterStats{WorkerPools: len(pools), TotalDisk: map[string]int{}},
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
	request, rejection := decode[leaveRequest](q)
	if rejection != nil {
		return *rejection
	}
	if request.NodeName == "" {
		return reject(http.StatusBadRequest, "node_name is required")
	}
	if !slices.Contains(c.left, request.NodeName) {
		c.left = append(c.left, request.NodeName)
	}
	if len(c.left) > maxLeftNodes {
		c.left = c.left[1:]
	}
	return ok(apiMessage{Message: "Node " + request.NodeName + " has left the cluster"})
}
