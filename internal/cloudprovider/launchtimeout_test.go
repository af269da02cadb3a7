// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

// Core schedules nothing while a NodeClaim has no provider ID. It calls Create again after its own back-off, or at once where the NodeClaim
// was patched meanwhile, as each attempt does whose intent is recorded. This runs core's lifecycle controller with the back-off alone, so with
// the fewest calls and the longest waits, on a clock that the specs move. test/simulation has the same for a server whose id is not shown.
var _ = Describe("A NodeClaim that gets no server", func() {
	BeforeEach(func() {
		before := lifecycle.LaunchTimeout
		lifecycle.LaunchTimeout = 3 * time.Minute
		DeferCleanup(func() { lifecycle.LaunchTimeout = before })
	})
	// lasts is how long the NodeClaim exists without a provider ID, and how often core calls Create.
	lasts := func(claim *karpv1.NodeClaim) (time.Duration, int) {
		GinkgoHelper()
		controller := lifecycle.NewController(env.Clock, env.Client, env.CloudProvider, env.Recorder, state.NewCluster(env.Clock, env.Client, env.CloudProvider),
			nodepoolhealth.NewState(), nil)
		began := env.Clock.Now()
		for calls, backOff := 0, time.Second; ; calls, backOff = calls+1, min(2*backOff, time.Minute) {
			live := &karpv1.NodeClaim{}
			err := env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)
			if apierrors.IsNotFound(err) || !live.DeletionTimestamp.IsZero() {
				return env.Clock.Since(began), calls
			}
			Expect(err).ToNot(HaveOccurred())
			Expect(live.Status.ProviderID).To(BeEmpty())
			Expect(calls).To(BeNumerically("<", 20))
			if calls > 0 {
				env.Clock.Step(backOff)
			}
			_, _ = controller.Reconcile(ctx, live) // an error is what core repeats the call for
		}
	}
	// tokens lets the join token of each server fail with this error.
	tokens := func(err error) *v1alpha1.BizflyNodeClass {
		GinkgoHelper()
		writer := failing(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, secret := o.(*corev1.Secret); secret {
				return err
			}
			return c.Create(ctx, o, opts...)
		}})
		env.Restart(ctx, func(d *wiring.Dependencies) { d.Client = writer })
		return nodeClass(func(c *v1alpha1.BizflyNodeClass) {
			c.Spec.BootstrapMode, c.Spec.JoinToken = v1alpha1.BootstrapModeCustom, &v1alpha1.JoinToken{TTL: metav1.Duration{Duration: 30 * time.Minute}}
			c.Spec.UserData = lo.ToPtr("#!/bin/bash\necho {{ .JoinToken }}\n")
		})
	}
	// patching lets each write of an annotation fail with this error.
	patching := func(err error) {
		intercepted(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		}})
	}

	DescribeTable("should end within LAUNCH_TIMEOUT", func(fail func()) {
		fail()
		took, calls := lasts(nodeClaim(unit.NodePool()))
		Expect(took).To(BeNumerically("<=", lifecycle.LaunchTimeout))
		Expect(calls).To(BeNumerically(">", 2), "a retry may help")
		Expect(env.Recorder.Calls(karpevents.InsufficientCapacityError)).To(Equal(1))
		Expect(env.Recorder.Events()).To(ContainElement(HaveField("Message", ContainSubstring(launch.ReasonLaunchNotSent))))
		reason, _, _ := env.CloudProvider.Launches.LaunchesPaused(lo.Must(class()))
		Expect(reason).To(BeEmpty(), "nothing is known to be wrong with the NodeClass")
	},
		Entry("while the API server does not answer in time about its join token", func() {
			tokens(apierrors.NewTimeoutError("etcd is slow", 1))
		}),
		Entry("while the API server cannot be reached for its join token", func() {
			tokens(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
		}),
		Entry("while the time for its join token is up", func() { tokens(context.DeadlineExceeded) }),
		Entry("while the process ends that creates its join token", func() { tokens(context.Canceled) }),
		Entry("while its intent cannot be recorded", func() {
			nodeClass()
			patching(errors.New("etcd is away"))
		}),
		Entry("while the rate limit of the cloud holds its request back", func() {
			env.Restart(ctx, func(d *wiring.Dependencies) {
				// The pause after each rejection ends with core's back-off, on the same clock.
				d.API = connect.Client(ctx, env.Sandbox, connect.Unlimited, func(c *bizfly.Config) { c.Clock = env.Clock })
			})
			nodeClass()
			failCreate(cloud.Fault{Effect: cloud.EffectThrottle})
		}),
	)
	It("should end at once when BizFly Cloud asks to come back later than that", func() {
		nodeClass()
		failCreate(cloud.Fault{Effect: cloud.EffectThrottle, RetryAfter: 4 * time.Minute})
		_, calls := lasts(nodeClaim(nil))
		Expect(calls).To(Equal(1))
	})
	DescribeTable("should end at once, and accuse its NodeClass, when no join data can be made", func(err error, text string) {
		nodeClass := tokens(err)
		pool := unit.NodePool()
		Expect(available(pool)).To(BeNumerically(">", 0))
		_, calls := lasts(nodeClaim(pool))
		Expect(calls).To(Equal(1))
		Expect(createRequests()).To(BeZero())
		reason, _, cause := env.CloudProvider.Launches.LaunchesPaused(nodeClass)
		Expect(reason).To(Equal(launch.ReasonLaunchNotPrepared))
		Expect(cause).To(MatchError(ContainSubstring(text)))
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		Expect(available(pool)).To(BeZero(), "core plans with other NodeClasses")
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(pool)))).To(BeTrue())
		Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(Equal(1))

		env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		Eventually(func() int { return available(pool) }).Should(BeNumerically(">", 0))
	},
		Entry("for a quota of Secrets",
			apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "bootstrap-token-abcdef", errors.New("exceeded quota: secrets=1")), "exceeded quota"),
		Entry("for an admission policy", apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "bootstrap-token-abcdef", nil), "is invalid"),
	)
})

// class reads the NodeClass of the spec.
func class() (*v1alpha1.BizflyNodeClass, error) {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	return nodeClass, env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)
}

var _ = Describe("A NodeClaim that ends before core knows its server", func() {
	It("should still get its server when its NodeClass is deleted meanwhile", func() {
		class := nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Finalizers = []string{v1alpha1.TerminationFinalizer} })
		failCreate(cloud.Fault{Effect: cloud.EffectLostResponse, Count: 1})
		env.Sandbox.AddFaults(2, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		Expect(env.Client.Delete(ctx, class)).To(Succeed())
		env.Sandbox.ClearFaults()
		env.Tune(func(o *options.Options) { o.ServerIDWait = env.IDWait })
		Expect(serverOf(launched(claim)).Name).To(Equal(intentOf(claim).Name))
		Expect(createRequests()).To(Equal(1))
	})
	It("should be ended again when core could not delete it, instead of holding up all scheduling", func() {
		nodeClass()
		failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true, Count: 1})
		claim := nodeClaim(nil)
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		// The API server was away when core deleted the claim, so that core asks again.
		lo.Times(2, func(int) bool {
			return Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		})
		Expect(createRequests()).To(Equal(1))
		Expect(env.Client.Delete(ctx, claim.DeepCopy())).To(Succeed())
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeFalse(), "it is being deleted, and one of its name may be another's")
	})
})
