// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"slices"
	"strings"
)

// resolvedOS is what a server boots from.
type resolvedOS struct {
	name    string // for the platform's metadata key os_type
	worker  bool   // carries the bootstrap script of the Kubernetes Engine
	minDisk int    // GiB
	// snapshot is what the root disk is made from, or empty.
	snapshot string
}

func (c *Cloud) checkOS(q *call, o *validRequest) *reply {
	switch o.OS.Type {
	case "image":
		return c.checkImage(q, o)
	case "snapshot":
		for _, snapshot := range c.opts.Catalog.Snapshots[q.region] {
			if snapshot.ID == o.OS.ID && q.project == c.opts.Project {
				o.os = resolvedOS{name: snapshot.Name, worker: true, minDisk: snapshot.Size, snapshot: snapshot.ID}
				return nil
			}
		}
		return bad("Snapshot %s could not be found.", o.OS.ID)
	}
	return bad("os.type không hợp lệ: %s", o.OS.Type)
}

func (c *Cloud) checkImage(q *call, o *validRequest) *reply {
	for _, image := range c.opts.Catalog.Images[q.region] {
		for _, version := range image.Versions {
			if version.ID == o.OS.ID {
				o.os = resolvedOS{name: image.OS + " " + version.Name}
				return nil
			}
		}
	}
	for _, version := range c.opts.Catalog.Versions {
		if version.WorkerImageID == o.OS.ID && o.OS.ID != "" {
			o.os = resolvedOS{name: "bke-worker-" + version.KubernetesVersion, worker: true}
			return nil
		}
	}
	for _, image := range c.opts.Catalog.CustomImages[q.region] {
		if image.ID != o.OS.ID || q.project != c.opts.Project {
			continue
		}
		if image.Status != "active" {
			return bad("Image %s is not active.", o.OS.ID)
		}
		o.os = resolvedOS{name: image.Name, worker: true, minDisk: image.MinDisk}
		return nil
	}
	return bad("Image %s could not be found.", o.OS.ID)
}

// volumeType finds a type by its name, by what GET /volume-types calls its type, or by HDD or SSD alone, in the category and zone.
func (c *Cloud) volumeType(region, category, zone string, disk *diskRequest) (VolumeType, *reply) {
	wanted := disk.VolumeType
	if wanted == "" {
		wanted = strings.ToUpper(category) + " " + orDefault(disk.Type, "HDD")
	}
	return c.findVolumeType(region, category, zone, wanted, func(t VolumeType) bool { return t.Name == wanted || t.Type == wanted })
}

// volumeTypeOf finds the type of a disk of a create request, which must name it in the one form that this cloud takes.
func (c *Cloud) volumeTypeOf(region, category, zone string, disk *diskRequest) (VolumeType, *reply) {
	t, rejection := c.orderedVolumeType(region, category, zone, disk)
	if rejection != nil && c.opts.Shape.SilentVolumeTypes {
		rejection = silent()
	}
	return t, rejection
}

func (c *Cloud) orderedVolumeType(region, category, zone string, disk *diskRequest) (VolumeType, *reply) {
	form := c.opts.Shape.VolumeTypes
	switch {
	case form == VolumeTypesInAnyForm, disk.VolumeType == "" && disk.Type == "":
		return c.volumeType(region, category, zone, disk)
	case form == VolumeTypesByMedium && disk.VolumeType != "":
		return VolumeType{}, bad("volume_type không hợp lệ: %s", disk.VolumeType)
	case form == VolumeTypesByMedium && disk.Type != "HDD" && disk.Type != "SSD":
		return VolumeType{}, bad("Loại ổ đĩa không hợp lệ: %s", disk.Type)
	case form == VolumeTypesByMedium:
		return c.findVolumeType(region, category, zone, disk.Type, func(t VolumeType) bool {
			kind, of := strings.CutPrefix(t.Type, strings.ToUpper(category)+" ")
			return of && (kind == disk.Type || kind == "NVME" && disk.Type == "SSD")
		})
	case disk.VolumeType == "":
		return VolumeType{}, bad("Loại ổ đĩa không hợp lệ: %s", disk.Type)
	}
	return c.findVolumeType(region, category, zone, disk.VolumeType, func(t VolumeType) bool {
		listed := c.listedVolumeType(t)
		if form == VolumeTypesByType {
			return listed.Type == disk.VolumeType
		}
		return listed.Name == disk.VolumeType
	})
}

