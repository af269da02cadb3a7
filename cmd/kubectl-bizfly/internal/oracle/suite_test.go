// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestOracle(t *testing.T) {
	suite.ReadsRepository()
	suite.Run(t, "Oracle")
}

var (
	ctx     = context.Background()
	cluster client.Client
)

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	environment := &envtest.Environment{}
	config := lo.Must(environment.Start())
	DeferCleanup(environment.Stop)
	config.QPS, config.Burst = 200, 400
	cluster = lo.Must(client.New(config, client.Options{Scheme: scheme.Scheme}))
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, environment.KubeConfig, 0o600)).To(Succeed())
	manager := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"),
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		"--controllers=*,-node-lifecycle-controller") // which would take the node, that no kubelet has, for dead
	Expect(manager.Start()).To(Succeed())
	DeferCleanup(func() { _, _ = manager.Process.Kill(), manager.Wait() })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	Expect(cluster.Create(ctx, node)).To(Succeed())
	node.Spec.Taints = nil // it is new, as admission says
	Expect(cluster.Update(ctx, node)).To(Succeed())
})

// given is one input, whose objects are in namespaces of their own.
type given struct {
	name, text string
	// ignored are the workloads that the API server rejects, with its words.
	ignored           map[string]string
	number, generated int
}

func (g *given) namespace(of string) string { return fmt.Sprintf("oracle-%d-%s", g.number, of) }

// before are the kinds that others need; the rest of what is created are workloads.
var before = []string{"Namespace", "StorageClass", "PersistentVolume", "PriorityClass", "RuntimeClass", "LimitRange", "ResourceQuota", "PersistentVolumeClaim"}

var workloads = []string{"Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "HorizontalPodAutoscaler"}

// apply creates the objects of the input.
func (g *given) apply() {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(g.text), 4096)
	for {
		content := map[string]any{}
		if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			g.ignored[""] = err.Error()
			break
		}
		object := &unstructured.Unstructured{Object: content}
		if !object.IsList() {
			objects = append(objects, object)
			continue
		}
		objects = append(objects, lo.Map(lo.Must(object.ToList()).Items, func(o unstructured.Unstructured, _ int) *unstructured.Unstructured { return &o })...)
	}
	objects = lo.Filter(objects, func(o *unstructured.Unstructured, _ int) bool {
		hook := o.GetAnnotations()["helm.sh/hook"] != ""
		if o.GetName() == "" { // as the plan names it
			g.generated++
			o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), g.generated))
		}
		return !hook && slices.Contains(slices.Concat(before, workloads), o.GetKind())
	})
	slices.SortStableFunc(objects, func(x, y *unstructured.Unstructured) int {
		return orderOf(x.GetKind()) - orderOf(y.GetKind())
	})
	for _, object := range objects {
		g.create(object)
	}
}

func orderOf(kind string) int {
	return lo.Ternary(slices.Contains(before, kind), slices.Index(before, kind), len(before))
}

func (g *given) create(object *unstructured.Unstructured) {
	GinkgoHelper()
	if orderOf(object.GetKind()) > 4 {
		namespace := lo.CoalesceOrEmpty(object.GetNamespace(), "default")
		object.SetNamespace(g.namespace(namespace))
		err := cluster.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}})
		Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
	}
	key := object.GetNamespace() + "/" + object.GetName()
	switch object.GetKind() {
	case "Namespace":
		return
	case "StatefulSet": // no kubelet makes a pod ready, for which the next one would wait
		_ = unstructured.SetNestedField(object.Object, "Parallel", "spec", "podManagementPolicy")
	case "DaemonSet": // the node has no labels for it
		for _, field := range []string{"nodeSelector", "affinity"} {
			unstructured.RemoveNestedField(object.Object, "spec", "template", "spec", field)
		}
	case "CronJob": // as its next run
		if err := cluster.Create(ctx, object.DeepCopy(), client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			g.ignored[key] = err.Error()
			return
		}
		spec, _, _ := unstructured.NestedMap(object.Object, "spec", "jobTemplate", "spec")
		suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend")
		spec["suspend"] = suspended
		object.Object = map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": object.Object["metadata"], "spec": spec}
	}
	err := cluster.Create(ctx, object.DeepCopy(), client.FieldValidation("Strict"))
	if apierrors.IsAlreadyExists(err) && orderOf(object.GetKind()) > 4 {
		err = cluster.Update(ctx, object.DeepCopy(), client.FieldValidation("Strict"))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		g.ignored[key] = err.Error()
	}
	if object.GetKind() == "ResourceQuota" {
		quota := &corev1.ResourceQuota{}
		Eventually(func() corev1.ResourceList {
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(object), quota)).To(Succeed())
			return quota.Status.Hard
		}, "30s").ShouldNot(BeEmpty())
	}
}

// seen is what decides where a pod may run.
type seen struct {
	Requests                   map[string]string
	NodeSelector               map[string]string
	Affinity                   *corev1.Affinity
	Tolerations, Spread, Ports []string
}

func describe(pod *corev1.Pod) string {
	s := seen{Requests: map[string]string{}}
	for name, quantity := range resources.RequestsForPods(pod) {
		if !quantity.IsZero() {
			s.Requests[string(name)] = fmt.Sprint(quantity.AsApproximateFloat64())
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				s.Ports = append(s.Ports, fmt.Sprint(port.HostPort))
			}
		}
	}
	if !lo.ContainsBy(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }) {
		s.Affinity, s.NodeSelector = pod.Spec.Affinity, pod.Spec.NodeSelector
		for _, toleration := range pod.Spec.Tolerations {
			if toleration.Key != corev1.TaintNodeNotReady && toleration.Key != corev1.TaintNodeUnreachable {
				s.Tolerations = append(s.Tolerations, toleration.String())
			}
		}
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		s.Spread = append(s.Spread, fmt.Sprintf("%s %d %s", spread.TopologyKey, spread.MaxSkew, spread.WhenUnsatisfiable))
	}
	return string(lo.Must(json.Marshal(s)))
}

// counted are the descriptions of pods by the name of their workload.
func counted(pods []*corev1.Pod) map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, pod := range pods {
		name := input.WorkloadOf(pod)
		if all[name] == nil {
			all[name] = map[string]int{}
		}
		all[name][describe(pod)]++
	}
	return all
}

// planned are the pods of the plan, one of each DaemonSet, and what it notes. Without pods it is an error.
func (g *given) planned() (pods []*corev1.Pod, notes []string, err error) {
	set, err := input.ReadIn("default", strings.NewReader(g.text), "-")
	if err != nil {
		return nil, nil, err
	}
	objects := set.Within(nil)
	pods = memory.Of[*corev1.Pod](objects)
	for _, daemon := range memory.Of[*appsv1.DaemonSet](objects) {
		pods = append(pods, &corev1.Pod{Spec: daemon.Spec.Template.Spec, ObjectMeta: metav1.ObjectMeta{Namespace: daemon.Namespace, Name: daemon.Name,
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: daemon.Name}}}})
	}
	for _, pod := range pods {
		pod.Namespace = g.namespace(pod.Namespace)
	}
	return pods, set.Notes, nil
}
