// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
)

// workload is a manifest with a pod template; the spec is what stands before the template.
func workload(apiVersion, kind, name, metadata, spec string) string {
	return fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: %s%s}\nspec: {%stemplate: {spec: {containers: [{name: main}]}}}\n",
		apiVersion, kind, name, metadata, spec)
}

// ownedBy is the metadata of an object that a workload has created.
func ownedBy(apiVersion, kind, name string) string {
	return fmt.Sprintf(", ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: u, controller: true}]", apiVersion, kind, name)
}

var _ = Describe("manifests", func() {
	podsIn := func(text string) []string {
		GinkgoHelper()
		set, err := input.Read(strings.NewReader(text), "-")
		Expect(err).ToNot(HaveOccurred())
		return lo.Map(set.Pods(), func(pod *corev1.Pod, _ int) string { return pod.Name })
	}

	It("should plan the pods of all lines of a table that share a name", func() {
		withoutCredentials()
		f.reader = nil
		file := written("pods.csv", "\ufeff\"name\",cpu,memory,count,zone\nweb,1,2Gi,3,HN1\nweb,1,2Gi,3,HN2\n")
		p := answer[plan.Plan](f, "plan", "-f", file)
		Expect(p.Pods).To(Equal(6))
		Expect(lo.FlatMap(p.Nodes, func(n sim.Node, _ int) []string { return n.Pods })).To(ConsistOf(
			"default/web-0", "default/web-1", "default/web-2", "default/web-3", "default/web-4", "default/web-5"))
	})

	It("should be in the namespace of the flag where they name none", func() {
		withoutCredentials()
		f.reader = nil
		deployment := workload("apps/v1", "Deployment", "api", "", "replicas: 1, ") + workload("apps/v1", "Deployment", "own", ", namespace: own", "replicas: 1, ")
		p := answer[plan.Plan](f, "plan", "-f", written("api.yaml", deployment), "-f", written("pods.csv", "name,cpu,memory\nweb,1,2Gi\n"), "-n", "shop")
		Expect(lo.FlatMap(p.Nodes, func(n sim.Node, _ int) []string { return n.Pods })).To(ConsistOf("shop/api-0", "shop/web-0", "own/own-0"))
	})

	It("should give pods of different workloads different names, and keep those of StatefulSets", func() {
		deployment := workload("apps/v1", "Deployment", "app", "", "replicas: 2, ")
		stateful := workload("apps/v1", "StatefulSet", "app", "", "replicas: 1, ")
		Expect(podsIn(deployment + stateful)).To(ConsistOf("app-0-deployment", "app-1", "app-0"))
		Expect(podsIn(deployment+deployment)).To(ConsistOf("app-0", "app-1"), "the second replaces the first")
		withoutCredentials()
		f.reader = nil
		Expect(answer[plan.Plan](f, "plan", "-f", written("app.yaml", deployment+deployment+stateful)).Pods).To(Equal(3))
	})

	DescribeTable("should count each pod of a dump of a cluster once", func(text string, expected ...string) {
		Expect(podsIn(text)).To(ConsistOf(lo.ToAnySlice(expected)...))
	},
		Entry("of a Deployment", workload("apps/v1", "Deployment", "web", "", "replicas: 2, ")+
			workload("apps/v1", "ReplicaSet", "web-5f", ownedBy("apps/v1", "Deployment", "web"), "replicas: 2, ")+
			"---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-5f-x"+ownedBy("apps/v1", "ReplicaSet", "web-5f")+
			"}\nspec: {containers: [{name: main}]}\n", "web-0", "web-1"),
		Entry("of a kind that is not planned",
			workload("apps/v1", "ReplicaSet", "web-5f", ownedBy("argoproj.io/v1alpha1", "Rollout", "web"), "replicas: 1, ")+
				"---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web}\n", "web-5f-0"),
		Entry("that has ended", "apiVersion: v1\nkind: Pod\nmetadata: {name: done}\nstatus: {phase: Succeeded}\n---\n"+
			"apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nstatus: {phase: Failed}\n"),
		Entry("of a Job with fewer completions", workload("batch/v1", "Job", "once", "", "parallelism: 5, completions: 2, "), "once-0", "once-1"),
		Entry("of a Job that is suspended", workload("batch/v1", "Job", "once", "", "suspend: true, ")),
		Entry("of a Job that has ended", workload("batch/v1", "Job", "once", "", "")+"status: {conditions: [{type: Complete, status: 'True'}]}\n"),
		Entry("of a CronJob that is suspended",
			"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n"+
				"spec: {suspend: true, jobTemplate: {spec: {template: {spec: {containers: []}}}}}\n"),
	)

	It("should place pods whose volumes are not there yet, or not in the files", func() {
		withoutCredentials()
		f.reader = nil
		for _, name := range []string{"oracle/testdata/ephemeral", "oracle/testdata/immediate", "oracle/testdata/nomode", "oracle/testdata/staticpv",
			"oracle/testdata/pvc-missing", "input/testdata/stsdump", "input/testdata/dsdump"} {
			p := answer[plan.Plan](f, "plan", "-f", "../"+name+".yaml")
			Expect(p.Unplaced).To(BeEmpty(), name)
			Expect(p.Pods).To(BeNumerically(">", 0), name)
		}
	})

	DescribeTable("should request for a pod with resources of its own what the API server does", func(own, container, cpu, memory string) {
		set, err := input.Read(strings.NewReader(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec: {resources: {%s}, "+
			"containers: [{name: main, resources: {%s}}]}\n", own, container)), "-")
		Expect(err).ToNot(HaveOccurred())
		requests := resources.RequestsForPods(set.Pods()...)
		Expect([]string{requests.Cpu().String(), requests.Memory().String()}).To(Equal([]string{cpu, memory}))
	},
		Entry("limits alone", "limits: {cpu: 2, memory: 4Gi}", "", "2", "4Gi"),
		Entry("limits, of which containers request less", "limits: {cpu: 2, memory: 4Gi}", "requests: {cpu: 1}", "1", "4Gi"),
		Entry("limits of which a container has its own", "limits: {cpu: 2, memory: 4Gi}", "limits: {memory: 1Gi}", "2", "1Gi"),
		Entry("requests beside limits", "requests: {cpu: 1500m}, limits: {cpu: 2, memory: 4Gi}", "requests: {cpu: 1}", "1500m", "4Gi"),
		Entry("requests alone", "requests: {memory: 3Gi}", "requests: {cpu: 1, memory: 1Gi}", "1", "3Gi"),
	)

	It("should say which kinds were not planned, of those that may add pods", func() {
		withoutCredentials()
		f.reader = nil
		others := "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: " +
			"{scaleTargetRef: {kind: Rollout, name: api}, maxReplicas: 2}\n" +
			"---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: api}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
		Expect(f.run("plan", "-f", written("web.yaml", web+others))).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(And(ContainSubstring("HorizontalPodAutoscaler default/web is not planned: its target Rollout api is not in the files"),
			ContainSubstring("objects of kind Rollout were not planned"), Not(ContainSubstring("Service"))))
		Expect(f.run("plan", "-f", written("rollout.yaml", others))).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("the files have no pod to plan, only 1 Rollout, 1 Service"))
	})
})
