// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/manifests"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/packing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// pools is a NodePool of all flavors over a NodeClass of defaults; %s are its budgets.
const pools = `
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: BizflyNodeClass
metadata: {name: default}
spec: {}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 30s
    budgets: [{nodes: "%s"}]
  template:
    metadata: {labels: {team: shop}, annotations: {example.com/owner: shop}}
    spec:
      nodeClassRef: {group: karpenter.bizflycloud.vn, kind: BizflyNodeClass, name: default}
      requirements:
      - {key: karpenter.bizflycloud.vn/instance-cpu, operator: Lte, values: ["16"]}
      - {key: karpenter.bizflycloud.vn/instance-gpu-count, operator: DoesNotExist}
      startupTaints: [{key: example.com/agent-not-ready, effect: NoSchedule}]
`

// cluster is a cluster in simulated time: core's provisioner, scheduler and disruption controller over the sandbox, the Job controller and the kubelet.
type cluster struct {
	*plan.Trial
	session *session.Session
	// jobs is when each Job began.
	jobs map[string]time.Time
}

// pod is a pod of a service.
func pod(name string, cpu, memory int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": strings.Split(name, "-")[0]}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(memory<<20, resource.BinarySI),
		}}}}},
	}
}

// mix is a random mix of small services, some of which keep apart or stay in a zone.
func mix(seed uint64, count int) (pods []*corev1.Pod) {
	r := rand.New(rand.NewPCG(seed, 11))
	pick := func(from ...int64) int64 { return from[r.IntN(len(from))] }
	for i := 0; len(pods) < count; i++ {
		cpu, memory := pick(50, 100, 250, 500, 1000, 1500, 3000), pick(64, 128, 256, 512, 1024, 2048, 6000)
		kind := r.IntN(10)
		for replica := range 1 + r.IntN(4) {
			p := pod(fmt.Sprintf("app%d-%d", i, replica), cpu, memory)
			selector := &metav1.LabelSelector{MatchLabels: p.Labels}
			switch kind {
			case 0:
				p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "HN2"}
			case 1:
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{LabelSelector: selector, TopologyKey: corev1.LabelHostname},
				}}}
			case 2:
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
				}}
			}
			pods = append(pods, p)
		}
	}
	return pods[:count]
}

// newCluster runs pods where core's provisioner and consolidation have put them.
func newCluster(seed uint64, budget string, pods ...*corev1.Pod) *cluster {
	GinkgoHelper()
	sandbox := cloud.Start(cloud.Options{})
	DeferCleanup(sandbox.Close)
	credentials, bke := sandbox.Credentials(), sandbox.BKE()
	for key, value := range map[string]string{
		"BIZFLY_CLOUD_API_URL": sandbox.APIURL, "BIZFLY_CLOUD_ALLOW_HTTP": "true", "BIZFLY_CLOUD_REGION": credentials.Region,
		"BIZFLY_CLOUD_APP_CRED_ID": credentials.AppCredID, "BIZFLY_CLOUD_APP_CRED_SECRET": credentials.AppCredSecret, "BKE_CLUSTER_ID": bke.ClusterUID,
	} {
		GinkgoT().Setenv(key, value)
	}
	set, err := manifests.Read(strings.NewReader(fmt.Sprintf(pools, budget)), "-")
	Expect(err).ToNot(HaveOccurred())
	objects := memory.Objects(set.Objects)
	for _, name := range []string{metav1.NamespaceSystem, "shop"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"}})
	}
	for _, p := range pods {
		objects = append(objects, p.DeepCopy())
	}
	c := &cluster{jobs: map[string]time.Time{}}
	c.session, err = session.NewFor(ctx, nil, memory.New(objects))
	Expect(err).ToNot(HaveOccurred())
	bizfly, err := c.session.Cloud(ctx)
	Expect(err).ToNot(HaveOccurred())
	simulated, err := plan.NewSimulation(ctx, bizfly, objects, nil)
	Expect(err).ToNot(HaveOccurred())
	Expect(simulated.Empty(ctx)).To(Succeed())
	planned, err := simulated.Run(ctx)
	Expect(err).ToNot(HaveOccurred())
	Expect(planned.Unplaced).To(BeEmpty())
	Expect(simulated.Settle(ctx, planned)).To(Succeed())
	c.session.Cluster = simulated.Objects
	c.Trial, err = simulated.Trial(ctx, seed)
	Expect(err).ToNot(HaveOccurred())
	return c
}

// bill is what all nodes cost, in VND per hour, and how many there are.
func (c *cluster) bill() (vndPerHour float64, nodes int) {
	GinkgoHelper()
	nodes, vndPerHour, err := c.Nodes(ctx)
	Expect(err).ToNot(HaveOccurred())
	return vndPerHour, nodes
}

