// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gstruct"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("The log of launches and removals", func() {
	const messageLaunched, messageFailed, messageRemoved = "launched server", "launching server failed", "removed server"
	var out *gbytes.Buffer

	BeforeEach(func() {
		before := ctx
		DeferCleanup(func() { ctx = before }) //nolint:fatcontext // back to what it was
		out = gbytes.NewBuffer()
		ctx = log.IntoContext(ctx, zap.New(zap.WriteTo(out), zap.JSONEncoder())) //nolint:fatcontext // replaced, not nested
		nodeClass()
	})
	written := func() []string {
		return lo.Filter(strings.Split(string(out.Contents()), "\n"), func(text string, _ int) bool {
			return lo.ContainsBy([]string{messageLaunched, messageFailed, messageRemoved}, func(m string) bool { return strings.Contains(text, `"msg":"`+m+`"`) })
		})
	}
	lines := func() []map[string]any {
		GinkgoHelper()
		return lo.Map(written(), func(text string, _ int) map[string]any {
			line := map[string]any{}
			Expect(json.Unmarshal([]byte(text), &line)).To(Succeed(), text)
			for _, key := range []string{"server-id", "flavor", "zone", "capacity-type", "seconds"} {
				Expect(line).To(HaveKey(key))
			}
			return line
		})
	}
	of := func(flavor string) *karpv1.NodeClaim {
		GinkgoHelper()
		return nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", flavor))
	}
	line := func(message, server, flavor, reason string) types.GomegaMatcher {
		return gstruct.MatchKeys(gstruct.IgnoreExtras, gstruct.Keys{"msg": Equal(message), "server-id": Equal(server), "flavor": Equal(flavor),
			"reason": Equal(reason), "capacity-type": Equal(karpv1.CapacityTypeOnDemand), "seconds": BeNumerically(">=", 0)})
	}
	removal := func(server, flavor string) types.GomegaMatcher {
		return gstruct.MatchKeys(gstruct.IgnoreExtras, gstruct.Keys{"msg": Equal(messageRemoved), "server-id": Equal(server),
			"flavor": Equal(flavor), "capacity-type": Equal(karpv1.CapacityTypeOnDemand), "seconds": BeNumerically(">=", 0)})
	}
	It("should have one line of a launch, with its price and why", func() {
		claim := launched(of("nix.2c_4g"))
		Expect(lines()).To(ConsistOf(line(messageLaunched, serverOf(claim).ID, "nix.2c_4g", launch.ReasonCheapest)))
		only := lines()[0]
		Expect(only).To(HaveKeyWithValue("zone", claim.Labels["topology.kubernetes.io/zone"]))
		Expect(only).To(HaveKeyWithValue("price-vnd-per-hour", BeNumerically("~", priced(unit.NodePool())["nix.2c_4g/HN1"], 0.01)))
		Expect(env.Recorder.Calls(events.ReasonServerLaunched)).To(Equal(1))

		By("being called again before core has written what it returned")
		launched(claim)
		Expect(lines()).To(HaveLen(1))
		Expect(env.Recorder.Calls(events.ReasonServerLaunched)).To(Equal(1))
	})
	It("should have one line of each create request, and report which launch failed over", func() {
		failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Count: 1})
		claim := launched(of("nix.2c_4g"))
		Expect(lines()).To(HaveExactElements(
			line(messageFailed, "", "nix.2c_4g", "InsufficientCapacity"),
			line(messageLaunched, serverOf(claim).ID, "nix.2c_4g", launch.ReasonFailedOver)))
		Expect(env.Recorder.Calls(events.ReasonOfferingUnavailable)).To(Equal(1))
		Expect(string(out.Contents())).ToNot(ContainSubstring("recording the outcome"))
	})
	It("should have one line of each create request of a NodeClaim that ends, and no other", func() {
		env.Sandbox.SetStock("*", "*", "*", 0)
		ended(of("nix.2c_4g"))
		Expect(lines()).To(HaveExactElements(line(messageFailed, "", "nix.2c_4g", "InsufficientCapacity"),
			line(messageFailed, "", "nix.2c_4g", "InsufficientCapacity")))
	})
	It("should have one line of a NodeClaim whose offerings became unavailable meanwhile", func() {
		class := lo.Must(class())
		class.Spec.PlacementStrategy = v1alpha1.PlacementStrategySpread
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(env.Resolve(ctx, class)).To(Succeed())
		intercepted(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			// Zones are compared by the nodes in them. Meanwhile another launch finds the account without balance.
			env.Capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonBalanceExhausted, time.Minute)
			return c.List(ctx, list, opts...)
		}})
		err := failedCreate(nodeClaim(unit.NodePool()))
		Expect(err).To(MatchError(ContainSubstring(" in HN1: " + capacity.ReasonBalanceExhausted)))
		Expect(createRequests()).To(BeZero())
		Expect(lines()).To(ConsistOf(line(messageFailed, "", "", launch.ReasonNoOffering)))
	})
	It("should have a line of an outcome that could not be recorded", func() {
		secondPatchFails()
		failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
		Expect(failedCreate(of("nix.2c_4g"))).To(HaveOccurred())
		Expect(string(out.Contents())).To(MatchRegexp("recording the outcome of a create request.*etcd is away"))
	})
	DescribeTable("should have one line of a node that did not register, with its price and its age", func(classGone bool) {
		claim := launched(of("nix.2c_4g"))
		intent := intentOf(claim)
		price := priced(unit.NodePool())["nix.2c_4g/HN1"]
		nodeClassKey := capacity.NodeClassKey(lo.Must(class()))
		intent.RequestedAt = env.Clock.Now()
		env.Clock.Step(15 * time.Minute)
		if classGone {
			Expect(env.Client.Delete(ctx, lo.Must(class()))).To(Succeed())
		}
		Expect(env.CloudProvider.Launches.LaunchFailed(ctx, claim, *intent, launch.ErrNotRegistered)).To(Equal(launch.ReasonNotRegistered))
		Expect(env.Recorder.Calls(events.ReasonNodeNotRegistered)).To(Equal(1))
		Expect(lines()).To(HaveLen(2))
		Expect(lines()[1]).To(And(line(messageFailed, "", "nix.2c_4g", launch.ReasonNotRegistered), HaveKeyWithValue("seconds", 900.0),
			HaveKeyWithValue("price-vnd-per-hour", BeNumerically("~", lo.Ternary(classGone, 0, price), 0.01))))
		const unresolved = "resolving the NodeClass of a failed launch"
		Expect(string(out.Contents())).To(lo.Ternary(classGone, ContainSubstring(unresolved), Not(ContainSubstring(unresolved))))
		_, forAll := env.Capacity.Unavailable(capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN1", BillingPlan: "on_demand"})
		Expect(forAll).To(BeFalse(), "nothing shows that other NodeClasses meet the same")
		Expect(env.Capacity.RecentFailures(capacity.Offering{Flavor: "nix.2c_4g", Zone: "HN1", BillingPlan: "on_demand", NodeClass: nodeClassKey})).
			To(Equal(lo.Ternary(classGone, 0, 1)))
	},
		Entry("with a NodeClass", false),
		Entry("without price after its NodeClass is gone", true),
	)
	It("should have one line of a NodeClaim for which nothing is available", func() {
		Expect(failedCreate(of("nix.999c_1g"))).To(HaveOccurred())
		Expect(lines()).To(ConsistOf(line(messageFailed, "", "", launch.ReasonNoOffering)))
	})
	It("should have one line of a create request that cannot succeed, and an event of it", func() {
		failCreate(cloud.Fault{Status: http.StatusForbidden, Message: "You are not allowed to do this"})
		Expect(failedCreate(of("nix.2c_4g"))).To(HaveOccurred())
		Expect(lines()).To(ConsistOf(line(messageFailed, "", "nix.2c_4g", launch.ReasonLaunchPermissionDenied)))
		Expect(env.Recorder.Calls(events.ReasonLaunchRejected)).To(Equal(1))
	})
	It("should have one line of a server that the cloud could not build, and one of its removal", func() {
		failCreate(cloud.Fault{Effect: cloud.EffectErrorServer, Count: 1})
		Expect(failedCreate(of("nix.2c_4g"))).To(HaveOccurred())
		deletion, sent := lo.Find(env.Sandbox.Requests(), func(r cloud.Request) bool {
			return r.Method == http.MethodDelete && strings.Contains(r.Path, "/servers/")
		})
		Expect(sent).To(BeTrue())
		Expect(lines()).To(ConsistOf(line(messageFailed, "", "nix.2c_4g", launch.ReasonLaunchFailed),
			removal(path.Base(deletion.Path), "nix.2c_4g")))
	})
	It("should have one line of a create request whose server was found later", func() {
		claim := of("nix.2c_4g")
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectLostResponse, Count: 1},
			cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		env.WithoutIDWait()
		Expect(failedCreate(claim)).To(HaveOccurred())
		Expect(written()).To(BeEmpty(), "nothing is decided yet")
		env.Sandbox.ClearFaults()
		var created *karpv1.NodeClaim
		Eventually(func() (err error) {
			created, err = env.CloudProvider.Create(ctx, claim.DeepCopy())
			return err
		}).Should(Succeed())
		Expect(lines()).To(ConsistOf(line(messageLaunched, serverOf(created).ID, "nix.2c_4g", launch.ReasonFound)))
	})
	It("should have one line of a removal", func() {
		claim := launched(of("nix.2c_4g"))
		id := serverOf(claim).ID
		deleted(claim)
		deleted(claim)
		Expect(lines()[1:]).To(ConsistOf(removal(id, "nix.2c_4g")))
	})
})

var _ = Describe("Events of decisions", func() {
	It("should report once in what a server has drifted", func() {
		class := nodeClass()
		claim := launched(nodeClaim(nil))
		before := class.Status.Image().ID
		class.Status.Images[0].ID = "another"
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		Expect(env.CloudProvider.IsDrifted(ctx, claim)).To(Equal(cloudprovider.ImageDrift))
		Expect(env.Recorder.Calls(events.ReasonNodeDrifted)).To(Equal(1))
		Expect(env.Recorder.DetectedEvent(events.ServerDrifted(claim, "ImageDrift", "image "+before, "image another").Message)).To(BeTrue())
	})
})
