// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"slices"
)

// actionRequest is the body of POST /servers/{id}/action.
type actionRequest struct {
	Action         string `json:"action"`
	NewNetworkPlan string `json:"new_network_plan"`
}

// serverActions are what POST /servers/{id}/action knows, each with the fields that it uses.
var serverActions = map[string]struct {
	fields []string
	act    func(*Cloud, *call, *server, actionRequest) reply
}{
	"start":               {nil, (*Cloud).startServer},
	"stop":                {nil, (*Cloud).stopServer},
	"soft_reboot":         {nil, (*Cloud).softReboot},
	"hard_reboot":         {nil, (*Cloud).hardReboot},
	"change_network_plan": {[]string{"new_network_plan"}, (*Cloud).changeNetworkPlan},
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
	for name, action := range serverActions {
		known[name] = action.fields
	}
	if rejection := known.rejection(q, "action", request.Action); rejection != nil {
		return *rejection
	}
	if s.truth.Deleting || s.wire.Status == StatusBuild {
		return problem(http.StatusConflict, "Cannot '"+request.Action+"' instance "+s.wire.ID+" while it is in task_state deleting or building")
	}
	return serverActions[request.Action].act(c, q, s, request)
}

func (c *Cloud) changeNetworkPlan(_ *call, s *server, request actionRequest) reply {
	if !slices.Contains(networkPlans, request.NewNetworkPlan) {
		return problem(http.StatusBadRequest, "network_plan không hợp lệ: "+request.NewNetworkPlan)
	}
	s.wire.NetworkPlan = request.NewNetworkPlan
	s.wire.Metadata["network_plan"] = request.NewNetworkPlan
	return ok(c.nested(s))
}
