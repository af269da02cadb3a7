// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

var _ = Describe("plan -f and a cluster with the same manifests", func() {
	It("should have the same pods for each input of the folder", func() {
		var all []*given
		for _, path := range lo.Must(filepath.Glob("testdata/*")) {
			all = append(all, &given{name: path, text: string(lo.Must(os.ReadFile(path)))})
		}
		compare(all)
	})

	It("should have the same pods for manifests that others publish", func() {
		list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
		list.Dir = "../../../../test/support/controlplane"
		root := strings.TrimSpace(string(lo.Must(list.Output())))
		var all []*given
		for _, folder := range []string{"cluster", "hack/testdata", "test/fixtures", "test/e2e/testing-manifests"} {
			Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
				if filepath.Ext(path) != ".yaml" {
					return err
				}
				text, err := os.ReadFile(path)
				if strings.Contains(string(text), "\nkind:") && err == nil {
					all = append(all, &given{name: strings.TrimPrefix(path, root), text: string(text)})
				}
				return nil
			})).To(Succeed())
		}
		Expect(len(all)).To(BeNumerically(">", 100))
		compare(all)
	})

	It("should have the same pods for generated kinds, forms and rules of admission", func() {
		var all []*given
		for seed := range uint64(suite.Number("PROPERTY_SEEDS", 12)) {
			all = append(all, &given{name: fmt.Sprint("seed ", seed), text: generated(rand.New(rand.NewPCG(seed, 50)))})
		}
		compare(all)
	})
})

// notValidated is what plan does not look at: it counts the pods of such objects, which an API server rejects.
const notValidated = "resourceVersion should not be set|metadata.name: Invalid|selector|name: Required|volumeMounts"

// number is that of the last input of this run.
var number int

// compare creates all inputs, and waits until the cluster has the pods that the plan has.
func compare(all []*given) {
	GinkgoHelper()
	var failed []string
	expected, notes := map[string]map[string]int{}, map[int]string{}
	for _, g := range all {
		number++
		g.number, g.ignored = number, map[string]string{}
		g.apply()
		pods, said, err := g.planned()
		if err != nil {
			if len(g.ignored) == 0 {
				failed = append(failed, fmt.Sprintf("%s: the API server accepts it, plan says: %s", g.name, err))
			}
			g.number = 0 // what the API server has of it is not compared
			continue
		}
		if _, broken := g.ignored[""]; broken {
			failed = append(failed, fmt.Sprintf("%s: plan reads what no API server does: %s", g.name, g.ignored[""]))
		}
		notes[g.number] = strings.Join(said, "\n")
		for name, pods := range counted(pods) {
			if why, rejected := g.ignored[name]; !rejected {
				expected[name] = pods
			} else if !g.notes(notes[g.number], name) {
				Expect(why).To(MatchRegexp(notValidated), g.name+": "+name)
			}
		}
	}
	byNumber := lo.KeyBy(all, func(g *given) int { return g.number })
	of := func(namespace string) *given {
		var n int
		_, _ = fmt.Sscanf(namespace, "oracle-%d-", &n)
		return byNumber[n]
	}
	differences := func() []string {
		list := &corev1.PodList{}
		Expect(cluster.List(ctx, list)).To(Succeed())
		there := counted(lo.FilterMap(list.Items, func(pod corev1.Pod, i int) (*corev1.Pod, bool) { return &list.Items[i], of(pod.Namespace) != nil }))
		found := slices.Clone(failed)
		for _, name := range lo.Uniq(slices.Concat(slices.Collect(maps.Keys(there)), slices.Collect(maps.Keys(expected)))) {
			g := of(name)
			if !maps.Equal(there[name], expected[name]) && (len(there[name]) > 0 || !g.notes(notes[g.number], name)) {
				found = append(found, fmt.Sprintf("%s: %s:\n  cluster %v\n  plan    %v", g.name, name, there[name], expected[name]))
			}
		}
		return found
	}
	Eventually(differences, "2m", "1s").Should(BeEmpty())
	Consistently(differences, "3s", "1s").Should(BeEmpty())
}

// notes reports whether the plan has a line about a workload.
func (g *given) notes(said, workload string) bool {
	return strings.Contains(said, strings.TrimPrefix(workload, fmt.Sprintf("oracle-%d-", g.number)))
}

