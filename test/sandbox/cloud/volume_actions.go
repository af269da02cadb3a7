// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
)

type volumeActionRequest struct {
	Type         string `json:"type"`
	NewSize      int    `json:"new_size"`
	InstanceUUID string `json:"instance_uuid"`
	SnapshotID   string `json:"snapshot_id"`
}

var volumeActions = actions{"extend": {"new_size"}, "attach": {"instance_uuid"}, "detach": {"instance_uuid"}, "restore_volume": {"snapshot_id"}}

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
	switch request.Type {
	case "extend":
		return c.extendVolume(q, v, request.NewSize)
	case "restore_volume":
		return c.restoreVolume(q, v, request.SnapshotID)
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

func (c *Cloud) extendVolume(q *call, v *volume, size int) reply {
	switch {
	case size <= v.wire.Size:
		return reject(http.StatusBadRequest, "New size must be greater than the current size")
	case size%10 != 0:
		return reject(http.StatusBadRequest, "Dung lượng ổ cứng không hợp lệ")
	}
	if message := c.quotaExceeded(q.project, need{gb: size - v.wire.Size}); message != "" {
		return reject(http.StatusForbidden, message)
	}
	v.wire.Size = size
	c.chargeVolume(v)
	return c.volumeTask(q, v, "extend_volume", v.wire.Status)
}

// restoreVolume gives a free volume the content of a snapshot of its own.
func (c *Cloud) restoreVolume(q *call, v *volume, id string) reply {
	i := slices.IndexFunc(c.snapshots(q), func(s Snapshot) bool { return s.ID == id })
	switch {
	case i < 0:
		return noSuchSnapshot(id)
	case c.snapshots(q)[i].VolumeID != v.wire.ID:
		return *bad("Snapshot %s is not one of volume %s", id, v.wire.ID)
	case v.wire.Status != volumeAvailable:
		return *bad("Invalid volume: Volume %s status must be available, but is %s", v.wire.ID, v.wire.Status)
	}
	v.wire.SnapshotID = &id
	return c.volumeTask(q, v, "restore_volume", volumeRestoring)
}

// volumeTask is what takes a while; until then the volume has this status.
func (c *Cloud) volumeTask(q *call, v *volume, action, status string) reply {
	before := v.wire.Status
	v.wire.Status, v.wire.UpdatedAt = status, micros(c.now)
	t := c.newTask(action, q.project, q.region, v.server, q.fx)
	if !q.fx.has(EffectStuck) {
		c.after(t.EndsAt.Sub(c.now), func() {
			if v.wire.Status == status {
				v.wire.Status = before
			}
			c.end(t, true, "", nil)
		})
	}
	return ok(map[string]string{"task_id": t.ID})
}
