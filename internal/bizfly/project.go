// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

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
