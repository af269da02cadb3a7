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
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// taintUnregistered keeps pods away until Karpenter has put its labels and taints on the node. It and the label are
	// written out here because packages at this height do not know Karpenter.
	taintUnregistered = "karpenter.sh/unregistered"
	// labelDoNotSyncTaints tells Karpenter that the node registers with all its taints. Without it startup taints that a
	// daemon has removed already come back at registration, and the node never initialises.
	labelDoNotSyncTaints = "karpenter.sh/do-not-sync-taints"
)

// kubeletLabels are the labels of Kubernetes' own domains that a kubelet may put on its node. With any other one it
// refuses to start, so those are left to core, which adds them when the node registers.
var kubeletLabels = sets.New(
	corev1.LabelHostname,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
	corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
)

// registration is what a kubelet registers its node with.
type registration struct {
	labels map[string]string
	taints []corev1.Taint
}

// newRegistration adds Karpenter's taint and label. What is not a label or taint by Kubernetes' own rules is an error:
// the kubelet would not start with it, and nothing else may reach a script.
func newRegistration(input Input) (*registration, error) {
	r := &registration{
		labels: lo.Assign(input.Labels, map[string]string{labelDoNotSyncTaints: "true"}),
		taints: append([]corev1.Taint{{Key: taintUnregistered, Effect: corev1.TaintEffectNoExecute}},
			lo.Reject(input.Taints, func(t corev1.Taint, _ int) bool { return t.Key == taintUnregistered })...),
	}
	for _, key := range slices.Sorted(maps.Keys(r.labels)) {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(r.labels[key])...); len(problems) > 0 {
			return nil, fmt.Errorf("label %q of the node is not valid, %s", key, strings.Join(problems, "; "))
		}
	}
	for _, taint := range r.taints {
		problems := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		if !slices.Contains([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}, taint.Effect) {
			problems = append(problems, "the effect must be NoSchedule, PreferNoSchedule or NoExecute")
		}
		if len(problems) > 0 {
			return nil, fmt.Errorf("taint %q of the node is not valid, %s", taint.Key, strings.Join(problems, "; "))
		}
	}
	return r, nil
}

// taintsFlag is the value of the kubelet's --register-with-taints.
func (r *registration) taintsFlag() string {
	return strings.Join(lo.Map(r.taints, func(t corev1.Taint, _ int) string {
		return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
	}), ",")
}

// labelsFlag is the value of the kubelet's --node-labels, without the labels that it would not accept.
func (r *registration) labelsFlag() string {
	keys := lo.Filter(slices.Sorted(maps.Keys(r.labels)), func(key string, _ int) bool { return allowedOfKubelet(key) })
	return strings.Join(lo.Map(keys, func(key string, _ int) string { return key + "=" + r.labels[key] }), ",")
}

func allowedOfKubelet(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found || kubeletLabels.Has(key) {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
		return true
	}
	return !within("kubernetes.io") && !within("k8s.io")
}
