// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package jointoken_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
)

var (
	ctx    = context.Background()
	config *rest.Config
	kube   client.Client
	groups = options.Defaults().JoinTokenGroups
)

func TestJoinToken(t *testing.T) { suite.Run(t, "JoinToken") }

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Configure().Set("enable-bootstrap-token-auth", "true")
	var err error
	config, err = env.Start()
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(env.Stop)
	kube, err = client.New(config, client.Options{})
	Expect(err).ToNot(HaveOccurred())
})

var _ = Describe("Join tokens", func() {
	var (
		provider *jointoken.DefaultProvider
		clk      *clocktesting.FakeClock
		request  jointoken.Request
	)
	BeforeEach(func() {
		clk = clocktesting.NewFakeClock(time.Now())
		provider = jointoken.NewDefaultProvider(kube, clk, groups)
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-x7k2p", UID: "6f2d2b7e-0c51-4d8e-9f55-0d3b8f5a1c11"}}
		request = jointoken.Request{NodeClaim: claim, NodeName: "general-x7k2p-0a1b2c3d", Attempt: 1, TTL: 30 * time.Minute}
		DeferCleanup(func() {
			Expect(kube.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
		})
	})
	secrets := func() []corev1.Secret {
		GinkgoHelper()
		list := &corev1.SecretList{}
		Expect(kube.List(ctx, list, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
		return list.Items
	}
	issue := func() string {
		GinkgoHelper()
		token, err := provider.Issue(ctx, request)
		Expect(err).ToNot(HaveOccurred())
		Expect(token).To(MatchRegexp(`^[a-z0-9]{6}\.[a-z0-9]{16}$`))
		return token
	}
	// whoami asks the API server who it takes the bearer for.
	whoami := func(token string) (*authenticationv1.SelfSubjectReview, error) {
		bearer := rest.AnonymousClientConfig(config)
		bearer.BearerToken = token
		return kubernetes.NewForConfigOrDie(bearer).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}

	It("should be credentials of the real API server, as what kubeadm, k3s and Karpenter bind", func() {
		token := issue()
		Eventually(func(g Gomega) {
			who, err := whoami(token)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(who.Status.UserInfo.Username).To(Equal("system:bootstrap:" + strings.Split(token, ".")[0]))
			g.Expect(who.Status.UserInfo.Groups).To(ContainElements("system:bootstrappers", "system:bootstrappers:karpenter",
				"system:bootstrappers:kubeadm:default-node-token", "system:bootstrappers:k3s:default-node-token"))
		}).Should(Succeed())
	})
	It("should have no other group than those that are configured", func() {
		provider = jointoken.NewDefaultProvider(kube, clk, []string{"system:bootstrappers:karpenter"})
		token := issue()
		Eventually(func(g Gomega) {
			who, err := whoami(token)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(who.Status.UserInfo.Groups).To(ConsistOf("system:bootstrappers", "system:bootstrappers:karpenter", "system:authenticated"))
		}).Should(Succeed())
	})
	It("should end by themselves", func() {
		clk.SetTime(time.Now().Add(-time.Hour))
		ended := issue()
		clk.SetTime(time.Now())
		request.Attempt++
		later := issue()
		Expect(secrets()).To(HaveLen(2))
		// The API server that knows the later one has read the earlier one too.
		Eventually(func() error { _, err := whoami(later); return err }).Should(Succeed())
		_, err := whoami(ended)
		Expect(err).To(HaveOccurred())
	})
	It("should describe what they are for and be owned by the NodeClaim", func() {
		issue()
		made := secrets()[0]
		Expect(string(made.Type)).To(Equal("bootstrap.kubernetes.io/token"))
		Expect(string(made.Data["description"])).To(And(ContainSubstring("general-x7k2p-0a1b2c3d"), ContainSubstring("attempt 1")))
		Expect(made.OwnerReferences).To(HaveExactElements(And(HaveField("Kind", "NodeClaim"), HaveField("UID", request.NodeClaim.UID))))
		expiration, err := time.Parse(time.RFC3339, string(made.Data["expiration"]))
		Expect(err).ToNot(HaveOccurred())
		Expect(expiration).To(BeTemporally("~", clk.Now().Add(30*time.Minute), time.Second))
	})
	It("should be another one after a restart, which cannot read the first", func() {
		first := issue()
		provider = jointoken.NewDefaultProvider(kube, clk, groups)
		Expect(issue()).ToNot(Equal(first))
		Expect(secrets()).To(HaveEach(HaveField("OwnerReferences", HaveExactElements(HaveField("Name", request.NodeClaim.Name)))), "and ends with the NodeClaim")
	})
	It("should be gone once they are revoked, and those of others not", func() {
		token := issue()
		other := request
		other.NodeClaim = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "another", UID: "another"}}
		_, err := provider.Issue(ctx, other)
		Expect(err).ToNot(HaveOccurred())
		Expect(provider.Revoke(ctx, request.NodeClaim.UID)).To(Succeed())
		Expect(secrets()).To(HaveLen(1))
		Eventually(func() error { _, err := whoami(token); return err }, "10s").Should(HaveOccurred())
		Expect(provider.Revoke(ctx, request.NodeClaim.UID)).To(Succeed(), "there is nothing left")
	})
	It("should be gone although they were issued while others were revoked", func() {
		launching := interceptor.NewClient(lo.Must(client.NewWithWatch(config, client.Options{})), interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if request.Attempt == 1 {
					request.Attempt = 2
					issue()
				}
				return c.Delete(ctx, object, options...)
			},
		})
		provider = jointoken.NewDefaultProvider(launching, clk, groups)
		issue()
		Expect(provider.Revoke(ctx, request.NodeClaim.UID)).To(Succeed())
		Expect(secrets()).To(HaveLen(1))
		Expect(provider.Revoke(ctx, request.NodeClaim.UID)).To(Succeed())
		Expect(secrets()).To(BeEmpty())
	})
	It("should not delete what a user has created under the same name since", func() {
		issue()
		made := secrets()[0]
		Expect(kube.Delete(ctx, &made)).To(Succeed())
		Expect(kube.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: made.Name}})).To(Succeed())
		Expect(provider.Revoke(ctx, request.NodeClaim.UID)).To(Succeed())
		Expect(secrets()).To(HaveLen(1))
	})
	It("should not be created without a NodeClaim", func() {
		_, err := provider.Issue(ctx, jointoken.Request{NodeClaim: &karpv1.NodeClaim{}, Attempt: 1, TTL: time.Minute})
		Expect(err).To(HaveOccurred())
	})
})
