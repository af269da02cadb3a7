// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
)

// ServerSpec is a server of others.
type ServerSpec struct {
	// Name is required; everything else has a default.
	Name string `json:"name"`
	// Flavor is a flavor's name (default the first premium one with 2 vCPUs), Zone a zone of the region, Status as the
	// API words it (default ACTIVE).
	Flavor   string            `json:"flavor,omitempty"`
	Zone     string            `json:"zone,omitempty"`
	Status   string            `json:"status,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	UserData string            `json:"user_data,omitempty"`
	// ImageID defaults to the worker image of the cluster's version.
	ImageID string `json:"image_id,omitempty"`
	// Project and Region (short name) default to those of the credentials.
	Project     string `json:"project,omitempty"`
	Region      string `json:"region,omitempty"`
	BillingPlan string `json:"billing_plan,omitempty"`
	// RootDiskGiB defaults to 40.
	RootDiskGiB int `json:"root_disk_gib,omitempty"`
	// Wan gives it a public address.
	Wan bool `json:"wan,omitempty"`
	// VPC is the id of its network; the default is the project's default one.
	VPC string `json:"vpc,omitempty"`
	// Firewalls are ids; the default is the firewall called default.
	Firewalls []string `json:"firewalls,omitempty"`
}

// VolumeSpec is a volume of others, for example the CSI driver.
type VolumeSpec struct {
	// Name is required, for example "pvc-0d6e…"; Description of a CSI volume is "<namespace>/<claim> by csi-bizflycloud".
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// SizeGiB defaults to 20, Zone to the first of the region, VolumeType to PREMIUM-SSD1, BillingPlan to on_demand.
	SizeGiB     int    `json:"size_gib,omitempty"`
	Zone        string `json:"zone,omitempty"`
	VolumeType  string `json:"volume_type,omitempty"`
	BillingPlan string `json:"billing_plan,omitempty"`
	Bootable    bool   `json:"bootable,omitempty"`
	// SnapshotID is the snapshot that it was made from.
	SnapshotID string `json:"snapshot_id,omitempty"`
	Project    string `json:"project,omitempty"`
	Region     string `json:"region,omitempty"`
}

// AddServer makes a server at once, past all checks, and returns it. It panics where the flavor does not exist.
func (c *Cloud) AddServer(spec ServerSpec) Server {
	var made Server
	c.with(func() { made = c.seedServer(spec) })
	return made
}

func (c *Cloud) seedServer(spec ServerSpec) Server {
	region := orDefault(spec.Region, c.opts.Region)
	project := orDefault(spec.Project, c.opts.Project)
	q := &call{project: project, region: region}
	flavor, found := c.flavor(region, orDefault(spec.Flavor, "p2.2c_4g"), "premium")
	if !found {
		panic(fmt.Sprintf("no flavor %q in region %s", spec.Flavor, region))
	}
	o := &validRequest{
		project: project, region: region, flavor: flavor, quantity: 1, wan: spec.Wan,
		os: resolvedOS{name: "bke-worker-" + c.opts.Version, worker: true},
		createRequest: createRequest{
			Name: spec.Name, Flavor: flavor.Name, Type: flavor.Category, Metadata: spec.Metadata, UserData: spec.UserData, Firewalls: spec.Firewalls,
			AvailabilityZone: orDefault(spec.Zone, c.region(region).Zones[0].ShortName), NetworkPlan: networkPlans[0],
			BillingPlan: orDefault(spec.BillingPlan, PlanOnDemand), RootDisk: &diskRequest{Size: 40},
			OS: &osRequest{ID: orDefault(spec.ImageID, StableID("worker-image", c.opts.Version)), Type: "image"},
		},
		rootVolume: VolumeType{Name: "PREMIUM-SSD1", Category: flavor.Category},
	}
	if spec.RootDiskGiB > 0 {
		o.RootDisk.Size = spec.RootDiskGiB
	}
	for _, vpc := range c.vpcs(q) {
		if vpc.ID == spec.VPC || spec.VPC == "" && vpc.IsDefault {
			o.vpcs = []VPC{vpc}
		}
	}
	_ = c.checkFirewalls(q, o)
	t := c.build(o, spec.Name, "", effects{{Effect: EffectStuck}})
	delete(c.tasks, t.ID)
	s := c.servers[t.ServerID]
	s.hidden = false
	c.activate(s)
	if spec.Status != "" && spec.Status != StatusActive {
		c.setStatus(s, spec.Status)
	}
	return c.truthOf(s)
}

// poolVersion is the version of Kubernetes of worker pools.
func (c *Cloud) poolVersion() string { return orDefault(c.opts.Shape.PoolVersion, c.opts.Version) }

// AddPool makes a worker pool of one server at once, past all checks, and returns the server. It has no flavor of its own: p2.2c_4g.
func (c *Cloud) AddPool(name string) Server {
	var made Server
	c.with(func() {
		q := &call{project: c.opts.Project, region: c.opts.Region}
		flavor, _ := c.flavor(q.region, "p2.2c_4g", "premium")
		p := c.newPool(poolRequest{
			Name: name, Version: c.poolVersion(), ProvisionType: "standard", Flavor: flavor.Name, ProfileType: flavor.Category, VolumeType: "PREMIUM-SSD1",
			VolumeSize: 40, AvailabilityZone: c.region(q.region).Zones[0].ShortName, DesiredSize: 1, NetworkPlan: networkPlans[0], BillingPlan: PlanOnDemand,
		}, &validRequest{flavor: flavor})
		p.wire.ProvisionStatus = poolProvisioned
		node := c.newPoolNode(p)
		spec := ServerSpec{Name: node.Name, ImageID: StableID("worker-image", c.poolVersion()), UserData: p.userData(node),
			Metadata: c.poolMetadata(c.poolVersion(), c.opts.Shape.PoolMetadataLacks),
			Wan:      c.opts.Shape.PublicPools, VPC: c.clusterNetwork(), Firewalls: c.poolFirewalls(q)}
		if c.opts.Shape.PoolServersElsewhere {
			spec.Project = StableID("project", "of pools")
		}
		made = c.seedServer(spec)
		node.PhysicalID = made.ID
		p.nodes, c.pools[p.wire.ID] = []poolNode{node}, p
	})
	return made
}

// PoolSpec is a worker pool whose nodes are servers that exist.
type PoolSpec struct {
	// Name is required.
	Name string `json:"name"`
	// Servers are the ids of its nodes, which are its desired size.
	Servers []string `json:"servers,omitempty"`
	// MinSize and MaxSize are the sizes between which it scales by itself; it does not where both are 0.
	MinSize int `json:"min_size,omitempty"`
	MaxSize int `json:"max_size,omitempty"`
}

// AddWorkerPool makes a worker pool at once, past all checks, and returns its id. It panics where a server does not exist.
func (c *Cloud) AddWorkerPool(spec PoolSpec) string {
	var id string
	c.with(func() {
		flavor, _ := c.flavor(c.opts.Region, "nix.2c_4g", "premium")
		p := c.newPool(poolRequest{
			Name: spec.Name, Version: c.poolVersion(), ProvisionType: "standard", Flavor: flavor.Name, ProfileType: flavor.Category, VolumeType: "PREMIUM-HDD1",
			VolumeSize: 40, AvailabilityZone: c.region(c.opts.Region).Zones[0].ShortName, DesiredSize: len(spec.Servers),
			EnableAutoscaling: spec.MaxSize > 0, MinSize: spec.MinSize, MaxSize: spec.MaxSize, NetworkPlan: networkPlans[0], BillingPlan: PlanOnDemand,
		}, &validRequest{flavor: flavor})
		for _, server := range spec.Servers {
			s := c.servers[server]
			if s == nil {
				panic(fmt.Sprintf("no server %q", server))
			}
			p.nodes = append(p.nodes, poolNode{ID: c.newUUID(), Name: s.wire.Name, PhysicalID: server})
		}
		p.wire.ProvisionStatus = poolProvisioned
		c.pools[p.wire.ID] = p
		id = p.wire.ID
	})
	return id
}

// AddVolume makes a volume at once, past all checks, and returns it.
func (c *Cloud) AddVolume(spec VolumeSpec) Volume {
	var made Volume
	c.with(func() {
		region := orDefault(spec.Region, c.opts.Region)
		t := VolumeType{Name: orDefault(spec.VolumeType, "PREMIUM-SSD1"), Category: "premium"}
		for _, known := range c.opts.Catalog.VolumeTypes[region] {
			if known.Name == t.Name {
				t = known
			}
		}
		size := spec.SizeGiB
		if size == 0 {
			size = 20
		}
		zone := orDefault(spec.Zone, c.region(region).Zones[0].ShortName)
		v := c.newVolume(orDefault(spec.Project, c.opts.Project), region, zone, spec.Name, size, t, orDefault(spec.BillingPlan, PlanOnDemand))
		v.wire.Bootable = spec.Bootable
		if spec.SnapshotID != "" {
			v.wire.SnapshotID = &spec.SnapshotID
		}
		if spec.Description != "" {
			v.wire.Description = &spec.Description
		}
		made = c.renderVolume(v)
	})
	return made
}

// AttachVolume attaches a volume to a server, past all checks.
func (c *Cloud) AttachVolume(volumeID, serverID string) error {
	err := ErrNotFound
	c.with(func() {
		v, s := c.volumes[volumeID], c.servers[serverID]
		if v != nil && s != nil {
			c.attach(v, s)
			err = nil
		}
	})
	return err
}

// AddDataDisks gives each server at once the data disks that it was launched with.
func (c *Cloud) AddDataDisks() {
	c.with(func() {
		for _, s := range sorted(c.servers) {
			c.addDataDisks(s)
		}
	})
}

// SetServerStatus changes a server from outside, for example to ERROR or SHUTOFF.
func (c *Cloud) SetServerStatus(id, status string) error {
	err := fmt.Errorf("server %s: %w", id, ErrNotFound)
	c.with(func() {
		if s := c.servers[id]; s != nil {
			c.setStatusFromOutside(s, status)
			err = nil
		}
	})
	return err
}

// setStatusFromOutside changes a status for good: what an action under way would make of it does not happen.
func (c *Cloud) setStatusFromOutside(s *server, status string) {
	if !s.truth.Deleting {
		s.wire.TaskState = nil
	}
	c.setStatus(s, status)
}

// EditServer changes a server from outside. What is computed (volumes, addresses, security groups) and its id cannot be
// changed so. It returns false where there is no such server. The function must not call back.
func (c *Cloud) EditServer(id string, edit func(*Server)) bool {
	found := false
	c.with(func() {
		s := c.servers[id]
		if s == nil {
			return
		}
		found = true
		w := c.truthOf(s)
		edit(&w)
		status := s.wire.Status
		truth := *w.Truth
		w.ID, w.Truth = s.wire.ID, nil
		w.VolumesAttached, w.Addresses, w.SecurityGroups, w.IPAddresses = nil, nil, nil, IPAddresses{}
		w.Metadata = maps.Clone(w.Metadata)
		s.wire, s.truth = w, truth
		if w.Status != status {
			s.wire.Status = status
			c.setStatusFromOutside(s, w.Status)
		}
		c.chargeServer(s)
	})
	return found
}

// RemoveServer deletes a server as a user of the dashboard does who keeps the disks.
func (c *Cloud) RemoveServer(id string) error {
	err := fmt.Errorf("server %s: %w", id, ErrNotFound)
	c.with(func() {
		if s := c.servers[id]; s != nil {
			c.remove(s)
			err = nil
		}
	})
	return err
}

// RemoveVolume deletes a volume past all checks.
func (c *Cloud) RemoveVolume(id string) error {
	err := fmt.Errorf("volume %s: %w", id, ErrNotFound)
	c.with(func() {
		if c.volumes[id] != nil {
			c.dropVolume(id)
			err = nil
		}
	})
	return err
}
