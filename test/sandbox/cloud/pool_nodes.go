// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// grow adds servers to a pool.
func (c *Cloud) grow(q *call, p *pool, template *validRequest, n int) *reply {
	if n == 0 {
		p.wire.ProvisionStatus = poolProvisioned
		return nil
	}
	admitted := *template
	admitted.quantity = n
	decision := c.admit(q, &admitted)
	if decision.rejection != nil {
		return decision.rejection
	}
	for range n {
		o := *template
		node := c.newPoolNode(p)
		o.Metadata = map[string]string{"bke_pool_id": p.wire.ID, "cluster_id": p.wire.AutoscalingGroup}
		for key, value := range template.Metadata {
			o.Metadata[key] = value
		}
		o.UserData = p.userData(node)
		t := c.build(&o, node.Name, decision.doom, q.fx)
		node.PhysicalID = t.ServerID
		p.nodes = append(p.nodes, node)
	}
	c.settlePool(q, p, poolPending)
	return nil
}

// newPoolNode is a node without a server. Its name ends in letters of both cases and digits, as recorded: "…-node-Cv4N54hV".
func (c *Cloud) newPoolNode(p *pool) poolNode {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	id, hash := c.newUUID(), sha256.Sum256([]byte(c.newHex(4)))
	code := hash[:8]
	for i, b := range code {
		code[i] = alphabet[int(b)%len(alphabet)]
	}
	return poolNode{ID: id, Name: fmt.Sprintf("%s-%s-node-%s", p.wire.Name, p.wire.ShootID, code)}
}

// settlePool makes a pool PROVISIONED once its tasks have ended.
func (c *Cloud) settlePool(q *call, p *pool, until string) {
	p.wire.ProvisionStatus = until
	c.after(q.fx.latency(c.opts.Latency), func() { p.wire.ProvisionStatus = poolProvisioned })
}

