// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"

	"k8s.io/utils/ptr"
)

// The states of a worker pool.
const (
	poolPending     = "PENDING_PROVISION"
	poolUpdating    = "PENDING_UPDATE"
	poolProvisioned = "PROVISIONED"
)

// pool is the record of one worker pool of the cluster. Its nodes are servers like any other.
type pool struct {
	seq   uint64
	wire  workerPool
	nodes []poolNode
}

func (p *pool) order() uint64 { return p.seq }

// poolRequest is a worker pool as requested.
type poolRequest struct {
	Name              string            `json:"name"`
	Version           string            `json:"version"`
	ProvisionType     string            `json:"provision_type"`
	Flavor            string            `json:"flavor"`
	ProfileType       string            `json:"profile_type"`
	VolumeType        string            `json:"volume_type"`
	VolumeSize        int               `json:"volume_size"`
	AvailabilityZone  string            `json:"availability_zone"`
	DesiredSize       int               `json:"desired_size"`
	EnableAutoscaling bool              `json:"enable_autoscaling"`
	MinSize           int               `json:"min_size"`
	MaxSize           int               `json:"max_size"`
	Tags              []string          `json:"tags"`
	Taints            []poolTaint       `json:"taints"`
	Labels            map[string]string `json:"labels"`
	NetworkPlan       string            `json:"network_plan"`
	BillingPlan       string            `json:"billing_plan"`
}

type poolTaint struct {
	Effect string `json:"effect"`
	Key    string `json:"key"`
	Value  string `json:"value"`
}

// workerPool is a pool as the API shows it.
type workerPool struct {
	ID string `json:"id"`
	poolRequest
	ProvisionStatus  string           `json:"provision_status"`
	FlavorDetail     poolFlavor       `json:"flavor_detail"`
	AutoRepair       bool             `json:"auto_repair"`
	LaunchConfigID   string           `json:"launch_config_id"`
	AutoscalingGroup string           `json:"autoscaling_group_id"`
	ShootID          string           `json:"shoot_id"`
	CreatedAt        string           `json:"created_at"`
	EverywhereNodes  []map[string]any `json:"everywhere_nodes"`
}

type poolFlavor struct {
	Name     string `json:"name"`
	VCPUs    int    `json:"vcpus"`
	RAM      int    `json:"ram"`
	GPU      *GPU   `json:"gpu"`
	Category string `json:"category"`
}

// poolNode is a node of a pool; PhysicalID is its server.
type poolNode struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	PhysicalID   string   `json:"physical_id"`
	IPAddresses  []string `json:"ip_addresses"`
	Status       string   `json:"status"`
	StatusReason string   `json:"status_reason"`
}

type poolDetail struct {
	workerPool
	Nodes []poolNode `json:"nodes"`
}

var _ = engineAPI.serve(
	on(http.MethodGet, "/_/{uid}/{pool}", (*Cloud).getPool),
	on(http.MethodPatch, "/_/{uid}/{pool}", (*Cloud).updatePool),
	on(http.MethodDelete, "/_/{uid}/{pool}/{node}", (*Cloud).deletePoolNode, "force"),
)

func (c *Cloud) checkPoolSizes(p *poolRequest) *reply {
	switch {
	case p.Name == "" || strings.ToLower(p.Name) != p.Name:
		return bad("name không hợp lệ: %q", p.Name)
	case p.DesiredSize < 0:
		return bad("desired_size không hợp lệ: %d", p.DesiredSize)
	case p.EnableAutoscaling && (p.MinSize < 1 || p.MaxSize < p.MinSize || p.DesiredSize < p.MinSize || p.DesiredSize > p.MaxSize):
		return bad("desired_size %d is not between min_size %d and max_size %d", p.DesiredSize, p.MinSize, p.MaxSize)
	}
	return nil
}

