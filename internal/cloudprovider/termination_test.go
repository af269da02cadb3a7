// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// Core's own controller ends the claims here.
var _ = Describe("Deleting everything at once", func() {
	gone := func(o client.Object) bool {
		GinkgoHelper()
		err := env.APIReader.Get(ctx, client.ObjectKeyFromObject(o), o)
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return apierrors.IsNotFound(err)
	}
	DescribeTable("should end clean, whatever is deleted first",
		func(order ...string) {
			class, _ := wide()
			pool := unit.NodePool()
			Expect(env.Client.Create(ctx, pool)).To(Succeed())
			recorded(launched(nodeClaim(pool)))
			config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
			Expect(env.Client.Create(ctx, config)).To(Succeed())
			claims := &karpv1.NodeClaimList{}
			Expect(env.APIReader.List(ctx, claims)).To(Succeed())
			Expect(claims.Items).To(HaveLen(2))
			Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
			holds := usage.NewController(env.Client, env.Recorder, env.Clock, env.CloudProvider)
			ends := lifecycle.NewController(env.Clock, env.Client, env.CloudProvider, env.Recorder, state.NewCluster(env.Clock, env.Client, env.CloudProvider),
				nodepoolhealth.NewState(), nil)
			Expect(holds.Reconcile(ctx, class.DeepCopy())).Error().ToNot(HaveOccurred())

			remove := map[string][]client.Object{"NodePool": {pool}, "NodeClass": {class}, "ProviderConfig": {config}}
			for i := range claims.Items {
				remove["NodeClaims"] = append(remove["NodeClaims"], &claims.Items[i])
			}
			for _, kind := range order {
				for _, object := range remove[kind] {
					Expect(env.Client.Delete(ctx, object)).To(Succeed())
				}
			}
			// It says what it waits for, while claims use it.
			Expect(gone(class)).To(BeFalse())
			Expect(holds.Reconcile(ctx, class.DeepCopy())).Error().ToNot(HaveOccurred())
			Expect(gone(class)).To(BeFalse())
			Expect(env.Recorder.Calls(events.ReasonWaitingOnNodeClaimTermination)).To(BeNumerically(">", 0))

			Eventually(func(g Gomega) {
				env.Clock.Step(10 * time.Second)
				for i := range claims.Items {
					claim := &claims.Items[i]
					if gone(claim) {
						continue
					}
					g.Expect(ends.Reconcile(ctx, claim.DeepCopy())).Error().ToNot(HaveOccurred())
				}
				if !gone(class) {
					g.Expect(holds.Reconcile(ctx, class.DeepCopy())).Error().ToNot(HaveOccurred())
				}
				for _, objects := range remove {
					for _, object := range objects {
						g.Expect(gone(object)).To(BeTrue(), object.GetName())
					}
				}
			}).WithPolling(20 * time.Millisecond).Should(Succeed())
			state := env.Sandbox.State()
			Expect(state.Servers).To(BeEmpty())
			Expect(state.Volumes).To(BeEmpty())
			Expect(state.NetworkInterfaces).To(BeEmpty())
			Expect(state.WanIPs).To(BeEmpty())
		},
		Entry("the NodePool", "NodePool", "NodeClass", "NodeClaims", "ProviderConfig"),
		Entry("the NodeClass", "NodeClass", "ProviderConfig", "NodePool", "NodeClaims"),
		Entry("the NodeClaims", "NodeClaims", "NodePool", "NodeClass", "ProviderConfig"),
		Entry("the ProviderConfig", "ProviderConfig", "NodeClaims", "NodeClass", "NodePool"),
	)
})

