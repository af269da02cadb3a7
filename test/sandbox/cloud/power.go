// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
	"strings"
)

// The statuses through which a server passes while it reboots. The guest is down in both.
const (
	StatusReboot     = "REBOOT"
	StatusHardReboot = "HARD_REBOOT"
)

// passage is a server on its way through an action.
type passage struct {
	action string
	// from are the statuses in which the action is accepted.
	from []string
	// state is the task state meanwhile, through the status; an empty one leaves the status as it is.
	state, through string
	// to is the status at the end.
	to string
}

// pass begins a passage, or returns the rejection of a server that is in another state.
func (c *Cloud) pass(q *call, s *server, p passage) *reply {
	if s.wire.TaskState != nil || !slices.Contains(p.from, s.wire.Status) {
		state := "vm_state " + s.wire.VMState
		if s.wire.TaskState != nil {
			state = "task_state " + *s.wire.TaskState
		}
		conflict := problem(http.StatusConflict, "Cannot '"+p.action+"' instance "+s.wire.ID+" while it is in "+state)
		return &conflict
	}
	if p.through != "" {
		c.setStatus(s, p.through)
	}
	state := &p.state
	s.wire.TaskState = state
	t := c.newTask(p.action+"_server", q.project, q.region, s.wire.ID, q.fx)
	if q.fx.has(EffectStuck) {
		return nil
	}
	// Whoever changes the status from outside meanwhile ends the passage.
	c.after(t.EndsAt.Sub(c.now), func() {
		if c.servers[s.wire.ID] != s || s.truth.Deleting || s.wire.TaskState != state {
			c.end(t, false, "Instance "+s.wire.ID+" could not be found.", nil)
			return
		}
		s.wire.TaskState = nil
		c.arrive(s, t, p.to, q.fx)
	})
	return nil
}

// arrive ends a passage, well or as a fault will have it.
func (c *Cloud) arrive(s *server, t *task, to string, fx effects) {
	f := fx.build()
	if f != nil && f.Effect != EffectLateError {
		message := f.message("Failed to " + strings.ReplaceAll(t.Action, "_", " ") + ": Unexpected failure of the hypervisor")
		c.setStatus(s, StatusError)
		s.wire.Fault = &ServerFault{Code: http.StatusInternalServerError, Created: seconds(c.now), Message: message}
		c.end(t, false, message, nil)
		return
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
	if rejection := c.pass(q, s, p); rejection != nil {
		return *rejection
	}
	return ok(c.nested(s))
}

// hardReboot cuts the power and restores it, without the guest.
func (c *Cloud) hardReboot(q *call, s *server, request actionRequest) reply {
	return c.reboot(q, s, passage{
		action: request.Action, from: []string{StatusActive, StatusShutoff, StatusError}, state: "rebooting_hard", through: StatusHardReboot, to: StatusActive,
	})
}

func (c *Cloud) reboot(q *call, s *server, p passage) reply {
	if rejection := c.pass(q, s, p); rejection != nil {
		return *rejection
	}
	return ok(apiMessage{Message: strings.ToUpper(p.action[:1]) + strings.ReplaceAll(p.action[1:], "_", " ") + " server thành công"})
}
