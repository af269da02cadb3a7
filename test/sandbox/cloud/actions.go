// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
)

// actionRequest is the body of POST /servers/{id}/action.
type actionRequest struct {
	Action string `json:"action"`
}

// serverActions are what POST /servers/{id}/action knows.
var serverActions = map[string]func(*Cloud, *call, *server, actionRequest) reply{
	"start":       (*Cloud).startServer,
	"stop":        (*Cloud).stopServer,
	"hard_reboot": (*Cloud).hardReboot,
}

var _ = serverAPI.serve(on(http.MethodPost, "/servers/{id}/action", (*Cloud).serverAction))

func (c *Cloud) serverAction(q *call) reply {
	request, rejection := decode[actionRequest](q)
	if rejection != nil {
		return *rejection
	}
	s := c.visibleServer(q, q.vars[0])
	if s == nil {
		return noSuchServer(q.vars[0])
	}
	known := actions{}
	for name := range serverActions {
		known[name] = nil
	}
	if rejection := known.rejection(q, "action", request.Action); rejection != nil {
		return *rejection
	}
	if s.truth.Deleting || s.wire.Status == StatusBuild {
		return problem(http.StatusConflict, "Cannot '"+request.Action+"' instance "+s.wire.ID+" while it is in task_state deleting or building")
	}
	if c.quota.Suspended && slices.Contains([]string{"start", "hard_reboot"}, request.Action) {
		return reply{status: http.StatusForbidden, body: apiMessage{}}
	}
	return serverActions[request.Action](c, q, s, request)
}
