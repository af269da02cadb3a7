// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Login", func() {
	It("should back off longer after each failure", func(ctx SpecContext) {
		for failures, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			ceiling := time.Duration(seconds) * time.Second
			Expect(bizfly.Backoff(failures)).To(And(BeNumerically("<=", ceiling), BeNumerically(">=", ceiling*3/4)))
		}
		Expect(bizfly.Backoff(1000)).To(BeNumerically("<=", 5*time.Minute))
	})
	It("should not try again before its back-off has passed, and then recover", func(ctx SpecContext) {
		clock := &skipping{}
		s := newStub(always(200, `[]`))
		s.token = inTurn(page(503), page(503), always(200, `{"token":"t","project_id":"`+project+`"}`))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clock })
		for range 3 {
			_, err := client.Scope(ctx)
			Expect(bizfly.IsOutage(err)).To(BeTrue())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(typed(err).RetryAfter).To(BeNumerically(">", 0))
		}
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
		clock.Step(time.Second)
		Expect(client.Scope(ctx)).Error().To(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(2))
		clock.Step(time.Second)
		Expect(client.Scope(ctx)).Error().To(HaveOccurred())
		Expect(s.logins.Load()).To(BeEquivalentTo(2))
		clock.Step(time.Second)
		Expect(client.Scope(ctx)).Error().ToNot(HaveOccurred())
	})
	It("should try again within five minutes, however long the cloud asks it to wait", func(ctx SpecContext) {
		clk := &skipping{}
		s := newStub(always(200, `[]`))
		s.token = inTurn(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "100000")
			answer(w, 429, `{}`)
		}, always(200, `{"token":"t","project_id":"`+project+`"}`))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
		_, err := client.Scope(ctx)
		Expect(typed(err).RetryAfter).To(BeNumerically("<=", 5*time.Minute))
		clk.Step(5 * time.Minute)
		Expect(client.Scope(ctx)).Error().ToNot(HaveOccurred())
	})
	It("should hold back no call once it succeeds after a 429", func(ctx SpecContext) {
		clk := &skipping{}
		s := newStub(always(200, `{"task_id":["t"]}`))
		s.token = always(429, `{}`)
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
		for range 10 {
			_, err := client.CreateServer(ctx, createRequest())
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			clk.Step(time.Second)
		}
		Expect(clk.Waits()).To(BeEmpty())
	})
	It("should not use a catalog of services for hours that lacks the servers", func(ctx SpecContext) {
		clk := &skipping{}
		s := newStub(always(200, `[]`))
		without := always(200, catalogOf("HN", map[string]string{"bizfly_account": s.URL + "/api/account"}))
		s.catalog = inTurn(without, always(200, s.services("HN")), without)
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
		_, err := client.ListServers(ctx)
		Expect(err).To(MatchError(ContainSubstring("has no cloud_server in region HaNoi")))
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		clk.Step(5 * time.Minute)
		Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred(), "it is read again after the back-off of a login")
		clk.Step(3*time.Hour + 30*time.Minute)
		for range 2 {
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred(), "what is known stays")
			Eventually(s.catalogs.Load).Should(BeEquivalentTo(3))
		}
	})
	It("should log in once for many callers", func(ctx SpecContext) {
		s := newStub(always(200, `[]`))
		client := clientFor(s)
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() { _, _ = client.ListServers(ctx) })
		}
		done.Wait()
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
		Expect(s.catalogs.Load()).To(BeEquivalentTo(1))
		Expect(s.seen()).To(HaveLen(50))
	})
	DescribeTable("should renew the token at four fifths of its life, without making a call wait",
		func(ctx SpecContext, field, layout string, life time.Duration) {
			clk := &skipping{}
			s := newStub(always(200, `[]`))
			hold := make(chan struct{})
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				if s.logins.Load() == 2 {
					<-hold
				}
				expiry := ""
				if field != "" {
					expiry = `,"` + field + `":"` + clk.Now().Add(life).UTC().Format(layout) + `"`
				}
				answer(w, 200, `{"token":"t","project_id":"`+project+`"`+expiry+`}`)
			}
			client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			clk.Step(life*4/5 - time.Minute)
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.logins.Load()).To(BeEquivalentTo(1))
			clk.Step(2 * time.Minute)
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			Eventually(s.logins.Load).Should(BeEquivalentTo(2))
			close(hold)
		},
		Entry("expire_at", "expire_at", "2006-01-02T15:04:05.000000Z", 2*time.Hour),
		Entry("expires_at", "expires_at", time.RFC3339, 10*time.Hour),
		Entry("without a zone", "expires_at", "2006-01-02T15:04:05.000000", 2*time.Hour),
		Entry("unknown: four hours", "", "", 4*time.Hour),
		Entry("unreadable: four hours", "expire_at", "Monday", 4*time.Hour),
	)
	It("should keep using a token that cannot be renewed yet", func(ctx SpecContext) {
		clk := &skipping{}
		s := newStub(always(200, `[]`))
		s.token = inTurn(always(200, `{"token":"t","project_id":"`+project+`"}`), page(503))
		client := clientFor(s, func(c *bizfly.Config) { c.Clock = clk })
		Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		clk.Step(3*time.Hour + 30*time.Minute)
		for range 3 {
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		}
		Eventually(s.logins.Load).Should(BeEquivalentTo(2))
		clk.Step(time.Hour)
		_, err := client.ListServers(ctx)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(bizfly.IsOutage(err)).To(BeTrue())
	})
	DescribeTable("should reject an answer that is no token", func(ctx SpecContext, status int, body string) {
		s := newStub(always(200, `[]`))
		s.token = always(status, body)
		_, err := clientFor(s).ListServers(ctx)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
		Expect(s.seen()).To(BeEmpty())
	},
		Entry("empty", 200, ""), Entry("204", 204, ""), Entry("no token", 200, `{"project_id":"`+project+`"}`), Entry("a page", 200, `<html>`),
		Entry("a header in a token", 200, `{"token":"a\r\nX-Evil: 1","project_id":"`+project+`"}`), Entry("400", 400, `{"message":"bad"}`), Entry("500", 500, ``),
		Entry("404", 404, `{}`),
	)
	It("should not be stopped by the caller who started it", func(ctx SpecContext) {
		s := newStub(always(200, `[]`))
		hold := make(chan struct{})
		s.token = func(w http.ResponseWriter, _ *http.Request) {
			<-hold
			answer(w, 200, `{"token":"t","project_id":"`+project+`"}`)
		}
		client := clientFor(s)
		impatient, cancel := context.WithCancel(ctx)
		gone := make(chan error, 1)
		go func() { _, err := client.ListServers(impatient); gone <- err }()
		Eventually(s.logins.Load).Should(BeEquivalentTo(1))
		patient := make(chan error, 1)
		go func() { _, err := client.ListServers(ctx); patient <- err }()
		cancel()
		Eventually(gone).Should(Receive(MatchError(context.Canceled)))
		close(hold)
		Eventually(patient).Should(Receive(BeNil()))
		Expect(s.logins.Load()).To(BeEquivalentTo(1))
	})
})
