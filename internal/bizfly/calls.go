// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/bizflycloud/gobizfly"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

// sdk is gobizfly's client as one call uses it. Its methods ignore the context that they are given: the exchange binds
// the call's.
type sdk = gobizfly.Client

// operation is one call of the API interface.
type operation struct {
	name string
	// route is the path with its ids replaced, for metrics.
	route   string
	service string
	method  string
	class   class
	kind    kind
	body    bodyRule
	// ownToken calls carry a second token, so that a 401 is hardly about the session: it is renewed before it ends.
	ownToken bool
	// anyScope calls are sent before the first scope is confirmed too: they only read what the cloud offers, or which BKE
	// cluster this is, and nothing that a wrong scope could make look gone.
	anyScope bool
}

// repeatable reports whether a call may be repeated by itself: reads and deletions end the same however often they are
// sent. So do most changes, but the caller reads the object before it asks again.
func (op *operation) repeatable() bool { return op.class != classCreate }

func list(name, route string, body bodyRule) *operation {
	return &operation{name: name, service: serviceServers, route: route, method: http.MethodGet, class: classRead,
		kind: kindList, body: body}
}

func item(name, route string, body bodyRule) *operation {
	return &operation{name: name, service: serviceServers, route: route, method: http.MethodGet, class: classRead,
		kind: kindItem, body: body}
}

func change(kind kind, name, route string, body bodyRule) *operation {
	return &operation{name: name, service: serviceServers, route: route, method: http.MethodPost, class: classCreate,
		kind: kind, body: body}
}

func remove(name, route string) *operation {
	return &operation{
		name:    name,
		service: serviceServers,
		route:   route,
		method:  http.MethodDelete,
		class:   classDelete,
		kind:    kindDelete,
		body:    acknowledgement,
	}
}

// at makes the operation one of another service than that of the servers.
func (op *operation) at(service string) *operation {
	op.service = service
	return op
}

// inAnyScope lets the operation be sent before the first scope is confirmed.
func (op *operation) inAnyScope() *operation {
	op.anyScope = true
	return op
}

var (
	opListServers = list("ListServers", "/servers", listBody("id"))
	opGetServer   = item("GetServer", "/servers/{id}", objectBody)
	// opGetServerMetadata keeps the secrets of its answer.
	opGetServerMetadata = item("GetServerMetadata", "/servers/{id}", secretObjectBody)
	// opCreateServer is the one call that must never be repeated: each one buys a server.
	opCreateServer = change(kindCreate, "CreateServer", "/servers", objectBody)
	opDeleteServer = remove("DeleteServer", "/servers/{id}")
	opRebootServer = change(kindAction, "RebootServer", "/servers/{id}/action", acknowledgement)
	opGetTask      = item("GetTask", "/tasks/{id}", objectBody)
	opListVolumes  = list("ListVolumes", "/volumes", listBody("id"))
	opDeleteVolume = remove("DeleteVolume", "/volumes/{id}")
)

// idPattern is what may become part of a path: gobizfly does not escape, and an empty id turns a Get into a List.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func validID(id string) bool {
	return idPattern.MatchString(id) && !strings.Contains(id, "..")
}

// call checks the ids in the path of a call, performs it and returns its result, which is only one where there is no
// error.
func call[T any](ctx context.Context, c *Client, op *operation, send func(*sdk) (T, error), ids ...string) (T, error) {
	var none, result T
	for _, id := range ids {
		if !validID(id) {
			return none, named(op.name, notSent(ClassInvalid,
				"%q is not an id: letters, digits, '-', '_' and '.' only, 1 to 128 of them", shorten(id, 64)))
		}
	}
	if err := c.do(ctx, op, func(g *sdk) (err error) {
		result, err = send(g)
		return err
	}); err != nil {
		return none, err
	}
	return result, nil
}

// run is call for an operation without a result.
func run(ctx context.Context, c *Client, op *operation, send func(*sdk) error, ids ...string) error {
	_, err := call(ctx, c, op, func(g *sdk) (any, error) { return nil, send(g) }, ids...)
	return err
}

// fetch sends what gobizfly has a path but no sufficient method for.
func fetch[T any](ctx context.Context, g *sdk, op *operation, path string, body any) (result T, err error) {
	request, err := g.NewRequest(ctx, op.method, op.service, path, body)
	if err != nil {
		return result, err
	}
	response, err := g.Do(ctx, request)
	if err != nil {
		return result, err
	}
	defer func() { _ = response.Body.Close() }()
	err = json.NewDecoder(response.Body).Decode(&result)
	return result, err
}

// same rejects an answer about something else, which says nothing about what was asked for, least of all that it is
// gone.
func same(what, found, wanted string) error {
	if found != wanted {
		return unreadable(kindItem, http.StatusOK, "the answer is not about the "+what+" that was asked for", nil)
	}
	return nil
}

