// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Launch outcome", func() {
	var controller *server.Controller
	var claim *karpv1.NodeClaim
	BeforeEach(func() {
		controller = newController()
		claim = lo.Must(env.Launched(ctx))
		// Conditions are dated by the real time, which a launch on a busy machine lets go ahead.
		env.Clock.SetTime(time.Now())
	})
	look := func() reconcile.Result {
		GinkgoHelper()
		result := lo.Must(controller.Reconcile(ctx, claim))
		return result
	}
	id := func() string { return unit.ServerID(claim.Status.ProviderID) }
	deleted := func() bool {
		GinkgoHelper()
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		return !live.DeletionTimestamp.IsZero()
	}
	offering := func() capacity.Offering {
		return capacity.Offering{Flavor: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone], BillingPlan: "on_demand"}
	}

	// key is the offering with the NodeClass.
	key := func() capacity.Offering {
		GinkgoHelper()
		class := &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
		of := offering()
		of.NodeClass = capacity.NodeClassKey(class)
		return of
	}
	// marked reports whether the offering is unavailable to the NodeClass.
	marked := func() bool {
		GinkgoHelper()
		_, unavailable := env.Capacity.Unavailable(key())
		return unavailable
	}

	It("should come back while all is well", func() {
		Expect(look().RequeueAfter).To(BeNumerically(">", 0))
		Expect(deleted()).To(BeFalse())
	})
	It("should learn from a launch how long it took, and from each only once", func() {
		intent := lo.Must(launch.ReadIntent(claim))
		learnt := func() float64 { return env.Capacity.LaunchSeconds(key()) }
		register := func(after time.Duration) {
			conditions := claim.StatusConditions(status.WithClock(clocktesting.NewFakeClock(intent.RequestedAt.Add(after))))
			conditions.SetFalse(karpv1.ConditionTypeRegistered, "NotYet", "")
			conditions.SetTrue(karpv1.ConditionTypeRegistered)
		}
		look()
		Expect(learnt()).To(BeZero())
		register(90 * time.Second)
		look()
		Expect(learnt()).To(BeNumerically("~", 90, 0.01))
		register(300 * time.Second)
		look()
		Expect(learnt()).To(BeNumerically("~", 90, 0.01))
	})
	It("should learn nothing from claims that had registered before it looked", func() {
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		look()
		Expect(env.Capacity.LaunchSeconds(key())).To(BeZero())
	})
	It("should replace a claim whose server failed without a reason, and mark its offering", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ERROR")).To(Succeed())
		look()
		Expect(deleted()).To(BeTrue())
		Expect(env.Recorder.Calls(events.ReasonLaunchFailed)).To(Equal(1))
		_, unavailable := env.Capacity.Unavailable(offering())
		Expect(unavailable).To(BeFalse(), "the NodeClass may be the cause as well")
		Expect(marked()).To(BeTrue())
	})
	DescribeTable("should count and report a node that did not register in time like a failed launch", func(behind time.Duration) {
		look()
		claim.StatusConditions(status.WithClock(env.Clock)).SetUnknown(karpv1.ConditionTypeRegistered)
		begun := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime
		env.Clock.Step(15*time.Minute + time.Second) // creation is dated by the API server
		claim.DeletionTimestamp = &metav1.Time{Time: begun.Add(15*time.Minute - behind)}
		Expect(look()).To(BeZero())
		Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(Equal(1))
		Expect(marked()).To(BeTrue())
		look()
		Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(Equal(1), "each launch counts once")
	},
		Entry("where the API server has the same time", time.Duration(0)),
		Entry("where the clock of the API server is minutes behind", 3*time.Minute),
	)
	It("should count nothing when the controller began to follow it only at its end", func() {
		begun := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime
		env.Clock.Step(20 * time.Minute)
		look()
		env.Clock.Step(time.Second)
		claim.DeletionTimestamp = &metav1.Time{Time: begun.Add(20 * time.Minute)}
		look()
		Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(BeZero())
		Expect(marked()).To(BeFalse())
	})
	It("should pause the NodeClass when nodes of three offerings do not register", func() {
		for range 3 {
			claim = lo.Must(env.Launched(ctx))
			look()
			env.Clock.Step(15*time.Minute + time.Second) // creation is dated by the API server
			begun := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime
			claim.DeletionTimestamp = &metav1.Time{Time: begun.Add(15 * time.Minute)}
			look()
		}
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
	})
	It("should count nothing when a user deletes a claim before its node has registered", func() {
		look()
		begun := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime
		env.Clock.Step(13 * time.Minute)
		claim.DeletionTimestamp = &metav1.Time{Time: begun.Add(13 * time.Minute)}
		look()
		Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(BeZero())
		Expect(marked()).To(BeFalse())
	})
	It("should mark the offering when the cloud says that it had no room", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ERROR")).To(Succeed())
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/tasks/*", Effect: cloud.EffectBody,
			Body: `{"ready":true,"result":{"action":"create_server","progress":100,"success":false,` +
				`"message":"No valid host was found. There are not enough hosts available."}}`})
		look()
		Expect(deleted()).To(BeTrue())
		reason, unavailable := env.Capacity.Unavailable(offering())
		Expect(unavailable).To(BeTrue())
		Expect(reason).To(Equal(capacity.ReasonInsufficientCapacity))
	})
	It("should pause the NodeClass when servers keep failing after their create request succeeded", func() {
		for range 3 {
			claim = lo.Must(env.Launched(ctx))
			Expect(env.Sandbox.SetServerStatus(id(), "ERROR")).To(Succeed())
			look()
		}
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		types := lo.Must(env.CloudProvider.GetInstanceTypes(ctx, unit.NodePool()))
		Expect(types).ToNot(BeEmpty(), "core drifts nodes whose type has vanished")
		for _, it := range types {
			Expect(it.Offerings.Available()).To(BeEmpty(), it.Name)
		}
	})
	It("should classify again when the NodeClaim has changed since it was read", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ERROR")).To(Succeed())
		newer := claim.DeepCopy()
		newer.Annotations["touched"] = "true"
		Expect(env.Client.Update(ctx, newer)).To(Succeed())
		Expect(look().RequeueAfter).To(BeNumerically(">", 0))
		Expect(deleted()).To(BeFalse())
		Expect(env.Recorder.Calls(events.ReasonLaunchFailed)).To(BeZero())
		claim = newer
		look()
		Expect(deleted()).To(BeTrue())
	})
	It("should replace a claim whose server vanished, and count that like a failed launch", func() {
		Expect(env.Sandbox.RemoveServer(id())).To(Succeed())
		look()
		Expect(deleted()).To(BeTrue())
		Expect(env.Recorder.Calls(events.ReasonLaunchFailed)).To(Equal(1))
		Expect(marked()).To(BeTrue())
	})
	It("should prolong a NodeClass's pause when its trial fails, and try another offering next", func() {
		tried := map[string]bool{}
		for i := range 5 {
			if i > 0 {
				claim = lo.Must(env.Launched(ctx))
			}
			key := offering()
			Expect(tried).ToNot(HaveKey(key.Flavor + key.Zone))
			tried[key.Flavor+key.Zone] = true
			look()
			env.Clock.Step(15*time.Minute + time.Second) // creation is dated by the API server
			begun := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime
			claim.DeletionTimestamp = &metav1.Time{Time: begun.Add(15 * time.Minute)}
			look()
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(max(0, i-1)))
			env.Clock.Step(min(time.Minute<<max(0, i-2), 5*time.Minute) + time.Second)
		}
	})
	It("should let another NodeClaim be the trial when the first one is deleted unseen", func() {
		for i := range 3 {
			if i > 0 {
				claim = lo.Must(env.Launched(ctx))
			}
			look()
			env.Clock.Step(15*time.Minute + time.Second) // creation is dated by the API server
			claim.DeletionTimestamp = &metav1.Time{Time: claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).LastTransitionTime.Add(15 * time.Minute)}
			look()
		}
		env.Clock.Step(time.Minute + time.Second)
		trial := lo.Must(env.Launched(ctx))
		Expect(env.Launched(ctx)).Error().To(MatchError(ContainSubstring("pause")))
		claim, trial.DeletionTimestamp = trial, &metav1.Time{Time: env.Clock.Now()}
		look()
		Expect(env.Launched(ctx)).Error().ToNot(HaveOccurred())
	})
	It("should not believe a list alone that a server vanished", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		Expect(look().RequeueAfter).To(BeNumerically(">", 0))
		Expect(deleted()).To(BeFalse())
	})
	It("should not believe an outage that a server vanished", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"},
			cloud.Fault{Method: http.MethodGet, Path: "/servers/*", Effect: cloud.EffectHTML, Status: http.StatusNotFound})
		Expect(controller.Reconcile(ctx, claim)).Error().To(HaveOccurred())
		Expect(deleted()).To(BeFalse())
	})
	It("should report a server that is in BUILD for long", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "BUILD")).To(Succeed())
		look()
		Expect(env.Recorder.Calls(events.ReasonLaunchSlow)).To(BeZero())
		env.Clock.Step(6 * time.Minute)
		Expect(look().RequeueAfter).To(BeNumerically(">", 0))
		Expect(env.Recorder.Calls(events.ReasonLaunchSlow)).To(Equal(1))
		Expect(deleted()).To(BeFalse())
	})
	DescribeTable("should not replace", func(change func(*karpv1.NodeClaim)) {
		Expect(env.Sandbox.SetServerStatus(id(), "ERROR")).To(Succeed())
		change(claim)
		env.Sandbox.ResetRequests()
		look()
		Expect(deleted()).To(BeFalse())
		Expect(env.Recorder.Calls(events.ReasonLaunchFailed)).To(BeZero())
		Expect(env.Sandbox.Requests()).ToNot(ContainElement(Or(HaveField("Path", ContainSubstring("/tasks/")), Not(HaveField("Method", http.MethodGet)))))
	},
		Entry("a claim whose node has registered", func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered) }),
		Entry("a claim that was not launched", func(c *karpv1.NodeClaim) { c.StatusConditions().SetUnknown(karpv1.ConditionTypeLaunched) }),
		Entry("a claim of another cloud", func(c *karpv1.NodeClaim) { c.Status.ProviderID = "aws:///a/i-1" }),
	)
	It("should have a name of its own", func() { Expect(controller.Name()).To(Equal("nodeclaim.server")) })
})
