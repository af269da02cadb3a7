// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
)

var _ = Describe("Client", func() {
	Describe("panics", func() {
		It("should turn one before the request into an error that was not sent", func(ctx SpecContext) {
			err := clientFor(newStub(always(200, `[]`))).Panicking(ctx, true, false)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(bizfly.IsAmbiguous(err)).To(BeFalse())
			Expect(err).To(MatchError(Not(ContainSubstring("MARKED"))))
		})
		It("should turn one after a create into an unknown outcome", func(ctx SpecContext) {
			s := newStub(always(200, `{"task_id":["t"]}`))
			err := clientFor(s).Panicking(ctx, true, true)
			Expect(bizfly.IsAmbiguous(err)).To(BeTrue())
			Expect(s.seen()).To(HaveLen(1))
		})
		It("should turn one after a read into an outage", func(ctx SpecContext) {
			Expect(bizfly.IsOutage(clientFor(newStub(always(200, `[]`))).Panicking(ctx, false, true))).To(BeTrue())
		})
	})
	DescribeTable("should keep gobizfly from going elsewhere", func(ctx SpecContext, service, path string) {
		s := newStub(always(200, `[]`))
		err := clientFor(s).Wander(ctx, service, path, false)
		Expect(bizfly.IsNotSent(err)).To(BeTrue())
		Expect(s.seen()).To(BeEmpty())
	},
		Entry("the production host", "dns", "/zones"),
		Entry("flavor generations, whose service gobizfly leaves empty", "", "/flavor-generations"), Entry("the login", "auth", "/token"),
		Entry("another service", "kubernetes_engine", "/k8s_versions"), Entry("upwards", "cloud_server", "/../../api/token"),
		Entry("upwards, escaped", "cloud_server", "/%2e%2e/x/../.."),
		Entry("a longer name", "cloud_server", "//x"),
	)
	It("should let one call be one request", func(ctx SpecContext) {
		s := newStub(always(200, `[]`))
		Expect(bizfly.IsNotSent(clientFor(s).Wander(ctx, "cloud_server", "/servers", true))).To(BeFalse())
		Expect(s.seen()).To(HaveLen(1))
	})
	It("should request one server, however many are asked for, and leave the copy alone", func(ctx SpecContext) {
		s := newStub(always(200, `{"task_id":["t"]}`))
		request := createRequest()
		request.Quantity = 2
		Expect(clientFor(s).CreateServer(ctx, request)).To(Equal("t"))
		Expect(request.Quantity).To(Equal(2))
		sent := *request
		sent.Quantity = 1
		wanted := lo.Must(json.Marshal([]any{sent}))
		Expect(s.seen()[0].Body).To(MatchJSON(wanted))
		Expect(s.seen()[0].Method + " " + s.seen()[0].Path).To(Equal("POST /iaas-cloud/api/servers"))
	})
	It("should reject a join token that a header cannot carry", func(ctx SpecContext) {
		s := newStub(always(200, `{}`))
		for _, token := range []string{"", "a\nb", "a b", "ä"} {
			err := clientFor(s).LeaveCluster(ctx, "uid", token, "node")
			Expect(bizfly.IsInvalid(err)).To(BeTrue())
			Expect(err).To(MatchError(ContainSubstring("BKE_CLUSTER_TOKEN")))
		}
		Expect(s.seen()).To(BeEmpty())
	})
	Describe("TLS", func() {
		It("should trust the CA bundle beside the system's roots", func(ctx SpecContext) {
			s := newTLSStub(true, always(200, `[]`))
			Expect(clientFor(s, func(c *bizfly.Config) { c.AllowHTTP = false }).ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.seen()[0].Proto).To(Equal("HTTP/2.0"))
		})
		It("should keep the typed cause of an untrusted certificate, behind a text without secrets", func(ctx SpecContext) {
			s := newTLSStub(true, always(200, `[]`))
			_, err := clientFor(s, func(c *bizfly.Config) { c.CABundle = nil }).Scope(ctx)
			verification, ok := errors.AsType[*tls.CertificateVerificationError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			Expect(verification.UnverifiedCertificates).ToNot(BeEmpty())
			_, ok = errors.AsType[x509.UnknownAuthorityError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			By("a certificate for another host")
			_, err = clientFor(s, func(c *bizfly.Config) { c.APIURL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1) }).Scope(ctx)
			_, ok = errors.AsType[x509.HostnameError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			By("a wrapped error, the same again from the back-off")
			client := clientFor(s, func(c *bizfly.Config) { c.CABundle = nil })
			for range 2 {
				_, err = client.ListServers(ctx)
				_, ok = errors.AsType[*tls.CertificateVerificationError](fmt.Errorf("listing servers: %w", err))
				Expect(ok).To(BeTrue(), "%v", err)
				Expect(err.Error()).ToNot(ContainSubstring("MARKED"))
			}
		})
		It("should reject what is older than TLS 1.2", func(ctx SpecContext) {
			s := &stub{api: always(200, `[]`)}
			s.Server = httptest.NewUnstartedServer(s)
			s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
			s.StartTLS()
			DeferCleanup(s.Close)
			_, err := clientFor(s).ListServers(ctx)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			Expect(s.logins.Load()).To(BeZero())
		})
	})
	Describe("Reconfigure", func() {
		It("should use rotated credentials from the next call on, and let calls under way finish", func(ctx SpecContext) {
			hold := make(chan struct{})
			s := newStub(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Auth-Token") == "MARKED-token-1" {
					<-hold
				}
				answer(w, 200, `[]`)
			})
			release := sync.OnceFunc(func() { close(hold) })
			DeferCleanup(release)
			client := clientFor(s)
			old := make(chan error, 1)
			go func() { _, err := client.ListServers(ctx); old <- err }()
			Eventually(s.seen).Should(HaveLen(1))
			Expect(client.Reconfigure(configFor(s, func(c *bizfly.Config) { c.Password = "another-password" }))).To(Succeed())
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
			Expect(s.seen()[1].Header.Get("X-Auth-Token")).To(Equal("MARKED-token-2"))
			release()
			Eventually(old).Should(Receive(BeNil()))
			Expect(s.logins.Load()).To(BeEquivalentTo(2))
		})
		It("should lose no request when the old credentials are revoked under way", func(ctx SpecContext) {
			var revoked atomic.Bool
			var client *bizfly.Client
			s := newStub(nil)
			s.token = func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), "MARKED-pass") && revoked.Load() {
					answer(w, 401, `{}`)
					return
				}
				answer(w, 200, fmt.Sprintf(`{"token":"%s","project_id":"`+project+`"}`, lo.Ternary(strings.Contains(string(body), "MARKED-pass"), "old", "new")))
			}
			s.set(func(s *stub) {
				s.api = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Auth-Token") == "old" {
						revoked.Store(true)
						_ = client.Reconfigure(configFor(s, func(c *bizfly.Config) { c.Password = "another-password" }))
						answer(w, 401, `{}`)
						return
					}
					answer(w, 200, `{"task_id":["t"]}`)
				}
			})
			client = clientFor(s)
			Expect(client.CreateServer(ctx, createRequest())).To(Equal("t"))
			Expect(s.seen()).To(HaveLen(2))
		})
		It("should log in again for another CA, region or project", func(ctx SpecContext) {
			s := newTLSStub(false, always(200, `[]`))
			s.catalog = always(200, s.services(""))
			client := clientFor(s)
			for i, change := range []func(*bizfly.Config){
				func(*bizfly.Config) {}, func(c *bizfly.Config) { c.CABundle = append(c.CABundle, c.CABundle...) },
				func(c *bizfly.Config) { c.Region = "HCM" }, func(c *bizfly.Config) { c.ProjectID = project },
			} {
				Expect(client.Reconfigure(configFor(s, change))).To(Succeed())
				scope := lo.Must(client.Scope(ctx))
				Expect(scope.Region).To(Equal(lo.Ternary(i == 2, "HoChiMinh", "HaNoi")))
				Expect(s.logins.Load()).To(BeEquivalentTo(i + 1))
			}
		})
		It("should keep the old configuration when the new one is invalid", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			client := clientFor(s)
			Expect(client.Reconfigure(configFor(s, func(c *bizfly.Config) { c.Region = "XX" }))).To(MatchError(ContainSubstring(`"XX"`)))
			Expect(client.ListServers(ctx)).Error().ToNot(HaveOccurred())
		})
	})
	Describe("secrets", func() {
		It("should be in no error, whatever the cloud echoes", func(ctx SpecContext) {
			var echoed atomic.Int32
			s := newStub(nil)
			request := createRequest()
			request.Metadata["bke_cluster_token"] = clusterToken
			s.set(func(s *stub) {
				s.api = func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					token := r.Header.Get("X-Auth-Token")
					all := fmt.Sprintf("%s %s %s %s %s", token, r.Header.Get("X-Cluster-Token"), body, password, userData)
					quoted, _ := json.Marshal(all)
					twice, _ := json.Marshal(string(quoted))
					echoes := []string{
						`{"message":` + string(quoted) + `}`, `{"message":` + string(twice) + `}`, all, `{"error":{"request":` + string(quoted) + `}}`,
						`{"message":"line 2: export JOIN_TOKEN=\"MARKED and quoted\" failed"}`,
						`{"code":"` + token + `","message":"` + base64.StdEncoding.EncodeToString([]byte(token)) + `"}`,
						`{"message":"token=` + url.QueryEscape(token) + `"}`,
						strings.Repeat("x", 500) + token,
						`{"ready":true,"result":` + string(quoted) + `}`,
					}
					n := int(echoed.Add(1))
					w.WriteHeader([]int{400, 500, 200, 409}[n%4])
					_, _ = io.WriteString(w, echoes[n/4%len(echoes)])
				}
			})
			client := clientFor(s)
			calls := everyCall()
			calls["CreateServer"] = func(ctx context.Context, api bizfly.API) error { _, err := api.CreateServer(ctx, request); return err }
			Expect(calls["CreateServer"](ctx, client)).To(HaveOccurred())
			_ = calls["LeaveCluster"](ctx, client)
			failed := 0
			for range 12 {
				for name, call := range calls {
					if err := call(ctx, client); err != nil {
						failed++
						for inner := err; inner != nil; {
							text := fmt.Sprintf("%v %+v %#v", inner, inner, inner)
							Expect(text).ToNot(Or(ContainSubstring("MARKED"), ContainSubstring("TUFSS0VE")), name)
							wrapper, ok := inner.(interface{ Unwrap() error })
							if !ok {
								break
							}
							inner = wrapper.Unwrap()
						}
					}
				}
				task, err := client.GetTask(ctx, "t1")
				if err == nil && task.Failure != nil {
					Expect(task.Failure).To(MatchError(Not(ContainSubstring("MARKED"))))
				}
			}
			Expect(failed).To(BeNumerically(">", 100))
		})
		It("should be in no error of a login that echoes them", func(ctx SpecContext) {
			s := newStub(always(200, `[]`))
			for _, status := range []int{200, 400, 401, 500} {
				s.set(func(s *stub) {
					s.token = func(w http.ResponseWriter, r *http.Request) {
						body, _ := io.ReadAll(r.Body)
						quoted, _ := json.Marshal(string(body))
						answer(w, status, `{"message":`+string(quoted)+`}`)
					}
				})
				_, err := clientFor(s).ListServers(ctx)
				Expect(err).To(HaveOccurred())
				Expect(fmt.Sprintf("%v %+v %#v", err, err, err)).ToNot(ContainSubstring("MARKED"))
			}
		})
		It("should keep messages short and on one line", func(ctx SpecContext) {
			s := newStub(always(400, `{"message":"`+strings.Repeat("đ\\n", 100000)+`"}`))
			_, err := clientFor(s).ListServers(ctx)
			Expect([]rune(typed(err).Message)).To(HaveLen(512))
			Expect(err.Error()).ToNot(ContainSubstring("\n"))
		})
	})
	Describe("metrics", func() {
		It("should count what happened without ids in labels", func(ctx SpecContext) {
			registry := prometheus.NewRegistry()
			s := newStub(inTurn(page(503), always(200, `{"id":"`+serverID+`"}`), always(404, `{}`), hangUp))
			client := clientFor(s, func(c *bizfly.Config) { c.Registerer = registry })
			Expect(client.GetServer(ctx, serverID)).Error().ToNot(HaveOccurred())
			_, _ = client.GetServer(ctx, serverID)
			_, _ = client.CreateServer(ctx, createRequest())

			Expect(metricOf(registry, "karpenter_bizfly_api_request_duration_seconds", "/servers/{id}", "GET", "503", "Outage")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_request_duration_seconds", "/servers/{id}", "GET", "200", "success")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_request_duration_seconds", "/servers/{id}", "GET", "404", "NotFound")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_request_duration_seconds", "/servers", "POST", "0", "Ambiguous")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_request_duration_seconds", "/token", "POST", "200", "success")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_logins_total", "success")).To(BeEquivalentTo(1))
			Expect(metricOf(registry, "karpenter_bizfly_api_admission_wait_seconds", "read")).To(BeEquivalentTo(3))
			families := lo.Must(registry.Gather())
			Expect(fmt.Sprint(families)).ToNot(Or(ContainSubstring(serverID), ContainSubstring("MARKED")))
		})
	})
})

