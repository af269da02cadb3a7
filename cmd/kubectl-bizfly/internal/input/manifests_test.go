// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"golang.org/x/text/encoding/unicode"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// jsonPod is a Pod as JSON.
func jsonPod(name string) string {
	return fmt.Sprintf("{\n  \"apiVersion\": \"v1\", \"kind\": \"Pod\",\n  \"metadata\": {\"name\": %q}, \"spec\": "+
		"{\"containers\": [{\"name\": \"m\"}]}\n}\n", name)
}

// deployment has a container that requests 2 CPUs and 4 GiB.
func deployment(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec:\n  %s\n  template:\n    spec:\n      containers:\n"+
		"      - name: main\n        resources: {requests: {cpu: \"2\", memory: 4Gi}}\n", name, spec)
}

// example is one of the inputs that are compared with a cluster.
func example(name string) string {
	for _, folder := range []string{"../oracle/testdata", "testdata"} {
		if text, err := os.ReadFile(filepath.Join(folder, name+".yaml")); err == nil {
			return string(text)
		}
	}
	panic("there is no input " + name)
}

// nodePool has requirements, and a NodeClass.
func nodePool(group, kind, requirements string) string {
	return fmt.Sprintf("apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec:\n  template:\n    spec:\n"+
		"      nodeClassRef: {group: %s, kind: %s, name: a}\n      requirements: [%s]\n", group, kind, requirements)
}

// generated is a Job whose name is generated.
func generated(prefix string, parallelism int, cpu, memory string) string {
	return fmt.Sprintf("---\napiVersion: batch/v1\nkind: Job\nmetadata: {generateName: %s}\nspec: {parallelism: %d, template: {spec: {restartPolicy: Never, "+
		"containers: [{name: main, resources: {requests: {cpu: %q, memory: %s}}}]}}}\n", prefix, parallelism, cpu, memory)
}

// autoscaler scales the Deployment web.
func autoscaler(least, most int) string {
	return fmt.Sprintf("---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: scaler}\nspec: {scaleTargetRef: {apiVersion: apps/v1, "+
		"kind: Deployment, name: web}, minReplicas: %d, maxReplicas: %d}\n", least, most)
}

// workload is a manifest with a pod template; the spec is what stands before the template.
func workload(apiVersion, kind, name, metadata, spec string) string {
	return fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: %s%s}\nspec: {%stemplate: {spec: {containers: [{name: main}]}}}\n",
		apiVersion, kind, name, metadata, spec)
}

// ownedBy is the metadata of an object that a workload has created.
func ownedBy(apiVersion, kind, name string) string {
	return fmt.Sprintf(", ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: u, controller: true}]", apiVersion, kind, name)
}

// withVolume is a pod with a claim, and a PersistentVolume.
func withVolume(spec, status string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\n"+
		"spec: {%scapacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], storageClassName: ssd}%s\n---\n"+
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"+
		"spec: {accessModes: [ReadWriteOnce], storageClassName: ssd, resources: {requests: {storage: 10Gi}}}\n---\n"+
		"apiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec:\n  containers: [{name: main}]\n"+
		"  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n", spec, status)
}

