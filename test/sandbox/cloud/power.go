// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
)

// The statuses through which a server passes while an action takes its time. The guest is down in all of them.
const (
	StatusReboot       = "REBOOT"
	StatusHardReboot   = "HARD_REBOOT"
	StatusResize       = "RESIZE"
	StatusVerifyResize = "VERIFY_RESIZE"
	StatusRebuild      = "REBUILD"
	StatusMigrating    = "MIGRATING"
)

// passage is a server on its way through an action.
type passage struct {
	action string
	// from are the statuses in which the action is accepted.
	from []string
	// state is the task state meanwhile, through the status; an empty one leaves the status as it is.
	state, through string
	// verify is the status of the last third of the time; empty for none.
	verify string
	// to is the status at the end; empty is the one at the beginning.
	to string
	// done happens at the end.
	done func()
}

// pass begins a passage and returns its task, or the rejection of a server that is in another state.
func (c *Cloud) pass(q *call, s *server, p passage) (*task, *reply) {
	if s.wire.TaskState != nil || !slices.Contains(p.from, s.wire.Status) {
		state := "vm_state " + s.wire.VMState
		if s.wire.TaskState != nil {
			state = "task_state " + *s.wire.TaskState
		}
		conflict := problem(http.StatusConflict, "Cannot '"+p.action+"' instance "+s.wire.ID+" while it is in "+state)
		return nil, &conflict
	}
	to := orDefault(p.to, s.wire.Status)
	if p.through != "" {
		c.setStatus(s, p.through)
	}
	state := &p.state
	s.wire.TaskState = state
	t := c.newTask(p.action+"_server", q.project, q.region, s.wire.ID, q.fx)
	if q.fx.has(EffectStuck) {
		return t, nil
	}
	takes := t.EndsAt.Sub(c.now)
	// Whoever changes the status from outside meanwhile ends the passage.
	under := func() bool {
		return c.servers[s.wire.ID] == s && !s.truth.Deleting && s.wire.TaskState == state
	}
	if p.verify != "" {
		c.after(takes*2/3, func() {
			if under() {
				c.setStatus(s, p.verify)
			}
		})
	}
	c.after(takes, func() {
		if !under() {
			c.end(t, false, "Instance "+s.wire.ID+" could not be found.", nil)
			return
		}
		s.wire.TaskState = nil
		c.arrive(s, t, to, p.done, q.fx)
	})
	return t, nil
}

// arrive ends a passage, well or as a fault will have it.
func (c *Cloud) arrive(s *server, t *task, to string, done func(), fx effects) {
	f := fx.build()
	if f != nil && f.Effect != EffectLateError {
		message := f.message("Failed to " + strings.ReplaceAll(t.Action, "_", " ") + ": Unexpected failure of the hypervisor")
		c.setStatus(s, StatusError)
		s.wire.Fault = &ServerFault{Code: http.StatusInternalServerError, Created: seconds(c.now), Message: message}
		c.end(t, false, message, nil)
		return
	}
	if done != nil {
		done()
	}
	c.setStatus(s, to)
	w := c.render(s)
	c.end(t, true, "", &w)
	if f != nil {
		c.breakDownLater(s, f)
	}
}

func (c *Cloud) startServer(q *call, s *server, request actionRequest) reply {
	return c.power(q, s, passage{action: request.Action, from: []string{StatusShutoff}, state: "powering-on", to: StatusActive})
}

func (c *Cloud) stopServer(q *call, s *server, request actionRequest) reply {
	return c.power(q, s, passage{action: request.Action, from: []string{StatusActive, StatusError}, state: "powering-off", to: StatusShutoff})
}

func (c *Cloud) power(q *call, s *server, p passage) reply {
	if _, rejection := c.pass(q, s, p); rejection != nil {
		return *rejection
	}
	return ok(c.nested(s))
}

// softReboot asks the guest to restart, which one that is off cannot.
func (c *Cloud) softReboot(q *call, s *server, request actionRequest) reply {
	return c.reboot(q, s, passage{action: request.Action, from: []string{StatusActive}, state: "rebooting", through: StatusReboot, to: StatusActive})
}

// hardReboot cuts the power and restores it, without the guest.
func (c *Cloud) hardReboot(q *call, s *server, request actionRequest) reply {
	return c.reboot(q, s, passage{
		action: request.Action, from: []string{StatusActive, StatusShutoff, StatusError}, state: "rebooting_hard", through: StatusHardReboot, to: StatusActive,
	})
}