// metricOf is the value of the one sample whose label values are these, or how often a histogram was observed.
func metricOf(registry *prometheus.Registry, name string, labels ...string) float64 {
	GinkgoHelper()
	samples := lo.Must(metrics.Gather(registry, name))
	sample, _ := lo.Find(samples, func(s metrics.Sample) bool {
		return len(s.Labels) == len(labels) && lo.Every(lo.Values(s.Labels), labels)
	})
	return sample.Value
}

var _ = Describe("The scope", func() {
	// open are the calls that may be sent before a scope is confirmed: they read what the cloud offers, and which cluster of
	// BKE this is. Scope is what a scope is confirmed with, and Account is about no object.
	open := []string{
		"Account", "GetCluster", "ListFlavors", "ListKubernetesVersions", "ListOSImages", "ListRegions", "ListVolumeTypes", "Scope",
	}
	api := reflect.TypeFor[bizfly.API]()
	for i := range api.NumMethod() {
		name := api.Method(i).Name
		needed := !lo.Contains(open, name)
		It(fmt.Sprintf("should be needed by %s: %t", name, needed), func(ctx SpecContext) {
			s := newStub(always(500, `{}`))
			client := lo.Must(bizfly.NewClient(configFor(s)))
			call := everyCall()[name]
			rejected := And(Satisfy(bizfly.IsAuth), Satisfy(bizfly.IsNotSent), MatchError(ContainSubstring(name)),
				MatchError(ContainSubstring("ProviderConfig named default")))
			if !needed {
				if err := call(ctx, client); err != nil {
					Expect(err).ToNot(rejected)
				}
				return
			}
			By("rejecting it without a request while none is confirmed")
			Expect(call(ctx, client)).To(rejected)
			Expect(s.seen()).To(BeEmpty())
			Expect(s.logins.Load()).To(BeZero())
			By("rejecting it while another one is confirmed")
			scope := lo.Must(client.Scope(ctx))
			for _, other := range []func(*bizfly.Scope){
				func(s *bizfly.Scope) { s.Host = "elsewhere" }, func(s *bizfly.Scope) { s.Region = "HoChiMinh" }, func(s *bizfly.Scope) { s.ProjectID = "other" },
			} {
				changed := scope
				other(&changed)
				client.Confirm(changed)
				Expect(call(ctx, client)).To(And(rejected, MatchError(ContainSubstring(scope.String()))))
			}
			Expect(s.seen()).To(BeEmpty())
			By("sending it once the scope is confirmed")
			client.Confirm(scope)
			_ = call(ctx, client)
			Expect(s.seen()).ToNot(BeEmpty())
		})
	}
})