// minute is what happens in one: NodeClaims become nodes, Jobs begin and end, and core looks once.
func (c *cluster) minute() (changed bool) {
	GinkgoHelper()
	claims, jobs, nodes := &karpv1.NodeClaimList{}, &batchv1.JobList{}, &corev1.NodeList{}
	Expect(c.Objects.List(ctx, claims)).To(Succeed())
	for _, claim := range claims.Items {
		if claim.Status.ProviderID == "" {
			Expect(c.Join(ctx, claim.Name, nil)).To(Succeed())
		}
	}
	Expect(c.Objects.List(ctx, jobs)).To(Succeed())
	Expect(c.Objects.List(ctx, nodes)).To(Succeed())
	for i := range jobs.Items {
		job := &jobs.Items[i]
		began, running := c.jobs[job.Name]
		if running && c.Now().Sub(began) >= time.Duration(*job.Spec.ActiveDeadlineSeconds)*time.Second {
			Expect(c.EndPods(ctx, func(p *corev1.Pod) bool { return p.Name == job.Name })).To(Succeed())
			Expect(c.Objects.Delete(ctx, job)).To(Succeed())
			continue
		}
		if running {
			continue
		}
		on := lo.Filter(nodes.Items, func(n corev1.Node, _ int) bool {
			return labels.SelectorFromSet(job.Spec.Template.Spec.NodeSelector).Matches(labels.Set(n.Labels))
		})
		if len(on) == 0 {
			continue
		}
		Expect(on).To(HaveLen(1), "a Job holds one node")
		c.jobs[job.Name] = c.Now()
		Expect(c.RunPod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
		}, Spec: job.Spec.Template.Spec}, on[0].Name)).To(Succeed())
	}
	changed, err := c.Look(ctx, time.Minute)
	Expect(err).ToNot(HaveOccurred())
	return changed || len(jobs.Items) > 0
}

// rest lets time pass until every Job has ended and core has found nothing for longer than it remembers that there was nothing.
func (c *cluster) rest() {
	GinkgoHelper()
	for quiet, minutes := 0, 0; quiet < 12; minutes++ {
		Expect(minutes).To(BeNumerically("<", 1000), "there is no end")
		quiet = lo.Ternary(c.minute(), 0, quiet+1)
	}
}

// propose computes a repack of the cluster as it is.
func (c *cluster) propose() *repack.Proposal {
	GinkgoHelper()
	p, err := repack.Compute(ctx, c.session, repack.Options{Iterations: 1500, Seed: 1})
	Expect(err).ToNot(HaveOccurred())
	return p
}

// errInterrupted is what a request of a process that has ended comes to.
var errInterrupted = errors.New("interrupted")

// interruptible is a client of a process that ends after some steps.
type interruptible struct {
	client.Client
	left int
}

func (i *interruptible) step() error {
	if i.left--; i.left < 0 {
		return errInterrupted
	}
	return nil
}

func (i *interruptible) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if err := i.step(); err != nil {
		return err
	}
	return i.Client.Create(ctx, object, opts...)
}

// run carries a proposal out, while time passes in the cluster, for so many steps at most.
func (c *cluster) run(p *repack.Proposal, steps int) (repack.Outcome, error) {
	process := &interruptible{Client: c.Objects, left: steps}
	clk := clocktesting.NewFakePassiveClock(c.Now())
	runner := repack.Runner{Client: process, Namespace: "shop", Clock: clk, Wait: func(context.Context) error {
		c.minute()
		clk.SetTime(c.Now())
		return process.step()
	}}
	return runner.Run(ctx, p)
}

// best is what the cheapest packing that a search finds for the pods would cost, without any of their constraints.
func (c *cluster) best(pods []*corev1.Pod, iterations int) float64 {
	GinkgoHelper()
	pool := &karpv1.NodePool{}
	Expect(c.Objects.Get(ctx, client.ObjectKey{Name: "default"}, pool)).To(Succeed())
	types, err := c.Provider.GetInstanceTypes(ctx, pool)
	Expect(err).ToNot(HaveOccurred())
	var bins []packing.Bin
	for _, it := range types {
		if offering := it.Offerings.Available(); len(offering) > 0 {
			bins = append(bins, packing.Bin{Name: it.Name, VNDPerHour: offering.Cheapest().Price, Allocatable: it.Allocatable()})
		}
	}
	items := lo.Map(pods, func(p *corev1.Pod, _ int) packing.Item {
		return packing.Item{Requests: p.Spec.Containers[0].Resources.Requests}
	})
	return packing.Best(ctx, items, bins, packing.Options{Iterations: iterations}).VNDPerHour
}
