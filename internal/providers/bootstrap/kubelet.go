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
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
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
	return lo.OmitByValues(arguments, []string{""})
}