func (c *Cloud) findVolumeType(region, category, zone, wanted string, is func(VolumeType) bool) (VolumeType, *reply) {
	var named bool
	for _, t := range c.opts.Catalog.VolumeTypes[region] {
		if !is(t) {
			continue
		}
		named = true
		if t.Category == category && slices.Contains(t.AvailabilityZones, zone) {
			return t, nil
		}
	}
	if named {
		return VolumeType{}, bad("Volume type %s không được hỗ trợ cho %s tại %s", wanted, category, zone)
	}
	return VolumeType{}, bad("Volume type with name %s could not be found.", wanted)
}

func (c *Cloud) checkDisks(q *call, o *validRequest) *reply {
	switch {
	case o.RootDisk == nil:
		return bad("rootdisk is required")
	case o.RootDisk.Size < 20 || o.RootDisk.Size%10 != 0:
		return bad("Dung lượng rootdisk không hợp lệ: %d (tối thiểu 20, bước nhảy 10)", o.RootDisk.Size)
	case o.RootDisk.Size < o.os.minDisk:
		return bad("The created server's disk would be too small: %d < %d", o.RootDisk.Size, o.os.minDisk)
	}
	t, rejection := c.volumeTypeOf(q.region, o.Type, o.AvailabilityZone, o.RootDisk)
	if rejection != nil {
		return rejection
	}
	o.rootVolume = t
	for _, disk := range o.DataDisks {
		if disk == nil || disk.Size < 10 || disk.Size%10 != 0 {
			return bad("Dung lượng datadisk không hợp lệ")
		}
		t, rejection := c.volumeTypeOf(q.region, o.Type, o.AvailabilityZone, disk)
		if rejection != nil {
			return rejection
		}
		o.dataVolumes = append(o.dataVolumes, t)
	}
	return nil
}

func (c *Cloud) checkNetwork(q *call, o *validRequest) *reply {
	// The documented command line defaults to a public address, so a request that does not exclude it gets one.
	o.wan = o.IsCreatedWan == nil || *o.IsCreatedWan
	for _, id := range o.NetworkInterfaces {
		p := c.ports[id]
		if p == nil || !p.owned(q) {
			return bad("Port %s could not be found.", id)
		}
		if p.server != "" {
			return bad("Port %s is still in use.", id)
		}
	}
	ids := o.VPCNetworkIDs
	if len(ids) == 0 && len(o.NetworkInterfaces) == 0 {
		for _, vpc := range c.vpcs(q) {
			if vpc.IsDefault {
				ids = []string{vpc.ID}
			}
		}
	}
	for _, id := range ids {
		vpc, found := c.vpc(q, id)
		if !found {
			return bad("Network %s could not be found.", id)
		}
		if !slices.Contains(vpc.AvailabilityZones, o.AvailabilityZone) {
			return bad("Network %s is not available in zone %s", id, o.AvailabilityZone)
		}
		o.vpcs = append(o.vpcs, vpc)
	}
	return nil
}

func (c *Cloud) checkFirewalls(q *call, o *validRequest) *reply {
	for _, id := range o.Firewalls {
		if !slices.ContainsFunc(c.firewalls(q), func(f Firewall) bool { return f.ID == id }) {
			return bad("Security group %s not found.", id)
		}
		o.firewallIDs = append(o.firewallIDs, id)
	}
	if len(o.firewallIDs) == 0 {
		o.firewallIDs = c.defaultFirewalls(q)
	}
	return nil
}
