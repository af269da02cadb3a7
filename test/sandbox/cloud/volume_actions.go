// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import "net/http"

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
