// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

const (
	project      = "17a1c3c952c84b3e84a82ddd364364938"
	password     = "MARKED-pass\"word-1"
	clusterToken = "MARKED-cluster-token"
	userData     = "#!/bin/bash\nexport MARKED_USER_DATA=\"quoted\"\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"
	serverID     = "366d5fa3-49d2-4c0d-bde5-f542bddb212a"
)

// recorded is a request as the stub saw it.
type recorded struct {
	Method, Path, Query, Body string
	Header                    http.Header
	Proto                     string
}

// stub is an endpoint whose every answer a spec can choose: the sandbox plays a cloud, this plays a broken one.
type stub struct {
	*httptest.Server
	logins, catalogs atomic.Int32

	mu       sync.Mutex
	requests []recorded
	// token, catalog and api answer; nil means the healthy default.
	token, catalog, api http.HandlerFunc
}

func newStub(api http.HandlerFunc) *stub {
	s := &stub{api: api}
	s.Server = httptest.NewServer(s)
	DeferCleanup(s.Close)
	return s
}

func newTLSStub(http2 bool, api http.HandlerFunc) *stub {
	s := &stub{api: api}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = nil
	s.StartTLS()
	DeferCleanup(s.Close)
	return s
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	token, catalog, api := s.token, s.catalog, s.api
	if r.URL.Path != "/api/token" && r.URL.Path != "/api/auth/service" {
		s.requests = append(s.requests, recorded{r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Header.Clone(), r.Proto})
	}
	s.mu.Unlock()
	switch r.URL.Path {
	case "/api/token":
		n := s.logins.Add(1)
		if token != nil {
			token(w, r)
			return
		}
		answer(w, 200, fmt.Sprintf(`{"token":"MARKED-token-%d","project_id":"%s"}`, n, project))
	case "/api/auth/service":
		s.catalogs.Add(1)
		if catalog != nil {
			catalog(w, r)
			return
		}
		answer(w, 200, s.services("HN"))
	default:
		api(w, r)
	}
}

// services is a catalog with everything in one region.
func (s *stub) services(region string) string {
	return catalogOf(region, map[string]string{
		"cloud_server": s.URL + "/iaas-cloud/api", "kubernetes_engine": s.URL + "/api/kubernetes-engine", "bizfly_account": s.URL + "/api/account",
		"auto_scaling": s.URL + "/api/auto-scaling",
	})
}

func catalogOf(region string, urls map[string]string) string {
	services := []gobizfly.Service{}
	for name, target := range urls {
		services = append(services, gobizfly.Service{CanonicalName: name, Region: region, Enabled: true, ServiceURL: target})
	}
	document := lo.Must(json.Marshal(map[string]any{"services": services}))
	return string(document)
}

func (s *stub) set(change func(s *stub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *stub) seen() []recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// always answers everything alike.
func always(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, status, body) }
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// inTurn gives each request the next answer, and the last one from then on.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var next atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) { handlers[min(int(next.Add(1)), len(handlers))-1](w, r) }
}

// page is what a gateway answers.
func page(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html><svg/>not here</html>")
	}
}

func configFor(s *stub, changes ...func(*bizfly.Config)) bizfly.Config {
	wide := bizfly.Limit{QPS: 1000, Burst: 1000, Concurrency: 64}
	config := bizfly.Config{
		APIURL: s.URL, Region: "HN", AuthMethod: bizfly.AuthMethodPassword, Email: "user@example.com", Password: password,
		AllowHTTP: true, Version: "v1.2.3", Registerer: prometheus.NewRegistry(),
		Limits: bizfly.Limits{Delete: wide, Read: wide, Create: wide},
		Timeouts: bizfly.Timeouts{
			Delete: 10 * time.Second, Read: 10 * time.Second, Create: 10 * time.Second, Login: 5 * time.Second,
		},
		Clock: &skipping{},
	}
	if s.Certificate() != nil {
		config.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	for _, change := range changes {
		change(&config)
	}
	return config
}

// newClient makes a client whose scope is confirmed to be the one that the configuration is about.
func newClient(config bizfly.Config) (*bizfly.Client, error) {
	client, err := bizfly.NewClient(config)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(config.APIURL)
	if err != nil {
		return nil, err
	}
	region, err := bizfly.ParseRegion(config.Region)
	client.Confirm(bizfly.Scope{Host: endpoint.Host, Region: region, ProjectID: lo.CoalesceOrEmpty(config.ProjectID, project)})
	return client, err
}

func clientFor(s *stub, changes ...func(*bizfly.Config)) *bizfly.Client {
	return lo.Must(newClient(configFor(s, changes...)))
}

// skipping is a clock that does not wait: a timer fires at once and moves the time by what it would have taken.
type skipping struct {
	clock.RealClock
	mu      sync.Mutex
	skipped time.Duration
	waits   []time.Duration
}

func (c *skipping) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skipped)
}

func (c *skipping) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *skipping) NewTimer(d time.Duration) clock.Timer {
	c.Step(d)
	c.mu.Lock()
	c.waits = append(c.waits, d)
	c.mu.Unlock()
	return c.RealClock.NewTimer(0)
}

func (c *skipping) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped += d
}

func (c *skipping) Waits() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.waits)
}

func createRequest() *gobizfly.ServerCreateRequest {
	return &gobizfly.ServerCreateRequest{
		Name: "pool-a-x7k2m-0a1b2c3d", FlavorName: "nix.2c_4g", Type: "premium", AvailabilityZone: "HN1",
		RootDisk: &gobizfly.ServerDisk{Size: 40, VolumeType: lo.ToPtr("PREMIUM-HDD1")}, OS: &gobizfly.ServerOS{ID: "d9513b4e-1", Type: "image"},
		BillingPlan: "on_demand", IsCreatedWan: lo.ToPtr(false), UserData: userData,
		Metadata: map[string]string{"bke_cluster_token": clusterToken, "karpenter-managed": "true"},
	}
}

// everyCall is each method of the interface with arguments that are valid.
func everyCall() map[string]func(context.Context, bizfly.API) error {
	calls := map[string]func(context.Context, bizfly.API) error{}
	for method := range reflect.TypeFor[bizfly.API]().Methods() {
		calls[method.Name] = func(ctx context.Context, api bizfly.API) error {
			arguments, texts := []reflect.Value{reflect.ValueOf(ctx)}, []string{serverID, clusterToken, "node-1"}
			for i := 1; i < method.Type.NumIn(); i++ {
				valid := map[reflect.Kind]any{reflect.String: texts[i-1], reflect.Slice: []string{"v1"},
					reflect.Pointer: createRequest()}
				arguments = append(arguments, reflect.ValueOf(valid[method.Type.In(i).Kind()]))
			}
			results := reflect.ValueOf(api).MethodByName(method.Name).Call(arguments)
			err, _ := results[len(results)-1].Interface().(error)
			return err
		}
	}
	return calls
}

// typed is the error as the type that every error must have.
func typed(err error) *bizfly.APIError {
	GinkgoHelper()
	Expect(err).To(BeAssignableToTypeOf(&bizfly.APIError{}))
	var apiError *bizfly.APIError
	Expect(errors.As(err, &apiError)).To(BeTrue())
	return apiError
}

func methods(requests []recorded) string {
	return strings.Join(lo.Map(requests, func(r recorded, _ int) string { return r.Method }), " ")
}
