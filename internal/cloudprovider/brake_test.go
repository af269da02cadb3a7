// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// laggingCache has the NodeClaims as they were before their launch.
type laggingCache struct{ client.Client }

// List implements client.Client.
func (c laggingCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Client.List(ctx, list, options...)
	if claims, ok := list.(*karpv1.NodeClaimList); ok {
		for i := range claims.Items {
			claims.Items[i].Annotations, claims.Items[i].Status = nil, karpv1.NodeClaimStatus{}
		}
	}
	return err
}

var _ = Describe("The limits of the cluster", func() {
	limited := func(servers, vndPerHour float64) {
		env.Tune(func(o *options.Options) { o.MaxServers, o.MaxVNDPerHour = servers, vndPerHour })
	}
	// afterThePause lets launches be tried again.
	afterThePause := func() { env.Clock.Step(2*env.Settings.Load().AccountPause + time.Second) }
	// heldBack expects that the NodeClaim ends without a create request, and for which reason.
	heldBack := func(claim *karpv1.NodeClaim, reason string) {
		GinkgoHelper()
		before := createRequests()
		err := failedCreate(claim)
		Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
		Expect(createRequests()).To(Equal(before))
		reached, description := env.CloudProvider.Launches.LimitReached()
		Expect(reached).To(Equal(reason))
		Expect(description).ToNot(BeEmpty())
		Expect(err).To(MatchError(ContainSubstring(reason+": "+description)), "core's event on the NodeClaim and its pods")
	}
	// lost deletes the NodeClaim object and leaves its server.
	lost := func(claim *karpv1.NodeClaim) {
		GinkgoHelper()
		stored := claim.DeepCopy()
		claim.Finalizers = nil
		Expect(env.Client.Patch(ctx, claim, client.MergeFrom(stored))).To(Succeed())
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
	}

	It("should hold back every launch beyond the most servers, of any NodePool, until one is gone", func() {
		nodeClass()
		limited(2, 0)
		first := launched(nodeClaim(nil))
		launched(nodeClaim(unit.NodePool()))
		heldBack(nodeClaim(nil), launch.ReasonMaxServersReached)
		Expect(available(unit.NodePool())).To(BeZero(), "or core would plan the same again at once")
		deleted(first)
		lost(first)
		afterThePause()
		Eventually(func() error {
			_, err := env.CloudProvider.Create(ctx, nodeClaim(nil))
			env.Clock.Step(time.Hour)
			return err
		}).Should(Succeed())
		reached, _ := env.CloudProvider.Launches.LimitReached()
		Expect(reached).To(BeEmpty())
	})
	It("should count a server that has lost its NodeClaim, since it costs as much", func() {
		nodeClass()
		limited(1, 0)
		lost(launched(nodeClaim(nil)))
		env.Restart(ctx)
		limited(1, 0)
		heldBack(nodeClaim(nil), launch.ReasonMaxServersReached)
	})
	It("should count a NodeClaim that was restored under another UID and its server as one", func() {
		nodeClass()
		claim := launched(nodeClaim(nil))
		lost(claim)
		claim.UID, claim.ResourceVersion = "", ""
		restored := claim.DeepCopy()
		Expect(env.Client.Create(ctx, restored)).To(Succeed())
		restored.Status = claim.Status
		Expect(env.Client.Status().Update(ctx, restored)).To(Succeed())
		limited(2, 0)
		launched(nodeClaim(nil))
		heldBack(nodeClaim(nil), launch.ReasonMaxServersReached)
	})
	It("should not count a launch whose offering has become unavailable before its request", func() {
		nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Spec.PlacementStrategy = v1alpha1.PlacementStrategySpread })
		limited(1, 0)
		config, compared := env.CloudProviderConfig, false
		config.KubeClient = failing(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if !compared {
				compared = true
				env.Capacity.MarkUnavailable(ctx, capacity.Offering{}, capacity.ReasonBalanceExhausted, time.Minute)
			}
			return c.List(ctx, list, opts...)
		}})
		env.CloudProvider = cloudprovider.New(config)
		ended(nodeClaim(unit.NodePool()))
		Expect(createRequests()).To(BeZero())
		env.Capacity.MarkAvailable(capacity.Offering{})
		Eventually(func() int { return available(unit.NodePool()) }).Should(BeNumerically(">", 0))
		launched(nodeClaim(nil))
	})
	It("should not count a launch whose request was not accepted", func() {
		nodeClass()
		limited(1, 0)
		failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
		Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(nil)))).To(BeFalse(), "core tries it again")
		launched(nodeClaim(nil))
	})
	It("should hold when many launches begin at once, none of which is listed yet", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Second, HideBuilding: true})
		nodeClass()
		limited(3, 0)
		config := env.CloudProviderConfig
		config.KubeClient = laggingCache{env.Client}
		env.CloudProvider = cloudprovider.New(config)
		var done sync.WaitGroup
		var succeeded atomic.Int32
		for range 12 {
			claim := nodeClaim(nil)
			done.Go(func() {
				defer GinkgoRecover()
				if _, err := env.CloudProvider.Create(ctx, claim); err == nil {
					succeeded.Add(1)
				}
			})
		}
		done.Wait()
		Expect(createRequests()).To(Equal(3))
		Expect(succeeded.Load()).To(BeEquivalentTo(3))
	})
	It("should count the launches that were under way when the process ended", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Hour, HideBuilding: true})
		nodeClass()
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		Eventually(func() map[string]string {
			cached := &karpv1.NodeClaim{}
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(claim), cached)).To(Succeed())
			return cached.Annotations
		}).Should(HaveKey(v1alpha1.AnnotationLaunchIntent))
		env.Restart(ctx)
		limited(1, 0)
		heldBack(nodeClaim(nil), launch.ReasonMaxServersReached)
		afterThePause()
		limited(0, 1_000_000)
		env.WithoutIDWait()
		Expect(reasonOf(failedCreate(nodeClaim(nil)))).To(Equal(launch.ReasonAwaitingServerID), "what they cost is known")
	})
	It("should find the server of an earlier request although the limit is reached", func() {
		env.Reset(ctx, cloud.Options{Latency: time.Second, HideBuilding: true})
		nodeClass()
		env.WithoutIDWait()
		claim := nodeClaim(nil)
		Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
		env.Restart(ctx)
		limited(1, 0)
		launched(claim)
	})
	It("should launch nothing while the servers cannot be counted", func() {
		nodeClass()
		limited(100, 0)
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		heldBack(nodeClaim(nil), launch.ReasonSpendingUnknown)
	})
	It("should hold back what would cost more per hour, and still launch what does not", func() {
		nodeClass()
		small := launched(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_4g")))
		pool := unit.NodePool()
		costs := priced(pool)
		each := costs["nix.2c_4g/"+serverOf(small).AvailabilityZone]
		Expect(each).To(BeNumerically(">", 0))
		limited(0, 2.5*each)
		heldBack(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.8c_16g")), launch.ReasonMaxVNDPerHourReached)
		Expect(available(pool)).To(BeNumerically(">", 0))
		launched(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_4g")))
		heldBack(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_4g")), launch.ReasonMaxVNDPerHourReached)
	})
	It("should hold back by what is paid, whatever price a NodeOverlay gives", func() {
		nodeClass()
		pool := unit.NodePool()
		costs := priced(pool)
		config := env.CloudProviderConfig
		config.Overlay = moreExpensive("nix.2c_4g")
		env.CloudProvider = cloudprovider.New(config)
		limited(0, 1.5*slices.Max(lo.FilterMapToSlice(costs, func(key string, price float64) (float64, bool) { return price, strings.HasPrefix(key, "nix.2c_4g/") })))
		heldBack(nodeClaim(pool, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.8c_16g")), launch.ReasonMaxVNDPerHourReached)
		launched(nodeClaim(pool, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_4g")))
	})
	It("should know a server's price by its NodeClaim where its flavor has another name", func() {
		nodeClass()
		claim := launched(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_2g")))
		server := serverOf(claim)
		Expect(env.Sandbox.EditServer(server.ID, func(s *cloud.Server) { s.Flavor.Name = server.FlavorName })).To(BeTrue())
		env.Restart(ctx)
		limited(0, 1_000_000)
		launched(nodeClaim(nil))
	})
	It("should count a server with what was delivered, whatever its NodeClass has become", func() {
		class := nodeClass()
		only := unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_2g")
		claim := launched(nodeClaim(nil, only))
		small := priced(unit.NodePool())["nix.2c_2g/"+serverOf(claim).AvailabilityZone]
		claim.Annotations[v1alpha1.AnnotationDelivered] = `{"billingPlan":"on_demand","disks":{"root":{"gib":40,"type":"SSD"}}}`
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		class.Spec.RootDisk = &v1alpha1.RootDisk{Size: lo.ToPtr(resource.MustParse("400Gi"))}
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(env.Resolve(ctx, class)).To(Succeed())
		large := env.Settings.Load().Prices.Disks[v1alpha1.DiskMediumSSD]*360 + small
		limited(0, small+large)
		launched(nodeClaim(nil, only))
	})
	for _, gone := range []bool{false, true} {
		It("should know the price of a server whose NodeClass "+lo.Ternary(gone, "is gone", "does not select its flavor any more"), func() {
			class := nodeClass()
			claim := launched(nodeClaim(nil, unit.Requirement("node.kubernetes.io/instance-type", "In", "nix.2c_2g")))
			Expect(env.Sandbox.EditServer(serverOf(claim).ID, func(s *cloud.Server) {
				if gone {
					s.Metadata[v1alpha1.MetadataNodeClass] = "gone"
				}
			})).To(BeTrue())
			lost(claim)
			class.Spec.FlavorSelectorTerms = []v1alpha1.FlavorSelectorTerm{{Name: "nix.2c_4g"}}
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			Expect(env.Resolve(ctx, class)).To(Succeed())
			env.Restart(ctx)
			limited(0, 1_000_000)
			launched(nodeClaim(nil))
		})
	}
	// without makes the server one of a flavor that is in no catalog, and deletes its NodeClaim.
	without := func(claim *karpv1.NodeClaim) {
		GinkgoHelper()
		Expect(env.Sandbox.EditServer(serverOf(claim).ID, func(s *cloud.Server) { s.Flavor.Name, s.FlavorName = "nix.unknown", "nix.unknown" })).To(BeTrue())
		lost(claim)
	}
	It("should know what a server costs that came after its NodeClaim had ended, whatever its flavor is called", func() {
		nodeClass()
		without(launched(nodeClaim(nil)))
		limited(0, 1_000_000)
		launched(nodeClaim(nil))
		limited(1, 0)
		heldBack(nodeClaim(nil), launch.ReasonMaxServersReached)
	})
	It("should launch nothing while the price of a server is not known, and name it", func() {
		nodeClass()
		claim := launched(nodeClaim(nil))
		name := serverOf(claim).Name
		without(claim)
		env.Restart(ctx)
		limited(0, 1_000_000)
		heldBack(nodeClaim(nil), launch.ReasonSpendingUnknown)
		_, description := env.CloudProvider.Launches.LimitReached()
		Expect(description).To(ContainSubstring(name))
	})
})
