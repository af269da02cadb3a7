// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes_test

import (
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

// seen are the taints that Nodes had when the API server first had them.
type seen struct {
	mu    sync.Mutex
	first map[string][]corev1.Taint
}

func (s *seen) taints(name string) []corev1.Taint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first[name]
}

// watchNodes watches Nodes until the spec ends.
func watchNodes() *seen {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	nodes, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nodes.Stop)
	s := &seen{first: map[string][]corev1.Taint{}}
	go func() {
		for event := range nodes.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok && event.Type == watch.Added {
				s.mu.Lock()
				s.first[node.Name] = node.Spec.Taints
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// sizes are flavors of all proportions; their machines may have more than this one.
var sizes = []string{"p2.2c_4g", "p2.4c_8g", "p2.4c_16g", "p2.8c_16g", "nix.8c_16g"}

// launched creates a NodeClaim of each flavor, and returns those that are initialized.
func launched(class string, round int, flavors []string) []karpv1.NodeClaim {
	GinkgoHelper()
	for _, flavor := range flavors {
		create(&karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d-%s", class, round, strings.NewReplacer(".", "-", "_", "-").Replace(flavor)), Labels: map[string]string{"size": class},
			},
			Spec: karpv1.NodeClaimSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: class},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{flavor}},
					{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
				},
			},
		})
	}
	var claims []karpv1.NodeClaim
	Eventually(func(g Gomega) {
		claims = lo.Filter(listed(g, &karpv1.NodeClaimList{}, client.MatchingLabels{"size": class}).Items, func(c karpv1.NodeClaim, _ int) bool {
			return strings.HasPrefix(c.Name, fmt.Sprintf("%s-%d-", class, round))
		})
		g.Expect(claims).To(HaveLen(len(flavors)))
		for i := range claims {
			g.Expect(claims[i].StatusConditions().Root().IsTrue()).To(BeTrue(), "%s: %+v", claims[i].Name, claims[i].Status.Conditions)
		}
	}).Should(Succeed())
	return claims
}

var _ = Describe("What is planned for a node", func() {
	DescribeTable("should be what its kubelet reports, within a hundredth once one of its kind has been seen, and never more",
		func(name string, change func(*v1alpha1.BizflyNodeClass), flavors []string) {
			class := &v1alpha1.BizflyNodeClass{}
			read(class, "kubeadm", "nodeclass.yaml")
			class.Name = name
			change(class)
			create(class)
			end := func() {
				Expect(env.Client().DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{"size": name})).To(Succeed())
				Eventually(func(g Gomega) {
					g.Expect(listed(g, &karpv1.NodeClaimList{}, client.MatchingLabels{"size": name}).Items).To(BeEmpty())
				}).Should(Succeed())
			}
			DeferCleanup(func() {
				end()
				Expect(env.Client().Delete(ctx, class)).To(Succeed())
			})
			var rows []string
			var last []karpv1.NodeClaim
			for round := 1; round <= 2; round++ {
				end() // there is not room for both
				last = launched(name, round, flavors)
				for _, claim := range last {
					reported := node(Default, claim.Status.NodeName).Status.Allocatable
					for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
						planned, actual := claim.Status.Allocatable[resource], reported[resource]
						share := planned.AsApproximateFloat64() / actual.AsApproximateFloat64()
						rows = append(rows, fmt.Sprintf("%s %s: planned %s, reported %s (%.2f %%)", claim.Name, resource, planned.String(), actual.String(), share*100))
						Expect(share).To(BeNumerically("<=", 1), rows[len(rows)-1])
						if round == 2 {
							Expect(share).To(BeNumerically(">=", 0.99), rows[len(rows)-1])
						}
					}
				}
			}
			AddReportEntry("planned and reported", strings.Join(rows, "\n"), ReportEntryVisibilityAlways)

			By("running a pod of exactly that size")
			for _, claim := range last {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: claim.Name},
					Spec:       environment.Deployment("", 1).Spec.Template.Spec,
				}
				pausing(&pod.Spec)
				pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: claim.Status.NodeName}
				pod.Spec.Containers[0].Resources.Requests = lo.PickByKeys(claim.Status.Allocatable,
					[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage})
				create(pod)
				DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client().Delete(ctx, pod))).To(Succeed()) })
				Eventually(func(g Gomega) {
					g.Expect(env.Client().Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
					g.Expect(podReady(*pod)).To(BeTrue(), "%s: %+v", pod.Name, pod.Status)
				}).Should(Succeed())
			}
		},
		Entry("with the sample's settings of the kubelet", "reserved", func(*v1alpha1.BizflyNodeClass) {}, sizes),
		Entry("without any", "unreserved", func(class *v1alpha1.BizflyNodeClass) { class.Spec.Kubelet = nil }, sizes[:2]),
	)
})