// checkMaxNodes rejects more nodes than the cluster's package allows.
func (c *Cloud) checkMaxNodes(more int) *reply {
	if limit := standardPackage.MaxNodes; c.poolNodes()+more > limit {
		return bad("The package allows %d nodes", limit)
	}
	return nil
}

func (c *Cloud) newPool(wanted poolRequest, o *validRequest) *pool {
	if wanted.Tags == nil {
		wanted.Tags = []string{}
	}
	if wanted.Taints == nil {
		wanted.Taints = []poolTaint{}
	}
	if wanted.Labels == nil {
		wanted.Labels = map[string]string{}
	}
	return &pool{seq: c.nextSeq(), wire: workerPool{
		ID: c.newHex(12), poolRequest: wanted, ProvisionStatus: poolPending, LaunchConfigID: c.newUUID(), AutoscalingGroup: c.newUUID(),
		FlavorDetail: poolFlavor{Name: o.flavor.Name, VCPUs: o.flavor.VCPUs, RAM: o.flavor.RAM, GPU: o.flavor.GPU, Category: o.flavor.Category},
		ShootID:      c.opts.ClusterUID, CreatedAt: micros(c.now), EverywhereNodes: []map[string]any{},
	}}
}

func (c *Cloud) findPool(q *call) (*pool, *reply) {
	p := c.pools[q.vars[1]]
	if p == nil || !c.ownsCluster(q, q.vars[0]) {
		rejection := problem(http.StatusNotFound, "Worker pool not found")
		return nil, &rejection
	}
	return p, nil
}

func (c *Cloud) getPool(q *call) reply {
	p, rejection := c.findPool(q)
	if rejection != nil {
		return *rejection
	}
	return ok(poolDetail{workerPool: p.wire, Nodes: c.liveNodes(p)})
}

// poolUpdate changes a pool; what is absent stays. Labels and taints are those of nodes to come.
type poolUpdate struct {
	DesiredSize       *int               `json:"desired_size"`
	EnableAutoscaling *bool              `json:"enable_autoscaling"`
	MinSize           *int               `json:"min_size"`
	MaxSize           *int               `json:"max_size"`
	Taints            *[]poolTaint       `json:"taints"`
	Labels            *map[string]string `json:"labels"`
}

func (c *Cloud) updatePool(q *call) reply {
	request, rejection := decode[poolUpdate](q)
	if rejection != nil {
		return *rejection
	}
	p, rejection := c.findPool(q)
	if rejection != nil {
		return *rejection
	}
	wanted := p.wire.poolRequest
	wanted.DesiredSize = ptr.Deref(request.DesiredSize, wanted.DesiredSize)
	if on := ptr.Deref(request.EnableAutoscaling, wanted.EnableAutoscaling); on || !c.opts.Shape.KeepsAutoscaling {
		wanted.EnableAutoscaling = on
	}
	wanted.MinSize = ptr.Deref(request.MinSize, wanted.MinSize)
	wanted.MaxSize = ptr.Deref(request.MaxSize, wanted.MaxSize)
	wanted.Taints = ptr.Deref(request.Taints, wanted.Taints)
	wanted.Labels = ptr.Deref(request.Labels, wanted.Labels)
	if rejection := c.checkPoolSizes(&wanted); rejection != nil {
		return *rejection
	}
	live := c.liveNodes(p)
	if more := wanted.DesiredSize - len(live); more > 0 {
		template, rejection := c.poolServer(q, wanted)
		if rejection == nil {
			rejection = c.checkMaxNodes(more)
		}
		if rejection == nil {
			p.wire.poolRequest = wanted
			rejection = c.grow(q, p, template, more)
		}
		if rejection != nil {
			return *rejection
		}
		c.settlePool(q, p, poolUpdating)
	} else if more < 0 {
		for _, node := range live[wanted.DesiredSize:] {
			c.deletePoolServer(q, node)
		}
		c.settlePool(q, p, poolUpdating)
	}
	p.wire.poolRequest = wanted
	return ok(p.wire)
}
