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

package operator_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	catalogcontroller "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// skipping is a clock that does not wait: a timer fires at once and moves the time by what it would have taken.
type skipping struct {
	clock.RealClock
	mu      sync.Mutex
	skipped time.Duration
}

func (c *skipping) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skipped)
}

func (c *skipping) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *skipping) NewTimer(d time.Duration) clock.Timer {
	c.Step(d)
	return c.RealClock.NewTimer(0)
}

func (c *skipping) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped += d
}

// process is what the operator builds and watches, over a sandbox.
type process struct {
	clock   *skipping
	box     *cloud.Sandbox
	client  *bizfly.Client
	config  *config.DefaultProvider
	lists   *instance.DefaultProvider
	catalog *catalogcontroller.Controller
	healthz *healthz.Handler
	// gate, when set, is what every request to the cloud waits for.
	mu   sync.Mutex
	gate chan struct{}
}

// ServeHTTP is the cloud, which a spec may keep from answering.
func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	p.box.Handler().ServeHTTP(w, r)
}

func (p *process) hold() (release func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gate = nil
		close(gate)
	})
}

// probe is the kubelet's.
func (p *process) probe() int {
	recorder := httptest.NewRecorder()
	p.healthz.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	return recorder.Code
}

// use does once what the controllers do all the time, and says how many of these things failed.
func (p *process) use(ctx context.Context) (failures int) {
	count := func(err error) {
		if err != nil {
			failures++
		}
	}
	count(p.config.Sync(ctx).Err())
	_, err := p.lists.List(ctx)
	count(err)
	count(p.lists.Reap(ctx, instance.ReapRequest{}))
	_, err = p.catalog.Reconcile(ctx)
	Expect(err).NotTo(HaveOccurred())
	return failures
}

func newProcess(ctx context.Context) *process {
	GinkgoHelper()
	p := &process{clock: &skipping{}}
	p.box = cloud.Start(cloud.Options{})
	DeferCleanup(p.box.Close)
	front := httptest.NewServer(p)
	DeferCleanup(front.Close)
	credentials := p.box.Credentials()
	base := bizfly.Config{
		APIURL: front.URL + "/api", AllowHTTP: true, Region: credentials.Region, AuthMethod: bizfly.AuthMethodPassword,
		Email: credentials.Email, Password: credentials.Password, Registerer: prometheus.NewRegistry(), Clock: p.clock,
	}
	var err error
	p.client, err = bizfly.NewClient(base)
	Expect(err).NotTo(HaveOccurred())
	scope, err := p.client.Scope(ctx)
	Expect(err).NotTo(HaveOccurred())

	pinned := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
	Expect(env.Client.Create(ctx, pinned)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(env.Client.Delete(ctx, pinned)).To(Succeed()) })
	pinned.Status.Scope = &v1alpha1.ScopeStatus{Host: scope.Host, Region: scope.Region, ProjectID: scope.ProjectID}
	Expect(env.Client.Status().Update(ctx, pinned)).To(Succeed())
	p.config = config.NewDefaultProvider(config.Options{
		Reader: env.Client, Client: p.client, Environment: base, Clock: p.clock,
		ClaimsExist: func(context.Context) (bool, error) { return true, nil },
	})
	snapshots := catalog.NewDefaultProvider(p.client, p.clock, catalog.Config{})
	p.catalog = catalogcontroller.NewController(snapshots, catalogcontroller.Config{Clock: p.clock})
	zones := zone.NewDefaultProvider(snapshots, zone.Config{})
	p.lists = instance.NewDefaultProvider(instance.Config{ClusterName: "prod", ClusterUID: "5f1f2a5e-0000-4000-8000-00000000000a", Clock: p.clock},
		p.client, bootstrap.NewDefaultProvider(bootstrap.Config{ClusterName: "prod"}, snapshots), zones,
		func(context.Context) (sets.Set[string], error) { return sets.New[string](), nil }, cache.New(time.Hour, time.Hour))

	p.healthz = &healthz.Handler{Checks: map[string]healthz.Checker{}}
	for name, part := range map[string]liveness.Checker{"client": p.client, "configuration": p.config, "lists": p.lists, "catalog.refresh": p.catalog} {
		p.healthz.Checks[name] = operator.Alive(p.clock, name, part)
	}
	Expect(p.use(ctx)).To(BeZero())
	return p
}

var _ = Describe("The liveness check", func() {
	var p *process

	BeforeEach(func(ctx SpecContext) {
		p = newProcess(ctx)
	})

	It("should pass while all is well", func() {
		Expect(p.probe()).To(Equal(http.StatusOK))
	})

	It("should pass during an outage of the cloud that lasts more than an hour", func(ctx SpecContext) {
		p.box.AddFaults(1, cloud.Fault{Path: "**", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		end := p.clock.Now().Add(90 * time.Minute)
		for p.clock.Now().Before(end) {
			p.clock.Step(time.Minute)
			Expect(p.use(ctx)).To(BeNumerically(">=", 1), "this is an outage")
			// What is read in the background ends while the clock stands still.
			Eventually(p.probe).WithTimeout(10 * time.Second).Should(Equal(http.StatusOK))
		}
		p.box.ClearFaults()
		p.clock.Step(10 * time.Minute) // longer than any back-off
		// The look at the configuration believes in the outage until somebody else was answered.
		p.use(ctx)
		Expect(p.use(ctx)).To(BeZero(), "and all goes on by itself")
	})

	DescribeTable("should fail when something that others wait for does not end, and pass again when it has ended",
		func(ctx SpecContext, limit time.Duration, begin func(ctx context.Context) error) {
			release := p.hold()
			DeferCleanup(release)
			done := make(chan error, 1)
			go func() { done <- begin(ctx) }()
			// The clock is the spec's, so that the request's own deadline cannot pass before the verdict.
			Eventually(func() int {
				p.clock.Step(limit)
				return p.probe()
			}).WithTimeout(10 * time.Second).Should(Equal(http.StatusInternalServerError))
			release()
			Eventually(done).WithTimeout(30 * time.Second).Should(Receive())
			Expect(p.use(ctx)).To(BeZero(), "the time that has passed is made up for")
			Eventually(p.probe).WithTimeout(30 * time.Second).Should(Equal(http.StatusOK))
		},
		Entry("a shared list", 10*time.Minute, func(ctx context.Context) error { _, err := p.lists.List(ctx); return err }),
		Entry("a refresh of the catalog", 10*time.Minute, func(ctx context.Context) error { _, err := p.catalog.Reconcile(ctx); return err }),
		Entry("a login", 10*time.Minute, func(ctx context.Context) error {
			p.clock.Step(24 * time.Hour)
			_, err := p.client.Scope(ctx)
			return err
		}),
	)

	It("should fail when the look at the configuration does not come back", func(ctx SpecContext) {
		begun, release := make(chan struct{}), make(chan struct{})
		p.config.Probe = func(context.Context, bizfly.Config) (bizfly.Scope, error) {
			close(begun)
			<-release
			return bizfly.Scope{}, errors.New("too late")
		}
		p.config.Environment.Password = "another, so that it must be looked at"
		done := make(chan *config.Result, 1)
		go func() { done <- p.config.Sync(ctx) }()
		Eventually(begun).WithTimeout(10 * time.Second).Should(BeClosed())
		Expect(p.probe()).To(Equal(http.StatusOK))
		p.clock.Step(10*time.Minute + time.Second)
		Expect(p.probe()).To(Equal(http.StatusInternalServerError))
		close(release)
		Eventually(done).WithTimeout(10 * time.Second).Should(Receive())
		Expect(p.probe()).To(Equal(http.StatusOK))
	})
})
