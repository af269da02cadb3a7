// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	volumeCreating  = "creating"
	volumeAvailable = "available"
	volumeInUse     = "in-use"
	volumeDeleting  = "deleting"

	attachedRoot = "rootdisk"
	attachedData = "datadisk"
)

// volume is the record of one volume.
type volume struct {
	seq             uint64
	wire            Volume // without attachments
	project, region string
	server          string
	attachment      AttachedAt
}

func (v *volume) order() uint64 { return v.seq }

func (v *volume) owned(q *call) bool { return v.project == q.project && v.region == q.region }

func (c *Cloud) renderVolume(v *volume) Volume {
	w := v.wire
	w.Metadata = maps.Clone(v.wire.Metadata)
	w.VolumeType = v.wire.VolumeType
	w.Attachments = []VolumeAttachment{}
	if s := c.servers[v.server]; s != nil {
		nested := NestedServer{ID: s.wire.ID, Name: s.wire.Name, Status: s.wire.Status, VolumesAttached: []AttachedVolume{}}
		for _, id := range s.volumes {
			nested.VolumesAttached = append(nested.VolumesAttached, AttachedVolume{ID: id, brief: true})
		}
		a := v.attachment
		w.Attachments = append(w.Attachments, VolumeAttachment{
			ServerID: a.ServerID, AttachmentID: a.AttachmentID, VolumeID: a.VolumeID, Device: a.Device, ID: a.ID, AttachedAt: a.AttachedAt, Server: nested,
		})
	}
	return w
}

func (c *Cloud) renderAttached(v *volume) AttachedVolume {
	return AttachedVolume{
		ID: v.wire.ID, Status: v.wire.Status, Size: v.wire.Size, AvailabilityZone: v.wire.AvailabilityZone, CreatedAt: v.wire.CreatedAt,
		Attachments: []AttachedAt{v.attachment}, Name: v.wire.Name, Description: v.wire.Description, VolumeType: v.wire.VolumeType,
		Metadata: maps.Clone(v.wire.Metadata), Bootable: strconv.FormatBool(v.wire.Bootable), AttachedType: v.wire.AttachedType,
		Type: v.wire.Type, Category: v.wire.Category, Snapshots: []string{},
	}
}

// mediumOf is the medium as volumes show it.
func mediumOf(t VolumeType) string {
	if strings.Contains(t.Name, "SSD") {
		return "SSD"
	}
	return "HDD"
}

// newVolume makes a volume that is attached to nothing.
func (c *Cloud) newVolume(project, region, zone, name string, size int, t VolumeType, plan string) *volume {
	kind := mediumOf(t)
	v := &volume{
		seq: c.nextSeq(), project: project, region: region,
		wire: Volume{
			ID: c.newUUID(), Status: volumeAvailable, Size: size, AvailabilityZone: zone, CreatedAt: micros(c.now), UpdatedAt: micros(c.now),
			Name: name, VolumeType: t.Name, Metadata: map[string]string{"category": t.Category, "billing_plan": plan}, UserID: userID(project),
			TenantID: project, Type: kind, Category: t.Category, RegionName: c.region(region).RegionName, AttachedType: attachedData, BillingPlan: plan,
		},
	}
	c.volumes[v.wire.ID] = v
	c.chargeVolume(v)
	return v
}

// addDisks creates and attaches the root disk of a create request. Data disks come some seconds after the server is ACTIVE: recorded ones
// were created 17 s after that, and attached 5 s later.
func (c *Cloud) addDisks(s *server, o *validRequest) {
	root := c.newVolume(o.project, o.region, o.AvailabilityZone, s.wire.Name+"_rootdisk", o.RootDisk.Size, o.rootVolume, o.BillingPlan)
	root.wire.Bootable = true
	root.wire.ImageMetadata = map[string]string{
		"image_id": o.OS.ID, "image_name": o.os.name, "image_type": o.OS.Type, "min_disk": strconv.Itoa(o.os.minDisk), "min_ram": "0",
		"disk_format": "raw", "container_format": "bare", "size": "5368709120",
	}
	if o.os.snapshot != "" {
		root.wire.SnapshotID = &o.os.snapshot
	}
	root.wire.AttachedType = attachedRoot
	c.attach(root, s)
	root.wire.Status = volumeCreating
	s.addData = func() {
		for i, disk := range o.DataDisks {
			name := fmt.Sprintf("%s_datadisk_%d", s.wire.Name, i+1)
			c.attach(c.newVolume(o.project, o.region, o.AvailabilityZone, name, disk.Size, o.dataVolumes[i], o.BillingPlan), s)
		}
	}
}

