// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package unregistered_test

import (
	"context"
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/unregistered"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const clusterUID = "5f1f2a5e-0000-4000-8000-00000000000a"

// serverName and lateName are those of servers that this cluster has launched, for a NodeClaim and for one that has ended.
var (
	serverName = instance.Name("default-abcde", "9a4c1d1e-0000-4000-8000-000000000001", clusterUID, 1)
	lateName   = instance.Name("default-abcde", "9a4c1d1e-0000-4000-8000-000000000002", clusterUID, 1)
)

var (
	ctx        = context.Background()
	env        *coretest.Environment
	kubeClient client.Client
	controller *unregistered.Controller
)

func TestUnregistered(t *testing.T) { suite.Run(t, "Node/Unregistered") }

var _ = unit.APIServer(&env, func() {
	kubeClient = lo.Must(client.New(env.Config, client.Options{Scheme: scheme.Scheme}))
	controller = unregistered.NewController(kubeClient, clusterUID)
})

var _ = AfterEach(func() {
	Expect(kubeClient.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed())
	Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
})

var uninitialized = corev1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}

func claim(kind string) *karpv1.NodeClaim {
	GinkgoHelper()
	intent := lo.Must(json.Marshal(instance.Intent{Attempt: 1, Name: serverName}))
	object := coretest.NodeClaim(karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationLaunchIntent: string(intent)}},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: kind, Name: "default"},
		},
	})
	Expect(kubeClient.Create(ctx, object)).To(Succeed())
	return object
}

func node(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	GinkgoHelper()
	labels = lo.Assign(map[string]string{corev1.LabelHostname: name}, labels)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	Expect(kubeClient.Create(ctx, object)).To(Succeed())
	return object
}

func reconciled(object *corev1.Node) []corev1.Taint {
	GinkgoHelper()
	Expect(controller.Reconcile(ctx, object)).Error().ToNot(HaveOccurred())
	stored := &corev1.Node{}
	Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), stored)).To(Succeed())
	return stored.Spec.Taints
}

var _ = Describe("NodeClaim registration", func() {
	unregistered := karpv1.UnregisteredNoExecuteTaint

	It("should keep pods off a node until core has registered it", func() {
		claim("BizflyNodeClass")
		Expect(reconciled(node(serverName, nil, uninitialized))).To(ContainElements(uninitialized, unregistered))
	})
	It("should keep pods off a node whose server got a code appended to its name", func() {
		claim("BizflyNodeClass")
		Expect(reconciled(node(serverName+"-tnnuw4im", nil, uninitialized))).To(ContainElements(uninitialized, unregistered))
	})
	It("should keep pods off the node of a late server, which no NodeClaim expects", func() {
		claim("BizflyNodeClass")
		Expect(reconciled(node(lateName, nil, uninitialized))).To(ContainElements(uninitialized, unregistered))
	})
	It("should leave the node of a registered NodeClaim alone when it registers again", func() {
		object := claim("BizflyNodeClass")
		object.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		object.Status.NodeName = lateName
		Expect(kubeClient.Status().Update(ctx, object)).To(Succeed())
		Expect(reconciled(node(lateName, nil, uninitialized))).ToNot(ContainElement(unregistered))
	})
	It("should write the label of the NodeClass with the taint, which spares core a request", func() {
		claim("BizflyNodeClass")
		object := node(serverName, nil, uninitialized)
		reconciled(object)
		Expect(kubeClient.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(object.Labels).To(And(HaveKeyWithValue("karpenter.bizflycloud.vn/bizflynodeclass", "default"), HaveKey(corev1.LabelHostname)))
	})
	It("should not be rejected because the status was updated meanwhile", func() {
		claim("BizflyNodeClass")
		stale := node(serverName, nil, uninitialized)
		updated := stale.DeepCopy()
		updated.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
		Expect(kubeClient.Status().Update(ctx, updated)).To(Succeed())
		Expect(reconciled(stale)).To(ContainElements(uninitialized, unregistered))
	})
	It("should keep the taints that the node has", func() {
		claim("BizflyNodeClass")
		other := corev1.Taint{Key: "example.test/a", Effect: corev1.TaintEffectNoSchedule}
		Expect(reconciled(node(serverName, nil, uninitialized, other))).To(ContainElements(other, unregistered))
	})
	It("should not give the taint back to a node that core has registered meanwhile", func() {
		claim("BizflyNodeClass")
		stale := node(serverName, nil, uninitialized)
		registered := stale.DeepCopy()
		registered.Labels[karpv1.NodeRegisteredLabelKey] = "true"
		Expect(kubeClient.Update(ctx, registered)).To(Succeed())
		Expect(reconciled(stale)).ToNot(ContainElement(unregistered))
	})
	It("should leave a node alone whose claim has registered", func() {
		object := claim("BizflyNodeClass")
		object.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(kubeClient.Status().Update(ctx, object)).To(Succeed())
		Expect(reconciled(node(serverName, nil, uninitialized))).ToNot(ContainElement(unregistered))
	})
	DescribeTable("should leave alone", func(kind, name string, labels map[string]string, taints ...corev1.Taint) {
		claim(kind)
		// The API server adds taints of its own.
		object := node(name, labels, taints...)
		before := object.DeepCopy().Spec.Taints
		Expect(reconciled(object)).To(Equal(before))
	},
		Entry("a node whose name does not prove itself", "BizflyNodeClass", "another", nil, uninitialized),
		Entry("a node of another cluster", "BizflyNodeClass", instance.Name("default-abcde", "9a4c1d1e-0000-4000-8000-000000000001", "another", 1), nil,
			uninitialized),
		Entry("a node of another provider's claim", "KWOKNodeClass", serverName, nil, uninitialized),
		Entry("a node that the cloud controller manager has initialised", "BizflyNodeClass", serverName, nil),
		Entry("a node that registered with the taint", "BizflyNodeClass", serverName, nil, uninitialized, unregistered),
		Entry("a node that core has registered", "BizflyNodeClass", serverName, map[string]string{karpv1.NodeRegisteredLabelKey: "true"}, uninitialized),
	)
})
