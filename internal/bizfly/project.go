// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

var (
	opGetUser       = &operation{route: "/user", kind: kindItem, service: serviceAccount}
	opListOfProject = &operation{route: "/servers", kind: kindList, service: serviceServers}
)

// user is what the account says of itself (gobizfly's User).
type user struct {
	Data struct {
		TenantID          string `json:"tenant_id"`
		NegativeBalance   *bool  `json:"negative_balance"`
		HasExpiredInvoice *bool  `json:"has_expired_invoice"`
		// In any form: that of another one must not hide what is unpaid.
		BillingBalance any `json:"billing_balance"`
	} `json:"data"`
}

// unpaid returns what is unpaid, or nothing.
func (u user) unpaid() string {
	return strings.Join(lo.Compact([]string{
		lo.Ternary(lo.FromPtr(u.Data.NegativeBalance), "the account's balance is negative", ""),
		lo.Ternary(lo.FromPtr(u.Data.HasExpiredInvoice), "the account has an invoice that is overdue", ""),
	}), ", ")
}

// classifyForbidden asks the account whether it is unpaid, where a 403 says nothing else: the published table of errors
// gives that status to accounts that are blocked. Without an answer, or with a paid account, it stays a right that is
// missing.
func (c *connection) classifyForbidden(ctx context.Context, sent session, failed *APIError) *APIError {
	if failed.Status != http.StatusForbidden || failed.class() != ClassPermission {
		return failed
	}
	var account user
	if err := c.readWith(ctx, sent.services, sent.token, opGetUser, &account); err != nil {
		return failed
	}
	if unpaid := account.unpaid(); unpaid != "" {
		failed.Class, failed.Scope = ClassBalance, ScopeAccount
		failed.Message = strings.Join(lo.Compact([]string{failed.Message, unpaid}), ": ")
	}
	return failed
}

// projectOf returns the project of a token whose reply names none: that of the account's user, or else of any server
// that the token shows. The project that was asked for is no proof. See the hedge register,
// docs/contribute/first-contact.md.
func (c *connection) projectOf(ctx context.Context, services *serviceCatalog, token string) (string, error) {
	var account user
	err := c.readWith(ctx, services, token, opGetUser, &account)
	if err == nil && account.Data.TenantID != "" {
		return account.Data.TenantID, nil
	}
	var servers []gobizfly.Server
	if listErr := c.readWith(ctx, services, token, opListOfProject, &servers); listErr != nil {
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
func (c *connection) readWith(ctx context.Context, services *serviceCatalog, token string, op *operation,
	into any) error {
	base, err := services.require(op.service)
	if err != nil {
		return err
	}
	return c.read(ctx, base.JoinPath(op.route), token, op, into)
}
