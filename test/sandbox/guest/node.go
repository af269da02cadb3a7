// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const (
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	resourceGPU        = corev1.ResourceName("nvidia.com/gpu")
	defaultMaxPods     = 110

	mebibyte = 1 << 20
	gibibyte = 1 << 30
	// bootGiB is what an image keeps of the disk for booting, and filesystemShare what the file system leaves of the rest.
	bootGiB, filesystemShare = 1, 0.98
	// The kubelet's own hard eviction thresholds, which allocatable leaves out as well.
	evictionMemory = "100Mi"
	evictionDisk   = "10%"
	// What the Kubernetes Engine reserves for the system, for any size of server.
	systemMilliCPU  = 20
	systemMemoryMiB = 100
)

// KubeReserved is what the Kubernetes Engine reserves for the kubelet on a machine that sees so much. Its one public
// answer is 50m and 394Mi for 2 vCPUs and 1977 MiB, beside 20m and 100Mi for the system: together 70m and a quarter of
// the memory, which is the well-known table of managed Kubernetes (CPU 6 %, 1 %, 0.5 %, 0.25 %; memory 25 % of the first
// 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112, 2 % of the rest). So the same table is used for all
// sizes, less the system's part.
func KubeReserved(cpu int, memoryMiB int64) (milliCPU, mib int64) {
	cpuTiers := []tier{{1, 60}, {1, 10}, {2, 5}, {math.MaxInt32, 2.5}}
	memoryTiers := []tier{{4 * 1024, 0.25}, {4 * 1024, 0.20}, {8 * 1024, 0.10}, {112 * 1024, 0.06}, {math.MaxInt32, 0.02}}
	milliCPU = int64(math.Ceil(tiered(float64(cpu), cpuTiers))) - systemMilliCPU
	mib = int64(tiered(float64(memoryMiB), memoryTiers)) - systemMemoryMiB
	return max(milliCPU, 0), max(mib, 0)
}

type tier struct{ size, rate float64 }

func tiered(amount float64, tiers []tier) float64 {
	total := 0.0
	for _, t := range tiers {
		part := math.Min(amount, t.size)
		total += part * t.rate
		amount -= part
	}
	return total
}

// visibleMemory is what the machine sees of the memory that its flavor advertises, in bytes.
func (g *Guests) visibleMemory(s cloud.Server) int64 {
	overhead, found := g.opts.ImageMemoryOverhead[s.Truth.ImageID]
	if !found {
		overhead = g.opts.MemoryOverhead
	}
	return int64(float64(s.Truth.Flavor.RAM)*(1-overhead)*mebibyte) &^ 0xfff // whole pages
}

// resources are what the machine has, what of it pods may use, and why a kubelet that is to keep more than there is does not start.
func (g *Guests) resources(s cloud.Server, k kubelet) (capacity, allocatable corev1.ResourceList, invalid string) {
	flavor := s.Truth.Flavor
	memory := g.visibleMemory(s)
	disk := int64(float64(s.Truth.RootDiskGiB-bootGiB) * gibibyte * filesystemShare)
	capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(flavor.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(disk, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(k.pods(flavor.VCPUs), resource.DecimalSI),
	}
	if flavor.GPU != nil {
		capacity[resourceGPU] = *resource.NewQuantity(int64(flavor.GPU.Count), resource.DecimalSI)
	}
	kube, system := k.kubeReserved, k.reserved
	if kube == nil {
		cpu, mib := KubeReserved(flavor.VCPUs, memory/mebibyte)
		kube = reservation(cpu, mib)
	}
	if system == nil {
		system = reservation(systemMilliCPU, systemMemoryMiB)
	}
	eviction := k.eviction(memory, disk)
	allocatable = capacity.DeepCopy()
	for _, kept := range []map[corev1.ResourceName]resource.Quantity{kube, system, eviction, g.opts.Reserved} {
		for name, quantity := range kept {
			rest := allocatable[name]
			rest.Sub(quantity)
			if rest.Sign() < 0 {
				has := capacity[name]
				invalid = fmt.Sprintf("kubelet: invalid Node Allocatable configuration: %s has a capacity of %s, which is less than is reserved", name, has.String())
			}
			allocatable[name] = rest
		}
	}
	return capacity, allocatable, invalid
}

func reservation(milliCPU, mib int64) map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(mib*mebibyte, resource.BinarySI),
	}
}

// pods is what the kubelet makes of maxPods and podsPerCore.
func (k kubelet) pods(cpus int) int64 {
	if k.podsPerCore > 0 {
		return min(k.maxPods, k.podsPerCore*int64(cpus))
	}
	return k.maxPods
}

