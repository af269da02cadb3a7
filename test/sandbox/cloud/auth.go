// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"net/http"
	"time"
)

type token struct {
	project string
	expires time.Time
}

// loginFields are the fields of each way to log in. In auth_type gobizfly repeats how it sends credentials later: nothing comes of it.
func (c *Cloud) loginFields() actions {
	return actions{
		"password":               {"username", "password", "project_id", "auth_type"},
		"token":                  {"token", "project_id", "auth_type"},
		"application_credential": {"credential_id", "credential_secret", "project_id", "auth_type"},
	}
}

type tokenReply struct {
	Token       string `json:"token"`
	ExpireAt    string `json:"expire_at"`
	ExpiresAt   string `json:"expires_at"`
	ProjectID   string `json:"project_id"`
	ProjectName string `json:"project_name"`
}

var _ = loginAPI.serve(openTo(on(http.MethodPost, "/token", (*Cloud).createToken)))

var _ = accountAPI.serve(
	on(http.MethodGet, "/regions", (*Cloud).listRegions),
	on(http.MethodGet, "/user", (*Cloud).getUser),
)

func (c *Cloud) createToken(q *call) reply {
	request, rejection := decode[map[string]string](q)
	if rejection == nil {
		rejection = c.loginFields().rejection(q, "auth_method", request["auth_method"])
	}
	if rejection != nil {
		return *rejection
	}
	project := orDefault(request["project_id"], c.opts.DefaultProject)
	var accepted bool
	switch request["auth_method"] {
	case "password":
		accepted = request["username"] == c.opts.Email && request["password"] == c.opts.Password
	case "token":
		_, accepted = c.validToken(request["token"])
	default:
		accepted = request["credential_id"] == c.opts.AppCredID && request["credential_secret"] == c.opts.AppCredSecret
	}
	if !accepted {
		return problem(http.StatusUnauthorized, "Email hoặc mật khẩu không đúng")
	}
	if len(c.tokens) >= maxTokens {
		c.dropExpired()
	}
	id := c.opts.TokenPrefix + c.newHex(32)
	expires := c.now.Add(c.opts.TokenTTL)
	c.tokens[id] = token{project: project, expires: expires}
	c.issued++
	at := micros(expires) + "Z"
	if c.opts.Shape.TokenWithoutProject {
		return ok(map[string]string{"token": id, "expires_at": at})
	}
	return ok(tokenReply{Token: id, ExpireAt: at, ExpiresAt: at, ProjectID: project, ProjectName: "project-" + project[:min(8, len(project))]})
}

// dropExpired keeps the number of tokens bounded, at the price of live ones where a client logs in without end.
func (c *Cloud) dropExpired() {
	for id, t := range c.tokens {
		if !t.expires.After(c.now) {
			delete(c.tokens, id)
		}
	}
	if len(c.tokens) >= maxTokens {
		clear(c.tokens)
	}
}

func (c *Cloud) validToken(id string) (token, bool) {
	t, found := c.tokens[id]
	return t, found && t.expires.After(c.now)
}

// authenticate returns the project that a request acts in: the header's, else the token's.
func (c *Cloud) authenticate(header http.Header) (string, bool) {
	project := header.Get("X-Project-ID")
	if header.Get("X-Auth-Type") == "application_credential" {
		valid := header.Get("X-App-Credential-ID") == c.opts.AppCredID && header.Get("X-App-Credential-Secret") == c.opts.AppCredSecret
		return orDefault(project, c.opts.DefaultProject), valid
	}
	t, valid := c.validToken(header.Get("X-Auth-Token"))
	return orDefault(project, t.project), valid
}

// ExpireTokens makes every token that was issued invalid.
func (c *Cloud) ExpireTokens() {
	c.with(func() { clear(c.tokens) })
}

func (c *Cloud) listRegions(*call) reply {
	regions := map[string]Region{}
	for _, region := range c.opts.Catalog.Regions {
		regions[region.ShortName] = region
	}
	return ok(regions)
}

// region returns the catalog's entry for the region of the service URL.
func (c *Cloud) region(short string) Region {
	for _, region := range c.opts.Catalog.Regions {
		if region.ShortName == short {
			return region
		}
	}
	return Region{ShortName: short}
}

func (c *Cloud) getUser(q *call) reply {
	regions := []map[string]string{}
	for _, region := range c.opts.Catalog.Regions {
		regions = append(regions, map[string]string{"name": region.Name, "code": region.RegionName, "short_name": region.ShortName})
	}
	expires := micros(c.now.Add(c.opts.TokenTTL)) + "Z"
	return ok(map[string]any{"data": map[string]any{
		"email": c.opts.Email, "tenant_id": q.project, "tenant_name": "project-" + q.project[:min(8, len(q.project))], "expires": expires,
		"ks_user_id": userID(q.project), "billing_balance": cmp.Or(c.quota.Balance, 108768098), "negative_balance": c.quota.blocked(),
		"has_expired_invoice": c.quota.blocked(), "verified_email": true,
		"user_regions": regions, "services": c.serviceEntries(q.base), "payment_type": "prepaid",
	}})
}
