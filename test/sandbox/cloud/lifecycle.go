// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// task is the record of one asynchronous operation.
type task struct {
	Task
	seq     uint64
	project string
	region  string
	server  *Server // as of the end; nil where the operation left none
	effect  Effect  // how its result is distorted
}

func (t *task) order() uint64 { return t.seq }

func (c *Cloud) newTask(action, project, region, serverID string, fx effects) *task {
	t := &task{seq: c.nextSeq(), project: project, region: region, effect: fx.taskEffect()}
	t.Task = Task{ID: c.newUUID(), Action: action, ServerID: serverID, CreatedAt: c.now, EndsAt: c.now.Add(fx.latency(c.opts.Latency))}
	c.tasks[t.ID] = t
	return t
}

// end settles a task and forgets it after a while, as the real one does.
func (c *Cloud) end(t *task, success bool, message string, server *Server) {
	t.Ready, t.Success, t.Message, t.server, t.EndsAt = true, success, message, server, c.now
	c.after(taskTTL, func() { delete(c.tasks, t.ID) })
}

type taskProgress struct {
	Action   string `json:"action"`
	Progress int    `json:"progress"`
}

type taskOutcome struct {
	*Server
	Action   string `json:"action"`
	Progress int    `json:"progress"`
	Success  bool   `json:"success"`
	Message  string `json:"message,omitempty"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/tasks/{id}", (*Cloud).getTask),
	withBody(on(http.MethodDelete, "/servers/{id}", (*Cloud).deleteServer)),
)

func (c *Cloud) getTask(q *call) reply {
	t := c.tasks[q.vars[0]]
	effect := q.fx.taskEffect()
	if t != nil && effect == "" {
		effect = t.effect
	}
	if t == nil || t.project != q.project || t.region != q.region || effect == EffectTask404 {
		return problem(http.StatusNotFound, "Task "+q.vars[0]+" not found")
	}
	if !t.Ready {
		progress := 0
		if total := t.EndsAt.Sub(t.CreatedAt); total > 0 {
			progress = min(99, int(100*c.now.Sub(t.CreatedAt)/total))
		}
		return ok(map[string]any{"ready": false, "result": taskProgress{Action: t.Action, Progress: progress}})
	}
	if c.opts.Shape.TaskWithoutSuccess && t.Success {
		return ok(map[string]any{"ready": true, "result": struct {
			*Server
			Action   string `json:"action"`
			Progress int    `json:"progress"`
		}{t.server, t.Action, 100}})
	}
	var result any = taskOutcome{Server: t.server, Action: t.Action, Progress: 100, Success: t.Success, Message: t.Message}
	switch effect {
	case EffectTaskString:
		result = orDefault(t.Message, "Tác vụ đã hoàn thành")
	case EffectTaskNull:
		result = nil
	}
	return ok(map[string]any{"ready": true, "result": result})
}

// build starts to build one server and returns the task. doom is why it is bound to fail, or empty.
func (c *Cloud) build(o *validRequest, name, doom string, fx effects) *task {
	s := c.newServer(o, name)
	s.hidden = c.opts.HideBuilding
	s.truth.NoJoin = fx.has(EffectNoJoin)
	c.servers[s.wire.ID] = s
	c.setStatus(s, StatusBuild)
	if doom == "" {
		c.takeStock(s, o)
	}
	c.addDisks(s, o)
	for _, vpc := range o.vpcs {
		c.addPort(s, vpc, o.firewallIDs)
	}
	for _, id := range o.NetworkInterfaces {
		c.attachPort(c.ports[id], s)
	}
	if o.wan {
		c.addWanPort(s, o.firewallIDs)
	}
	if o.IPv6 {
		c.addIPv6Port(s, o.firewallIDs)
	}
	t := c.newTask("create_server", o.project, o.region, s.wire.ID, fx)
	if !fx.has(EffectStuck) {
		c.after(t.EndsAt.Sub(c.now), func() { c.finishBuild(s, t, doom, fx) })
	}
	return t
}

func (c *Cloud) newServer(o *validRequest, name string) *server {
	metadata := maps.Clone(o.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	for key, value := range map[string]string{
		"category": o.Type, "os_type": o.os.name, "network_plan": o.NetworkPlan, "billing_plan": o.BillingPlan,
	} {
		metadata[key] = value
	}
	var key *string
	if o.SSHKey != "" {
		key = &o.SSHKey
	}
	flavor := o.flavor
	flavor.Omit = nil // in ground truth nothing is left out
	return &server{
		seq: c.nextSeq(),
		wire: Server{
			ID: c.newUUID(), Name: name, TenantID: o.project, UserID: userID(o.project), Metadata: metadata, HostID: c.newHex(28),
			Flavor: ServerFlavor{
				ID: o.flavor.ID, Name: o.flavor.Name, RAM: o.flavor.RAM, Disk: o.flavor.Disk, VCPUs: o.flavor.VCPUs, Public: true, RXTXFactor: 1,
			},
			FlavorName: shortName(o.flavor.Name), Created: seconds(c.now), Updated: seconds(c.now), KeyName: key, DiskConfig: "MANUAL",
			AvailabilityZone: o.AvailabilityZone, Category: o.Type, ZoneName: o.AvailabilityZone, RegionName: c.region(o.region).RegionName,
			IPv6: o.IPv6, NetworkPlan: o.NetworkPlan, BillingPlan: o.BillingPlan, IsCreatedWan: o.wan,
		},
		truth: ServerTruth{
			Project: o.project, Region: o.region, ImageID: o.OS.ID, ImageType: o.OS.Type, WorkerImage: o.os.worker, UserData: o.UserData,
			Flavor: flavor, RootDiskGiB: o.RootDisk.Size, CreatedAt: c.now,
		},
	}
}

// finishBuild ends a build well or badly. A server that is being deleted meanwhile never becomes ACTIVE.
func (c *Cloud) finishBuild(s *server, t *task, doom string, fx effects) {
	if c.servers[s.wire.ID] != s || s.truth.Deleting {
		c.end(t, false, "Instance "+s.wire.ID+" was deleted while it was being built", nil)
		return
	}
	if s.wire.Status != StatusBuild { // edited from outside
		c.after(c.opts.DataDiskDelay, func() { c.addDataDisks(s) })
		w := c.render(s)
		c.end(t, s.wire.Status == StatusActive, "", &w)
		return
	}
	s.hidden = false
	switch f := fx.build(); {
	case f != nil && f.Effect == EffectTaskFailed:
		c.addDataDisks(s) // the worst that it can leave
		c.vanish(s, f.Orphan)
		c.end(t, false, f.message("Build of instance aborted: Failed to allocate the network(s), not rescheduling."), nil)
		return
	case f != nil && f.Effect == EffectErrorServer:
		doom = f.message("Build of instance " + s.wire.ID + " aborted: Volume did not finish being created")
	case f != nil && f.Effect == EffectLateError:
		c.activate(s)
		w := c.render(s)
		c.end(t, true, "", &w)
		c.breakDownLater(s, f)
		return
	}
	if doom != "" {
		c.breakDown(s, doom)
		w := c.render(s)
		c.end(t, false, doom, &w)
		return
	}
	c.activate(s)
	w := c.render(s)
	c.end(t, true, "", &w)
}

func (c *Cloud) activate(s *server) {
	for _, id := range s.volumes {
		if v := c.volumes[id]; v != nil {
			v.wire.Status = volumeInUse
		}
	}
	c.setStatus(s, StatusActive)
	c.after(c.opts.DataDiskDelay, func() { c.addDataDisks(s) })
}

func (c *Cloud) breakDown(s *server, message string) {
	c.setStatus(s, StatusError)
	s.wire.Fault = &ServerFault{Code: http.StatusInternalServerError, Created: seconds(c.now), Message: message}
	c.giveBack(s)
}

// breakDownLater lets a server fail after the delay of a fault, unless it is deleted by then.
func (c *Cloud) breakDownLater(s *server, f *Fault) {
	c.after(f.Delay, func() {
		if c.servers[s.wire.ID] == s && !s.truth.Deleting {
			c.breakDown(s, f.message("Unexpected failure of the hypervisor"))
		}
	})
}

type deleteRequest struct {
	DeleteVolume []string `json:"delete_volume"`
}

func (c *Cloud) deleteServer(q *call) reply {
	request, rejection := decode[deleteRequest](q)
	if rejection != nil {
		return *rejection
	}
	s := c.visibleServer(q, q.vars[0])
	switch {
	case s == nil:
		return noSuchServer(q.vars[0])
	case s.truth.Deleting:
		return problem(http.StatusConflict, fmt.Sprintf("Cannot 'delete' instance %s while it is in task_state deleting", s.wire.ID))
	case s.wire.Status == StatusBuild && c.opts.ConflictOnBuild:
		return problem(http.StatusConflict, "Không thể xóa máy chủ đang được khởi tạo")
	case s.wire.Locked:
		return problem(http.StatusForbidden, "Máy chủ đang bị khóa")
	}
	return ok(map[string]string{"task_id": c.beginDelete(q, s, request.DeleteVolume).ID})
}

// beginDelete starts to delete a server with the volumes listed.
func (c *Cloud) beginDelete(q *call, s *server, listed []string) *task {
	listed = slices.Clone(listed)
	t := c.newTask("delete_server", q.project, q.region, s.wire.ID, q.fx)
	state := "deleting"
	s.wire.TaskState, s.truth.Deleting = &state, true
	if !q.fx.has(EffectStuck) {
		c.after(t.EndsAt.Sub(c.now), func() { c.finishDelete(s, t, listed, q.fx) })
	}
	return t
}

// finishDelete removes the server with the ports made for it and the volumes listed, of any kind: a volume that
// no other server uses is really lost. All others are detached and stay, and so do those with snapshots.
func (c *Cloud) finishDelete(s *server, t *task, listed []string, fx effects) {
	if f := fx.build(); f != nil && (f.Effect == EffectTaskFailed || f.Effect == EffectErrorServer) {
		s.wire.TaskState, s.truth.Deleting = nil, false
		c.setStatus(s, StatusError)
		c.end(t, false, f.message("Failed to delete instance "+s.wire.ID), nil)
		return
	}
	c.remove(s)
	for _, id := range listed {
		v := c.volumes[id]
		if v != nil && v.wire.Status == volumeAvailable && v.project == s.truth.Project && v.region == s.truth.Region && c.snapshotsOf(v) == 0 {
			c.dropVolume(id)
		}
	}
	c.end(t, true, "", nil)
}

// remove takes a server away and detaches its volumes.
func (c *Cloud) remove(s *server) {
	gone := c.truthOf(s)
	for _, id := range slices.Clone(s.volumes) {
		if v := c.volumes[id]; v != nil {
			c.detach(v, s)
		}
	}
	for _, id := range slices.Clone(s.ports) {
		p := c.ports[id]
		switch {
		case p == nil:
		case p.implicit:
			c.removePort(p)
		default:
			c.detachPort(p, s)
		}
	}
	delete(c.servers, s.wire.ID)
	c.discharge(s.wire.ID)
	s.deletedAt = c.now
	s.wire.TaskState = nil
	c.tombstones = append(c.tombstones, s)
	if len(c.tombstones) > maxTombstones {
		c.tombstones = c.tombstones[1:]
	}
	c.giveBack(s)
	c.hooks = append(c.hooks, hook{deleted: true, server: gone})
}

// vanish undoes a build, leaving the disks behind if orphan is set.
func (c *Cloud) vanish(s *server, orphan bool) {
	volumes := slices.Clone(s.volumes)
	c.remove(s)
	for _, id := range volumes {
		if !orphan {
			c.dropVolume(id)
		}
	}
}