// ListServers implements API.
func (c *Client) ListServers(ctx context.Context) ([]*gobizfly.Server, error) {
	return call(ctx, c, opListServers, func(g *sdk) ([]*gobizfly.Server, error) {
		return g.CloudServer.List(ctx, &gobizfly.ServerListOptions{})
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
	return call(ctx, c, op, func(g *sdk) (*gobizfly.Server, error) {
		server, err := g.CloudServer.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return server, same("server", server.ID, id)
	}, id)
}

// CreateServer implements API.
func (c *Client) CreateServer(ctx context.Context, request *gobizfly.ServerCreateRequest) (string, error) {
	one := *request
	one.Quantity = 1
	c.redactor.LearnRequest(requestSecrets(request)...)
	return call(ctx, c, opCreateServer, func(g *sdk) (string, error) {
		created, err := g.CloudServer.Create(ctx, &one)
		if err != nil {
			return "", err
		}
		// No task, or several for one server, leaves open what was bought.
		if len(created.Task) != 1 || !validID(created.Task[0]) {
			return "", unreadable(kindCreate, http.StatusOK, "the answer does not name exactly one task", nil)
		}
		return created.Task[0], nil
	})
}

// DeleteServer implements API.
func (c *Client) DeleteServer(ctx context.Context, id string, volumeIDs []string) error {
	return run(ctx, c, opDeleteServer, func(g *sdk) error {
		// A nil slice would become null, where the API expects an array.
		_, err := g.CloudServer.Delete(ctx, id, append([]string{}, volumeIDs...))
		return err
	}, id)
}

// RebootServer implements API.
func (c *Client) RebootServer(ctx context.Context, id string) error {
	_, err := call(ctx, c, opRebootServer, func(g *sdk) (any, error) { return g.CloudServer.HardReboot(ctx, id) }, id)
	return err
}

// GetTask implements API. gobizfly's own GetTask drops the message and fails on results that are not objects.
func (c *Client) GetTask(ctx context.Context, id string) (*Task, error) {
	return call(ctx, c, opGetTask, func(g *sdk) (*Task, error) {
		wire, err := fetch[wireTask](ctx, g, opGetTask, "/tasks/"+id, nil)
		if err != nil {
			return nil, err
		}
		return wire.read(id, c.redactor)
	}, id)
}

// wireTask is a task as the API writes it.
type wireTask struct {
	Ready   *bool           `json:"ready"`
	Result  json.RawMessage `json:"result"`
	Message any             `json:"message"`
}

// read reads a task whatever its result is: an object with or without a server, a string, or null.
func (w *wireTask) read(id string, redactor *redact.Redactor) (*Task, error) {
	if w.Ready == nil {
		return nil, unreadable(kindItem, http.StatusOK, "the answer is not a task", nil)
	}
	var result any
	_ = json.Unmarshal(w.Result, &result) // it is JSON or absent
	object, ok := result.(map[string]any)
	message := scalar(result)
	if ok {
		_, message = errorFields(object, 0)
	}
	task := &Task{Ready: *w.Ready}
	// Where "success" is missing, as it may be, a server that is named decides by its own state.
	if succeeded, said := object["success"].(bool); task.Ready && !succeeded && (said || object["id"] == nil) {
		action, _ := object["action"].(string)
		task.Failure = taskFailure(redactor, id, action, cmp.Or(message, scalar(w.Message)))
	}
	if serverID, _ := object["id"].(string); serverID != "" {
		task.Server = &gobizfly.Server{}
		return task, json.Unmarshal(w.Result, task.Server)
	}
	return task, nil
}

// taskFailure is the error of a task that ended badly. Like a rejection, it is classified by its own words, and cleaned
// where it is shown.
func taskFailure(redactor *redact.Redactor, id, action, said string) *APIError {
	said = said[:min(len(said), maxErrorBody)]
	class, scope := classify(failure{kind: kindTask, json: true, message: said})
	_, named := namedIn(requestWords, withoutMarks(said))
	return &APIError{
		Operation: cmp.Or(shorten(redactor.Text(action), 64), "task"), Class: class, Scope: scope,
		Message: cmp.Or(shorten(redactor.Text(said), maxMessage), fmt.Sprintf("task %s failed without a reason", id)),
		unnamed: class == ClassUnknown && said != "" && !named,
	}
}

// ListVolumes implements API.
func (c *Client) ListVolumes(ctx context.Context) ([]*gobizfly.Volume, error) {
	return call(ctx, c, opListVolumes, func(g *sdk) ([]*gobizfly.Volume, error) {
		return g.CloudServer.Volumes().List(ctx, &gobizfly.VolumeListOptions{})
	})
}

// DeleteVolume implements API.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	return run(ctx, c, opDeleteVolume, func(g *sdk) error { return g.CloudServer.Volumes().Delete(ctx, id) }, id)
}
