// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestConfig(t *testing.T) { suite.Run(t, "Config") }

var ctx = context.Background()

// adapter is a client that is configured and can log in.
type adapter struct{ confirmed *bizfly.Scope }

func (a *adapter) Reconfigure(bizfly.Config) error { return nil }

func (a *adapter) Scope(context.Context) (bizfly.Scope, error) { return lo.FromPtr(a.confirmed), nil }

func (a *adapter) Confirm(scope bizfly.Scope) { a.confirmed = &scope }

func (a *adapter) Confirmed() (bizfly.Scope, bool) {
	return lo.FromPtr(a.confirmed), a.confirmed != nil
}

var _ = Describe("A ProviderConfig that names another place", func() {
	var elsewhere *httptest.Server
	var requests atomic.Int32
	var answer int
	var object *v1alpha1.ProviderConfig
	var options config.Options
	var claims []client.Object
	BeforeEach(func() {
		requests.Store(0)
		answer = http.StatusUnauthorized
		elsewhere = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(answer)
		}))
		DeferCleanup(elsewhere.Close)
		object = &v1alpha1.ProviderConfig{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName},
			Spec: v1alpha1.ProviderConfigSpec{
				Endpoint: elsewhere.URL, Region: "HN", SecretRef: &v1alpha1.SecretReference{},
				CABundle: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw})),
			},
			Status: v1alpha1.ProviderConfigStatus{Scope: &v1alpha1.ScopeStatus{Host: "manage.bizflycloud.vn", Region: "HaNoi", ProjectID: "p1"}},
		}
		options = config.Options{
			Client: &adapter{}, Namespace: "karpenter", SecretName: "credentials",
		}
		claims = []client.Object{&karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "general-x7k2p"}, Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group}},
		}}
	})
	provider := func() *config.DefaultProvider {
		options.Reader = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(object).WithObjects(object, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter", Name: "credentials"},
			Data:       map[string][]byte{config.SecretKeyAppCredID: []byte("id"), config.SecretKeyAppCredSecret: []byte("secret")},
		}).WithObjects(claims...).Build()
		return config.NewDefaultProvider(options)
	}

	It("should not get the credentials at another host while NodeClaims exist", func() {
		changed := &config.ScopeChangedError{}
		Expect(provider().Sync(ctx).ScopeErr).To(BeAssignableToTypeOf(changed))
		Expect(requests.Load()).To(BeZero())
	})
	It("should not get the credentials in another region while NodeClaims exist", func() {
		object.Status.Scope.Host = lo.Must(url.Parse(elsewhere.URL)).Host
		object.Spec.Region = "HCM"
		Expect(provider().Sync(ctx).ScopeErr).To(MatchError(And(ContainSubstring("HoChiMinh"), ContainSubstring("HaNoi"))))
		Expect(requests.Load()).To(BeZero())
	})
	It("should not get the credentials at a host that is not allowed, whatever exists", func() {
		object.Status.Scope = nil
		options.Environment.AllowedHosts = []string{"*.bizflycloud.vn", "manage.example.com"}
		Expect(provider().Sync(ctx).CredentialsErr).To(MatchError(And(ContainSubstring("BIZFLY_CLOUD_ALLOWED_HOSTS"), ContainSubstring(elsewhere.URL))))
		Expect(requests.Load()).To(BeZero())
	})
	It("should be asked ever more seldom after it has rejected the credentials", func() {
		claims = nil
		clk := clocktesting.NewFakeClock(time.Now())
		options.Environment.Clock = clk
		looking := provider()
		for range 10 * time.Minute / ttl.ProviderConfigInterval {
			Expect(bizfly.IsAuth(looking.Sync(ctx).CredentialsErr)).To(BeTrue())
			clk.Step(ttl.ProviderConfigInterval)
		}
		Expect(requests.Load()).To(And(BeNumerically(">", 4), BeNumerically("<", 15)))
	})
	It("should end an outage with the next login, also where nothing else is called", func() {
		claims, answer = nil, http.StatusServiceUnavailable
		options.Client = &adapter{}
		looking := provider()
		Expect(looking.Sync(ctx).EndpointErr).To(HaveOccurred(), "what was pinned is applied all the same")
		Expect(looking.Sync(ctx)).To(And(HaveField("EndpointErr", BeNil()), HaveField("Scope", Not(BeNil()))))
	})
	DescribeTable("should be asked", func(allowed ...string) {
		claims = nil
		options.Environment.AllowedHosts = allowed
		Expect(bizfly.IsAuth(provider().Sync(ctx).CredentialsErr)).To(BeTrue())
		Expect(requests.Load()).To(BeNumerically(">", 0))
	},
		Entry("where no NodeClaim exists"),
		Entry("where no NodeClaim exists and its host is allowed", "127.0.0.1"),
		Entry("where no NodeClaim exists and a pattern allows its host", "127.*"),
	)
})

var _ = Describe("The API servers of the cluster", func() {
	slice := func(port int32, addresses ...string) client.Object {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
			Ports:      []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
		}
	}
	check := func(recorded []string, objects ...client.Object) error {
		object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		object.RecordAPIServers(recorded)
		objects = append(objects, object)
		reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
		return config.NewDefaultProvider(config.Options{Reader: reader}).CheckControlPlane(ctx)
	}
	three := []string{"10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"}

	It("should be recognized while all are recorded, also when one is away", func() {
		Expect(check(three, slice(6443, "10.0.0.2", "10.0.0.1", "10.0.0.3"))).To(Succeed())
		Expect(check(three, slice(6443, "10.0.0.2"))).To(Succeed())
		Expect(check([]string{"[fd00::1]:6443"}, slice(6443, "fd00::1"))).To(Succeed())
	})
	It("should not be compared where none was ever recorded", func() {
		Expect(check(nil, slice(6443, "10.0.0.1"))).To(Succeed())
		Expect(check(nil)).To(Succeed())
	})
	It("should not be recognized where none of them is recorded, and say how to confirm that", func() {
		err := check(three, slice(6443, "10.9.0.1"))
		Expect(err).To(BeAssignableToTypeOf(&config.ControlPlaneChangedError{}))
		Expect(err).To(MatchError(And(ContainSubstring("10.0.0.1:6443"), ContainSubstring("10.9.0.1:6443"),
			ContainSubstring("kubectl annotate providerconfig default karpenter.bizflycloud.vn/api-servers-"))))
	})
	It("should not be recognized yet where only some are recorded", func() {
		Expect(check(three, slice(6443, "10.0.0.1", "10.9.0.1"))).To(MatchError(config.ErrAPIServersChanging))
	})
	It("should not be recognized where they are recorded and cannot be read", func() {
		Expect(check(three)).To(MatchError(config.ErrNoAPIServers))
		Expect(check(three, slice(6443))).To(MatchError(config.ErrNoAPIServers))
	})
})
