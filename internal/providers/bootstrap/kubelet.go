// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// defaultSystemCPU and defaultSystemMemory are what BKE reserves for the system on the one size of server for which
	// its answer is public (2 vCPUs, 2 GiB). Nothing in the system grows with the server, so they are the same for all.
	defaultSystemCPU       = "20m"
	defaultSystemMemoryMiB = 100

	evictionMemory = "memory.available"
	evictionNodeFS = "nodefs.available"
)

// kubeletDefaults are the kubelet's hard eviction thresholds that no NodeClass sets: a kubelet that is given any
// threshold forgets its own. They take nothing from what pods can use.
var kubeletDefaults = map[string]string{"imagefs.available": "15%", "imagefs.inodesFree": "5%",
	"nodefs.inodesFree": "5%"}

// kubeletFlags are the arguments of a kubelet's command line by field.
var kubeletFlags = map[string]string{
	"maxPods":                     "max-pods",
	"podsPerCore":                 "pods-per-core",
	"kubeReserved":                "kube-reserved",
	"systemReserved":              "system-reserved",
	"evictionHard":                "eviction-hard",
	"evictionSoft":                "eviction-soft",
	"evictionSoftGracePeriod":     "eviction-soft-grace-period",
	"evictionMaxPodGracePeriod":   "eviction-max-pod-grace-period",
	"imageGCHighThresholdPercent": "image-gc-high-threshold",
	"imageGCLowThresholdPercent":  "image-gc-low-threshold",
	"cpuCFSQuota":                 "cpu-cfs-quota",
	"clusterDNS":                  "cluster-dns",
}

// rendered returns the settings and the taints as a KubeletConfiguration, whose fields have the names of the
// NodeClass's, and the settings alone as arguments of a kubelet's command line, without the dashes.
func rendered(
	settings v1alpha1.KubeletConfiguration, taints []corev1.Taint,
) (configuration string, arguments map[string]string, err error) {
	settings.EvictionHard = lo.Assign(kubeletDefaults, settings.EvictionHard)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&settings)
	if err != nil {
		return "", nil, err
	}
	arguments = map[string]string{}
	for field, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			sign := lo.Ternary(field == "evictionHard" || field == "evictionSoft", "<", "=")
			arguments[kubeletFlags[field]] = strings.Join(lo.Map(slices.Sorted(maps.Keys(value)),
				func(key string, _ int) string {
					return fmt.Sprint(key, sign, value[key])
				}), ",")
		case []any:
			arguments[kubeletFlags[field]] = strings.Join(settings.ClusterDNS, ",")
		default:
			arguments[kubeletFlags[field]] = fmt.Sprint(value)
		}
	}
	fields["apiVersion"], fields["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	fields["registerWithTaints"] = lo.Map(taints, func(t corev1.Taint, _ int) map[string]any {
		return lo.OmitByValues(map[string]any{"key": t.Key, "value": t.Value, "effect": string(t.Effect)}, []any{""})
	})
	out, err := yaml.Marshal(fields)
	return string(out), arguments, err
}

// settingsOf returns what the NodeClass sets, and BKE's settings for the rest. In BKE mode, where the worker image
// decides, the NodeClass says what that image is known to reserve. MaxPods is the least of maxPods and podsPerCore x
// vCPUs, so that a template that only knows maxPods is right.
func settingsOf(nodeClass *v1alpha1.BizflyNodeClass, cpu, memoryMiB int) v1alpha1.KubeletConfiguration {
	settings := lo.FromPtr(nodeClass.Spec.Kubelet.DeepCopy())
	settings.KubeReserved = lo.Assign(map[string]string{
		string(corev1.ResourceCPU):    fmt.Sprintf("%dm", kubeReservedMilliCPU(cpu)),
		string(corev1.ResourceMemory): fmt.Sprintf("%dMi", kubeReservedMemoryMiB(memoryMiB)),
	}, settings.KubeReserved)
	settings.SystemReserved = lo.Assign(map[string]string{
		string(corev1.ResourceCPU):    defaultSystemCPU,
		string(corev1.ResourceMemory): fmt.Sprintf("%dMi", defaultSystemMemoryMiB),
	}, settings.SystemReserved)
	// These are the kubelet's own defaults.
	settings.EvictionHard = lo.Assign(map[string]string{evictionMemory: "100Mi", evictionNodeFS: "10%"},
		settings.EvictionHard)
	maxPods := lo.FromPtrOr(settings.MaxPods, 110)
	if perCore := lo.FromPtr(settings.PodsPerCore); perCore > 0 {
		maxPods = int32(min(int64(maxPods), int64(perCore)*int64(cpu))) //nolint:gosec // not above maxPods
	}
	settings.MaxPods = &maxPods
	return settings
}

