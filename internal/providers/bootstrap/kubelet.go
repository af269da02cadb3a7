/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// kubeletDefaults are the kubelet's hard eviction thresholds that no NodeClass sets: a kubelet that is given any threshold
// forgets its own. They take nothing from what pods can use.
var kubeletDefaults = map[string]string{"imagefs.available": "15%", "nodefs.inodesFree": "5%"}

// configuration is a KubeletConfiguration with exactly these settings and the taints.
func (s settings) configuration(taints []corev1.Taint) (string, error) {
	configuration := map[string]any{
		"apiVersion":     "kubelet.config.k8s.io/v1beta1",
		"kind":           "KubeletConfiguration",
		"maxPods":        s.maxPods,
		"kubeReserved":   s.kubeReserved,
		"systemReserved": s.systemReserved,
		"evictionHard":   lo.Assign(kubeletDefaults, s.evictionHard),
		"registerWithTaints": lo.Map(taints, func(t corev1.Taint, _ int) map[string]any {
			return lo.OmitByValues(map[string]any{"key": t.Key, "value": t.Value, "effect": string(t.Effect)}, []any{""})
		}),
	}
	if s.podsPerCore > 0 {
		configuration["podsPerCore"] = s.podsPerCore
	}
	if len(s.evictionSoft) > 0 {
		configuration["evictionSoft"], configuration["evictionSoftGracePeriod"] = s.evictionSoft, s.softGrace
	}
	for _, o := range s.optional() {
		configuration[o.field] = o.value
	}
	out, err := yaml.Marshal(configuration)
	return string(out), err
}

// arguments are the same as arguments of a kubelet's command line, without the dashes and without labels and taints.
func (s settings) arguments() map[string]string {
	list := func(values map[string]string, sign string) string {
		return strings.Join(lo.Map(slices.Sorted(maps.Keys(values)), func(key string, _ int) string {
			return fmt.Sprintf("%s%s%s", key, sign, values[key])
		}), ",")
	}
	arguments := map[string]string{
		"max-pods":                   strconv.Itoa(int(s.maxPods)),
		"kube-reserved":              list(s.kubeReserved, "="),
		"system-reserved":            list(s.systemReserved, "="),
		"eviction-hard":              list(lo.Assign(kubeletDefaults, s.evictionHard), "<"),
		"eviction-soft":              list(s.evictionSoft, "<"),
		"eviction-soft-grace-period": list(s.softGrace, "="),
	}
	if s.podsPerCore > 0 {
		arguments["pods-per-core"] = strconv.Itoa(int(s.podsPerCore))
	}
	for _, o := range s.optional() {
		arguments[o.flag] = o.text
	}
	return lo.OmitByValues(arguments, []string{""})
}

// setting is a setting of the kubelet that is left to the kubelet's own default unless the NodeClass sets it.
type setting struct {
	field, flag string
	value       any
	text        string
}

func (s settings) optional() []setting {
	var set []setting
	number := func(field, flag string, value *int32) {
		if value != nil {
			set = append(set, setting{field, flag, *value, strconv.Itoa(int(*value))})
		}
	}
	number("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period", s.kubelet.EvictionMaxPodGracePeriod)
	number("imageGCHighThresholdPercent", "image-gc-high-threshold", s.kubelet.ImageGCHighThresholdPercent)
	number("imageGCLowThresholdPercent", "image-gc-low-threshold", s.kubelet.ImageGCLowThresholdPercent)
	if quota := s.kubelet.CPUCFSQuota; quota != nil {
		set = append(set, setting{"cpuCFSQuota", "cpu-cfs-quota", *quota, strconv.FormatBool(*quota)})
	}
	if dns := s.kubelet.ClusterDNS; len(dns) > 0 {
		set = append(set, setting{"clusterDNS", "cluster-dns", dns, strings.Join(dns, ",")})
	}
	return set
}

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30

	defaultMaxPods = 110

	// defaultSystemCPU and defaultSystemMemory are what BKE reserves for the system on the one size of server for which
	// its answer is public (2 vCPUs, 2 GiB). Nothing in the system grows with the server, so they are the same for all.
	defaultSystemCPU       = "20m"
	defaultSystemMemoryMiB = 100

	// The kubelet's own defaults.
	defaultEvictionMemory = "100Mi"
	defaultEvictionNodeFS = "10%"

	evictionMemory = "memory.available"
	evictionNodeFS = "nodefs.available"
)

