// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var _ = Describe("Launches that fail", func() {
	rejects := func(code int, message string) {
		failCreate(cloud.Fault{Status: code, Message: message})
	}
	const volumeQuota = "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes_PREMIUM-SSD1 quota."
	broken := func(containing string) {
		failCreate(cloud.Fault{Contains: containing, Effect: cloud.EffectErrorServer})
	}
	// volumeTypesKnown is the state after the first launch: a rejection without words is then not about the volume type.
	volumeTypesKnown := func() { env.Instances.Forms().Restore(map[string]string{"volumeType": "Name"}) }
	cheapest := func(pool *karpv1.NodePool) string {
		GinkgoHelper()
		types := instanceTypes(pool)
		slices.SortFunc(types, func(a, b *corecloudprovider.InstanceType) int {
			return lo.Ternary(a.Offerings.Available().Cheapest().Price < b.Offerings.Available().Cheapest().Price, -1, 1)
		})
		return types[0].Name
	}

	// aged is the claim as core passes it this long after it began to launch it.
	aged := func(claim *karpv1.NodeClaim, age time.Duration) *karpv1.NodeClaim {
		claim = claim.DeepCopy()
		conditions := claim.StatusConditions(status.WithClock(clocktesting.NewFakeClock(env.Clock.Now().Add(-age))))
		conditions.SetFalse(karpv1.ConditionTypeLaunched, "Waiting", "")
		conditions.SetUnknown(karpv1.ConditionTypeLaunched)
		return claim
	}

	Context("in words that nothing recognises", func() {
		It("should fail over to the other zone when servers of one come up broken without a reason", func() {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			broken(`"availability_zone":"HN1"`)
			claim := nodeClaim(pool)
			ended(claim)
			Expect(exists(claim)).To(BeTrue(), "core deletes it")
			Expect(available(pool)).To(Equal(before - 1))
			Expect(serverOf(launched(nodeClaim(pool))).AvailabilityZone).To(Equal("HN2"))
		})
		DescribeTable("should try the next offering at once when one flavor is rejected", func(code int, message string) {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			flavor := cheapest(pool)
			failCreate(cloud.Fault{Contains: `"flavor":"` + flavor + `"`, Status: code, Message: message})
			Expect(launched(nodeClaim(pool)).Labels[corev1.LabelInstanceTypeStable]).ToNot(Equal(flavor))
			Expect(createRequests()).To(BeNumerically("<=", 3))
			Expect(available(pool)).To(Equal(before - createRequests() + 1))
			Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(Equal(createRequests() - 1))
		},
			Entry("as unavailable, in Vietnamese", http.StatusBadRequest, "Gói này không khả dụng"),
			Entry("as a configuration that cannot be created", http.StatusBadRequest, "Không thể tạo máy chủ với cấu hình này"),
			Entry("with a status of its own", http.StatusTeapot, "?"),
			Entry("as a conflict", http.StatusConflict, "E_4711"),
			Entry("as a limit of one request", http.StatusBadRequest, "Root disk size exceeds the maximum allowed"),
		)
		It("should launch a newer flavor after one request for a cheaper old one, from then on first", func() {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			rejected := cloud.Fault{Method: http.MethodPost, Path: "/servers", Contains: `3c_6g"`, Effect: cloud.EffectStatus, Status: http.StatusBadRequest,
				Message: "E_4711"}
			env.Sandbox.AddFaults(1, rejected)
			either := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.3c_6g", "p2.4c_8g")
			for i := range 3 {
				Expect(launched(nodeClaim(pool, either)).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "p2.4c_8g"))
				Expect(createRequests()).To(Equal(i + 2))
			}
			Expect(available(pool)).To(Equal(before), "a zone that is broken rejects the same, so that nothing is marked")
			Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(BeZero())

			env.Sandbox.ClearFaults()
			old := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.3c_6g")
			launched(nodeClaim(pool, old))
			Expect(launched(nodeClaim(pool, either)).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "nix.3c_6g"), "its names are known now")
		})
		It("should launch an old flavor for a NodeClass although another one was rejected with it", func() {
			nodeClass()
			nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Name = "other" })
			failCreate(cloud.Fault{Contains: `"` + v1alpha1.MetadataNodeClass + `":"default"`,
				Status: http.StatusBadRequest, Message: "E_4711"})
			either := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.3c_6g", "p2.4c_8g")
			ended(nodeClaim(unit.NodePool(), either))
			claim := nodeClaim(unit.NodePool(), either)
			claim.Spec.NodeClassRef.Name = "other"
			before := createRequests()
			Expect(launched(claim).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "nix.3c_6g"))
			Expect(createRequests()).To(Equal(before + 1))
		})
		It("should try an old flavor by its other name if nothing else fits, then the other zone", func() {
			nodeClass()
			volumeTypesKnown()
			rejects(http.StatusBadRequest, "E_4711")
			ended(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.3c_6g")))
			Expect(createRequests()).To(Equal(3))
			Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(Equal(1), "once neither name is known")
		})
		It("should mark a flavor in the zone alone that has rejected it", func() {
			nodeClass()
			volumeTypesKnown()
			before := available(unit.NodePool())
			failCreate(cloud.Fault{Status: http.StatusBadRequest, Message: "E_4711", Count: 1})
			launched(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g")))
			Expect(available(unit.NodePool())).To(Equal(before - 1))
		})
		It("should try the same offering with another form of the volume type, and mark nothing", func() {
			env.Reset(ctx, cloud.Options{Modes: []string{"silent-volume-types", "volume-type-by-medium"}})
			nodeClass()
			pool := unit.NodePool()
			before, flavor := available(pool), cheapest(pool)
			Expect(launched(nodeClaim(pool)).Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, flavor))
			Expect(createRequests()).To(Equal(3))
			launched(nodeClaim(pool))
			Expect(createRequests()).To(Equal(4))
			Expect(available(pool)).To(Equal(before))
			Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(BeZero())
		})
		It("should mark and count an offering whose create requests are left without an answer", func() {
			class := nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			failCreate(cloud.Fault{Contains: `"availability_zone":"HN1"`, Status: http.StatusInternalServerError,
				Message: "UNKNOWN"})
			claim := nodeClaim(pool)
			env.WithoutIDWait()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			env.WithoutVisibilityWindow()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
			Expect(available(pool)).To(Equal(before - 1))
			Expect(serverOf(launched(nodeClaim(pool))).AvailabilityZone).To(Equal("HN2"))
			_, _, cause := env.CloudProvider.Launches.LaunchesPaused(class)
			Expect(cause).ToNot(HaveOccurred(), "one offering says nothing about the NodeClass")
		})
		It("should leave every other NodeClass as it was", func() {
			class := nodeClass()
			other := class.DeepCopy()
			other.ObjectMeta = metav1.ObjectMeta{Name: "other"}
			Expect(env.Client.Create(ctx, other)).To(Succeed())
			Expect(env.Resolve(ctx, other)).To(Succeed())
			others := unit.NodePool()
			others.Spec.Template.Spec.NodeClassRef.Name = "other"
			var before int
			Eventually(func() int { before = available(others); return before }).Should(BeNumerically(">", 0))
			rejects(http.StatusBadRequest, "E_4711")
			for range 3 {
				ended(nodeClaim(unit.NodePool()))
			}
			Expect(available(unit.NodePool())).To(BeZero())
			Expect(available(others)).To(Equal(before))
		})
	})
	DescribeTable("should end the NodeClaim after one request when the request itself is rejected", func(code int, message string) {
		nodeClass()
		pool := unit.NodePool()
		rejects(code, message)
		for i := range 3 {
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(i + 1))
		}
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		Expect(available(pool)).To(BeZero())
		ended(nodeClaim(pool))
		Expect(createRequests()).To(Equal(3), "launches pause")
	},
		Entry("for lack of a permission", http.StatusForbidden, "Bạn không được phép"),
		Entry("for its image", http.StatusBadRequest, "Image is not valid"),
		Entry("for a network that does not exist", http.StatusNotFound, "Network x could not be found"),
	)
	It("should pause the account, and end the NodeClaim, when the credentials are rejected", func() {
		nodeClass()
		pool := unit.NodePool()
		failCreate(cloud.Fault{Effect: cloud.EffectUnauthorized})
		ended(nodeClaim(pool))
		Expect(env.Recorder.Calls(events.ReasonAccountLimit)).To(Equal(1))
		Expect(available(pool)).To(BeZero())
	})
	DescribeTable("should not pause the account for a limit of one request", func(message string) {
		nodeClass()
		rejects(http.StatusBadRequest, message)
		ended(nodeClaim(nil))
		_, paused := env.Capacity.Unavailable(capacity.Offering{Flavor: "any", Zone: "HN2", BillingPlan: "on_demand"})
		Expect(paused).To(BeFalse())
	},
		Entry("in English", "Root disk size exceeds the maximum allowed"),
		Entry("in Vietnamese", "Dung lượng ổ đĩa vượt quá giới hạn cho phép"),
		Entry("of the NodeClass", "Number of network interfaces exceeds the allowed maximum"),
	)
	It("should keep the NodeClaim, and mark nothing, when a rate limit holds a request back", func() {
		nodeClass()
		pool := unit.NodePool()
		before := available(pool)
		failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
		claim := nodeClaim(pool)
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeFalse())
		Expect(available(pool)).To(Equal(before))
		launched(claim)
		Expect(intentOf(claim).Attempt).To(Equal(2))
	})
	Context("of one flavor in each of its zones", func() {
		zones := []string{"HN1", "HN2", "HN3", "HN4"}
		var class *v1alpha1.BizflyNodeClass
		BeforeEach(func() {
			env.Reset(ctx, cloud.Options{Catalog: cloud.DefaultCatalog(zones[2:]...)})
			class = nodeClass()
			Expect(class.Status.Zones).To(ConsistOf(zones))
		})
		in := func(zone, flavor string) *karpv1.NodeClaim {
			GinkgoHelper()
			return nodeClaim(unit.NodePool(), unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavor),
				unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone))
		}
		paused := func() error {
			_, _, cause := env.CloudProvider.Launches.LaunchesPaused(class)
			return cause
		}
		It("should not pause the NodeClass, however many NodeClaims are rejected for one flavor", func() {
			rejects(http.StatusBadRequest, "Gói này không khả dụng")
			sent, before := 0, available(unit.NodePool())
			for round := range 3 {
				for range 2 {
					for _, zone := range zones {
						ended(in(zone, "nix.2c_4g"))
						Expect(paused()).ToNot(HaveOccurred())
					}
					Expect(createRequests()).To(BeNumerically(">=", sent+len(zones)), "each zone was tried")
					sent = createRequests()
					env.Clock.Step(25 * time.Minute)
					Eventually(func() int { return available(unit.NodePool()) }).Should(Equal(before))
				}
				if round == 0 {
					env.Restart(ctx)
				}
			}
			for _, zone := range zones[:2] {
				ended(in(zone, "nix.2c_4g"))
			}
			Expect(paused()).ToNot(HaveOccurred())
			ended(in("HN3", "nix.4c_8g"))
			Expect(paused()).To(MatchError(ContainSubstring("Gói này không khả dụng")))
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		})
		It("should not pause the NodeClass when nodes that do not register mark offerings", func() {
			unregistered := func(zone, flavor string) {
				GinkgoHelper()
				claim := launched(in(zone, flavor))
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), launch.ErrNotRegistered)
				env.CloudProvider.Launches.LaunchEnded(ctx, claim)
			}
			for _, zone := range zones {
				unregistered(zone, "nix.2c_4g")
				Expect(paused()).ToNot(HaveOccurred())
			}
			unregistered("HN1", "nix.4c_8g")
			Expect(paused()).To(MatchError(launch.ErrNotRegistered))
		})
	})
	Context("with three different offerings of one NodeClass", func() {
		var class *v1alpha1.BizflyNodeClass
		var pool *karpv1.NodePool
		BeforeEach(func() { class, pool = nodeClass(), unit.NodePool() })
		fail := func() {
			GinkgoHelper()
			broken("")
			for range 3 {
				ended(nodeClaim(pool))
			}
		}
		It("should launch nothing until the NodeClass changes, and keep types and prices of nodes", func() {
			prices := priced(pool)
			fail()
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
			Expect(available(pool)).To(BeZero())
			Expect(priced(pool)).To(Equal(prices))
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(3))

			env.Sandbox.ClearFaults()
			class.Spec.PublicIPv4 = lo.ToPtr(false)
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			Expect(env.Resolve(ctx, class)).To(Succeed())
			launched(nodeClaim(pool))
		})
		It("should not pause for one offering that fails again and again", func() {
			one := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g")
			zone := unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")
			broken("")
			for range 4 {
				ended(nodeClaim(pool, one, zone))
				env.Clock.Step(25 * time.Minute)
			}
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(BeZero())
		})
		It("should not pause for one zone of several, whatever fails there", func() {
			zone := unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")
			broken(`"HN1"`)
			for range 3 {
				ended(nodeClaim(pool, zone))
			}
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(BeZero())
			launched(nodeClaim(pool, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN2")))
		})
		It("should go on with all launches minutes later, without waiting for a node to register", func() {
			fail()
			env.Sandbox.ClearFaults()
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			for range 3 {
				launched(nodeClaim(pool))
			}
		})
		It("should try other offerings after the pause, and pause again after three more failures", func() {
			before := available(pool)
			fail()
			env.Clock.Step(time.Minute + time.Second)
			Eventually(func() int { return available(pool) }).Should(Equal(before-3), "the pause ends before the marks of the offerings do")
			for range 2 {
				ended(nodeClaim(pool))
				Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
			}
			ended(nodeClaim(pool))
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(2))
			Expect(createRequests()).To(Equal(6))
		})
		It("should go on at once when a node of the NodeClass registers", func() {
			good := launched(nodeClaim(pool))
			fail()
			Expect(available(pool)).To(BeZero())
			env.Sandbox.ClearFaults()
			env.CloudProvider.Launches.NodeRegistered(ctx, good, *intentOf(good), time.Minute)
			Expect(available(pool)).To(BeNumerically(">", 0))
			_, _, cause := env.CloudProvider.Launches.LaunchesPaused(class)
			Expect(cause).ToNot(HaveOccurred())
			launched(nodeClaim(pool))
		})
		DescribeTable("should stay paused when a node registers that says nothing of what is launched now", func(earlier func(*karpv1.NodeClaim, *instance.Intent)) {
			good := launched(nodeClaim(pool))
			intent := intentOf(good)
			fail()
			earlier(good, intent)
			env.CloudProvider.Launches.NodeRegistered(ctx, good, *intent, time.Minute)
			Expect(available(pool)).To(BeZero())
		},
			Entry("because it was launched from another image", func(_ *karpv1.NodeClaim, intent *instance.Intent) { intent.ImageID = "another" }),
			Entry("because it was launched from another spec", func(claim *karpv1.NodeClaim, _ *instance.Intent) {
				claim.Annotations[v1alpha1.AnnotationNodeClassHash] = "another"
			}),
		)
		It("should remember how long a node took to register, and no failure of its offering", func() {
			good := launched(nodeClaim(pool))
			intent := intentOf(good)
			offering := capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan, NodeClass: capacity.NodeClassKey(class)}
			env.Capacity.RecordFailure(offering, env.Clock.Now())
			env.CloudProvider.Launches.NodeRegistered(ctx, good, *intent, 90*time.Second)
			Expect(env.Capacity.RecentFailures(offering)).To(BeZero())
			Expect(env.Capacity.LaunchSeconds(offering)).To(Equal(90.0))
		})
		It("should stay paused for a quota, which says nothing of a node that was launched before", func() {
			good := launched(nodeClaim(pool))
			rejects(http.StatusForbidden, volumeQuota)
			ended(nodeClaim(pool))
			env.CloudProvider.Launches.NodeRegistered(ctx, good, *intentOf(good), time.Minute)
			Expect(available(pool)).To(BeZero())
		})
		It("should report a pause until its end, although launches under way fail meanwhile", func() {
			underWay := lo.Map([]string{"nix.2c_4g", "nix.4c_8g", "p2.2c_4g"}, func(flavor string, i int) *karpv1.NodeClaim {
				return launched(nodeClaim(pool, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavor),
					unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, []string{"HN1", "HN2"}[i%2])))
			})
			rejects(http.StatusForbidden, volumeQuota)
			ended(nodeClaim(pool))
			_, end, _ := env.CloudProvider.Launches.LaunchesPaused(class)
			for _, claim := range underWay {
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), errors.New("E_4711"))
			}
			_, until, _ := env.CloudProvider.Launches.LaunchesPaused(class)
			Expect(until).To(Equal(end))
		})
		It("should not count what one NodeClaim alone has met", func() {
			volumeTypesKnown()
			before := available(pool)
			failCreate(cloud.Fault{Status: http.StatusBadRequest, Message: "E_4711", Count: 3})
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(3), "three offerings of generations, which have one name")
			Expect(available(pool)).To(Equal(before - 3))
			_, _, cause := env.CloudProvider.Launches.LaunchesPaused(class)
			Expect(cause).ToNot(HaveOccurred())
			launched(nodeClaim(pool))
		})
	})
	Context("because their nodes do not register", func() {
		var pool *karpv1.NodePool
		BeforeEach(func() {
			nodeClass()
			pool = unit.NodePool()
		})
		unregistered := func() string {
			GinkgoHelper()
			claim := launched(nodeClaim(pool))
			intent := intentOf(claim)
			env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intent, launch.ErrNotRegistered)
			env.CloudProvider.Launches.LaunchEnded(ctx, claim)
			return intent.Flavor + intent.Zone
		}
		three := func() map[string]bool {
			GinkgoHelper()
			return lo.SliceToMap(lo.Times(3, func(int) string { return unregistered() }), func(offering string) (string, bool) { return offering, true })
		}
		It("should let one launch at a time try again after a pause, and end others quickly", func() {
			three()
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
			ended(nodeClaim(pool))
			env.Clock.Step(time.Minute + time.Second)
			Expect(available(pool)).To(BeNumerically(">", 0), "core plans a trial")
			claims := lo.Times(5, func(int) *karpv1.NodeClaim { return nodeClaim(pool) })
			var mu sync.Mutex
			var group sync.WaitGroup
			var trials []*karpv1.NodeClaim
			for _, claim := range claims {
				group.Go(func() {
					defer GinkgoRecover()
					if created, err := env.Launch(ctx, claim); err == nil {
						mu.Lock()
						defer mu.Unlock()
						trials = append(trials, created)
					}
				})
			}
			group.Wait()
			Expect(trials).To(HaveLen(1))
			Expect(createRequests()).To(Equal(4))
			Expect(available(pool)).To(BeZero(), "core does not plan what would end at once")
			env.CloudProvider.Launches.NodeRegistered(ctx, trials[0], *intentOf(trials[0]), time.Minute)
			Expect(available(pool)).To(BeNumerically(">", 0))
			for range 3 {
				launched(nodeClaim(pool))
			}
		})
		It("should pause longer after each failed trial, up to five minutes, with a new offering", func() {
			tried := three()
			for i, pause := range []int{1, 2, 4, 5, 5} {
				env.Clock.Step(time.Duration(pause)*time.Minute - time.Second)
				ended(nodeClaim(pool))
				Expect(createRequests()).To(Equal(3 + i))
				env.Clock.Step(2 * time.Second)
				offering := unregistered()
				Expect(tried).ToNot(HaveKey(offering))
				tried[offering] = true
			}
		})
		It("should let another NodeClaim be the trial when one ends without an answer", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			trial := launched(nodeClaim(pool))
			ended(nodeClaim(pool))
			env.CloudProvider.Launches.LaunchEnded(ctx, trial)
			launched(nodeClaim(pool))
		})
		It("should keep others away while the server of the trial has no id yet", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectLostResponse, Count: 1},
				cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
			env.WithoutIDWait()
			Expect(reasonOf(failedCreate(nodeClaim(pool)))).To(Equal(launch.ReasonAwaitingServerID))
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(4))
		})
		It("should count nodes that do not register whatever else fails between them", func() {
			for range 2 {
				unregistered()
			}
			rejects(http.StatusForbidden, volumeQuota)
			ended(nodeClaim(pool))
			env.Sandbox.ClearFaults()
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			unregistered()
			Expect(available(pool)).To(BeZero(), "one launch at a time is tried from now on")
		})
		It("should keep others away as long as the node of the trial may take to register", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			launched(nodeClaim(pool))
			env.Clock.Step(ttl.Registration)
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(4))
		})
		It("should not try what the trial itself has shown to be unavailable", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			rejects(http.StatusConflict, "Availability zone HN1 is full")
			err := failedCreate(nodeClaim(pool, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("Availability zone HN1 is full"), ContainSubstring(" in HN1: "+capacity.ReasonInsufficientCapacity))))
			Expect(createRequests()).To(Equal(4))
		})
		It("should pause when three trials are rejected for what accuses the NodeClass", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			rejects(http.StatusBadRequest, "Image is not valid")
			for i := range 3 {
				ended(nodeClaim(pool))
				Expect(createRequests()).To(Equal(4 + i))
			}
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(6), "launches pause")
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(7), "it is tried again")
		})
		It("should try the next offering when one fails for the trial", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			failCreate(cloud.Fault{Status: http.StatusConflict, Message: "E_4711", Count: 1})
			launched(nodeClaim(pool))
			Expect(createRequests()).To(Equal(5))
		})
		It("should pause for a minute however many nodes do not register at once", func() {
			claims := lo.Times(6, func(int) *karpv1.NodeClaim { return launched(nodeClaim(pool)) })
			for i, claim := range claims {
				intent := intentOf(claim)
				intent.Zone, intent.Flavor = []string{"HN1", "HN2"}[i%2], []string{"nix.2c_4g", "nix.4c_8g", "p2.2c_4g"}[i/2]
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intent, launch.ErrNotRegistered)
			}
			env.Clock.Step(time.Minute + time.Second)
			launched(nodeClaim(pool))
		})
		It("should pause for a quota that the trial meets, as it would without a trial", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			rejects(http.StatusForbidden, volumeQuota)
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(4))
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(2))
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(4))
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			ended(nodeClaim(pool))
			Expect(createRequests()).To(Equal(5), "it is tried again")
		})
		It("should count against no offering, nor against a NodeClass corrected meanwhile", func() {
			claims := lo.Map([]string{"nix.2c_4g", "nix.4c_8g", "p2.2c_4g"}, func(flavor string, _ int) *karpv1.NodeClaim {
				return launched(nodeClaim(pool, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, flavor)))
			})
			corrected := lo.Must(class())
			corrected.Spec.Tags = map[string]string{"a": "b"}
			Expect(env.Client.Update(ctx, corrected)).To(Succeed())
			Expect(env.Resolve(ctx, corrected)).To(Succeed())
			before := available(pool)
			for _, claim := range claims {
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), launch.ErrNotRegistered)
			}
			Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(Equal(3))
			Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(BeZero())
			Expect(available(pool)).To(Equal(before))
		})
		It("should let the trial be sent again when the rate limit of the cloud held it back", func() {
			three()
			env.Clock.Step(time.Minute + time.Second)
			failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
			trial := nodeClaim(pool)
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(trial))).To(BeFalse())
			launched(trial)
			ended(nodeClaim(pool))
		})
	})
	It("should keep a quota that only one NodeClass needs from every other NodeClass", func() {
		hdd := nodeClass(func(c *v1alpha1.BizflyNodeClass) {
			c.Spec.RootDisk = &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumHDD}
		})
		ssd := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd"}}
		Expect(env.Client.Create(ctx, ssd)).To(Succeed())
		Expect(env.Resolve(ctx, ssd)).To(Succeed())
		failCreate(cloud.Fault{Contains: "HDD1", Status: http.StatusForbidden, Message: hddQuota})
		ended(nodeClaim(nil))
		Expect(createRequests()).To(Equal(1), "every offering of the NodeClass meets this quota")
		Expect(env.Recorder.Calls(events.ReasonLaunchesPaused)).To(Equal(1))
		reason, _, cause := env.CloudProvider.Launches.LaunchesPaused(hdd)
		Expect(reason).To(Equal(capacity.ReasonQuotaExceeded))
		Expect(cause).To(MatchError(ContainSubstring("gigabytes_PREMIUM-HDD1")))
		ended(nodeClaim(nil))
		Expect(createRequests()).To(Equal(1))

		other := nodeClaim(nil)
		other.Spec.NodeClassRef.Name = ssd.Name
		Expect(env.CloudProvider.Create(ctx, other)).Error().ToNot(HaveOccurred())

		env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		ended(nodeClaim(nil))
		Expect(createRequests()).To(Equal(3), "it is tried again")
	})
	It("should not let one NodeClass's quota prolong what a lack of capacity marks for others", func() {
		nodeClass(func(c *v1alpha1.BizflyNodeClass) {
			c.Spec.RootDisk = &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumHDD}
		})
		ssd := nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Name = "ssd" })
		failCreate(cloud.Fault{Contains: "HDD1", Status: http.StatusForbidden, Message: hddQuota})
		of := func(class string) *karpv1.NodeClaim {
			GinkgoHelper()
			claim := nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g"),
				unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1"))
			claim.Spec.NodeClassRef.Name = class
			return claim
		}
		for i := range 3 {
			ended(of(unit.NodeClassName))
			Expect(createRequests()).To(Equal(i + 1))
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		}
		env.Sandbox.ClearFaults()
		failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Count: 1})
		ended(of(ssd.Name))
		ended(of(ssd.Name))
		Expect(createRequests()).To(Equal(4))
		env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
		Expect(env.CloudProvider.Create(ctx, of(ssd.Name))).Error().ToNot(HaveOccurred())
	})
	It("should try the other name of a flavor once, and remember which one works", func() {
		env.Reset(ctx, cloud.Options{Modes: []string{"short-flavor-names"}})
		nodeClass()
		of := func() *karpv1.NodeClaim {
			return nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g"))
		}
		created := launched(of())
		Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "nix.2c_4g"))
		Expect(createRequests()).To(Equal(2))
		launched(of())
		Expect(createRequests()).To(Equal(3))

		By("being rejected by the name that has worked")
		failCreate(cloud.Fault{Status: http.StatusBadRequest, Message: "Invalid flavor", Count: 1})
		ended(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g"),
			unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")))
		Expect(createRequests()).To(Equal(4))
	})
	It("should find the form of disks within one call, and mark nothing", func() {
		env.Reset(ctx, cloud.Options{Modes: []string{"volume-type-by-medium"}})
		nodeClass()
		before := available(unit.NodePool())
		launched(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g")))
		Expect(createRequests()).To(Equal(3))
		Expect(available(unit.NodePool())).To(Equal(before))
	})
	It("should mark a flavor that BizFly Cloud knows by neither of its names", func() {
		nodeClass()
		rejects(http.StatusBadRequest, "Invalid flavor")
		only := unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_4g")
		zone := unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")
		ended(nodeClaim(nil, only, zone))
		Expect(createRequests()).To(Equal(2))
		ended(nodeClaim(nil, only, zone))
		Expect(createRequests()).To(Equal(2))
		env.Clock.Step(time.Hour)
		ended(nodeClaim(nil, only, zone))
		Expect(createRequests()).To(Equal(4), "neither name was accepted, so that neither is known to be right")
	})
	DescribeTable("should know the zone of a server whose launch is resumed while BizFly Cloud names it", func(zone string) {
		nodeClass()
		failCreate(cloud.Fault{Effect: cloud.EffectLostResponse, Count: 1})
		env.Sandbox.AddFaults(2, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		env.Restart(ctx)
		env.Sandbox.ClearFaults()
		for _, server := range servers() {
			env.Sandbox.EditServer(server.ID, func(s *cloud.Server) { s.AvailabilityZone, s.ZoneName = zone, zone })
		}
		created := lo.Must(env.CloudProvider.Create(ctx, claim.DeepCopy()))
		Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelTopologyZone, intentOf(claim).Zone))
		listed, _ := env.Instances.Last(time.Hour)
		Expect(listed.Get(serverOf(created).ID).Zone).To(Equal(zone), "others read the same list")
	},
		Entry("not at all", ""),
		Entry("by words that are no label", "Hà Nội 1"),
		Entry("by a word that no NodePool asks for", "hn1"),
	)
	It("should build no server for a NodeClaim that core's launch timeout is about to end", func() {
		nodeClass()
		claim := nodeClaim(nil)
		_, err := env.CloudProvider.Create(ctx, aged(claim, lifecycle.LaunchTimeout-ttl.LaunchMargin))
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue(), "%v", err)
		Expect(reasonOf(err)).To(Equal(launch.ReasonLaunchNotSent))
		Expect(createRequests()).To(BeZero())
		Expect(env.CloudProvider.Create(ctx, aged(claim, time.Minute))).Error().ToNot(HaveOccurred())
	})
	It("should end a NodeClaim whose held-back request core's next call may be too late to send", func() {
		nodeClass()
		failCreate(cloud.Fault{Effect: cloud.EffectThrottle})
		tooLate := lifecycle.LaunchTimeout - ttl.LaunchMargin - ttl.CoreRetry
		Expect(reasonOf(failedCreate(aged(nodeClaim(nil), tooLate-time.Second)))).ToNot(Equal(launch.ReasonLaunchNotSent))
		Expect(reasonOf(failedCreate(aged(nodeClaim(nil), tooLate)))).To(Equal(launch.ReasonLaunchNotSent))
	})
	Context("whose instance types cannot be learned", func() {
		var overlay *failingOverlay
		BeforeEach(func() {
			nodeClass()
			overlay = &failingOverlay{}
			config := env.CloudProviderConfig
			config.Overlay = overlay
			env.CloudProvider = cloudprovider.New(config)
		})
		It("should end at once where nothing was requested", func() {
			overlay.err = errors.New("the overlays cannot be read")
			err := failedCreate(nodeClaim(unit.NodePool()))
			Expect(reasonOf(err)).To(Equal(launch.ReasonInstanceTypesUnavailable))
			Expect(err).To(MatchError(ContainSubstring("the overlays cannot be read")))
			Expect(createRequests()).To(BeZero())
		})
		It("should stay until core has evaluated the overlays of its NodePool", func() {
			pool := unit.NodePool()
			Expect(env.Client.Create(ctx, pool)).To(Succeed())
			claim := nodeClaim(pool)
			overlay.err = corecloudprovider.NewUnevaluatedNodePoolError(pool.Name)
			err := failedCreate(claim)
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeFalse())
			Expect(err).To(MatchError(ContainSubstring("awaiting evaluation")))
			overlay.err = nil
			Expect(env.CloudProvider.Create(ctx, claim)).Error().ToNot(HaveOccurred())
			Expect(createRequests()).To(Equal(1))
		})
		It("should not wait for the overlays of a NodePool that is gone, which core never evaluates", func() {
			pool := unit.NodePool()
			interrupted := unanswered(pool)
			overlay.err = corecloudprovider.NewUnevaluatedNodePoolError(pool.Name)
			Expect(reasonOf(failedCreate(interrupted))).To(Equal(launch.ReasonAwaitingServerID), "its server may exist, and is looked for")
			env.Sandbox.ClearFaults()
			env.Tune(func(o *options.Options) { o.ServerIDWait = env.IDWait })
			Expect(env.CloudProvider.Create(ctx, nodeClaim(pool))).Error().ToNot(HaveOccurred())
		})
		It("should end at once before the catalog was read", func() {
			forgetCatalog()
			err := failedCreate(nodeClaim(nil))
			Expect(reasonOf(err)).To(Equal(launch.ReasonInstanceTypesUnavailable))
			Expect(err).To(MatchError(ContainSubstring("listing instance types")))
		})
		It("should stay while a server may exist, and be reported before core's launch timeout", func() {
			claim := unanswered(unit.NodePool())
			overlay.err = errors.New("overlays are being evaluated")
			err := failedCreate(claim)
			Expect(reasonOf(err)).To(Equal(launch.ReasonInstanceTypesUnavailable))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeFalse())
			err = failedCreate(aged(claim, lifecycle.LaunchTimeout))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
			Expect(err).To(MatchError(ContainSubstring(launch.ReasonLaunchOutcomeUnknown + ": ")))
		})
	})
	It("should not be reported as never sent when an earlier process has sent it", func() {
		nodeClass()
		claim := unanswered(nil)
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		env.Restart(ctx)
		config := env.CloudProviderConfig
		config.APIReader = failing(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("etcd is away")
		}})
		env.CloudProvider = cloudprovider.New(config)
		Expect(reasonOf(failedCreate(aged(claim, lifecycle.LaunchTimeout)))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
	})
	Context("in the metric of failures", func() {
		failed := func(reason string) float64 {
			GinkgoHelper()
			metric, found := expectations.FindMetricWithLabelValues("karpenter_bizfly_launch_failures_total", map[string]string{"reason": reason})
			Expect(found).To(BeTrue(), reason)
			return metric.GetCounter().GetValue()
		}
		rejected := func(fault cloud.Fault) func() {
			return func() {
				failCreate(fault)
				ended(nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "p2.2c_4g"),
					unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1")))
			}
		}
		says := func(code int, message string) func() {
			return rejected(cloud.Fault{Effect: cloud.EffectStatus, Status: code, Message: message})
		}
		DescribeTable("should be counted once by their reason", func(reason string, fail func()) {
			nodeClass()
			before := failed(reason)
			fail()
			Expect(failed(reason)).To(Equal(before + 1))
		},
			func(reason string, _ func()) string { return "as " + reason },
			Entry(nil, "InsufficientCapacity", rejected(cloud.Fault{Effect: cloud.EffectNoCapacity})),
			Entry(nil, "QuotaExceeded", rejected(cloud.Fault{Effect: cloud.EffectQuota})),
			Entry(nil, "BalanceExhausted", rejected(cloud.Fault{Effect: cloud.EffectBalance})),
			Entry(nil, launch.ReasonLaunchAuthenticationFailed, rejected(cloud.Fault{Effect: cloud.EffectUnauthorized})),
			Entry(nil, launch.ReasonLaunchRequestInvalid, says(http.StatusBadRequest, "Image is not valid")),
			Entry(nil, launch.ReasonLaunchPermissionDenied, says(http.StatusForbidden, "You are not allowed to do this")),
			Entry(nil, launch.ReasonLaunchConflict, says(http.StatusConflict, "E_4711")),
			Entry(nil, launch.ReasonLaunchFailed, rejected(cloud.Fault{Effect: cloud.EffectErrorServer})),
			Entry(nil, launch.ReasonNodeClassNotReady, func() {
				Expect(env.SetCondition(ctx, lo.Must(class()), func(s status.ConditionSet) {
					s.SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "no such image")
				})).To(Succeed())
				Expect(failedCreate(nodeClaim(nil))).To(HaveOccurred())
			}),
			Entry(nil, launch.ReasonLaunchNotSent, func() { ended(aged(nodeClaim(nil), lifecycle.LaunchTimeout)) }),
			Entry(nil, launch.ReasonNotRegistered, func() {
				claim := launched(nodeClaim(nil))
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), launch.ErrNotRegistered)
			}),
			Entry(nil, launch.ReasonLaunchOutcomeUnknown, func() {
				claim := launched(nodeClaim(nil))
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), instance.ErrOutcomeUnknown)
			}),
			Entry(nil, launch.ReasonLaunchOutcomeUnknown, func() {
				claim := unanswered(unit.NodePool())
				config := env.CloudProviderConfig
				config.Overlay = &failingOverlay{err: errors.New("overlays are being evaluated")}
				env.CloudProvider = cloudprovider.New(config)
				ended(aged(claim, lifecycle.LaunchTimeout))
			}),
			Entry(nil, launch.ReasonLaunchNotPrepared, func() {
				claim := launched(nodeClaim(nil))
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), instance.ErrNotPrepared)
			}),
			Entry(nil, launch.ReasonLaunchResourceNotFound, func() {
				claim := launched(nodeClaim(nil))
				env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intentOf(claim), &bizfly.APIError{Class: bizfly.ClassNotFound})
			}),
		)
		It("should have reasons that core accepts as those of a condition", func() {
			failures := lo.Must(metrics.Gather(crmetrics.Registry, "karpenter_bizfly_launch_failures_total"))
			Expect(failures).ToNot(BeEmpty())
			for _, failure := range failures {
				Expect(lo.Values(failure.Labels)).To(ConsistOf(MatchRegexp("^([A-Z][a-z]+)+$")))
			}
		})
	})
	It("should report a server whose id is still unknown shortly before core's launch timeout", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour, HideBuilding: true})
		env.WithoutIDWait()
		nodeClass()
		pool := unit.NodePool()
		before := available(pool)
		claim := nodeClaim(pool)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		Expect(reasonOf(failedCreate(aged(claim, lifecycle.LaunchTimeout-ttl.LaunchMargin)))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
		Expect(available(pool)).To(Equal(before - 1))
	})
	It("should not end while the server may still show its id before core's next call", func() {
		nodeClass()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectLostResponse, Count: 1},
			cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		created, last := make(chan error, 1), aged(claim, lifecycle.LaunchTimeout-ttl.LaunchMargin-ttl.CoreRetry)
		go func() { _, err := env.CloudProvider.Create(ctx, last); created <- err }()
		looksAgain(3)
		Expect(created).ToNot(Receive())
		env.Sandbox.ClearFaults()
		Eventually(created).Should(Receive(BeNil()))
	})
})

// failingOverlay is an overlay that changes nothing, or fails.
type failingOverlay struct{ err error }

// ApplyAll implements cloudprovider.InstanceTypeOverlay.
func (f *failingOverlay) ApplyAll(_ string, all []*corecloudprovider.InstanceType) ([]*corecloudprovider.InstanceType, error) {
	return all, f.err
}

// forgetCatalog makes the CloudProvider one that has not read the catalog yet.
func forgetCatalog() {
	config := env.CloudProviderConfig
	unread := catalog.NewDefaultProvider(connect.Client(ctx, env.Sandbox), env.Clock, catalog.Config{})
	config.Flavors = flavor.NewDefaultProvider(unread, env.Capacity, env.Bootstrap, env.Client, env.Settings)
	env.CloudProvider = cloudprovider.New(config)
}
