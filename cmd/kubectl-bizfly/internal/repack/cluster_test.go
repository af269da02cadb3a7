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
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/repack"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
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

// cluster is a cluster in simulated time: core's provisioner, scheduler and disruption controller, the Job controller and the kubelet.
type cluster struct {
	*sim.Simulation
	session *connect.Session
	// began is when each Job and each pod of a node began.
	began map[string]time.Time
	// placed are the Jobs whose pods run.
	placed map[string]bool
	gates  []*corev1.Pod
}

// pod is a pod of a Deployment, whose label distinguishes its replicas from others.
func pod(name string, cpu, memory int64) *corev1.Pod {
	app := strings.Split(name, "-")[0]
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app, appsv1.DefaultDeploymentUniqueLabelKey: app}},
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
		cpu, memory := pick(50, 100, 250, 500, 1000), pick(64, 128, 256, 512, 1024, 2048)
		kind := r.IntN(12)
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
	set, err := input.Read(strings.NewReader(fmt.Sprintf(pools, budget)), "-")
	Expect(err).ToNot(HaveOccurred())
	objects := memory.Objects(set.Objects)
	for _, name := range []string{metav1.NamespaceSystem, "shop"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"}})
	}
	for _, p := range pods {
		objects = append(objects, p.DeepCopy())
	}
	s, simulated := simulate(objects)
	Expect(simulated.Empty(ctx)).To(Succeed())
	planned, err := simulated.Settle(ctx)
	Expect(err).ToNot(HaveOccurred())
	Expect(planned.Unplaced).To(BeEmpty())
	c := clusterOf(s, simulated, seed)
	c.rest()
	return c
}

// simulate is a copy of objects, and a session that reads it.
func simulate(objects memory.Objects) (*connect.Session, *sim.Simulation) {
	GinkgoHelper()
	s, err := connect.NewFor(ctx, nil, connect.Options{Offline: true})
	Expect(err).ToNot(HaveOccurred())
	bizfly, err := s.Cloud(ctx)
	Expect(err).ToNot(HaveOccurred())
	simulated, err := sim.New(ctx, bizfly, objects)
	Expect(err).ToNot(HaveOccurred())
	s.Cluster = simulated.Objects
	return s, simulated
}

// clusterOf is the cluster of a simulation.
func clusterOf(s *connect.Session, simulated *sim.Simulation, seed uint64) *cluster {
	GinkgoHelper()
	Expect(simulated.Trial(ctx, seed)).To(Succeed())
	return &cluster{Simulation: simulated, session: s, began: map[string]time.Time{}, placed: map[string]bool{}}
}

// again is the same cluster once more, in which nothing has happened since.
func (c *cluster) again(seed uint64) *cluster {
	GinkgoHelper()
	objects := lo.Must(c.session.Copy(ctx))
	s, simulated := simulate(objects)
	return clusterOf(s, simulated, seed)
}

// bill is what all nodes cost, in VND per hour, and how many there are.
func (c *cluster) bill() (vndPerHour float64, nodes int) {
	GinkgoHelper()
	nodes, vndPerHour = lo.Must2(c.Nodes(ctx))
	return vndPerHour, nodes
}

// minute is what happens in one: NodeClaims become nodes, what is to run on nodes begins and ends, and core looks once.
func (c *cluster) minute() (changed bool) {
	GinkgoHelper()
	claims := &karpv1.NodeClaimList{}
	Expect(c.Objects.List(ctx, claims)).To(Succeed())
	for _, claim := range claims.Items {
		if claim.Status.ProviderID == "" {
			Expect(c.Join(ctx, claim.Name, nil)).To(Succeed())
		}
	}
	running := c.jobs() + c.gatesEnd()
	changed, err := c.ConsolidateOnce(ctx, time.Minute)
	Expect(err).ToNot(HaveOccurred())
	return changed || running > 0
}