// settings are the kubelet settings in the kubelet's own form.
type settings struct {
	// maxPods is the least of maxPods and podsPerCore x vCPUs, so that a template that only knows maxPods is right.
	maxPods        int32
	podsPerCore    int32 // 0 is no limit
	kubeReserved   map[string]string
	systemReserved map[string]string
	evictionHard   map[string]string
	evictionSoft   map[string]string
	softGrace      map[string]string
	// kubelet is what the NodeClass sets; the rest of it is not changed on the way to the node.
	kubelet v1alpha1.KubeletConfiguration
}

// settingsOf returns what the NodeClass sets, and BKE's settings for the rest. In BKE mode, where the worker image decides,
// the NodeClass says what that image is known to reserve.
func settingsOf(nodeClass *v1alpha1.BizflyNodeClass, cpu, memoryMiB int) settings {
	s := settings{
		maxPods: defaultMaxPods,
		kubeReserved: map[string]string{
			string(corev1.ResourceCPU):    strconv.FormatInt(kubeReservedMilliCPU(cpu), 10) + "m",
			string(corev1.ResourceMemory): strconv.FormatInt(kubeReservedMemoryMiB(int64(memoryMiB)), 10) + "Mi",
		},
		systemReserved: map[string]string{
			string(corev1.ResourceCPU):    defaultSystemCPU,
			string(corev1.ResourceMemory): strconv.Itoa(defaultSystemMemoryMiB) + "Mi",
		},
		evictionHard: map[string]string{evictionMemory: defaultEvictionMemory, evictionNodeFS: defaultEvictionNodeFS},
	}
	if nodeClass.Spec.Kubelet == nil {
		return s
	}
	kubelet := nodeClass.Spec.Kubelet.DeepCopy()
	s.kubelet = *kubelet
	s.maxPods = lo.FromPtrOr(kubelet.MaxPods, s.maxPods)
	s.kubeReserved = lo.Assign(s.kubeReserved, kubelet.KubeReserved)
	s.systemReserved = lo.Assign(s.systemReserved, kubelet.SystemReserved)
	s.evictionHard = lo.Assign(s.evictionHard, kubelet.EvictionHard)
	s.evictionSoft, s.softGrace = maps.Clone(kubelet.EvictionSoft), maps.Clone(kubelet.EvictionSoftGracePeriod)
	if perCore := lo.FromPtr(kubelet.PodsPerCore); perCore > 0 {
		s.podsPerCore = perCore
		s.maxPods = int32(min(int64(s.maxPods), int64(perCore)*int64(cpu))) //nolint:gosec // not above maxPods
	}
	return s
}

// kubeReservedMilliCPU is 50m for 2 vCPUs, as BKE answers for that size, and from there the shares that managed
// Kubernetes services commonly keep: half a percent of each of the next two vCPUs, a quarter of a percent of all others.
func kubeReservedMilliCPU(cpu int) int64 {
	tiers := []struct{ cpus, milliEach float64 }{{1, 40}, {1, 10}, {2, 5}, {math.MaxInt32, 2.5}}
	reserved, left := 0.0, float64(cpu)
	for _, tier := range tiers {
		n := math.Min(left, tier.cpus)
		reserved += n * tier.milliEach
		left -= n
	}
	return int64(math.Ceil(reserved))
}