var _ = Describe("Read", func() {
	podsIn := func(text string) []string {
		GinkgoHelper()
		set, err := input.Read(strings.NewReader(text), "-")
		Expect(err).ToNot(HaveOccurred())
		return lo.Map(set.Pods(), func(pod *corev1.Pod, _ int) string { return pod.Name })
	}

	It("should give pods of different workloads different names, and keep those of StatefulSets", func() {
		deployment := workload("apps/v1", "Deployment", "app", "", "replicas: 2, ")
		stateful := workload("apps/v1", "StatefulSet", "app", "", "replicas: 1, ")
		Expect(podsIn(deployment + stateful)).To(ConsistOf("app-0-deployment", "app-1", "app-0"))
		Expect(podsIn(deployment+deployment)).To(ConsistOf("app-0", "app-1"), "the second replaces the first")
		Expect(podsIn(deployment + deployment + stateful)).To(HaveLen(3))
	})

	It("should read each document of a file as PowerShell writes it", func() {
		path := filepath.Join(GinkgoT().TempDir(), "app.yaml")
		text, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(deployment("a", "replicas: 1") + deployment("b", "replicas: 1"))
		Expect(err).ToNot(HaveOccurred())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		set, err := input.Read(nil, path)
		Expect(err).ToNot(HaveOccurred())
		Expect(set.Pods()).To(HaveLen(2))
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
		Entry("of a StatefulSet that does not begin at 0", workload("apps/v1", "StatefulSet", "db", "", "ordinals: {start: 3}, replicas: 2, "), "db-3", "db-4"),
		Entry("of a Job with fewer completions", workload("batch/v1", "Job", "once", "", "parallelism: 5, completions: 2, "), "once-0", "once-1"),
		Entry("of a Job that is suspended", workload("batch/v1", "Job", "once", "", "suspend: true, ")),
		Entry("of a Job that has ended", workload("batch/v1", "Job", "once", "", "")+"status: {conditions: [{type: Complete, status: 'True'}]}\n"),
		Entry("of a CronJob that is suspended",
			"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n"+
				"spec: {suspend: true, jobTemplate: {spec: {template: {spec: {containers: []}}}}}\n"),
	)

	DescribeTable("should request for a pod with resources of its own what the API server does", func(own, container, cpu, mem string) {
		set, err := input.Read(strings.NewReader(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec: {resources: {%s}, "+
			"containers: [{name: main, resources: {%s}}]}\n", own, container)), "-")
		Expect(err).ToNot(HaveOccurred())
		requests := resources.RequestsForPods(memory.Of[*corev1.Pod](set.Within(nil))...)
		Expect([]string{requests.Cpu().String(), requests.Memory().String()}).To(Equal([]string{cpu, mem}))
	},
		Entry("limits alone", "limits: {cpu: 2, memory: 4Gi}", "", "2", "4Gi"),
		Entry("limits, of which containers request less", "limits: {cpu: 2, memory: 4Gi}", "requests: {cpu: 1}", "1", "4Gi"),
		Entry("limits of which a container has its own", "limits: {cpu: 2, memory: 4Gi}", "limits: {memory: 1Gi}", "2", "1Gi"),
		Entry("requests beside limits", "requests: {cpu: 1500m}, limits: {cpu: 2, memory: 4Gi}", "requests: {cpu: 1}", "1500m", "4Gi"),
		Entry("requests alone", "requests: {memory: 3Gi}", "requests: {cpu: 1, memory: 1Gi}", "1", "3Gi"),
	)

	DescribeTable("should count what the cluster would run", func(text string, pods int, cpu, memory string, notes ...string) {
		set, err := input.Read(strings.NewReader(text), "-")
		Expect(err).ToNot(HaveOccurred())
		requests := resources.RequestsForPods(set.Pods()...)
		Expect(set.Pods()).To(HaveLen(pods))
		Expect([]string{requests.Cpu().String(), requests.Memory().String()}).To(Equal([]string{cpu, memory}))
		Expect(lo.Uniq(lo.Map(set.Pods(), func(pod *corev1.Pod, _ int) string { return pod.Name }))).To(HaveLen(pods), "each pod has a name of its own")
		Expect(set.Notes).To(HaveLen(len(notes)))
		for i, note := range notes {
			Expect(set.Notes[i]).To(ContainSubstring(note))
		}
	},
		Entry("of JSON objects one after the other", jsonPod("a")+jsonPod("b"), 2, "0", "0"),
		Entry("of JSON in one line each", strings.ReplaceAll(jsonPod("a"), "\n", "")+"\n"+strings.ReplaceAll(jsonPod("b"), "\n", ""), 2, "0", "0"),
		Entry("of JSON between documents of YAML", deployment("web", "replicas: 1")+"---\n"+jsonPod("a")+jsonPod("b"), 3, "2", "4Gi"),
		Entry("of YAML that begins as JSON does", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: m}]}}", 1, "0", "0"),
		Entry("of Jobs whose names are generated", generated("load-", 3, "4", "8Gi")+generated("load-", 2, "1", "1Gi"), 5, "14", "26Gi"),
		Entry("of an object that is there twice", deployment("web", "replicas: 5")+deployment("web", "replicas: 1"), 1, "2", "4Gi",
			"Deployment web is there more than once"),
		Entry("of a ReplicationController", strings.NewReplacer("apps/v1", "v1", "Deployment", "ReplicationController").Replace(deployment("old",
			"replicas: 3")), 3, "6", "12Gi"),
		Entry("of a Deployment that is scaled", deployment("web", "minReadySeconds: 0")+autoscaler(6, 20), 6, "12", "24Gi",
			"Deployment web counts with 6 pods: HorizontalPodAutoscaler default/scaler keeps 6 to 20"),
		Entry("of a Deployment that has more replicas than it is scaled to", autoscaler(1, 2)+deployment("web", "replicas: 4"), 2, "4", "8Gi", "counts with 2 pods"),
		Entry("of a Deployment that an autoscaler of the first version scales",
			deployment("web", "minReadySeconds: 0")+strings.Replace(autoscaler(6, 20), "autoscaling/v2", "autoscaling/v1", 1), 6, "12", "24Gi", "keeps 6 to 20"),
		Entry("of a Deployment that is scaled to 0", deployment("web", "replicas: 0")+autoscaler(2, 3), 0, "0", "0",
			"does not scale Deployment web, which has 0", "workloads have no pods, since they are scaled to 0, suspended or ended: Deployment default/web;"),
		Entry("of a Deployment that was rolled out", workload("apps/v1", "Deployment", "web", "", "replicas: 1, ")+
			workload("apps/v1", "ReplicaSet", "web-5f", ownedBy("apps/v1", "Deployment", "web"), "replicas: 0, "), 1, "0", "0"),
		Entry("of Jobs that run no more", workload("batch/v1", "Job", "queued", "", "suspend: true, ")+workload("batch/v1", "Job", "done", "", "")+
			"status: {conditions: [{type: Complete, status: 'True'}]}\n", 0, "0", "0", "Job default/queued, Job default/done;"),
		Entry("of a Deployment that two autoscalers scale", deployment("web", "replicas: 2")+autoscaler(4, 9)+
			strings.Replace(autoscaler(5, 9), "{name: scaler}", "{name: other}", 1), 2, "4", "8Gi",
			"scaler is not planned: others scale", "other is not planned: others scale"),
		Entry("of a list in a list", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: ["+
			strings.TrimSpace(jsonPod("a"))+"]}]}", 1, "0", "0"),
		Entry("of an autoscaler of something else", deployment("api", "replicas: 1")+autoscaler(2, 3), 1, "2", "4Gi",
			"HorizontalPodAutoscaler default/scaler is not planned: its target Deployment web is not in the files"),
		Entry("of a later version of a kind that adds pods", deployment("web", "replicas: 1")+
			"---\napiVersion: autoscaling.x-k8s.io/v1beta9\nkind: CapacityBuffer\nmetadata: {name: spare}\n", 1, "2", "4Gi",
			"objects of kind CapacityBuffer were not planned"),
	)

	DescribeTable("should make pods and claims as the API server and its controllers do", func(text string, pods int, cpu string, notes ...string) {
		set, err := input.Read(strings.NewReader(text), "-")
		Expect(err).ToNot(HaveOccurred())
		objects := set.Within(nil)
		requests := resources.RequestsForPods(memory.Of[*corev1.Pod](objects)...)
		Expect(memory.Of[*corev1.Pod](objects)).To(HaveLen(pods))
		Expect(requests.Cpu().String()).To(Equal(cpu))
		Expect(set.Notes).To(HaveExactElements(lo.Map(notes, func(note string, _ int) any { return ContainSubstring(note) })...))
	},
		Entry("without the hooks that end", example("hook"), 1, "1",
			"hooks are left out that do not run, or end, once it is installed: Pod web-test, Job web-migrate"),
		Entry("with a hook that stays", strings.Replace(deployment("web", "replicas: 1"), "{name: web}",
			"{name: web, annotations: {helm.sh/hook: post-install}}", 1), 1, "2"),
		Entry("with the defaults of a LimitRange", example("limitrange"), 4, "4"),
		Entry("with the overhead of a RuntimeClass", example("overhead"), 1, "3"),
		Entry("within LimitRanges and ResourceQuotas", example("admission"), 6, "8", "CronJobs count with the pods of one run at a time",
			"not planned, since an API server rejects them: team/half-2, team/half-3, team/nightly-0, team/nightly-1; "+
				"exceeded quota: total, requested: requests.cpu=2, used: requests.cpu=4, limited: requests.cpu=5",
			"few/fits-4, few/fits-5, few/fits-6, few/fits-7, few/fits-8; "+
				"exceeded quota: total, requested: pods=1, used: pods=4, limited: pods=4",
			"team/large; spec.containers[0].resources.requests: "+
				`Invalid value: "3": must be less than or equal to cpu limit of 2`,
			"PriorityClasses are not in the files (missing of CronJob team/nightly)"),
		Entry("with DaemonSets of which a dump has only pods", example("dsdump"), 1, "1",
			"DaemonSets are not in the files, and their pods are (kube-system/agent)"),
		Entry("with claims of ephemeral volumes", example("ephemeral"), 2, "2"),
		Entry("with volumes that are created at once", example("immediate"), 3, "3", "StorageClasses create volumes before their pods have a node (replicated)"),
		Entry("with volumes that are created at once, since no mode is given", example("nomode"), 3, "3", "(replicated)"),
		Entry("with a volume that is in the files", example("staticpv"), 2, "2"),
		Entry("with volumes that are not", example("stsdump"), 2, "2",
			"PersistentVolumes of claims are not in the files (pvc-1 of shop/data-db-0, pvc-2 of shop/data-db-1)", "StorageClasses are not in the files (ssd)"),
		Entry("with memory in the unit of CPUs", strings.Replace(deployment("web", "replicas: 2"), "4Gi", "512m", 1), 2, "4",
			"containers request less than 1 MiB of memory (main of Deployment default/web)"),
		Entry("without what requests more than its limit", example("overlimit"), 2, "2", "not planned, since an API server rejects them: default/cpu-0, "+
			"default/cpu-1; spec.containers[0].resources.requests: "+
			`Invalid value: "2": must be less than or equal to cpu limit of 1`,
			"default/default-0; spec.containers[0].resources.requests: "+
				`Invalid value: "1": must be less than or equal to cpu limit of 500m`,
			"default/gpu-0; spec.containers[0].resources.limits: "+
				"Required value: Limit must be set for non overcommitable resources"),
		Entry("without what is invalid or over a quota for another reason", example("validation"), 1, "1",
			"default/huge; spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
			"default/whole; spec.resources.requests[cpu]: "+
				`Invalid value: "500m": must be greater than or equal to aggregate container requests of 1`,
			`default/tolerant; spec.tolerations[0].operator: Invalid value: "a100": value must be empty`,
			"pairs/pair-1, pairs/pair-2; exceeded quota: apart, requested: pods=1, used: pods=1, limited: pods=1"),
		Entry("with a volume that fits", withVolume("", ""), 1, "0"),
		Entry("without a volume of another mode", withVolume("volumeMode: Block, ", ""), 1, "0",
			"StorageClasses are not in the files (ssd)"),
		Entry("without a volume whose claim is gone",
			withVolume("claimRef: {namespace: default, name: data, uid: gone}, ", "\nstatus: {phase: Released}"), 1, "0",
			"StorageClasses are not in the files (ssd)"),
		Entry("with the volume of a claim that is not in the files",
			withVolume("claimRef: {namespace: default, name: data, uid: there}, ", "\nstatus: {phase: Bound}"), 1, "0"),
		Entry("with a claim that is not", example("pvc-missing"), 1, "1", "PersistentVolumeClaims that pods use are not in the files (default/db-data)"),
	)

	It("should give pods of a StatefulSet the claims that exist, in the files or in the cluster", func() {
		volumes := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pvc-1}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\n" +
			"metadata: {name: data-db-0}\nspec: {volumeName: pvc-1}\n"
		stateful := workload("apps/v1", "StatefulSet", "db", "", "volumeClaimTemplates: [{metadata: {name: data}}], ")
		there, err := input.Read(strings.NewReader(volumes), "-")
		Expect(err).ToNot(HaveOccurred())
		for text, cluster := range map[string]memory.Objects{volumes + stateful: nil, stateful: there.Objects} {
			set, err := input.Read(strings.NewReader(text), "-")
			Expect(err).ToNot(HaveOccurred())
			Expect(memory.Of[*corev1.PersistentVolumeClaim](set.Within(cluster))).To(HaveExactElements(HaveField("Spec.VolumeName", "pvc-1")))
		}
	})

	It("should give claims without a class the newest default class, as an API server does", func() {
		text := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {}\n"
		for name, created := range map[string]string{"a": "01", "b": "03", "c": "03", "d": "02"} {
			text += fmt.Sprintf("---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: a\n"+
				"volumeBindingMode: WaitForFirstConsumer\nmetadata: {name: %s, creationTimestamp: '2026-%s-01T00:00:00Z', "+
				"annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\n", name, created)
		}
		set, err := input.Read(strings.NewReader(text), "-")
		Expect(err).ToNot(HaveOccurred())
		Expect(memory.Of[*corev1.PersistentVolumeClaim](set.Within(nil))).To(HaveExactElements(
			HaveField("Spec.StorageClassName", HaveValue(Equal("b")))))
	})

	It("should leave out NodePools of other providers", func() {
		set, err := input.Read(strings.NewReader(nodePool("karpenter.k8s.aws", "EC2NodeClass", "")), "-")
		Expect(err).ToNot(HaveOccurred())
		Expect(memory.Of[*karpv1.NodePool](set.Within(nil))).To(BeEmpty())
		Expect(set.Notes).To(HaveExactElements(HavePrefix("NodePools of other providers are left out: general (EC2NodeClass of karpenter.k8s.aws)")))
	})

	DescribeTable("should name file, line, field and remedy", func(text string, errors ...string) {
		path := filepath.Join(GinkgoT().TempDir(), "app.yaml")
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		_, err := input.Read(nil, path)
		Expect(err).To(HaveOccurred())
		for _, text := range errors {
			Expect(err.Error()).To(ContainSubstring(text))
		}
	},
		Entry("where a version is not served any more", "# old\n---\n\n"+strings.TrimPrefix(strings.Replace(deployment("old", "replicas: 5"),
			"apps/v1", "extensions/v1beta1", 1), "---\n"),
			"app.yaml:4: Deployment old: extensions/v1beta1 is not served any more: write apiVersion: apps/v1"),
		Entry("where a CronJob's version is not", "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: old}\n", "app.yaml:1: CronJob old",
			"write apiVersion: batch/v1"),
		Entry("where a NodePool's version is not", "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: old}\n", "write apiVersion: karpenter.sh/v1"),
		Entry("where a class's version is not", "apiVersion: scheduling.k8s.io/v1beta1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 9\n",
			"PriorityClass high: scheduling.k8s.io/v1beta1 is not served any more: write apiVersion: scheduling.k8s.io/v1"),
		Entry("where it is a patch", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 5}\n",
			"app.yaml:1: Deployment web: its template has no containers", "kubectl kustomize DIR | kubectl bizfly plan -f -"),
		Entry("where a number stands for a text", strings.Replace(deployment("web", "replicas: 1"), "      - name: main\n",
			"      - name: main\n        env: [{name: PORT, value: 8080}]\n", 1),
			"app.yaml:2: Deployment web: spec.template.spec.containers.env.value must be string, not number: write it in quotes"),
		Entry("where a text stands for a number", deployment("web", `replicas: "3"`), "spec.replicas must be int32, not string: write it without quotes"),
		Entry("where an amount is none", strings.Replace(deployment("web", "replicas: 1"), "4Gi", "1GB", 1),
			`spec.template.spec.containers[0].resources.requests.memory: "1GB" is no quantity, write for example 500m or 2Gi`),
		Entry("where a field is not known", deployment("web", "replicaz: 1"), `unknown field "spec.replicaz"`),
		Entry("where it is no YAML", "a: b\n---\napiVersion: v1\nmetadata:\n  labels:\n   a: b\n    c: d\n",
			"app.yaml:7: it is not YAML of an object: mapping values"),
		Entry("where it is a template of a chart", "apiVersion: v1\nkind: Pod\nmetadata:\n  {{- with .Values.labels }}\n", "app.yaml:3: it is not YAML of an object",
			"run: helm template CHART | kubectl bizfly plan -f - --namespace default"),
		Entry("where it is a list", "- op: remove\n  path: /spec\n", "app.yaml:1: it is a list, not an object"),
		Entry("where it is no manifest", "replicaCount: 2\n", "app.yaml:1: it has no apiVersion and kind, so it is no manifest"),
		Entry("where a type of Go stands in the way to a field", strings.Replace(deployment("web", "replicas: 1"), "      - name: main\n",
			"      - name: main\n        livenessProbe: {httpGet: {path: 8080}}\n", 1),
			"spec.template.spec.containers.livenessProbe.httpGet.path must be string, not number: write it in quotes"),
		Entry("where a NodePool has labels of another provider", nodePool(v1alpha1.Group, "BizflyNodeClass",
			"{key: eks.amazonaws.com/instance-cpu, operator: In, values: ['4']}"),
			"app.yaml:1: NodePool general: requirements may not have eks.amazonaws.com/instance-cpu"),
		Entry("where a NodePool is of another architecture", nodePool(v1alpha1.Group, "BizflyNodeClass",
			"{key: kubernetes.io/arch, operator: In, values: [arm64]}"), "add amd64 to the values of kubernetes.io/arch"),
		Entry("where a BizflyNodeClass breaks a rule of its definition",
			"apiVersion: karpenter.bizflycloud.vn/v1alpha1\nkind: BizflyNodeClass\nmetadata: {name: a}\nspec: {rootDisk: {size: 10Gi}}\n",
			"app.yaml:1: BizflyNodeClass a: spec.rootDisk.size: Invalid value", "rootDisk.size must be between 20Gi and 16Ti, for example 40Gi"),
		Entry("where a NodePool breaks a rule of its definition", nodePool(v1alpha1.Group, "BizflyNodeClass",
			"{key: kubernetes.io/arch, operator: In, values: [amd64], minValues: 2}"), "NodePool general: spec.template.spec.requirements: Invalid value",
			"requirements with 'minValues' must have at least that many values"),
		Entry("where the admission policy rejects a NodePool", nodePool(v1alpha1.Group, "EC2NodeClass",
			"{key: karpenter.sh/capacity-type, operator: In, values: [spot]}"),
			"NodePool general: karpenter.sh/capacity-type leaves out on-demand", "; there is no kind EC2NodeClass in karpenter.bizflycloud.vn"),
		Entry("where something follows a separator", jsonPod("a")+"--- !tag\n"+jsonPod("b"), `app.yaml:5: only a comment may follow ---, not "!tag"`),
	)

	DescribeTable("should say what makes manifests of a folder", func(file, command string) {
		folder := GinkgoT().TempDir()
		Expect(os.Mkdir(filepath.Join(folder, "app"), 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "app", file), []byte("{}"), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "app", "web.yaml"), []byte(deployment("web", "replicas: 1")), 0o600)).To(Succeed())
		_, err := input.Read(nil, folder)
		Expect(err).To(MatchError(ContainSubstring("run: " + command + " " + filepath.Join(folder, "app") + " | kubectl bizfly plan -f -")))
	}, Entry("with a kustomization", "kustomization.yaml", "kubectl kustomize"), Entry("with a chart", "Chart.yaml", "helm template"))
})
