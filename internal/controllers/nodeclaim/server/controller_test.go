// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// readOnly is an API server that rejects patches of NodeClaims.
type readOnly struct{ client.Client }

func (r readOnly) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if _, ok := object.(*karpv1.NodeClaim); ok {
		return errors.New("rejected")
	}
	return r.Client.Patch(ctx, object, patch, options...)
}

// revocations are the NodeClaims whose join tokens were revoked.
type revocations struct {
	jointoken.Provider
	of []types.UID
}

func (r *revocations) Revoke(_ context.Context, nodeClaim types.UID) error {
	r.of = append(r.of, nodeClaim)
	return nil
}

var _ = Describe("A step that fails", func() {
	var claim *karpv1.NodeClaim
	var class *v1alpha1.BizflyNodeClass
	BeforeEach(func() {
		var err error
		claim, err = env.Launched(ctx)
		Expect(err).ToNot(HaveOccurred())
		Eventually(func() string { return env.Server(claim.Status.ProviderID).Status }).Should(Equal("ACTIVE"))
		env.Instances.Flush()
		class = &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
		class.Spec.FirewallSelectorTerms = []v1alpha1.FirewallSelectorTerm{{Name: "web"}}
		Expect(env.Resolve(ctx, class)).To(Succeed())
	})
	request := func() reconcile.Request { return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)} }
	// web are the interfaces with the firewall that the NodeClass selects.
	web := func() int {
		return lo.CountBy(env.Sandbox.State().NetworkInterfaces, func(p cloud.NetworkInterface) bool {
			return slices.Contains(p.SecurityGroups, class.Status.Firewalls[0].ID)
		})
	}

	It("should stop no other step, and change no other step's interval however often it fails", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/network-interfaces/*/action", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		controller := newController()
		for range 30 {
			result, err := controller.Reconcile(ctx, claim)
			Expect(err).To(MatchError(ContainSubstring("changing the firewalls")))
			Expect(result.RequeueAfter).To(Equal(ttl.LaunchPoll))
			Expect(controller.RateLimiter().When(request())).To(Equal(ttl.LaunchPoll), "what the queue does with the error")
			env.Clock.Step(ttl.LaunchPoll)
		}
		Expect(launch.OwnedVolumes(claim)).To(HaveLen(1))
		Expect(env.Recorder.Calls(events.ReasonServerUpdateFailed)).To(Equal(30))
		env.Sandbox.ClearFaults()
		Expect(controller.Reconcile(ctx, claim)).To(Equal(reconcile.Result{RequeueAfter: ttl.LaunchPoll}))
		Expect(web()).To(Equal(1))
	})
	It("should be repeated after its own interval where that is the soonest", func() {
		controller := server.NewController(readOnly{env.Client}, env.Instances, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
		_, err := controller.Reconcile(ctx, claim)
		Expect(strings.Count(err.Error(), "rejected")).To(Equal(2), "the step after it ran, too")
		Expect(controller.RateLimiter().When(request())).To(Equal(ttl.DisksInterval))
	})
	DescribeTable("should not report for each node that the list of servers cannot be read", func(registered bool, status int) {
		if registered {
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		}
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers**", Effect: cloud.EffectStatus, Status: status})
		result, err := newController().Reconcile(ctx, claim)
		Expect(err).ToNot(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(lo.Ternary(registered, ttl.RunningServer, ttl.LaunchPoll)))
	},
		Entry("in an outage, before it registers", false, http.StatusServiceUnavailable),
		Entry("in an outage", true, http.StatusServiceUnavailable),
		Entry("for a lack of rights", true, http.StatusForbidden),
	)
	It("should revoke a join token without the cloud, no more often than servers are read", func() {
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		tokens := &revocations{}
		controller := server.NewController(env.Client, env.Instances, env.Networks, env.CloudProvider.Launches, tokens, env.Recorder, env.Clock)
		Expect(controller.Reconcile(ctx, claim)).To(Equal(reconcile.Result{RequeueAfter: ttl.RunningServer}))
		Expect(tokens.of).To(ConsistOf(claim.UID))
	})
})