// kubeReservedMemoryMiB is what is left for the kubelet, after the system's part, of the shares that managed Kubernetes
// services commonly keep: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112 and 2 % of
// all above. BKE's one public answer, 100 MiB for the system and 394 for the kubelet of a server with 1977 MiB, is this
// table to the MiB. Too much costs a little room; too little leaves pods pending on a node that was made for them.
func kubeReservedMemoryMiB(memoryMiB int64) int64 {
	tiers := []struct{ gib, share float64 }{{4, 0.25}, {4, 0.20}, {8, 0.10}, {112, 0.06}, {math.MaxInt32, 0.02}}
	reserved, left := 0.0, float64(memoryMiB)
	for _, tier := range tiers {
		n := math.Min(left, tier.gib*1024)
		reserved += n * tier.share
		left -= n
	}
	return max(0, int64(reserved)-defaultSystemMemoryMiB)
}

// Reservations implements Provider. What is reserved beyond the server is cut, first from the eviction threshold, then
// from the system, so that allocatable is never negative: such a server just has no room for pods.
func (p *DefaultProvider) Reservations(nodeClass *v1alpha1.BizflyNodeClass, cpu, memoryMiB, rootDiskGiB int) Reservations {
	s := settingsOf(nodeClass, cpu, memoryMiB)
	left := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(cpu), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(memoryMiB)*mebibyte, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(rootDiskGiB)*gibibyte, resource.BinarySI),
	}
	return Reservations{
		Configured:     mode(nodeClass) == v1alpha1.BootstrapModeCustom || nodeClass.Spec.Kubelet != nil,
		MaxPods:        s.maxPods,
		KubeReserved:   take(left, quantities(s.kubeReserved)),
		SystemReserved: take(left, quantities(s.systemReserved)),
		EvictionThreshold: take(left, corev1.ResourceList{
			corev1.ResourceMemory:           s.threshold(evictionMemory, int64(memoryMiB)*mebibyte),
			corev1.ResourceEphemeralStorage: s.threshold(evictionNodeFS, int64(rootDiskGiB)*gibibyte),
		}),
	}
}

// take returns of wanted what is left, and takes it from there.
func take(left, wanted corev1.ResourceList) corev1.ResourceList {
	taken := corev1.ResourceList{}
	for name, quantity := range wanted {
		rest := left[name]
		if quantity.Cmp(rest) > 0 {
			quantity = rest.DeepCopy()
		}
		rest.Sub(quantity)
		left[name], taken[name] = rest, quantity
	}
	return taken
}

// quantities leaves out what is no quantity or negative. The CRD admits neither; an object that bypassed it must not
// panic the scheduler.
func quantities(values map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, value := range values {
		if quantity, err := resource.ParseQuantity(value); err == nil && quantity.Sign() >= 0 {
			list[corev1.ResourceName(name)] = quantity
		}
	}
	return list
}

// threshold is the higher of the hard and the soft one: the kubelet's own allocatable leaves out the hard one alone, but
// pods that are placed above the soft one are evicted again once its time is over.
func (s settings) threshold(signal string, whole int64) resource.Quantity {
	hard, soft := threshold(s.evictionHard[signal], whole), threshold(s.evictionSoft[signal], whole)
	if soft.Cmp(hard) > 0 {
		return soft
	}
	return hard
}

// threshold is a quantity or a percentage of the whole.
func threshold(value string, whole int64) resource.Quantity {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		share, err := strconv.ParseFloat(percent, 64)
		if err != nil || share < 0 || share > 100 {
			return resource.Quantity{Format: resource.BinarySI}
		}
		return *resource.NewQuantity(int64(math.Ceil(float64(whole)*share/100)), resource.BinarySI)
	}
	quantity, err := resource.ParseQuantity(value)
	if err != nil || quantity.Sign() < 0 {
		return resource.Quantity{Format: resource.BinarySI}
	}
	return quantity
}