// eviction is what the hard thresholds keep free; a kubelet that is given any has no others. Soft ones keep nothing free.
func (k kubelet) eviction(memory, disk int64) map[corev1.ResourceName]resource.Quantity {
	hard := k.evictionHard
	if hard == nil {
		hard = map[string]string{"memory.available": evictionMemory, "nodefs.available": evictionDisk}
	}
	kept := map[corev1.ResourceName]resource.Quantity{}
	for _, signal := range []struct {
		name     string
		resource corev1.ResourceName
		whole    int64
	}{{"memory.available", corev1.ResourceMemory, memory}, {"nodefs.available", corev1.ResourceEphemeralStorage, disk}} {
		if value, found := hard[signal.name]; found {
			bytes, _ := thresholdOf(value, signal.whole) // checked when it was read
			kept[signal.resource] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
	}
	return kept
}

// hostname is the server's, as which its kubelet registers.
func hostname(s cloud.Server) string { return strings.ToLower(s.Name) }

// node is the Node as a kubelet with an external cloud provider registers it.
func (g *Guests) node(s cloud.Server, k kubelet) *corev1.Node {
	capacity, allocatable, _ := g.resources(s, k)
	labels := map[string]string{
		corev1.LabelHostname: hostname(s), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", LabelAlive: "true",
	}
	for key, value := range k.labels {
		labels[key] = value
	}
	ready, reason, message := corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready"
	if !g.cloud.ReachesPools(s.ID) {
		delete(labels, LabelAlive) // KWOK would call it ready
	} else if g.opts.Ready {
		ready, reason, message = corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
	}
	taints := k.taints
	if k.external {
		taints = append([]corev1.Taint{{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}, taints...)
	}
	now := metav1.NewTime(g.cloud.Clock().Now())
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(k.nodeName, hostname(s)), Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: k.providerID, Taints: taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: allocatable,
			// A kubelet with an external cloud provider knows no other address of its own.
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: s.Name}},
			Conditions: append([]corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: ready, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
			}}, g.problems(now)...),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: s.ID, SystemUUID: s.ID, BootID: bootID(s), KubeletVersion: k.version, OperatingSystem: "linux", Architecture: "amd64",
				OSImage: s.Metadata["os_type"], KernelVersion: "6.8.0-generic", ContainerRuntimeVersion: "containerd://2.1.4",
			},
		},
	}
}

// problems are the permanent conditions of BizFly Cloud's node-problem-detector on a healthy node. Its configuration gives them the
// reasons of broken ones.
func (g *Guests) problems(now metav1.Time) []corev1.NodeCondition {
	if !g.cloud.Options().Shape.ProblemDetector {
		return nil
	}
	var conditions []corev1.NodeCondition
	for _, c := range [][2]string{
		{"KubeletUnhealthy", "KubeletIsHealthy"}, {"ContainerRuntimeUnhealthy", "ContainerRuntimeIsHealthy"}, {"SystemdOffline", "SystemdIsOnline"},
		{"KernelDeadlock", "KernelHasNoDeadlock"}, {"ReadonlyFilesystem", "FilesystemIsReadOnly"}, {"InodesPressure", "NodeHasNoInodesPressure"},
		{"NodePIDPressure", "NodeHasNoPIDPressure"},
	} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c[0]), Status: corev1.ConditionFalse, Reason: c[1], LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return conditions
}

// bootID is another one each time that the server boots.
func bootID(s cloud.Server) string {
	return cloud.StableID("boot", s.ID, s.Truth.ActiveAt.UTC().Format(time.RFC3339Nano))
}

// register makes the Node. One of that name that stands already is taken over as a kubelet does: labels and status are
// its own again, taints stay as they are.
func (g *Guests) register(ctx context.Context, own kubernetes.Interface, s cloud.Server, k kubelet) error {
	wanted := g.node(s, k)
	_, err := own.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "registering node %s", wanted.Name)
	}
	nodes := g.opts.Client.CoreV1().Nodes()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		existing, err := nodes.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if existing.Labels == nil {
			existing.Labels = map[string]string{}
		}
		for key, value := range wanted.Labels {
			existing.Labels[key] = value
		}
		existing, err = nodes.Update(ctx, existing, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		existing.Status.Capacity, existing.Status.Allocatable = wanted.Status.Capacity, wanted.Status.Allocatable
		existing.Status.NodeInfo = wanted.Status.NodeInfo
		_, err = nodes.UpdateStatus(ctx, existing, metav1.UpdateOptions{})
		return err
	})
	return wrap(err, "registering node %s again", s.Name)
}

// silence is the death of a machine: its Node is no longer kept alive.
func (g *Guests) silence(ctx context.Context, m *machine) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{LabelAlive: nil}}})
	if err != nil {
		return err
	}
	_, err = g.opts.Client.CoreV1().Nodes().Patch(ctx, m.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("silencing node %s: %w", m.node, err)
	}
	m.alive = false
	return nil
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
