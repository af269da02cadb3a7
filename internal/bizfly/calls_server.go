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

package bizfly

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/bizflycloud/gobizfly"
)

var (
	opListServers = read("ListServers", "/servers", serviceServers, listBody("id"))
	opGetServer   = item("GetServer", "/servers/{id}", serviceServers)
	// opGetServerMetadata is the one call whose answer keeps its secrets.
	opGetServerMetadata = with(item("GetServerMetadata", "/servers/{id}", serviceServers), func(op *operation) { op.body = secretObjectBody })
	// opCreateServer is the one call that must never be repeated: each one buys a server.
	opCreateServer = with(change("CreateServer", "/servers"), func(op *operation) { op.kind, op.body = kindCreate, objectBody })
	opDeleteServer = remove("DeleteServer", "/servers/{id}")
	opGetTask      = item("GetTask", "/tasks/{id}", serviceServers)
	opListVolumes  = read("ListVolumes", "/volumes", serviceServers, listBody("id"))
	opDeleteVolume = remove("DeleteVolume", "/volumes/{id}")
)

// item returns the operation that reads one object.
func item(name, route, service string) *operation {
	return &operation{
		name: name, method: http.MethodGet, route: route, service: service,
		class: classRead, kind: kindItem, idempotent: true, body: objectBody,
	}
}

// change returns the operation that changes one object. What it changes ends the same however often it is sent; it is not
// repeated by itself all the same, because the caller reads the object before it asks again.
func change(name, route string) *operation {
	return &operation{
		name: name, method: http.MethodPost, route: route, service: serviceServers,
		class: classCreate, kind: kindItem, body: acknowledgement,
	}
}

// remove returns the operation that deletes one object.
func remove(name, route string) *operation {
	return &operation{
		name: name, method: http.MethodDelete, route: route, service: serviceServers,
		class: classDelete, kind: kindDelete, idempotent: true, body: acknowledgement,
	}
}

func with(op *operation, edit func(*operation)) *operation {
	edit(op)
	return op
}

// argument is an id that becomes part of a request.
type argument struct{ field, id string }

// idPattern is what may become part of a path: gobizfly does not escape, and an empty id turns a Get into a List.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func validID(id string) bool {
	return idPattern.MatchString(id) && !strings.Contains(id, "..")
}

func checkIDs(op *operation, field string, ids ...string) error {
	for _, id := range ids {
		if !validID(id) {
			return invalid(op, "%s %q is not an id: letters, digits, '-', '_' and '.' only, 1 to 128 of them", field, shorten(id, 64))
		}
	}
	return nil
}

// doWith checks the ids of a call and performs it.
func (c *Client) doWith(ctx context.Context, op *operation, ids []argument, secrets []string, call func(context.Context, *gobizfly.Client) error) error {
	for _, argument := range ids {
		if err := checkIDs(op, argument.field, argument.id); err != nil {
			return err
		}
	}
	return c.do(ctx, op, secrets, call)
}

// ListServers implements API.
func (c *Client) ListServers(ctx context.Context) ([]*gobizfly.Server, error) {
	return listOf(ctx, c, opListServers, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.Server, error) {
		return client.CloudServer.List(ctx, &gobizfly.ServerListOptions{})
	})
}

// GetServer implements API.
func (c *Client) GetServer(ctx context.Context, id string) (*gobizfly.Server, error) {
	return c.getServer(ctx, opGetServer, id)
}

// GetServerMetadata implements API.
func (c *Client) GetServerMetadata(ctx context.Context, id string) (map[string]string, error) {
	server, err := c.getServer(ctx, opGetServerMetadata, id)
	if err != nil {
		return nil, err
	}
	return server.Metadata, nil
}