// addDataDisks gives a server its data disks, once and unless it is being deleted.
func (c *Cloud) addDataDisks(s *server) {
	if add := s.addData; add != nil && c.servers[s.wire.ID] == s && !s.truth.Deleting {
		s.addData = nil
		add()
	}
}

func (c *Cloud) attach(v *volume, s *server) {
	v.server = s.wire.ID
	v.wire.Status = volumeInUse
	v.wire.UpdatedAt = micros(c.now)
	used := map[string]bool{}
	for _, id := range s.volumes {
		if other := c.volumes[id]; other != nil {
			used[other.attachment.Device] = true
		}
	}
	device := "/dev/vda"
	for letter := 'a'; used[device] && letter <= 'z'; letter++ {
		device = "/dev/vd" + string(letter)
	}
	v.attachment = AttachedAt{
		ID: v.wire.ID, AttachmentID: c.newUUID(), VolumeID: v.wire.ID, ServerID: s.wire.ID, HostName: "thor-compute-" + s.wire.HostID[:3],
		Device: device, AttachedAt: micros(c.now),
	}
	s.volumes = append(s.volumes, v.wire.ID)
}

func (c *Cloud) detach(v *volume, s *server) {
	v.server, v.attachment = "", AttachedAt{}
	v.wire.Status, v.wire.UpdatedAt = volumeAvailable, micros(c.now)
	s.volumes = slices.DeleteFunc(s.volumes, func(id string) bool { return id == v.wire.ID })
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/volumes", (*Cloud).listVolumes, "name", "size", "status", "availability_zone", "category", "billing_plan", "bootable"),
	on(http.MethodPost, "/volumes", (*Cloud).createVolume),
	on(http.MethodGet, "/volumes/{id}", (*Cloud).getVolume),
	on(http.MethodDelete, "/volumes/{id}", (*Cloud).deleteVolume),
	on(http.MethodGet, "/volume-types", (*Cloud).listVolumeTypes, "category", "availability_zone"),
)

func (c *Cloud) listVolumes(q *call) reply {
	volumes := []Volume{}
	for _, v := range sorted(c.volumes) {
		w := v.wire
		wanted := v.owned(q)
		for name, value := range map[string]string{
			"name": w.Name, "size": strconv.Itoa(w.Size), "status": w.Status, "availability_zone": w.AvailabilityZone, "category": w.Category,
			"billing_plan": w.BillingPlan, "bootable": strconv.FormatBool(w.Bootable),
		} {
			filter := q.query.Get(name)
			wanted = wanted && (filter == "" || filter == value)
		}
		if wanted {
			volumes = append(volumes, c.renderVolume(v))
		}
	}
	return ok(volumes)
}

func (c *Cloud) getVolume(q *call) reply {
	v, rejection := find(q, c.volumes, "Volume", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderVolume(v))
}

