// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var _ = Describe("A login without a project", func() {
	// The stub answers /user and /servers of a cloud whose replies to logins name no project.
	without := func(user, servers http.HandlerFunc) *stub {
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/account/user" {
				user(w, r)
				return
			}
			servers(w, r)
		})
		s.token = always(200, `{"token":"t","expires_at":"2100-01-01T00:00:00Z"}`)
		return s
	}
	const listed = `[{"id":"a","tenant_id":"` + project + `","status":"ACTIVE"}]`

	It("should have that of the account's user, and ask for it without one", func(ctx SpecContext) {
		s := without(always(200, `{"data":{"tenant_id":"`+project+`"}}`), always(500, ``))
		scope, err := clientFor(s).Scope(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(scope.ProjectID).To(Equal(project))
		Expect(s.seen()).To(HaveExactElements(And(HaveField("Method", "GET"), HaveField("Path", "/api/account/user"),
			HaveField("Header", And(HaveKeyWithValue("X-Auth-Token", []string{"t"}), Not(HaveKey("X-Project-Id")))))))
	})
	DescribeTable("should have that of a server where the user names none", func(ctx SpecContext, status int, user string) {
		scope, err := clientFor(without(always(status, user), always(200, listed))).Scope(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(scope.ProjectID).To(Equal(project))
	},
		Entry("without a tenant", 200, `{"data":{}}`), Entry("not found", 404, `{"message":"not found"}`), Entry("not available", 503, ``),
		Entry("garbage", 200, `x`),
	)
	It("should be rejected where nothing proves the project, also where one is configured", func(ctx SpecContext) {
		s := without(always(200, `{"data":{}}`), always(200, `[]`))
		_, err := clientFor(s, func(c *bizfly.Config) { c.ProjectID = project }).Scope(ctx)
		Expect(bizfly.IsAuth(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("names the project")))
	})
	It("should be an outage, and no rejected credential, while nothing answers", func(ctx SpecContext) {
		_, err := clientFor(without(always(503, ``), always(503, ``))).Scope(ctx)
		Expect(bizfly.IsOutage(err)).To(BeTrue(), "%v", err)
	})
	It("should be rejected where the user contradicts the configuration", func(ctx SpecContext) {
		s := without(always(200, `{"data":{"tenant_id":"another"}}`), always(200, listed))
		_, err := clientFor(s, func(c *bizfly.Config) { c.ProjectID = project }).Scope(ctx)
		Expect(bizfly.IsAuth(err)).To(BeTrue(), "%v", err)
	})
	DescribeTable("should work with the sandbox", func(ctx SpecContext, modes ...string) {
		sandbox := cloud.Start(cloud.Options{Modes: append(modes, "token-without-project")})
		DeferCleanup(sandbox.Close)
		sandbox.AddServer(cloud.ServerSpec{Name: "database", Zone: "HN1"})
		scope, err := connect.Client(ctx, sandbox).Scope(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(scope.ProjectID).To(Equal(sandbox.Credentials().ProjectID))
	},
		Entry("by the user"), Entry("by a server", "no-account-service"), Entry("with a catalog that names no region", "services-without-region"),
	)
})

var _ = Describe("A 403 that gives no reason", func() {
	// The stub forbids everything but /user, which says how the account is.
	forbidden := func(status int, account, message string) *stub {
		return newStub(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/account/user" {
				always(status, account)(w, r)
				return
			}
			always(403, message)(w, r)
		})
	}
	DescribeTable("should be the account's where that is unpaid", func(ctx SpecContext, account, reason string) {
		_, err := clientFor(forbidden(200, account, `{}`)).ListServers(ctx)
		Expect(bizfly.ClassOf(err)).To(Equal(bizfly.ClassBalance))
		Expect(bizfly.ScopeOf(err)).To(Equal(bizfly.ScopeAccount))
		Expect(err).To(MatchError(ContainSubstring(reason)))
	},
		Entry("by its balance", `{"data":{"negative_balance":true}}`, "the account's balance is negative"),
		Entry("by an invoice", `{"data":{"has_expired_invoice":true,"billing_balance":5.5}}`, "the account has an invoice that is overdue"),
	)
	DescribeTable("should be a right that is missing otherwise", func(ctx SpecContext, status int, account string) {
		_, err := clientFor(forbidden(status, account, `{}`)).ListServers(ctx)
		Expect(bizfly.ClassOf(err)).To(Equal(bizfly.ClassPermission))
	},
		Entry("with a paid account", 200, `{"data":{"negative_balance":false,"has_expired_invoice":false}}`),
		Entry("with an account that may not be read", 403, `{}`), Entry("without an answer", 503, ``), Entry("with garbage", 200, `x`),
	)
	It("should ask the account with the token that was forbidden, after another one had expired", func(ctx SpecContext) {
		s := newStub(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("X-Auth-Token") == "MARKED-token-1":
				answer(w, 401, `{}`)
			case r.URL.Path == "/api/account/user":
				answer(w, 200, `{"data":{"negative_balance":true}}`)
			default:
				answer(w, 403, `{}`)
			}
		})
		_, err := clientFor(s).ListServers(ctx)
		Expect(bizfly.ClassOf(err)).To(Equal(bizfly.ClassBalance), "%v", err)
	})
	It("should ask no account where the message says what is wrong", func(ctx SpecContext) {
		s := forbidden(200, `{"data":{"negative_balance":true}}`, `{"message":"Quota exceeded for cores"}`)
		_, err := clientFor(s).ListServers(ctx)
		Expect(bizfly.ClassOf(err)).To(Equal(bizfly.ClassQuota))
		Expect(s.seen()).ToNot(ContainElement(HaveField("Path", "/api/account/user")))
	})
})

var _ = Describe("The account", func() {
	It("should tell what is unpaid, and the services of the region", func(ctx SpecContext) {
		sandbox := cloud.Start(cloud.Options{OmitServices: []string{"auto_scaling"}})
		DeferCleanup(sandbox.Close)
		client := connect.Client(ctx, sandbox)
		account, err := client.Account(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(account.Unpaid).To(BeEmpty())
		Expect(account.Balance).To(HaveValue(BeEquivalentTo(108_768_098)))
		Expect(account.Services).To(And(ContainElements("cloud_server", "kubernetes_engine"), Not(ContainElement("auto_scaling"))))
		sandbox.SetQuota(cloud.Quota{Unpaid: true})
		account, err = client.Account(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(account.Unpaid).To(Equal("the account's balance is negative, the account has an invoice that is overdue"))
	})
	DescribeTable("should be an error where it does not say whether it is unpaid", func(ctx SpecContext, body string) {
		_, err := clientFor(newStub(always(200, body))).Account(ctx)
		Expect(bizfly.IsOutage(err)).To(BeTrue(), "%v", err)
	}, Entry(nil, `null`), Entry(nil, `{}`), Entry(nil, `{"data":null}`), Entry(nil, `{"data":{"tenant_id":"a"}}`))
	It("should tell the services where it cannot be asked", func(ctx SpecContext) {
		sandbox := cloud.Start(cloud.Options{OmitServices: []string{"bizfly_account"}})
		DeferCleanup(sandbox.Close)
		account, err := connect.Client(ctx, sandbox).Account(ctx)
		Expect(err).To(MatchError(ContainSubstring("bizfly_account")))
		Expect(account.Services).To(ContainElement("cloud_server"))
	})
})
