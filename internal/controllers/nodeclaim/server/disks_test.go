// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// registeredAt stores that the node of the claim registered at this time.
func registeredAt(claim *karpv1.NodeClaim, at time.Time) {
	GinkgoHelper()
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == karpv1.ConditionTypeRegistered {
			claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at)
		}
	}
	Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
}

var _ = Describe("Owned volumes", func() {
	var controller *server.Controller
	var claim *karpv1.NodeClaim
	var root string
	BeforeEach(func() {
		controller = newController()
		claim = lo.Must(env.Launched(ctx))
		all := env.Sandbox.State().Volumes
		Expect(all).To(HaveLen(1))
		root = all[0].ID
	})
	// done is the interval of a launch whose disks are recorded.
	done := reconcile.Result{RequeueAfter: ttl.LaunchPoll}
	id := func() string { return unit.ServerID(claim.Status.ProviderID) }
	look := func() reconcile.Result {
		GinkgoHelper()
		env.Instances.Flush()
		return lo.Must(controller.Reconcile(ctx, claim))
	}
	recorded := func() []string {
		GinkgoHelper()
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		return launch.OwnedVolumes(live)
	}
	attached := func(name string) string {
		GinkgoHelper()
		volume := env.Sandbox.AddVolume(cloud.VolumeSpec{Name: name, SizeGiB: 20, Zone: claim.Labels["topology.kubernetes.io/zone"]})
		Expect(env.Sandbox.AttachVolume(volume.ID, id())).To(Succeed())
		return volume.ID
	}

	It("should record the addresses that the server was launched with, and no later ones", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ACTIVE")).To(Succeed())
		look()
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		ports := lo.Must(env.Instances.Ports(ctx, 0))
		expected := ports.Of(id(), time.Time{})
		Expect(expected).To(HaveLen(2))
		Expect(launch.OwnedInterfaces(live)).To(Equal(expected))

		env.Sandbox.AddWanIP(id(), "of the customer")
		claim = live
		look()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		Expect(launch.OwnedInterfaces(live)).To(Equal(expected))
	})
	It("should record them once they can be read, also after registration, and no later ones", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ACTIVE")).To(Succeed())
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/network-interfaces", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		look()
		Expect(recorded()).To(ConsistOf(root), "the disks do not wait for them")
		Expect(launch.OwnedInterfaces(claim)).To(BeEmpty())

		registeredAt(claim, time.Now().Add(time.Minute))
		env.Sandbox.ClearFaults()
		env.Sandbox.ResetRequests()
		look()
		Expect(env.Sandbox.Requests()).ToNot(ContainElement(HaveField("Route", ContainSubstring("network-interfaces"))), "a fleet would send too many")
		Expect(launch.OwnedInterfaces(claim)).To(BeEmpty())

		ports := lo.Must(env.Instances.Ports(ctx, 0))
		for range 2 {
			Expect(controller.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
			Expect(launch.OwnedInterfaces(claim)).To(And(HaveLen(2), Equal(ports.Of(id(), time.Time{}))))
			Expect(claim.Annotations[v1alpha1.AnnotationDelivered]).ToNot(ContainSubstring(`"networks"`), "a user may have added one")
			Expect(recorded()).To(ConsistOf(root))
			env.Sandbox.AddWanIP(id(), "of the customer")
			env.Instances.Flush()
			Expect(env.Instances.Ports(ctx, 0)).Error().ToNot(HaveOccurred())
		}
	})
	It("should not record those created after the node registered, which a user may own", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "ACTIVE")).To(Succeed())
		registeredAt(claim, time.Now().Add(-time.Minute))
		Expect(env.Instances.Ports(ctx, 0)).Error().ToNot(HaveOccurred())
		Expect(controller.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		Expect(recorded()).To(ConsistOf(root))
		Expect(launch.OwnedInterfaces(claim)).To(BeEmpty())
	})
	It("should record root and data disks before the node registers", func() {
		data := attached("data")
		Expect(look()).To(Equal(done))
		Expect(recorded()).To(ConsistOf(root, data))
	})
	Context("that come some seconds after the server runs", func() {
		BeforeEach(func() {
			class := &v1alpha1.BizflyNodeClass{}
			Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
			class.Spec.DataDisks = []v1alpha1.DataDisk{{Size: lo.ToPtr(resource.MustParse("20Gi"))}}
			Expect(env.Resolve(ctx, class)).To(Succeed())
			claim = lo.Must(env.Launched(ctx))
			root = env.Server(claim.Status.ProviderID).VolumesAttached[0].ID
		})
		// all are the disks of the server.
		all := func() []string {
			return lo.Map(env.Server(claim.Status.ProviderID).VolumesAttached, func(v cloud.AttachedVolume, _ int) string { return v.ID })
		}

		It("should be added to the record", func() {
			look()
			Expect(recorded()).To(ConsistOf(root))
			Expect(claim.Annotations[v1alpha1.AnnotationDelivered]).To(ContainSubstring(`"dataDisks":1`))
			Expect(look()).To(Equal(reconcile.Result{RequeueAfter: ttl.DisksInterval}))
			env.Sandbox.AddDataDisks()
			look()
			Expect(recorded()).To(And(HaveLen(2), ConsistOf(all())))
			attached("of a user")
			Expect(look()).To(Equal(done), "the record is complete")
			Expect(recorded()).To(HaveLen(2))
		})
		It("should be added alone, without a disk that a user attaches meanwhile", func() {
			look()
			attached("of a user")
			look()
			Expect(recorded()).To(ConsistOf(root))
		})
		It("should not be added once the node has registered, since a pod may have attached them", func() {
			look()
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
			env.Sandbox.AddDataDisks()
			look()
			Expect(recorded()).To(ConsistOf(root))
		})
	})
	It("should record what was delivered, which need not be what was requested", func() {
		Expect(env.Sandbox.EditServer(id(), func(s *cloud.Server) { s.BillingPlan = "another" })).To(BeTrue())
		look()
		live := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
		interfaces := launch.OwnedInterfaces(live)
		Expect(interfaces).To(HaveLen(2))
		Expect(live.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationDelivered, MatchJSON(fmt.Sprintf(
			`{"billingPlan":"another","networks":[%q],"interfaces":[%q,%q],"disks":{%q:{"gib":40,"type":"SSD"}}}`, env.Sandbox.BKE().NetworkID,
			interfaces[0], interfaces[1], root))))
	})
	It("should never record a disk that the CSI driver made", func() {
		attached("pvc-7d5c1f0e")
		look()
		Expect(recorded()).To(ConsistOf(root))
	})
	It("should record nothing but the root disk once the node has registered", func() {
		attached("data")
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		look()
		Expect(recorded()).To(ConsistOf(root))
	})
	It("should not take for unregistered a claim that has registered since it was read", func() {
		attached("data")
		registered := claim.DeepCopy()
		registered.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, registered)).To(Succeed())
		By("looking again no sooner than at a server in BUILD, since a late cache has the old claim")
		Expect(look()).To(Equal(reconcile.Result{RequeueAfter: ttl.DisksInterval}))
		Expect(recorded()).To(BeEmpty())
		claim = registered
		look()
		Expect(recorded()).To(ConsistOf(root))
	})
	It("should not be rejected because something else of the claim has changed since it was read", func() {
		changed := claim.DeepCopy()
		changed.Annotations["example.test/a"] = "b"
		Expect(env.Client.Update(ctx, changed)).To(Succeed())
		Expect(look()).To(Equal(done))
		Expect(recorded()).To(ConsistOf(root))
	})
	It("should wait until the server runs", func() {
		Expect(env.Sandbox.SetServerStatus(id(), "BUILD")).To(Succeed())
		Expect(look().RequeueAfter).To(BeNumerically(">", 0))
		Expect(recorded()).To(BeEmpty())
	})
	It("should never change a record that is complete", func() {
		claim.Annotations[v1alpha1.AnnotationDelivered] = `{"interfaces":["a"],"disks":{"other":{}}}`
		Expect(env.Client.Update(ctx, claim)).To(Succeed())
		Expect(look()).To(Equal(done))
		Expect(recorded()).To(ConsistOf("other"))
	})
	It("should not wait for a server that is not listed yet", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		Expect(look()).To(Equal(done))
		Expect(recorded()).To(ConsistOf(root))
	})
	It("should ignore a claim without a server", func() {
		claim.Status.ProviderID = ""
		Expect(look()).To(Equal(reconcile.Result{}))
	})
})
