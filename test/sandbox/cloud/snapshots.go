// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"k8s.io/utils/ptr"
)

var _ = serverAPI.serve(
	on(http.MethodGet, "/snapshots", (*Cloud).listSnapshots, "volume_id"),
	on(http.MethodPost, "/snapshots", (*Cloud).createSnapshot),
	on(http.MethodDelete, "/snapshots/{id}", (*Cloud).deleteSnapshot),
)

// createSnapshot makes a snapshot that is available at once; one of a disk in use must be forced.
func (c *Cloud) createSnapshot(q *call) reply {
	request, rejection := decode[snapshotRequest](q)
	if rejection != nil {
		return *rejection
	}
	if request.Name == "" {
		return reject(http.StatusBadRequest, "name is required")
	}
	v, rejection := find(q, c.volumes, "Volume", request.VolumeID)
	switch {
	case rejection != nil:
		return *rejection
	case v.wire.Status != volumeAvailable && !request.Force:
		return reject(http.StatusBadRequest, fmt.Sprintf("Invalid volume: Volume %s status must be available, but is %s", v.wire.ID, v.wire.Status))
	}
	made := Snapshot{
		ID: c.newUUID(), Name: request.Name, Status: volumeAvailable, Size: v.wire.Size, VolumeID: v.wire.ID,
		Type: v.wire.Type, VolumeTypeID: StableID("volume-type", v.wire.VolumeType), BillingPlan: v.wire.BillingPlan,
		CreatedAt: micros(c.now), UpdatedAt: micros(c.now), Progress: "100%",
		ProjectID: v.project, Metadata: map[string]string{"category": v.wire.Category}, Category: v.wire.Category,
		ZoneName: v.wire.AvailabilityZone, RegionName: c.region(v.region).RegionName, Bootable: v.wire.Bootable,
	}
	c.setSnapshots(v.region, append(slices.Clone(c.opts.Catalog.Snapshots[v.region]), made))
	return ok(made)
}

func (c *Cloud) deleteSnapshot(q *call) reply {
	kept := slices.DeleteFunc(slices.Clone(c.opts.Catalog.Snapshots[q.region]), func(s Snapshot) bool { return s.ID == q.vars[0] })
	if q.project != c.opts.Project || len(kept) == len(c.opts.Catalog.Snapshots[q.region]) {
		return noSuchSnapshot(q.vars[0])
	}
	c.setSnapshots(q.region, kept)
	return reply{status: http.StatusNoContent}
}

// setSnapshots makes the lists anew, since answers under way may still refer to those before.
func (c *Cloud) setSnapshots(region string, list []Snapshot) {
	c.opts.Catalog.Snapshots = maps.Clone(c.opts.Catalog.Snapshots)
	c.opts.Catalog.Snapshots[region] = list
}

type snapshotRequest struct {
	Name     string `json:"name"`
	VolumeID string `json:"volume_id"`
	Force    bool   `json:"force"`
}

func (c *Cloud) snapshots(q *call) []Snapshot {
	snapshots := []Snapshot{}
	if q.project != c.opts.Project {
		return snapshots
	}
	for _, snapshot := range c.opts.Catalog.Snapshots[q.region] {
		snapshot.ProjectID = q.project
		if v := c.volumes[snapshot.VolumeID]; v != nil {
			snapshot.Volume = ptr.To(c.renderVolume(v))
		}
		if volume := q.query.Get("volume_id"); volume == "" || volume == snapshot.VolumeID {
			snapshots = append(snapshots, snapshot)
		}
	}
	return snapshots
}

func (c *Cloud) listSnapshots(q *call) reply { return ok(c.snapshots(q)) }

func noSuchSnapshot(id string) reply {
	return problem(http.StatusNotFound, "Snapshot "+id+" could not be found.")
}

// snapshotsOf counts the snapshots that keep a volume from being deleted.
func (c *Cloud) snapshotsOf(v *volume) int {
	n := 0
	for _, snapshot := range c.opts.Catalog.Snapshots[v.region] {
		if snapshot.VolumeID == v.wire.ID {
			n++
		}
	}
	return n
}