func (c *Cloud) reboot(q *call, s *server, p passage) reply {
	if _, rejection := c.pass(q, s, p); rejection != nil {
		return *rejection
	}
	return ok(apiMessage{Message: strings.ToUpper(p.action[:1]) + strings.ReplaceAll(p.action[1:], "_", " ") + " server thành công"})
}

// taskOf is the answer of an action that takes a task.
func (c *Cloud) taskOf(q *call, s *server, p passage) reply {
	t, rejection := c.pass(q, s, p)
	if rejection != nil {
		return *rejection
	}
	return ok(map[string]string{"task_id": t.ID})
}

func (c *Cloud) resizeServer(q *call, s *server, request actionRequest) reply {
	flavor, found := c.flavor(q.region, request.FlavorName, s.wire.Category)
	switch {
	case !found || flavor.Category != s.wire.Category || !flavor.availableIn(s.wire.AvailabilityZone):
		return problem(http.StatusBadRequest, "Flavor "+request.FlavorName+" could not be found.")
	case flavor.ID == s.wire.Flavor.ID:
		return problem(http.StatusBadRequest, "When resizing, instances must change flavor!")
	case !slices.Contains(flavor.BillingPlans, s.wire.BillingPlan):
		return problem(http.StatusBadRequest, "Flavor "+request.FlavorName+" does not support billing plan "+s.wire.BillingPlan)
	}
	wants := need{vcpus: max(0, flavor.VCPUs-s.wire.Flavor.VCPUs), ram: max(0, flavor.RAM-s.wire.Flavor.RAM)}
	if message := c.quotaExceeded(q.project, wants); message != "" {
		return reject(http.StatusForbidden, message)
	}
	// The cloud confirms by itself: no client has a call for it.
	return c.taskOf(q, s, passage{
		action: request.Action, from: []string{StatusActive, StatusShutoff}, state: "resize_migrating", through: StatusResize, verify: StatusVerifyResize,
		done: func() { c.setFlavor(s, flavor) },
	})
}

// changeType moves a server to the flavor of its size in another category.
func (c *Cloud) changeType(q *call, s *server, request actionRequest) reply {
	flavor, found := c.flavor(q.region, shortName(s.wire.Flavor.Name), request.NewType)
	found = found && flavor.Category == request.NewType
	if i := strings.IndexByte(s.wire.Flavor.Name, '.'); !found && i >= 0 {
		size := s.wire.Flavor.Name[i:]
		all := c.opts.Catalog.Flavors[q.region]
		j := slices.IndexFunc(all, func(f Flavor) bool {
			return f.Category == request.NewType && strings.HasSuffix(f.Name, size) && f.availableIn(s.wire.AvailabilityZone)
		})
		if found = j >= 0; found {
			flavor = all[j]
		}
	}
	if !found || request.NewType == s.wire.Category || !flavor.availableIn(s.wire.AvailabilityZone) {
		return problem(http.StatusBadRequest, "new_type không hợp lệ: "+request.NewType)
	}
	return c.taskOf(q, s, passage{
		action: request.Action, from: []string{StatusActive, StatusShutoff}, state: "migrating", through: StatusMigrating,
		done: func() {
			c.setFlavor(s, flavor)
			s.wire.Metadata["category"] = flavor.Category
		},
	})
}

// rebuildServer puts another image on the root disk; the guest boots it with the user data that it had.
func (c *Cloud) rebuildServer(q *call, s *server, request actionRequest) reply {
	o := &validRequest{createRequest: createRequest{OS: &osRequest{ID: request.Image, Type: "image"}}}
	if rejection := c.checkImage(q, o); rejection != nil {
		return *rejection
	}
	return c.taskOf(q, s, passage{
		action: request.Action, from: []string{StatusActive, StatusShutoff, StatusError}, state: "rebuilding", through: StatusRebuild, to: StatusActive,
		done: func() {
			s.truth.ImageID, s.truth.ImageType, s.truth.WorkerImage = request.Image, "image", o.os.worker
			s.wire.Metadata["os_type"] = o.os.name
			if root := c.volumes[s.volumes[0]]; root != nil && root.wire.ImageMetadata != nil {
				root.wire.ImageMetadata["image_id"], root.wire.ImageMetadata["image_name"] = request.Image, o.os.name
			}
		},
	})
}
