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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// first are the taints that Nodes had when the API server first had them.
type first struct {
	mu   sync.Mutex
	seen map[string][]corev1.Taint
}

func (f *first) taints(name string) []corev1.Taint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[name]
}

// watchNodes watches Nodes until the spec ends.
func watchNodes() *first {
	GinkgoHelper()
	f := &first{seen: map[string][]corev1.Taint{}}
	events := lo.Must(clientset().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{}))
	observe(events, func(node *corev1.Node, kind watch.EventType) {
		if kind == watch.Added {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen[node.Name] = node.Spec.Taints
		}
	})
	return f
}

// ends are how the first containers of pods have ended, as their kubelets reported it.
type ends struct {
	mu   sync.Mutex
	seen map[string]*corev1.ContainerStateTerminated
}

// of is nil where a kubelet has reported nothing, as that of a server which was deleted too early.
func (e *ends) of(pod string) *corev1.ContainerStateTerminated {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[pod]
}

// watchEnds watches pods until the spec ends.
func watchEnds() *ends {
	GinkgoHelper()
	e := &ends{seen: map[string]*corev1.ContainerStateTerminated{}}
	events := lo.Must(clientset().CoreV1().Pods(corev1.NamespaceDefault).Watch(ctx, metav1.ListOptions{}))
	observe(events, func(pod *corev1.Pod, _ watch.EventType) {
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				e.mu.Lock()
				e.seen[pod.Name] = status.State.Terminated
				e.mu.Unlock()
			}
		}
	})
	return e
}

func clientset() *kubernetes.Clientset {
	GinkgoHelper()
	config := lo.Must(clientcmd.BuildConfigFromFlags("", env.Kubeconfig()))
	return kubernetes.NewForConfigOrDie(config)
}

// observe calls a function with each event of a watch until the spec ends.
func observe[T runtime.Object](events watch.Interface, see func(T, watch.EventType)) {
	DeferCleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			if object, ok := event.Object.(T); ok {
				see(object, event.Type)
			}
		}
	}()
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
		claims = lo.Filter(e2e.Listed(g, env, &karpv1.NodeClaimList{}, client.MatchingLabels{"size": class}).Items, func(c karpv1.NodeClaim, _ int) bool {
			return strings.HasPrefix(c.Name, fmt.Sprintf("%s-%d-", class, round))
		})
		g.Expect(claims).To(HaveLen(len(flavors)))
		for i := range claims {
			g.Expect(claims[i].StatusConditions().Root().IsTrue()).To(BeTrue(), "%s: %+v", claims[i].Name, claims[i].Status.Conditions)
		}
	}).Should(Succeed())
	return claims
}

// byArguments is the sample's template with the kubelet's settings and taints as arguments of its command line.
func byArguments(template string) string {
	GinkgoHelper()
	for old, by := range map[string]string{
		"{{- .KubeletConfiguration | nindent 12 }}": "{}",
		`${SERVER_ID}"`: `${SERVER_ID} --register-with-taints={{ .KubeletTaints }}` +
			`{{ range $name, $value := .KubeletArgs }} --{{ $name }}={{ $value }}{{ end }}"`,
	} {
		Expect(strings.Count(template, old)).To(Equal(1), old)
		template = strings.Replace(template, old, by, 1)
	}
	return template
}

// tuneOverhead sets the part of a flavor's memory that the controller expects nodes not to see, and waits until it does.
func tuneOverhead(share string) {
	GinkgoHelper()
	helm("upgrade", release, chart, "--namespace", namespace, "--reset-then-reuse-values", "--set-string", "tuning.data.vmMemoryOverheadPercent="+share)
	Eventually(func(g Gomega) {
		config := &v1alpha1.ProviderConfig{}
		g.Expect(env.Client().Get(ctx, client.ObjectKey{Name: "default"}, config)).To(Succeed())
		g.Expect(config.Status.Tuning).To(HaveKeyWithValue("vmMemoryOverheadPercent", share))
	}).Should(Succeed())
}

var _ = Describe("What is planned for a node", func() {
	DescribeTable("should be what its kubelet reports: never more, and at most a hundredth less",
		func(name string, change func(*v1alpha1.BizflyNodeClass)) {
			class := &v1alpha1.BizflyNodeClass{}
			read(class, "kubeadm", "nodeclass.yaml")
			class.Name = name
			change(class)
			create(class)
			end := func() {
				Expect(env.Client().DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{"size": name})).To(Succeed())
				Eventually(func(g Gomega) {
					g.Expect(e2e.Listed(g, env, &karpv1.NodeClaimList{}, client.MatchingLabels{"size": name}).Items).To(BeEmpty())
				}).Should(Succeed())
			}
			DeferCleanup(func() {
				end()
				Expect(env.Client().Delete(ctx, class)).To(Succeed())
			})
			var rows []string
			var last []karpv1.NodeClaim
			for round, step := range []struct{ overhead, what string }{
				{"0.04", "planning the first node of each flavor by the part of the memory that nodes of this cloud do not see"},
				{"0.075", "planning the next by what the first has reported, since the default would be too little"},
			} {
				By(step.what)
				end() // there is not room for both
				tuneOverhead(step.overhead)
				last = launched(name, round+1, sizes)
				for _, claim := range last {
					reported := node(Default, claim.Status.NodeName).Status.Allocatable
					for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
						planned, actual := claim.Status.Allocatable[of], reported[of]
						share := planned.AsApproximateFloat64() / actual.AsApproximateFloat64()
						rows = append(rows, fmt.Sprintf("%s %s: planned %s, reported %s (%.2f %%)", claim.Name, of, planned.String(), actual.String(), share*100))
						Expect(share).To(And(BeNumerically("<=", 1), BeNumerically(">=", 0.99)), rows[len(rows)-1])
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
				tolerant(&pod.Spec)
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
		Entry("with the sample's settings of the kubelet", "reserved", func(class *v1alpha1.BizflyNodeClass) {
			class.Spec.Tags = map[string]string{"spec": "sizes"} // or nodes of other specs would have been the first of their flavors
		}),
		Entry("without any, by arguments of the kubelet's command line, and with another disk", "unreserved", func(class *v1alpha1.BizflyNodeClass) {
			class.Spec.Kubelet = nil
			class.Spec.UserData = ptr.To(byArguments(*class.Spec.UserData))
			class.Spec.RootDisk = &v1alpha1.RootDisk{Size: ptr.To(resource.MustParse("100Gi"))}
		}),
	)
})