// generated is an input: rules of admission, and workloads of all kinds under them, in one of the forms in which manifests come.
func generated(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	amount := func() string { return pick("100m", "250m", "1", "1500m") }
	var documents []string
	add := func(format string, values ...any) { documents = append(documents, fmt.Sprintf(format, values...)) }
	add("apiVersion: v1\nkind: LimitRange\nmetadata: {name: rules}\nspec: {limits: [{type: Container, %s: {%s: %s}}, {type: Pod, max: {cpu: 2500m}}]}",
		pick("default", "defaultRequest", "max", "min"), pick("cpu", "memory"), pick("200m", "1"))
	add("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\noverhead: {podFixed: {cpu: 50m}}\n" +
		"scheduling: {nodeSelector: {kata: yes}, tolerations: [{key: kata, operator: Exists}]}")
	for i := range 4 {
		containers := func() string {
			all := make([]string, 1+r.IntN(2))
			for c := range all {
				all[c] = fmt.Sprintf("{name: c%d, image: a, ports: [{containerPort: %d}], resources: {%s}}", c, 8000+10*i+c, pick("",
					fmt.Sprintf("requests: {cpu: %s}", amount()), fmt.Sprintf("limits: {cpu: %s, memory: 1Gi}", amount()),
					fmt.Sprintf("requests: {cpu: 100m}, limits: {cpu: %s}", amount())))
			}
			return strings.Join(all, ", ")
		}
		extra := pick("", "runtimeClassName: kata, ", "hostNetwork: true, ", "priorityClassName: system-node-critical, ",
			"nodeSelector: {disk: ssd}, ", "tolerations: [{key: gpu, operator: Exists}], ",
			"volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], ",
			"topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, "+
				"labelSelector: {matchLabels: {app: a}}}], ",
			"initContainers: [{name: first, image: a, restartPolicy: Always, resources: {requests: {cpu: 300m}}}], ",
			fmt.Sprintf("resources: {%s: {cpu: %s}}, ", pick("requests", "limits"), pick("2", "2400m")))
		kind := pick("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")
		ends := strings.HasSuffix(kind, "Job")
		template := fmt.Sprintf("{%s%scontainers: [%s]}", lo.Ternary(ends, "restartPolicy: Never, ", ""), extra, containers())
		labelled := fmt.Sprintf("template: {metadata: {labels: {app: w%d}}, spec: %s}", i, template)
		name := fmt.Sprintf("metadata: {name: w%d}", i)
		selector := fmt.Sprintf("selector: {matchLabels: {app: w%d}}", i)
		switch kind {
		case "Pod":
			add("apiVersion: v1\nkind: Pod\n%s\nspec: %s", name, template)
		case "Job":
			add("apiVersion: batch/v1\nkind: Job\n%s\nspec: {parallelism: %d, completions: %d, %s}", name, r.IntN(4), 1+r.IntN(4), labelled)
		case "CronJob":
			add("apiVersion: batch/v1\nkind: CronJob\n%s\nspec: {schedule: '@daily', suspend: %s, jobTemplate: {spec: {%s}}}", name, pick("true", "false"), labelled)
		case "ReplicationController":
			add("apiVersion: v1\nkind: ReplicationController\n%s\nspec: {replicas: %d, %s}", name, r.IntN(4), labelled)
		case "DaemonSet":
			add("apiVersion: apps/v1\nkind: DaemonSet\n%s\nspec: {%s, %s}", name, selector, labelled)
		default:
			claims := lo.Ternary(kind == "StatefulSet", ", serviceName: w, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], "+
				"resources: {requests: {storage: 1Gi}}}}]", "")
			add("apiVersion: apps/v1\nkind: %s\n%s\nspec: {%s, replicas: %d, %s%s}", kind, name, selector, r.IntN(5), labelled, claims)
		}
	}
	if form := r.IntN(3); form > 0 {
		for i, document := range documents {
			documents[i] = string(lo.Must(yaml.YAMLToJSON([]byte(document))))
		}
		if form == 1 {
			return strings.Join(documents, "\n")
		}
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "List", "items": [%s]}`, strings.Join(documents, ", "))
	}
	return strings.Join(documents, "\n---\n")
}