var _ = Describe("Annotations of a NodeClaim", func() {
	It("should prove nothing: the disks and addresses of others that they name stay", func() {
		nodeClass()
		claim, other := launched(nodeClaim(nil)), launched(nodeClaim(nil))
		disk := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: "golden-image-of-the-database", Bootable: true})
		named := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: "database_rootdisk", Bootable: true})
		address := env.Sandbox.AddWanIP(serverOf(other).ID, "reserved for the website")
		env.Sandbox.MovePort(address, "")
		claim.Annotations[v1alpha1.AnnotationDelivered] = fmt.Sprintf(`{"interfaces":[%q],"disks":{%q:{},%q:{}}}`, address, disk.ID, named.ID)
		claim.Annotations[v1alpha1.AnnotationLaunchIntent] = `{"attempt":1,"name":"database"}`
		Eventually(func() bool { return corecloudprovider.IsNodeClaimNotFoundError(env.CloudProvider.Delete(ctx, claim)) }).
			Should(BeTrue())
		state := env.Sandbox.State()
		Expect(lo.Map(state.Volumes, func(v cloud.Volume, _ int) string { return v.ID })).To(ContainElements(disk.ID, named.ID))
		Expect(lo.Map(state.WanIPs, func(ip cloud.WanIP, _ int) string { return ip.ID })).To(ContainElement(address))
		Expect(state.Servers).To(ConsistOf(HaveField("ID", serverOf(other).ID)))
	})
})

var _ = Describe("A deletion", func() {
	BeforeEach(func() { nodeClass() })
	It("should report a server that still exists ten minutes after core began to delete it", func() {
		claim := launched(nodeClaim(nil))
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusForbidden,
			Message: "locked by an operator"})
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeInstanceTerminating)
		Expect(env.CloudProvider.Delete(ctx, claim)).ToNot(Succeed())
		Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(BeZero())
		env.Clock.Step(11 * time.Minute)
		Expect(env.CloudProvider.Delete(ctx, claim)).ToNot(Succeed())
		Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonServerDeletionFailed),
			HaveField("Message", ContainSubstring("locked by an operator")))))
		env.Sandbox.ClearFaults()
		deleted(claim)
	})
	It("should report one that BizFly Cloud rejects from the first on", func() {
		claim := launched(nodeClaim(nil))
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusForbidden,
			Message: "locked by an operator"})
		claim.DeletionTimestamp = lo.ToPtr(metav1.NewTime(env.Clock.Now()))
		Expect(env.CloudProvider.Delete(ctx, claim)).ToNot(Succeed())
		Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(BeZero())
		env.Clock.Step(11 * time.Minute)
		Expect(env.CloudProvider.Delete(ctx, claim)).ToNot(Succeed())
		Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(Equal(1))
		env.Sandbox.ClearFaults()
		deleted(claim)
	})
	It("should not report the first rejection after a long drain", func() {
		claim := launched(nodeClaim(nil))
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodDelete, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		claim.DeletionTimestamp = lo.ToPtr(metav1.NewTime(env.Clock.Now()))
		env.Clock.Step(20 * time.Minute)
		claim.StatusConditions(status.WithClock(env.Clock)).SetTrue(karpv1.ConditionTypeDrained)
		Expect(env.CloudProvider.Delete(ctx, claim)).ToNot(Succeed())
		Expect(env.Recorder.Calls(events.ReasonServerDeletionFailed)).To(BeZero())
		env.Sandbox.ClearFaults()
		deleted(claim)
	})
	It("should end when the server is gone, whatever it has left", func() {
		claim := launched(nodeClaim(nil))
		Expect(env.Sandbox.RemoveServer(serverOf(claim).ID)).To(Succeed())
		env.Sandbox.AddFaults(1, cloud.Fault{Path: "/**/cluster_leave/*", Effect: cloud.EffectDelay, Delay: time.Hour},
			cloud.Fault{Method: http.MethodGet, Path: "/volumes", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		Expect(corecloudprovider.IsNodeClaimNotFoundError(env.CloudProvider.Delete(ctx, claim))).To(BeTrue())
		Expect(env.Sandbox.State().Volumes).To(HaveLen(1))
	})
})
