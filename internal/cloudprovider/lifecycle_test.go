// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// Core's own lifecycle controller draws the conclusions here.
var _ = Describe("What core does with an error of BizFly Cloud", func() {
	const kept, given = true, false
	DescribeTable("should be right for",
		func(fault cloud.Fault, stays bool, reason string) {
			nodeClass()
			if fault.Method == "" {
				fault.Method, fault.Path = http.MethodPost, "/servers"
			}
			if reason == launch.ReasonAwaitingServerID {
				env.WithoutIDWait()
			}
			env.Sandbox.AddFaults(1, fault)
			controller := lifecycle.NewController(env.Clock, env.Client, env.CloudProvider, env.Recorder, state.NewCluster(env.Clock, env.Client, env.CloudProvider),
				nodepoolhealth.NewState(), nil)
			claim := nodeClaim(nil)
			_, err := controller.Reconcile(ctx, claim)
			live := &karpv1.NodeClaim{}
			Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
			Expect(live.DeletionTimestamp.IsZero()).To(Equal(stays), "%v", err)
			if stays {
				Expect(err).To(HaveOccurred(), "core retries it")
				launched := live.StatusConditions().Get(karpv1.ConditionTypeLaunched)
				Expect(launched.IsUnknown()).To(BeTrue())
				Expect(launched.Reason).To(Equal(reason))
			}
			Expect(live.Status.ProviderID).To(BeEmpty())
		},
		Entry("no capacity", cloud.Fault{Effect: cloud.EffectNoCapacity}, given, ""),
		Entry("no address", cloud.Fault{Effect: cloud.EffectNoAddress}, given, ""),
		Entry("quota", cloud.Fault{Effect: cloud.EffectQuota}, given, ""),
		Entry("balance", cloud.Fault{Effect: cloud.EffectBalance}, given, ""),
		Entry("no capacity, found out later", cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true}, given, ""),
		Entry("a server that comes up broken", cloud.Fault{Effect: cloud.EffectErrorServer}, given, ""),
		Entry("authentication", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusUnauthorized}, given, ""),
		Entry("permission", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusForbidden, Message: "You are not allowed to do this"}, given, ""),
		Entry("an invalid create request", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusBadRequest, Message: "Image is not valid"}, given, ""),
		Entry("something that does not exist", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusNotFound, Message: "Network x could not be found"}, given,
			""),
		Entry("a conflict", cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusConflict, Message: "Port p is still in use"}, given, ""),
		Entry("throttling", cloud.Fault{Effect: cloud.EffectThrottle}, kept, launch.ReasonLaunchFailed),
		Entry("an answer that was lost before the create request", cloud.Fault{Effect: cloud.EffectReset}, kept, launch.ReasonAwaitingServerID),
	)
	It("should be to launch once BizFly Cloud has recovered, for each NodeClaim that was kept", func() {
		nodeClass()
		controller := lifecycle.NewController(env.Clock, env.Client, env.CloudProvider, env.Recorder, state.NewCluster(env.Clock, env.Client, env.CloudProvider),
			nodepoolhealth.NewState(), nil)
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectThrottle})
		claim := nodeClaim(nil)
		Expect(controller.Reconcile(ctx, claim)).Error().To(HaveOccurred())
		env.Sandbox.ClearFaults()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(controller.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).IsTrue()).To(BeTrue())
		Expect(servers()).To(HaveLen(1))
	})
})