// userData is the script of a node of a pool: its labels and taints, and what joins the cluster.
func (p *pool) userData(node poolNode) string {
	labels := []string{"bke.bizflycloud.vn/node-id=" + node.ID, "bke.bizflycloud.vn/pool-name=" + p.wire.Name}
	for key, value := range p.wire.Labels {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	arguments := "--node-labels=" + strings.Join(labels, ",")
	var taints []string
	for _, taint := range p.wire.Taints {
		taints = append(taints, taint.Key+"="+taint.Value+":"+taint.Effect)
	}
	if len(taints) > 0 {
		arguments += " --register-with-taints=" + strings.Join(taints, ",")
	}
	return "#!/bin/bash\necho 'KUBELET_EXTRA_ARGS=" + arguments + "' > /etc/default/kubelet\nexec /opt/bizfly-kubernetes-engine/bootstrap.sh\n"
}

// liveNodes are the nodes whose servers exist and are not being deleted.
func (c *Cloud) liveNodes(p *pool) []poolNode {
	nodes := []poolNode{}
	for _, node := range p.nodes {
		s := c.servers[node.PhysicalID]
		if s == nil || s.truth.Deleting {
			continue
		}
		node.IPAddresses = []string{}
		for _, address := range c.render(s).IPAddresses.LAN {
			node.IPAddresses = append(node.IPAddresses, address.Addr)
		}
		node.Status, node.StatusReason = s.wire.Status, "Creation succeeded"
		if s.wire.Fault != nil {
			node.StatusReason = s.wire.Fault.Message
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// deletePoolServer deletes the server of a node with its root disk.
func (c *Cloud) deletePoolServer(q *call, node poolNode) {
	if s := c.servers[node.PhysicalID]; s != nil && !s.truth.Deleting {
		c.beginDelete(q, s, s.volumes[:1])
	}
}

// findPoolNode finds a node by its id.
func (c *Cloud) findPoolNode(q *call) (*pool, poolNode, *reply) {
	p, rejection := c.findPool(q)
	if rejection != nil {
		return nil, poolNode{}, rejection
	}
	for _, node := range c.liveNodes(p) {
		if node.ID == q.vars[2] {
			return p, node, nil
		}
	}
	missing := problem(http.StatusNotFound, "Node not found")
	return nil, poolNode{}, &missing
}

// deletePoolNode takes a node out of its pool, which is smaller from then on. A pool that scales by itself does not go below
// its least size, unless it is forced.
func (c *Cloud) deletePoolNode(q *call) reply {
	p, node, rejection := c.findPoolNode(q)
	if rejection != nil {
		return *rejection
	}
	if p.wire.EnableAutoscaling && p.wire.DesiredSize <= p.wire.MinSize && q.query.Get("force") != "true" {
		return reject(http.StatusConflict, "The worker pool has its least size")
	}
	c.deletePoolServer(q, node)
	p.wire.DesiredSize--
	c.settlePool(q, p, poolUpdating)
	return reply{status: http.StatusNoContent}
}

// poolServer is the create request of a server of a pool, checked like any other.
func (c *Cloud) poolServer(q *call, p poolRequest) (*validRequest, *reply) {
	i := slices.IndexFunc(c.opts.Catalog.Versions, func(v KubernetesVersion) bool {
		return v.KubernetesVersion == p.Version || v.Name == p.Version || v.ID == p.Version
	})
	if i < 0 || c.opts.Catalog.Versions[i].WorkerImageID == "" {
		return nil, bad("Version %s could not be found.", p.Version)
	}
	version := c.opts.Catalog.Versions[i]
	o := &validRequest{project: q.project, region: q.region, createRequest: createRequest{
		Name: p.Name, Flavor: p.Flavor, Type: p.ProfileType, AvailabilityZone: p.AvailabilityZone, NetworkPlan: p.NetworkPlan, BillingPlan: p.BillingPlan,
		RootDisk: &diskRequest{Size: p.VolumeSize, VolumeType: p.VolumeType}, OS: &osRequest{ID: version.WorkerImageID, Type: "image"},
		VPCNetworkIDs: []string{c.clusterNetwork()}, IsCreatedWan: ptr.To(c.opts.Shape.PublicPools),
		Metadata: c.poolMetadata(version.KubernetesVersion, c.opts.Shape.PoolMetadataLacks), Firewalls: c.poolFirewalls(q),
	}}
	if p.VolumeType == "HDD" || p.VolumeType == "SSD" {
		o.RootDisk = &diskRequest{Size: p.VolumeSize, Type: p.VolumeType}
	}
	return c.validated(q, o)
}

// poolMetadata is that of servers of pools: what they join with.
func (c *Cloud) poolMetadata(version string, lacks []string) map[string]string {
	metadata := map[string]string{
		"bizfly_cloud_service": "kubernetes_engine", "bke_cluster_id": c.opts.ClusterUID, "bke_cluster_token": c.opts.ClusterToken,
		"bke_join_endpoint": c.opts.JoinEndpoint, "bke_log_endpoint": c.opts.LogEndpoint, "bke_node_everywhere": "false", "kubernetes_version": version,
	}
	maps.DeleteFunc(metadata, func(key, _ string) bool { return slices.Contains(lacks, key) })
	return metadata
}

// poolFirewall is the name of the firewall that the servers of pools have where they have one of their own.
const poolFirewall = "kubernetes-nodes"

// poolFirewalls are those that a pool's server requests.
func (c *Cloud) poolFirewalls(q *call) []string {
	var ids []string
	for _, firewall := range c.firewalls(q) {
		if c.opts.Shape.PoolFirewall && firewall.Name == poolFirewall {
			ids = append(ids, firewall.ID)
		}
	}
	return ids
}

// ReachesPools reports whether a server is let through to the servers of pools: it has their firewall, where they have one.
func (c *Cloud) ReachesPools(serverID string) bool {
	reaches := true
	c.with(func() {
		for _, p := range c.ports {
			for _, id := range c.poolFirewalls(&call{project: p.project, region: p.region}) {
				reaches = reaches && (p.server != serverID || slices.Contains(p.firewalls, id))
			}
		}
	})
	return reaches
}

// launchConfiguration is what Auto Scaling launches the servers of a pool from.
type launchConfiguration struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	AvailabilityZone string            `json:"availability_zone"`
	Flavor           string            `json:"flavor"`
	Type             string            `json:"type"`
	NetworkPlan      string            `json:"network_plan"`
	Metadata         map[string]string `json:"metadata"`
	SecurityGroups   []string          `json:"security_groups"`
	CreatedAt        string            `json:"created_at"`
}

var _ = scalingAPI.serve(on(http.MethodGet, "/launch_configs/{id}", (*Cloud).getLaunchConfiguration))

func (c *Cloud) getLaunchConfiguration(q *call) reply {
	for _, p := range c.pools {
		if p.wire.LaunchConfigID == q.vars[0] && len(c.clusters(q)) > 0 {
			return ok(launchConfiguration{
				ID: p.wire.LaunchConfigID, Name: p.wire.Name, AvailabilityZone: p.wire.AvailabilityZone, Flavor: p.wire.Flavor, Type: p.wire.ProfileType,
				NetworkPlan: p.wire.NetworkPlan, Metadata: c.poolMetadata(p.wire.Version, c.opts.Shape.LaunchMetadataLacks),
				SecurityGroups: c.poolFirewalls(q), CreatedAt: p.wire.CreatedAt,
			})
		}
	}
	return problem(http.StatusNotFound, "Launch configuration not found")
}

func (c *Cloud) poolNodes() int {
	n := 0
	for _, p := range c.pools {
		n += len(c.liveNodes(p))
	}
	return n
}
