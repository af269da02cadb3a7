// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// join waits until the server is a node, and writes down what kind of node it is. No pod gets onto it but those that
// tolerate everything.
func (r *run) join(ctx context.Context, class *v1alpha1.BizflyNodeClass, server *instance.Instance, o offer) {
	GinkgoHelper()
	begun := time.Now()
	node := &corev1.Node{}
	nodes := r.kube.CoreV1().Nodes()
	Eventually(func(g Gomega) {
		var err error
		node, err = nodes.Get(ctx, server.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred(), "a node is called like its server")
	}).WithContext(ctx).Should(Succeed())
	r.find("joined-seconds", "how many seconds until the running server was a node", int(time.Since(begun).Seconds()))
	r.find("first-taints", "what taints a node is first seen with",
		lo.Map(node.Spec.Taints, func(t corev1.Taint, _ int) string { return t.Key + ":" + string(t.Effect) }))
	_, err := nodes.Patch(ctx, node.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())

	Eventually(func(g Gomega) {
		node, err = nodes.Get(ctx, server.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Spec.ProviderID).To(Equal(providerid.New(server.ID)), "the cloud controller manager's, by which core finds the node")
		ready, _ := lo.Find(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		g.Expect(ready.Status).To(Equal(corev1.ConditionTrue))
		// The cloud controller manager may have been slower than the component that closed the node.
		g.Expect(node.Labels).To(HaveKey(corev1.LabelTopologyZone))
	}).WithContext(ctx).Should(Succeed())
	r.find("ready-seconds", "how many seconds until the node was ready", int(time.Since(begun).Seconds()))
	r.behaves("zone-label", "whether the node's zone is the server's", node.Labels[corev1.LabelTopologyZone] == o.zone)
	r.behaves("type-label", "whether the node's instance type is the flavor's name in the catalog", node.Labels[corev1.LabelInstanceTypeStable] == o.flavor)
	r.find("region-label", "the region label that the cloud controller manager writes", node.Labels[corev1.LabelTopologyRegion])
	r.find("labels", "the labels that a node has", lo.Must(sorted(lo.Keys(node.Labels))))
	r.find("operating-system", "what the worker image is", node.Status.NodeInfo.OSImage)
	r.find("kubelet", "the kubelet's version", node.Status.NodeInfo.KubeletVersion)
	r.find("memory-percent", "how many percent of the flavor's memory the node has", node.Status.Capacity.Memory().Value()*100/(int64(o.memoryMiB)<<20))
	r.find("allocatable", "what pods can have of the node, of a flavor with "+fmt.Sprintf("%d vCPUs and %d MiB", o.cpu, o.memoryMiB), map[string]string{
		"cpu": node.Status.Allocatable.Cpu().String(), "memory": node.Status.Allocatable.Memory().String(), "pods": node.Status.Allocatable.Pods().String(),
		"ephemeral-storage": node.Status.Allocatable.StorageEphemeral().String(),
	})
	r.planned(class, node, o)
	r.kubeletConfig(ctx, node.Name)
	// Whether it counts against the package shows in the cluster's answer, which was recorded before it joined.
	if _, err := r.api.GetCluster(ctx, r.bke.ClusterID); err != nil {
		GinkgoWriter.Printf("reading the cluster: %s\n", err)
	}
}

// kubeletConfig writes down what the worker image configures its kubelet with, where the API server lets us see it.
func (r *run) kubeletConfig(ctx context.Context, node string) {
	body, err := r.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if err != nil {
		r.find("kubelet-configuration", "what the kubelet is configured with", "not to be seen")
		return
	}
	var answer struct {
		Config struct {
			MaxPods        int               `json:"maxPods"`
			KubeReserved   map[string]string `json:"kubeReserved"`
			SystemReserved map[string]string `json:"systemReserved"`
			EvictionHard   map[string]string `json:"evictionHard"`
			CgroupDriver   string            `json:"cgroupDriver"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(body, &answer); err == nil {
		r.find("kubelet-configuration", "what the kubelet is configured with", answer.Config)
	}
}

// ofThisRun is ours for the sandbox's ground truth.
func ofThisRun(s cloud.Server, _ int) bool {
	return s.Metadata[v1alpha1.MetadataClusterUID] == contact.id || strings.HasPrefix(s.Name, contact.claim()+"-")
}
