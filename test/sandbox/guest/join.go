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

package guest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// bootstrapScript is baked into the worker images; a machine joins by running it.
const bootstrapScript = "/opt/bizfly-kubernetes-engine/bootstrap.sh"

var (
	runsBootstrap = regexp.MustCompile(`(?m)^[ \t]*(?:(?:exec|sudo|bash|sh)[ \t]+)*` + regexp.QuoteMeta(bootstrapScript) + `(?:[ \t;&|]|$)`)
	// extraArgs is the line of a file from which the kubelet takes arguments. It may stand in a here-document as it is, or
	// in quotes as an argument of echo or printf.
	extraArgs = regexp.MustCompile(`(?m)KUBELET_EXTRA_ARGS=["']?([^"'\n]*)`)
)

// kubelet is how the kubelet of a machine was configured.
type kubelet struct {
	version                string
	labels                 map[string]string
	taints                 []corev1.Taint
	maxPods                int64
	kubeReserved, reserved map[corev1.ResourceName]resource.Quantity // nil is what the Kubernetes Engine configures
}

// prepare reads what the machine finds about itself and returns how its kubelet starts, or why it never does.
func (g *Guests) prepare(s cloud.Server) (kubelet, string) {
	script := s.Truth.UserData
	bke := g.cloud.BKE()
	switch {
	case s.Truth.NoJoin:
		return kubelet{}, "a fault keeps the guest from joining"
	case !strings.HasPrefix(script, "#!"):
		return kubelet{}, "user data is not a script: cloud-init ran nothing"
	case !runsBootstrap.MatchString(script):
		return kubelet{}, "user data does not run " + bootstrapScript
	case !s.Truth.WorkerImage:
		return kubelet{}, "image " + s.Truth.ImageID + " has no " + bootstrapScript
	case len(s.IPAddresses.LAN)+len(s.IPAddresses.WANV4) == 0:
		return kubelet{}, "the server has no network"
	}
	for _, want := range []struct{ key, value string }{
		{"bizfly_cloud_service", "kubernetes_engine"},
		{"bke_cluster_id", bke.ClusterUID},
		{"bke_cluster_token", bke.ClusterToken},
		{"bke_join_endpoint", bke.JoinEndpoint},
	} {
		if s.Metadata[want.key] != want.value {
			return kubelet{}, "metadata " + want.key + " is not the cluster's" // no value: it may be the token
		}
	}
	k := kubelet{version: g.version(s), labels: map[string]string{}, maxPods: defaultMaxPods}
	for _, match := range extraArgs.FindAllStringSubmatch(script, -1) {
		for _, argument := range strings.Fields(match[1]) {
			if err := k.apply(argument); err != nil {
				return kubelet{}, "the kubelet does not start: " + err.Error()
			}
		}
	}
	return k, ""
}

// version is the kubelet's: what metadata says, else the image's, else the cluster's.
func (g *Guests) version(s cloud.Server) string {
	version := s.Metadata["kubernetes_version"]
	if version == "" {
		for _, known := range g.cloud.Options().Catalog.Versions {
			if known.WorkerImageID == s.Truth.ImageID {
				version = known.KubernetesVersion
			}
		}
	}
	if version == "" {
		version = g.cloud.BKE().Version
	}
	return strings.TrimSuffix(version, ".flatcar")
}

// apply takes one command-line argument as a kubelet does. Arguments that change nothing here are ignored.
func (k *kubelet) apply(argument string) error {
	name, value, _ := strings.Cut(argument, "=")
	var err error
	switch name {
	case "--node-labels":
		err = k.addLabels(value)
	case "--register-with-taints":
		err = k.addTaints(value)
	case "--max-pods":
		k.maxPods, err = strconv.ParseInt(value, 10, 32)
	case "--kube-reserved":
		k.kubeReserved, err = quantities(value)
	case "--system-reserved":
		k.reserved, err = quantities(value)
	}
	return err
}

func (k *kubelet) addLabels(list string) error {
	for _, pair := range strings.Split(list, ",") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return fmt.Errorf("--node-labels: %q is not key=value", pair)
		}
		if !allowedLabel(key) {
			return fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [%s]", key)
		}
		k.labels[key] = value
	}
	return nil
}

// allowedLabel is the kubelet's own rule about labels in Kubernetes' domains.
func allowedLabel(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
		return true
	}
	return !within("kubernetes.io") && !within("k8s.io")
}

func (k *kubelet) addTaints(list string) error {
	for _, text := range strings.Split(list, ",") {
		if text == "" {
			continue
		}
		pair, effect, found := strings.Cut(text, ":")
		key, value, _ := strings.Cut(pair, "=")
		taint := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			found = false
		}
		if !found || key == "" {
			return fmt.Errorf("--register-with-taints: invalid taint %q", text)
		}
		k.taints = append(k.taints, taint)
	}
	return nil
}

func quantities(list string) (map[corev1.ResourceName]resource.Quantity, error) {
	parsed := map[corev1.ResourceName]resource.Quantity{}
	for _, pair := range strings.Split(list, ",") {
		name, text, _ := strings.Cut(pair, "=")
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("reservation %q: %w", pair, err)
		}
		parsed[corev1.ResourceName(name)] = quantity
	}
	return parsed, nil
}