func (c *Cloud) deleteVolume(q *call) reply {
	v, rejection := find(q, c.volumes, "Volume", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	if v.wire.Status != volumeAvailable && v.wire.Status != "error" {
		return reject(http.StatusBadRequest, "Invalid volume: Volume status must be available or error, but current status is: "+v.wire.Status)
	}
	if n := c.snapshotsOf(v); n > 0 {
		return *bad("Invalid volume: Volume %s still has %d dependent snapshots.", v.wire.ID, n)
	}
	v.wire.Status = volumeDeleting
	c.after(q.fx.latency(c.opts.Latency), func() { c.dropVolume(v.wire.ID) })
	return reply{status: http.StatusNoContent}
}

type volumeRequest struct {
	Name             string `json:"name"`
	Description      string `json:"description"`
	Size             int    `json:"size"`
	VolumeType       string `json:"volume_type"`
	Category         string `json:"category"`
	AvailabilityZone string `json:"availability_zone"`
	SnapshotID       string `json:"snapshot_id"`
	InstanceUUID     string `json:"instance_uuid"`
	BillingPlan      string `json:"billing_plan"`
}

func (c *Cloud) createVolume(q *call) reply {
	request, rejection := decode[volumeRequest](q)
	if rejection != nil {
		return *rejection
	}
	t, rejection := c.volumeType(q.region, request.Category, request.AvailabilityZone, request.disk())
	if rejection != nil {
		return *rejection
	}
	plan := orDefault(request.BillingPlan, PlanOnDemand)
	if rejection := request.check(plan); rejection != nil {
		return *rejection
	}
	source, rejection := c.volumeSource(q, request)
	if rejection != nil {
		return *rejection
	}
	if message := c.quotaExceeded(q.project, need{volumes: 1, gb: request.Size}); message != "" {
		return reject(http.StatusForbidden, message)
	}
	s := c.servers[request.InstanceUUID]
	if request.InstanceUUID != "" && (s == nil || !s.owned(q)) {
		return noSuchServer(request.InstanceUUID)
	}
	v := c.newVolume(q.project, q.region, request.AvailabilityZone, request.Name, request.Size, t, plan)
	if request.Description != "" {
		v.wire.Description = &request.Description
	}
	if source != nil {
		v.wire.SnapshotID, v.wire.Bootable = &source.ID, source.Bootable
	}
	if s == nil {
		return ok(c.renderVolume(v))
	}
	if rejection := c.tryAttach(v, s); rejection != nil {
		c.dropVolume(v.wire.ID)
		return *rejection
	}
	return ok(c.renderVolume(v))
}

func (r volumeRequest) check(plan string) *reply {
	switch {
	case r.Size < 10 || r.Size%10 != 0:
		return bad("Dung lượng ổ cứng không hợp lệ")
	case plan != PlanOnDemand && plan != PlanSaving:
		return bad("billing_plan không hợp lệ: %s", plan)
	}
	return nil
}

// disk is the type of the volume. The medium alone is one as well: the CSI driver's StorageClasses and Terraform's
// documentation use HDD and SSD.
func (r volumeRequest) disk() *diskRequest {
	if r.VolumeType == "HDD" || r.VolumeType == "SSD" {
		return &diskRequest{Type: r.VolumeType}
	}
	return &diskRequest{VolumeType: r.VolumeType}
}

// volumeSource is the snapshot that a volume is made from; nil where none is named.
func (c *Cloud) volumeSource(q *call, request volumeRequest) (*Snapshot, *reply) {
	if request.SnapshotID == "" {
		return nil, nil
	}
	for _, snapshot := range c.snapshots(q) {
		if snapshot.ID != request.SnapshotID {
			continue
		}
		if request.Size < snapshot.Size {
			return nil, bad("Invalid input received: Volume size '%d'GB cannot be smaller than the snapshot size %dGB. They must be >= original snapshot size.",
				request.Size, snapshot.Size)
		}
		return &snapshot, nil
	}
	rejection := noSuchSnapshot(request.SnapshotID)
	return nil, &rejection
}

func (c *Cloud) tryAttach(v *volume, s *server) *reply {
	switch {
	case v.wire.Status != volumeAvailable:
		return bad("Invalid volume: Volume %s status must be available, but is %s", v.wire.ID, v.wire.Status)
	case v.wire.AvailabilityZone != s.wire.AvailabilityZone:
		return bad("Invalid volume: Instance and volume are not in the same availability_zone.")
	case v.wire.BillingPlan != s.wire.BillingPlan:
		return bad("Không thể gắn ổ cứng: tài nguyên khác gói cước (%s, %s)", v.wire.BillingPlan, s.wire.BillingPlan)
	}
	c.attach(v, s)
	return nil
}

func (c *Cloud) listVolumeTypes(q *call) reply {
	types := []VolumeType{}
	for _, t := range c.opts.Catalog.VolumeTypes[q.region] {
		category, zone := q.query.Get("category"), q.query.Get("availability_zone")
		if (category == "" || category == t.Category) && (zone == "" || slices.Contains(t.AvailabilityZones, zone)) {
			types = append(types, c.listedVolumeType(t))
		}
	}
	return ok(map[string]any{"volume_types": types})
}

type volumeActionRequest struct {
	Type         string `json:"type"`
	InstanceUUID string `json:"instance_uuid"`
}

var volumeActions = actions{"attach": {"instance_uuid"}, "detach": {"instance_uuid"}}

var _ = serverAPI.serve(on(http.MethodPost, "/volumes/{id}/action", (*Cloud).volumeAction))

func (c *Cloud) volumeAction(q *call) reply {
	request, rejection := decode[volumeActionRequest](q)
	if rejection == nil {
		rejection = volumeActions.rejection(q, "type", request.Type)
	}
	if rejection != nil {
		return *rejection
	}
	v, rejection := find(q, c.volumes, "Volume", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	s := c.servers[request.InstanceUUID]
	if s == nil || !s.owned(q) {
		return noSuchServer(request.InstanceUUID)
	}
	if request.Type == "attach" {
		if rejection := c.tryAttach(v, s); rejection != nil {
			return *rejection
		}
		return ok(map[string]any{"message": "Attach successfully", "volume_detail": c.renderVolume(v)})
	}
	if v.server != s.wire.ID || v.wire.AttachedType == attachedRoot {
		return reject(http.StatusBadRequest, "Volume is not attached to this server, or is its root disk")
	}
	c.detach(v, s)
	return ok(map[string]any{"message": "Detach successfully", "volume_detail": c.renderVolume(v)})
}
