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

package bizfly_test

import (
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

var _ = Describe("Liveness of the client", func() {
	var clk *skipping
	var s *stub
	var client *bizfly.Client
	var release func()

	// held is an endpoint that answers when the spec lets it, counting who came.
	held := func(arrived chan<- struct{}) http.HandlerFunc {
		gate := make(chan struct{})
		release = sync.OnceFunc(func() { close(gate) })
		DeferCleanup(release)
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case arrived <- struct{}{}:
			default:
			}
			select {
			case <-gate:
			case <-r.Context().Done():
			}
			answer(w, http.StatusServiceUnavailable, "{}")
		}
	}

	BeforeEach(func() {
		clk = &skipping{}
		s = newStub(always(http.StatusOK, `[]`))
		client = clientFor(s, func(c *bizfly.Config) { c.Clock, c.Timeouts.Login = clk, 20*time.Second })
	})

	It("should be alive before anything was sent, and while all is well", func(ctx SpecContext) {
		Expect(client.Stuck(clk.Now())).To(Succeed())
		_, err := client.ListServers(ctx)
		Expect(err).NotTo(HaveOccurred())
		clk.Step(24 * time.Hour)
		Expect(client.Stuck(clk.Now())).To(Succeed())
	})

	DescribeTable("should be stuck when one fetch that all calls wait for does not end",
		func(ctx SpecContext, what string, hold func(s *stub, handler http.HandlerFunc)) {
			arrived := make(chan struct{}, 1)
			handler := held(arrived)
			s.set(func(s *stub) { hold(s, handler) })
			ended := make(chan error, 1)
			go func() {
				_, err := client.Scope(ctx)
				ended <- err
			}()
			Eventually(arrived).WithTimeout(10 * time.Second).Should(Receive())
			Expect(client.Stuck(clk.Now().Add(99*time.Second))).To(Succeed(), "late is not stuck")
			Expect(client.Stuck(clk.Now().Add(101 * time.Second))).To(MatchError(ContainSubstring(what)))
			release()
			Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(HaveOccurred()))
			Expect(client.Stuck(clk.Now().Add(time.Hour))).To(Succeed())
		},
		Entry("the login", "the login hangs", func(s *stub, h http.HandlerFunc) { s.token = h }),
		Entry("the catalog", "the read of the service catalog hangs", func(s *stub, h http.HandlerFunc) { s.catalog = h }),
	)

	DescribeTable("should be alive, hour after hour, while the cloud is the one that fails",
		func(ctx SpecContext, change func(s *stub)) {
			if change != nil {
				s.set(change)
			}
			for range 360 {
				_, err := client.ListServers(ctx)
				Expect(err).To(HaveOccurred())
				// The clock stands still meanwhile, for what is read in the background.
				Eventually(func() error { return client.Stuck(clk.Now()) }).WithTimeout(10 * time.Second).Should(Succeed())
				clk.Step(10 * time.Second)
			}
			Expect(s.logins.Load()).To(BeNumerically(">=", 1))
		},
		Entry("everything answers 503", func(s *stub) { s.token, s.catalog, s.api = always(503, `{}`), always(503, `{}`), always(503, `{}`) }),
		Entry("the credentials are refused", func(s *stub) { s.token = always(401, `{}`) }),
		Entry("every fresh token is refused", func(s *stub) { s.api = always(401, `{}`) }),
		Entry("every token ends at once, and is refused", func(s *stub) {
			s.api = always(401, `{}`)
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, `{"token":"MARKED-short","project_id":"`+project+`","expire_at":"`+clk.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)+`"}`)
			}
		}),
		Entry("requests are answered by tokens being refused and by 503 in turn", func(s *stub) {
			refused := true
			s.api = func(w http.ResponseWriter, _ *http.Request) {
				answer(w, map[bool]int{true: 401, false: 503}[refused], `{}`)
				refused = !refused
			}
		}),
	)

	It("should be stuck in a loop of logins that lead to nothing", func(ctx SpecContext) {
		for range 24 {
			bizfly.Relogin(ctx, client)
			clk.Step(10 * time.Second)
		}
		Expect(client.Stuck(clk.Now())).To(Succeed())
		bizfly.Relogin(ctx, client)
		Expect(client.Stuck(clk.Now())).To(MatchError(ContainSubstring("25 logins since")))
		_, err := client.ListServers(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(client.Stuck(clk.Now())).To(Succeed(), "a token that is accepted ends the loop")
	})
})