// tier is a share of the next part of something; the last one has all of the rest.
type tier struct{ size, share float64 }

func tiered(total float64, tiers ...tier) float64 {
	reserved := 0.0
	for _, t := range tiers {
		n := min(total, t.size)
		reserved += n * t.share
		total -= n
	}
	return reserved
}

// kubeReservedMilliCPU is 50m for 2 vCPUs, as BKE answers for that size, and from there the shares that managed
// Kubernetes services commonly keep: half a percent of each of the next two vCPUs, a quarter of a percent of all
// others.
func kubeReservedMilliCPU(cpu int) int64 {
	return int64(math.Ceil(tiered(float64(cpu), tier{1, 40}, tier{1, 10}, tier{2, 5}, tier{math.MaxInt32, 2.5})))
}

// kubeReservedMemoryMiB is what is left for the kubelet, after the system's part, of the shares that managed Kubernetes
// services commonly keep: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112 and 2 %
// of all above. BKE's one public answer, 100 MiB for the system and 394 for the kubelet of a server with 1977 MiB, is
// this table to the MiB. Too much costs a little capacity; too little leaves pods pending on a node that was launched
// for them.
func kubeReservedMemoryMiB(memoryMiB int) int64 {
	reserved := tiered(float64(memoryMiB), tier{4 << 10, 0.25}, tier{4 << 10, 0.20}, tier{8 << 10, 0.10},
		tier{112 << 10, 0.06}, tier{math.MaxInt32, 0.02})
	return max(0, int64(reserved)-defaultSystemMemoryMiB)
}

// Reservations returns the kubelet settings of a node of this NodeClass with this many vCPUs, MiB of memory and bytes
// of file system, of which the kubelet takes percentages. Soft thresholds keep nothing from pods, as in the kubelet.
// They may keep more than the server has: the flavor provider excludes such a flavor.
func (p *DefaultProvider) Reservations(nodeClass *v1alpha1.BizflyNodeClass, cpu, memoryMiB int,
	fileSystem int64) Reservations {
	settings, set := settingsOf(nodeClass, cpu, memoryMiB), lo.FromPtr(nodeClass.Spec.Kubelet)
	kept := corev1.ResourceList{
		corev1.ResourceMemory:           threshold(settings.EvictionHard[evictionMemory], int64(memoryMiB)<<20),
		corev1.ResourceEphemeralStorage: threshold(settings.EvictionHard[evictionNodeFS], fileSystem),
	}
	for _, reserved := range []map[string]string{settings.KubeReserved, settings.SystemReserved} {
		for name, value := range reserved {
			sum := kept[corev1.ResourceName(name)]
			sum.Add(quantityOf(value))
			kept[corev1.ResourceName(name)] = sum
		}
	}
	return Reservations{
		Configured: nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeCustom || set.MaxPods != nil ||
			set.PodsPerCore != nil || len(set.KubeReserved)+len(set.SystemReserved)+len(set.EvictionHard) > 0,
		MaxPods: *settings.MaxPods,
		Kept:    kept,
	}
}

// threshold is a quantity, or a percentage of the total.
func threshold(value string, total int64) resource.Quantity {
	percent, isPercentage := strings.CutSuffix(value, "%")
	if !isPercentage {
		return quantityOf(value)
	}
	share, _ := strconv.ParseFloat(percent, 64)
	return *resource.NewQuantity(int64(math.Ceil(float64(total)*share/100)), resource.BinarySI)
}

// quantityOf is nothing where the value is no quantity, or negative. The CRD admits neither; an object that bypassed it
// must not panic the scheduler.
func quantityOf(value string) resource.Quantity {
	quantity, err := resource.ParseQuantity(value)
	if err != nil || quantity.Sign() < 0 {
		return resource.Quantity{}
	}
	return quantity
}
