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
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/bizflycloud/gobizfly"
)

var (
	opGetUser       = &operation{route: "/user", kind: kindItem, service: serviceAccount}
	opListOfProject = &operation{route: "/servers", kind: kindList, service: serviceServers}
)

// projectOf returns the project of a token whose reply names none: that of the account's user, or else of any server that the token
// shows. The project that was asked for is no proof. See the hedge register, docs/contribute/first-contact.md.
func (c *connection) projectOf(ctx context.Context, token string) (string, error) {
	var user struct {
		Data struct {
			TenantID string `json:"tenant_id"`
		} `json:"data"`
	}
	err := c.readWith(ctx, token, opGetUser, &user)
	if err == nil && user.Data.TenantID != "" {
		return user.Data.TenantID, nil
	}
	var servers []gobizfly.Server
	if listErr := c.readWith(ctx, token, opListOfProject, &servers); listErr != nil {
		return "", cmp.Or(err, listErr)
	}
	for _, server := range servers {
		if server.ProjectID != "" {
			return server.ProjectID, nil
		}
	}
	return "", err
}

// readWith reads an answer with a token whose project is not known yet.
func (c *connection) readWith(ctx context.Context, token string, op *operation, into any) error {
	services, err := c.catalogs.get(ctx, 0)
	if err != nil {
		return err
	}
	base, err := services.value.require(op.service)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(op.route).String(), nil)
	if err != nil {
		return notSent(ClassInvalid, "the URL of %s cannot be used", op.service)
	}
	request.Header.Set("X-Auth-Type", "token")
	request.Header.Set("X-Auth-Token", token)
	answer, err := c.wire.send(request, op, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer.body, into); err != nil {
		return unreadable(op.kind, answer.status, "the answer cannot be read", c.wire.cause(err))
	}
	return nil
}
