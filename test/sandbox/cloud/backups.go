// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// backup is the record of one scheduled backup: it takes a snapshot of a volume every so often and keeps the last few.
type backup struct {
	seq             uint64
	wire            backupWire
	project, region string
	every           time.Duration
	keep            int
	run             int // counts changes of the schedule, so that what was planned before does not happen
}

func (b *backup) order() uint64      { return b.seq }
func (b *backup) owned(q *call) bool { return b.project == q.project && b.region == q.region }

type backupWire struct {
	ID            string        `json:"_id"`
	Type          string        `json:"type"`
	ResourceType  string        `json:"resource_type"`
	ResourceID    string        `json:"resource_id"`
	Options       backupOptions `json:"options"`
	TenantID      string        `json:"tenant_id"`
	CreatedAt     string        `json:"created_at"`
	UpdatedAt     string        `json:"updated_at"`
	ScheduledHour int           `json:"scheduled_hour"`
	NextRunAt     string        `json:"next_run_at"`
	BillingPlan   string        `json:"billing_plan"`
}

type backupOptions struct {
	// Frequency is in minutes, Size the number of snapshots that are kept; both are text.
	Frequency string `json:"frequency"`
	Size      string `json:"size"`
}

type backupDetail struct {
	backupWire
	VolumeID  string     `json:"volume_id"`
	Snapshots []Snapshot `json:"snapshots"`
	Volume    *Volume    `json:"volume"`
}

type backupRequest struct {
	ResourceID string `json:"resource_id"`
	backupUpdate
}

type backupUpdate struct {
	Frequency string `json:"frequency"`
	Size      string `json:"size"`
	Hour      *int   `json:"hour"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/backup", (*Cloud).listBackups),
	on(http.MethodPost, "/backup", (*Cloud).createBackup),
	on(http.MethodGet, "/backup/{id}", (*Cloud).getBackup),
	on(http.MethodPut, "/backup/{id}", (*Cloud).updateBackup),
	on(http.MethodDelete, "/backup/{id}", (*Cloud).deleteBackup),
)

func (c *Cloud) createBackup(q *call) reply {
	request, rejection := decodeChange[backupRequest](c, q)
	if rejection != nil {
		return *rejection
	}
	v, rejection := find(q, c.volumes, "Volume", request.ResourceID)
	if rejection != nil {
		return *rejection
	}
	for _, other := range c.backups {
		if other.wire.ResourceID == v.wire.ID {
			return reject(http.StatusConflict, "Volume "+v.wire.ID+" has a scheduled backup already")
		}
	}
	b := &backup{
		seq: c.nextSeq(), project: q.project, region: q.region,
		wire: backupWire{
			ID: c.newHex(12), Type: "volume_snapshot", ResourceType: "volume", ResourceID: v.wire.ID, TenantID: q.project, CreatedAt: micros(c.now),
			BillingPlan: v.wire.BillingPlan,
		},
	}
	if rejection := c.schedule(b, request.backupUpdate); rejection != nil {
		return *rejection
	}
	c.backups[b.wire.ID] = b
	return ok(map[string]any{"message": "Create backup successfully", "code": "OK", "data": c.renderBackup(b)})
}

// schedule writes what is asked for into a backup and plans its next run: at that hour of the local day.
func (c *Cloud) schedule(b *backup, request backupUpdate) *reply {
	options := backupOptions{
		Frequency: orDefault(request.Frequency, b.wire.Options.Frequency), Size: orDefault(request.Size, b.wire.Options.Size),
	}
	minutes, minutesErr := strconv.Atoi(options.Frequency)
	keep, keepErr := strconv.Atoi(options.Size)
	hour := b.wire.ScheduledHour
	if request.Hour != nil {
		hour = *request.Hour
	}
	switch {
	case minutesErr != nil || minutes <= 0:
		return bad("frequency không hợp lệ: %q", options.Frequency)
	case keepErr != nil || keep <= 0:
		return bad("size không hợp lệ: %q", options.Size)
	case hour < 0 || hour > 23:
		return bad("hour không hợp lệ: %d", hour)
	}
	local := c.now.In(hanoi)
	next := time.Date(local.Year(), local.Month(), local.Day(), hour, 0, 0, 0, hanoi)
	if !next.After(c.now) {
		next = next.AddDate(0, 0, 1)
	}
	b.wire.Options, b.wire.ScheduledHour, b.wire.UpdatedAt = options, hour, micros(c.now)
	b.every, b.keep = time.Duration(minutes)*time.Minute, keep
	b.run++
	c.plan(b, next)
	return nil
}

func (c *Cloud) plan(b *backup, next time.Time) {
	b.wire.NextRunAt = next.In(hanoi).Format("2006-01-02T15:04:05.000000")
	run := b.run
	c.after(next.Sub(c.now), func() {
		v := c.volumes[b.wire.ResourceID]
		if c.backups[b.wire.ID] != b || b.run != run {
			return
		}
		if v == nil {
			delete(c.backups, b.wire.ID)
			return
		}
		c.takeSnapshot(v, v.wire.Name+"@"+c.now.In(hanoi).Format("02-01-2006"), map[string]string{"category": v.wire.Category, "type": "backup", "job_id": b.wire.ID})
		for snapshots := c.backupSnapshots(b); len(snapshots) > b.keep; snapshots = snapshots[1:] {
			without(&c.opts.Catalog.Snapshots, b.region, func(s Snapshot) bool { return s.ID == snapshots[0].ID })
		}
		c.plan(b, c.now.Add(b.every))
	})
}

// backupSnapshots are the snapshots that a backup has taken, oldest first.
func (c *Cloud) backupSnapshots(b *backup) []Snapshot {
	snapshots := []Snapshot{}
	for _, s := range c.opts.Catalog.Snapshots[b.region] {
		if s.Metadata["job_id"] == b.wire.ID {
			snapshots = append(snapshots, s)
		}
	}
	return snapshots
}

func (c *Cloud) renderBackup(b *backup) backupDetail {
	detail := backupDetail{backupWire: b.wire, VolumeID: b.wire.ResourceID, Snapshots: c.backupSnapshots(b)}
	slices.Reverse(detail.Snapshots)
	if v := c.volumes[b.wire.ResourceID]; v != nil {
		w := c.renderVolume(v)
		detail.Volume = &w
	}
	return detail
}

func (c *Cloud) listBackups(q *call) reply {
	backups := []backupWire{}
	for _, b := range sorted(c.backups) {
		if b.owned(q) {
			backups = append(backups, b.wire)
		}
	}
	return ok(backups)
}

func (c *Cloud) getBackup(q *call) reply {
	b, rejection := find(q, c.backups, "Backup", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	return ok(c.renderBackup(b))
}

func (c *Cloud) updateBackup(q *call) reply {
	request, rejection := decode[backupUpdate](q)
	if rejection != nil {
		return *rejection
	}
	b, rejection := find(q, c.backups, "Backup", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	if rejection := c.schedule(b, request); rejection != nil {
		return *rejection
	}
	return ok(c.renderBackup(b))
}

// deleteBackup ends the schedule; the snapshots stay, and with them the volume.
func (c *Cloud) deleteBackup(q *call) reply {
	b, rejection := find(q, c.backups, "Backup", q.vars[0])
	if rejection != nil {
		return *rejection
	}
	delete(c.backups, b.wire.ID)
	return reply{status: http.StatusNoContent}
}