// jobs begins and ends Jobs, and returns how many there are.
func (c *cluster) jobs() int {
	GinkgoHelper()
	jobs, nodes := &batchv1.JobList{}, &corev1.NodeList{}
	Expect(c.Objects.List(ctx, jobs)).To(Succeed())
	Expect(c.Objects.List(ctx, nodes)).To(Succeed())
	for i := range jobs.Items {
		job := &jobs.Items[i]
		template := job.Spec.Template
		if _, known := c.began[job.Name]; !known {
			c.began[job.Name] = c.Now()
		}
		if c.over(c.began[job.Name], job.Spec.ActiveDeadlineSeconds) {
			c.EndPods(func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, job) })
			Expect(c.Objects.Delete(ctx, job)).To(Succeed())
			continue
		}
		if c.placed[job.Name] {
			continue
		}
		on := lo.Filter(nodes.Items, func(n corev1.Node, _ int) bool {
			if template.Spec.NodeName != "" {
				return template.Spec.NodeName == n.Name
			}
			return labels.SelectorFromSet(template.Spec.NodeSelector).Matches(labels.Set(n.Labels))
		})
		if len(on) == 0 {
			continue
		}
		pods := int(lo.FromPtrOr(job.Spec.Parallelism, 1))
		Expect(on).To(Or(HaveLen(pods), WithTransform(func([]corev1.Node) bool { return strings.HasSuffix(job.Name, "-new") }, BeTrue())),
			"a Job holds one node, or all new ones, but for the one that waits for them")
		c.placed[job.Name] = true
		for i, node := range on {
			Expect(c.RunPod(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: job.Namespace, Name: fmt.Sprintf("%s-pod-%d", job.Name, i), Labels: template.Labels, Annotations: template.Annotations,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: lo.ToPtr(true)}},
			}, Spec: template.Spec}, node.Name)).To(Succeed())
		}
	}
	return len(jobs.Items)
}

// gatesEnd ends the pods of nodes whose time is over, and returns how many are left.
func (c *cluster) gatesEnd() int {
	GinkgoHelper()
	over := map[string]bool{}
	c.gates = lo.Reject(c.gates, func(gate *corev1.Pod, _ int) bool {
		over[gate.Name] = c.over(c.began[gate.Name], gate.Spec.ActiveDeadlineSeconds)
		return over[gate.Name]
	})
	c.EndPods(func(p *corev1.Pod) bool { return over[p.Name] })
	return len(c.gates)
}

func (c *cluster) over(began time.Time, seconds *int64) bool {
	return c.Now().Sub(began) >= time.Duration(*seconds)*time.Second
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
	return lo.Must(repack.Compute(ctx, c.session, "", ""))
}

// errInterrupted is what a request of a process that has ended comes to.
var errInterrupted = errors.New("interrupted")

// interruptible is a client of a process that ends after some steps.
type interruptible struct {
	client.Client
	cluster *cluster
	left    int
	// fail, which may be nil, returns the error of a list of NodeClaims.
	fail func() error
}

func (i *interruptible) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*karpv1.NodeClaimList); ok && i.fail != nil {
		if err := i.fail(); err != nil {
			return err
		}
	}
	return i.Client.List(ctx, list, opts...)
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
	if gate, ok := object.(*corev1.Pod); ok {
		if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
			return nil
		}
		i.cluster.gates, i.cluster.began[gate.Name] = append(i.cluster.gates, gate), i.cluster.Now()
		return i.cluster.RunPod(ctx, gate, gate.Spec.NodeName)
	}
	return i.Client.Create(ctx, object, opts...)
}

// client is the client of a process that ends after so many steps.
func (c *cluster) client(steps int) *interruptible {
	return &interruptible{Client: c.Objects, cluster: c, left: steps}
}

// run carries a proposal out, while time passes in the cluster, for so many steps at most.
func (c *cluster) run(p *repack.Proposal, steps int) (repack.Outcome, error) {
	return c.runWith(p, c.client(steps))
}

// runWith carries a proposal out with the client of a process.
func (c *cluster) runWith(p *repack.Proposal, process *interruptible) (repack.Outcome, error) {
	clk := clocktesting.NewFakePassiveClock(c.Now())
	runner := repack.Runner{Client: process, Namespace: "shop", Clock: clk, Wait: func(context.Context) error {
		c.minute()
		clk.SetTime(c.Now())
		return process.step()
	}}
	return runner.Run(ctx, p)
}
