// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

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
	node, joined := r.awaitNode(ctx, server.Name, func(*corev1.Node) bool { return true })
	r.behaves("joined", "whether the server became a node of its name", joined)
	if !joined {
		r.notJoined(ctx, server)
		Fail("a node is called like its server, and there is none")
	}
	r.find("joined-seconds", "how many seconds until the running server was a node", int(time.Since(begun).Seconds()))
	r.find("first-taints", "what taints a node is first seen with",
		lo.Map(node.Spec.Taints, func(t corev1.Taint, _ int) string { return t.Key + ":" + string(t.Effect) }))
	_, closed := r.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})

	node, ready := r.awaitNode(ctx, server.Name, func(node *corev1.Node) bool {
		// The cloud controller manager may have been slower than the component that closed the node.
		return node.Spec.ProviderID != "" && node.Labels[corev1.LabelTopologyZone] != "" && conditionOf(node, corev1.NodeReady) == corev1.ConditionTrue
	})
	if ready {
		r.find("ready-seconds", "how many seconds until the node was ready", int(time.Since(begun).Seconds()))
	}
	// What the node is like is written down also where it is not ready: it shows why.
	r.find("node-conditions", "the conditions of the node at the end", lo.SliceToMap(node.Status.Conditions, func(c corev1.NodeCondition) (string, string) {
		return string(c.Type), string(c.Status) + " " + c.Reason
	}))
	r.behaves("provider-id", "whether the node has the provider ID that core finds it by", node.Spec.ProviderID == providerid.New(server.ID))
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
	Expect(closed).NotTo(HaveOccurred(), "closing the node to pods")
	Expect(node.Spec.ProviderID).To(Equal(providerid.New(server.ID)), "the cloud controller manager's, by which core finds the node")
	Expect(ready).To(BeTrue(), "ready, with the labels of the cloud controller manager")
}

// awaitNode waits until the node is as wanted. It returns the node as it was last seen, and whether it was so in time.
func (r *run) awaitNode(ctx context.Context, name string, wanted func(*corev1.Node) bool) (last *corev1.Node, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, r.patience*2/3)
	defer cancel()
	last = &corev1.Node{}
	for {
		if node, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err == nil {
			if last = node; wanted(node) {
				return node, true
			}
		}
		select {
		case <-ctx.Done():
			return last, false
		case <-time.After(r.poll):
		}
	}
}

func conditionOf(node *corev1.Node, condition corev1.NodeConditionType) corev1.ConditionStatus {
	found, _ := lo.Find(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition })
	return found.Status
}

// notJoined writes down what can be seen of a server that did not become a node of its name.
func (r *run) notJoined(ctx context.Context, server *instance.Instance) {
	now, err := r.Instances.Get(ctx, server.ID)
	state := said(err)
	if err == nil {
		state = now.Status
	}
	r.find("not-joined-server", "the state of a server that did not become a node", state)
	nodes, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	r.find("not-joined-other-name", "whether a node of another name has its provider ID", lo.SomeBy(nodes.Items, func(node corev1.Node) bool {
		return node.Spec.ProviderID == providerid.New(server.ID)
	}))
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