var _ = Describe("What a rejection marks unavailable", func() {
	unavailable := func(flavor, zone string) bool {
		_, unavailable := env.Capacity.Unavailable(capacity.Offering{Flavor: flavor, Zone: zone, BillingPlan: "on_demand"})
		return unavailable
	}
	reject := func(message string) {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusConflict, Message: message,
			Count: 1})
	}
	of := func(flavors ...string) *karpv1.NodeClaim {
		GinkgoHelper()
		return nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", flavors...))
	}

	It("should be the offering, for every NodeClass, when there is none left of it", func() {
		nodeClass()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectNoCapacity, Count: 1})
		Expect(serverOf(launched(of("nix.2c_4g"))).AvailabilityZone).To(Equal("HN2"))
		Expect(unavailable("nix.2c_4g", "HN1")).To(BeTrue())
		Expect(unavailable("nix.2c_4g", "HN2")).To(BeFalse())
		Expect(unavailable("nix.8c_16g", "HN1")).To(BeFalse())
	})
	It("should be the offering, for its NodeClass alone, when nothing is known of the cause", func() {
		class := nodeClass()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusConflict,
			Message: "E_4711", Count: 1})
		launched(of("p2.2c_4g"))
		Expect(unavailable("p2.2c_4g", "HN1")).To(BeFalse())
		reason, marked := env.Capacity.Unavailable(capacity.Offering{Flavor: "p2.2c_4g", Zone: "HN1", BillingPlan: "on_demand",
			NodeClass: capacity.NodeClassKey(class)})
		Expect(marked).To(BeTrue())
		Expect(reason).To(Equal(capacity.ReasonLaunchFailed))
	})
	It("should be the zone when the zone is full", func() {
		nodeClass()
		reject("Availability zone HN1 is full")
		Expect(serverOf(launched(of("nix.2c_4g"))).AvailabilityZone).To(Equal("HN2"))
		Expect(createRequests()).To(Equal(2))
		Expect(unavailable("nix.8c_16g", "HN1")).To(BeTrue())
		Expect(unavailable("nix.8c_16g", "HN2")).To(BeFalse())
	})
	It("should be the NodeClass whose network has no address left, and no other", func() {
		class := nodeClass()
		// Three launches are on their way when the network turns out to be full.
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectDelay, Delay: 500 * time.Millisecond, Count: 3},
			cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusConflict,
				Message: "No more IP addresses available on network."})
		var launches sync.WaitGroup
		for range 3 {
			claim := of("nix.2c_4g")
			launches.Go(func() {
				defer GinkgoRecover()
				ended(claim)
			})
		}
		launches.Wait()
		requests := createRequests()
		env.Sandbox.ClearFaults()
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		Expect(env.Recorder.Calls(events.ReasonOfferingUnavailable)).To(BeZero())
		rejected := capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN1", BillingPlan: "on_demand"}
		Expect(env.Capacity.RecentFailures(rejected)).To(BeZero())
		rejected.NodeClass = capacity.NodeClassKey(class)
		Expect(env.Capacity.RecentFailures(rejected)).To(BeNumerically(">", 0))
		Expect(available(unit.NodePool())).To(BeZero())
		ended(of("nix.8c_16g"))
		Expect(createRequests()).To(Equal(requests), "another offering of this NodeClass would be in the same network")

		other := class.DeepCopy()
		other.ObjectMeta = metav1.ObjectMeta{Name: "other"}
		Expect(env.Client.Create(ctx, other)).To(Succeed())
		Expect(env.Resolve(ctx, other)).To(Succeed())
		claim := of("nix.2c_4g")
		claim.Spec.NodeClassRef.Name = other.Name
		Expect(env.CloudProvider.Create(ctx, claim)).Error().ToNot(HaveOccurred())

		env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		Eventually(func() int { return available(unit.NodePool()) }).Should(BeNumerically(">", 0))
		launched(of("nix.2c_4g"))
	})
	It("should be the category in the zone when there is none left of it", func() {
		nodeClass()
		reject("Server type premium is out of stock")
		Expect(serverOf(launched(of("nix.2c_4g"))).AvailabilityZone).To(Equal("HN2"))
		Expect(unavailable("nix.8c_16g", "HN1")).To(BeTrue())
		Expect(unavailable("nix.8c_16g", "HN2")).To(BeFalse())
		other, known := env.Flavors.Category("2c_4g_basic")
		Expect(known).To(BeTrue())
		Expect(other).To(Equal("basic"))
		Expect(unavailable("2c_4g_basic", "HN1")).To(BeFalse())
	})
	It("should be the flavor with the plan in every zone when it is not offered with it", func() {
		nodeClass()
		reject("Flavor nix.2c_4g doesn't support billing plan on_demand")
		Expect(serverOf(launched(of("nix.2c_4g", "nix.4c_8g"))).Flavor.Name).To(Equal("nix.4c_8g"))
		Expect(unavailable("nix.2c_4g", "HN2")).To(BeTrue())
		_, unavailable := env.Capacity.Unavailable(capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN2", BillingPlan: "saving_plan"})
		Expect(unavailable).To(BeFalse())
	})
	It("should be every flavor of at least that size when the quota of vCPUs is exceeded", func() {
		class := nodeClass()
		reject("Quota exceeded for cores: Requested 4, but already used 18 of 20 cores")
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(of("nix.4c_8g")))).To(BeTrue())
		Expect(createRequests()).To(Equal(1))
		Expect(env.Recorder.Calls("QuotaTooSmall")).To(Equal(1))
		Expect(env.Recorder.Calls(events.ReasonOfferingUnavailable)).To(BeZero(), "it is no lack of capacity")
		rejected := capacity.Offering{Flavor: "nix.4c_8g", Zone: "HN1", BillingPlan: "on_demand", NodeClass: capacity.NodeClassKey(class)}
		Expect(env.Capacity.RecentFailures(rejected)).To(Equal(1))
		Expect(unavailable("nix.4c_8g", "HN2")).To(BeTrue())
		Expect(unavailable("nix.8c_16g", "HN1")).To(BeTrue())
		Expect(unavailable("nix.2c_4g", "HN1")).To(BeFalse())
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(of("nix.8c_16g")))).To(BeTrue())
		Expect(createRequests()).To(Equal(1), "what is known to be too big is not ordered")
		launched(of("nix.2c_4g"))
		env.Clock.Step(5*time.Minute + time.Second)
		Eventually(func() bool { return unavailable("nix.8c_16g", "HN1") }).Should(BeFalse())
		launched(of("nix.4c_8g"))
	})
	It("should be no flavor that is smaller in anything than what the quota has rejected", func() {
		env.Reset(ctx, cloud.Options{Catalog: twins()})
		nodeClass()
		reject("Quota exceeded for cores: Requested 3, but already used 18 of 20 cores")
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(of("nix.3c_5g")))).To(BeTrue())
		Expect(unavailable("nix.3c_5g", "HN2")).To(BeTrue())
		Expect(unavailable("nix.2c_8g", "HN1")).To(BeFalse())
		Expect(unavailable("nix.2c_5g", "HN1")).To(BeFalse())
	})
	It("should be found by real quotas: a cluster grows with small servers", func() {
		nodeClass()
		limit := 6
		env.Sandbox.SetQuota(cloud.Quota{VCPUs: &limit})
		launched(of("nix.4c_8g"))
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(of("nix.4c_8g")))).To(BeTrue())
		launched(of("nix.2c_4g"))
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(of("nix.2c_4g")))).To(BeTrue())
		Expect(servers()).To(HaveLen(2))
	})
})
