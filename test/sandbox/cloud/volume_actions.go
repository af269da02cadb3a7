/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cloud

import "net/http"

type volumeActionRequest struct {
	Type         string `json:"type"`
	NewSize      int    `json:"new_size"`
	InstanceUUID string `json:"instance_uuid"`
}

var _ = serverAPI.serve(on(http.MethodPost, "/volumes/{id}/action", (*Cloud).volumeAction))

func (c *Cloud) volumeAction(q *call) reply {
	request, refusal := decode[volumeActionRequest](q)
	if refusal != nil {
		return *refusal
	}
	v, refusal := c.findVolume(q)
	if refusal != nil {
		return *refusal
	}
	if request.Type == "extend" {
		if request.NewSize <= v.wire.Size {
			return refuse(http.StatusBadRequest, "New size must be greater than the current size")
		}
		v.wire.Size = request.NewSize
		t := c.newTask("extend_volume", q.project, q.region, v.server, q.fx)
		c.after(t.EndsAt.Sub(c.now), func() { c.end(t, true, "", nil) })
		return ok(map[string]string{"task_id": t.ID})
	}
	s := c.servers[request.InstanceUUID]
	if s == nil || !s.owned(q) {
		return noSuchServer(request.InstanceUUID)
	}
	switch request.Type {
	case "attach":
		if refusal := c.tryAttach(v, s); refusal != nil {
			return *refusal
		}
		return ok(map[string]any{"message": "Attach successfully", "volume_detail": c.renderVolume(v)})
	case "detach":
		if v.server != s.wire.ID || v.wire.AttachedType == attachedRoot {
			return refuse(http.StatusBadRequest, "Volume is not attached to this server, or is its root disk")
		}
		c.detach(v, s)
		return ok(map[string]any{"message": "Detach successfully", "volume_detail": c.renderVolume(v)})
	}
	return refuse(http.StatusBadRequest, "There is no such action: "+request.Type)
}