func (c *Client) getServer(ctx context.Context, op *operation, id string) (*gobizfly.Server, error) {
	var server *gobizfly.Server
	err := c.doWith(ctx, op, []argument{{"server id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		found, err := client.CloudServer.Get(ctx, id)
		if err != nil {
			return err
		}
		// An answer about something else says nothing about this server, least of all that it is gone.
		if found == nil || found.ID != id {
			return unreadable(kindItem, http.StatusOK, "the answer is not about the server that was asked for", nil)
		}
		server = found
		return nil
	})
	return server, err
}

// CreateServer implements API.
func (c *Client) CreateServer(ctx context.Context, request *gobizfly.ServerCreateRequest) (string, error) {
	if err := checkCreate(request); err != nil {
		return "", err
	}
	one := *request
	one.Quantity = 1
	var taskID string
	err := c.do(ctx, opCreateServer, requestSecrets(request), func(ctx context.Context, client *gobizfly.Client) error {
		created, err := client.CloudServer.Create(ctx, &one)
		if err != nil {
			return err
		}
		// No task, or several for one server, leaves open what was bought.
		if created == nil || len(created.Task) != 1 || !validID(created.Task[0]) {
			return unreadable(kindCreate, http.StatusOK, "the answer does not name exactly one task", nil)
		}
		taskID = created.Task[0]
		return nil
	})
	return taskID, err
}

func checkCreate(request *gobizfly.ServerCreateRequest) error {
	op := opCreateServer
	switch {
	case request == nil:
		return invalid(op, "there is no request")
	case request.Quantity > 1:
		return invalid(op, "quantity %d: one call creates one server", request.Quantity)
	case request.OS == nil || request.RootDisk == nil:
		return invalid(op, "os and rootdisk are required")
	case request.FlavorName == "" || request.AvailabilityZone == "" || request.Type == "":
		return invalid(op, "flavor %q, availability_zone %q and type %q are required", request.FlavorName, request.AvailabilityZone, request.Type)
	}
	for _, entry := range []struct {
		field string
		ids   []string
	}{
		{"name", []string{request.Name}}, {"os", []string{request.OS.ID}}, {"vpc_network_ids", request.VPCNetworkIDs},
		{"firewalls", request.Firewalls}, {"network_interfaces", request.NetworkInterfaces},
	} {
		if err := checkIDs(op, entry.field, entry.ids...); err != nil {
			return err
		}
	}
	return nil
}

// DeleteServer implements API.
func (c *Client) DeleteServer(ctx context.Context, id string, volumeIDs []string) (string, error) {
	if err := checkIDs(opDeleteServer, "volume id", volumeIDs...); err != nil {
		return "", err
	}
	// A nil slice would become null, where the API expects an array.
	volumes := append([]string{}, volumeIDs...)
	var taskID string
	err := c.doWith(ctx, opDeleteServer, []argument{{"server id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		task, err := client.CloudServer.Delete(ctx, id, volumes)
		if err == nil && task != nil {
			taskID = task.TaskID
		}
		return err
	})
	return taskID, err
}

// GetTask implements API.
func (c *Client) GetTask(ctx context.Context, id string) (*Task, error) {
	var task *Task
	err := c.doWith(ctx, opGetTask, []argument{{"task id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		// gobizfly's own GetTask drops the message and fails on results that are not objects.
		raw, err := fetch(ctx, client, opGetTask.service, "/tasks/"+id)
		if err != nil {
			return err
		}
		task, err = readTask(id, raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	task.classifier = c.backend.Load().classifier
	task.Message = shorten(c.redactor.clean(task.Message), maxMessage)
	return task, nil
}

// readTask reads a task whatever its result is: an object with or without a server, a string, or null.
func readTask(id string, raw []byte) (*Task, error) {
	var wire struct {
		Ready   *bool           `json:"ready"`
		Result  json.RawMessage `json:"result"`
		Message any             `json:"message"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, err
	}
	if wire.Ready == nil {
		return nil, unreadable(kindItem, http.StatusOK, "the answer is not a task", nil)
	}
	task := &Task{ID: id, Ready: *wire.Ready, Message: scalar(wire.Message)}
	var result any
	if len(wire.Result) > 0 {
		if err := json.Unmarshal(wire.Result, &result); err != nil {
			return nil, err
		}
	}
	object, ok := result.(map[string]any)
	if !ok {
		if text := scalar(result); text != "" {
			task.Message = text
		}
		return task, nil
	}
	task.Action, _ = object["action"].(string)
	succeeded, _ := object["success"].(bool)
	task.Succeeded = task.Ready && succeeded
	if progress, ok := object["progress"].(float64); ok {
		task.Progress = int(min(max(progress, 0), 100))
	}
	if _, message := errorFields(withFault(object), 0); message != "" {
		task.Message = message
	}
	if serverID, _ := object["id"].(string); serverID != "" {
		task.Server = &gobizfly.Server{}
		if err := json.Unmarshal(wire.Result, task.Server); err != nil {
			return nil, err
		}
	}
	return task, nil
}

// withFault brings the fault of a server in ERROR, which is where Nova says why, to where messages are looked for.
func withFault(object map[string]any) map[string]any {
	fields := map[string]any{"message": object["message"], "error": object["error"], "detail": object["fault"]}
	if fields["detail"] == nil {
		// The auto scaling service puts the reason of a failed task into data.
		if text, ok := object["data"].(string); ok {
			fields["detail"] = text
		}
	}
	return fields
}

// ListVolumes implements API.
func (c *Client) ListVolumes(ctx context.Context) ([]*gobizfly.Volume, error) {
	return listOf(ctx, c, opListVolumes, func(ctx context.Context, client *gobizfly.Client) ([]*gobizfly.Volume, error) {
		return client.CloudServer.Volumes().List(ctx, &gobizfly.VolumeListOptions{})
	})
}

// DeleteVolume implements API.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	return c.doWith(ctx, opDeleteVolume, []argument{{"volume id", id}}, nil, func(ctx context.Context, client *gobizfly.Client) error {
		return client.CloudServer.Volumes().Delete(ctx, id)
	})
}
