// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// bootstrapScript is baked into the worker images; a machine joins BKE by running it.
const bootstrapScript = "/opt/bizfly-kubernetes-engine/bootstrap.sh"

// extraArgs is the line of a file from which the kubelet takes arguments.
var extraArgs = regexp.MustCompile(`(?m)KUBELET_EXTRA_ARGS=["']?([^"'\n]*)`)

// kubelet is how the kubelet of a machine was configured.
type kubelet struct {
	version string
	// nodeName is what it registers as; empty is the server's name.
	nodeName string
	labels   map[string]string
	taints   []corev1.Taint
	// providerID is empty where the cloud controller manager has to find it; external reports that one is expected.
	providerID string
	external   bool

	maxPods, podsPerCore   int64
	kubeReserved, reserved map[corev1.ResourceName]resource.Quantity // nil is what the Kubernetes Engine configures
	evictionHard           map[string]string
}

// prepared is a machine that is about to join.
type prepared struct {
	kubelet kubelet
	// credentials are how it proves that it may; nil where the Kubernetes Engine takes care of that.
	credentials credentials
}

// prepare runs user data and returns how the kubelet starts, or why it never does.
func (g *Guests) prepare(ctx context.Context, s cloud.Server) (prepared, string) {
	switch {
	case s.Truth.NoJoin:
		return prepared{}, "a fault keeps the guest from joining"
	case len(s.IPAddresses.LAN)+len(s.IPAddresses.WANV4) == 0:
		return prepared{}, "the server has no network"
	}
	c := &computer{server: s, files: map[string][]byte{}}
	if err := c.boot(ctx, s.Truth.UserData); err != nil {
		return prepared{}, err.Error()
	}
	if len(c.joins) == 0 {
		return prepared{}, "user data does not run " + bootstrapScript + ", kubeadm join or a k3s agent"
	}
	call := c.joins[0]
	p := prepared{kubelet: kubelet{version: g.version(s), labels: map[string]string{}, maxPods: defaultMaxPods}}
	var err error
	switch call.program {
	case "bke":
		if reason := g.checkBKE(s); reason != "" {
			return prepared{}, reason
		}
		p.kubelet.external = true
	case "kubeadm":
		err = c.kubeadm(call, &p)
	case "k3s":
		err = c.k3s(call, &p)
	}
	if err == nil {
		err = c.extraArguments(&p.kubelet)
	}
	if err != nil {
		return prepared{}, "the kubelet does not start: " + err.Error()
	}
	if name := p.kubelet.nodeName; name != "" && name != s.Name {
		// The cloud controller manager would take its Node for that of no server.
		g.opts.Log.Warn("a guest joins under another name than its server's", "server", s.Name, "node", name)
	}
	return p, ""
}

// checkBKE is what bootstrap.sh and the Kubernetes Engine find wrong.
func (g *Guests) checkBKE(s cloud.Server) string {
	if !s.Truth.WorkerImage {
		return "image " + s.Truth.ImageID + " has no " + bootstrapScript
	}
	if flavor := s.Truth.Flavor; g.cloud.Options().Shape.WorkerMinimum && (flavor.VCPUs < 2 || flavor.RAM < 2048) {
		return "the worker image needs 2 vCPUs and 2 GiB"
	}
	bke := g.cloud.BKE()
	for _, want := range []struct{ key, value string }{
		{"bizfly_cloud_service", "kubernetes_engine"},
		{"bke_cluster_id", bke.ClusterUID},
		{"bke_cluster_token", bke.ClusterToken},
		{"bke_join_endpoint", bke.JoinEndpoint},
	} {
		if s.Metadata[want.key] != want.value {
			return "metadata " + want.key + " is not the cluster's" // no value: it may be the token
		}
	}
	return ""
}

// extraArguments are those of the files that the kubelet's service reads.
func (c *computer) extraArguments(k *kubelet) error {
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if strings.HasPrefix(string(c.files[name]), "#!") {
			continue // a program that may write such a file, and not the file
		}
		for _, match := range extraArgs.FindAllStringSubmatch(string(c.files[name]), -1) {
			for _, argument := range strings.Fields(match[1]) {
				if err := k.apply(argument); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// version is the kubelet's: that of the metadata, else the image's, else the cluster's.
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
	case "--containerd", "--containerd-namespace", "--boot-id-file", "--machine-id-file", "--container-hints":
		if minor := k.minor(); minor >= 37 {
			err = fmt.Errorf("kubelet: unknown flag of 1.%d: %s", minor, name)
		}
	case "--node-labels":
		err = k.addLabels(value)
	case "--register-with-taints":
		err = k.addTaints(value)
	case "--max-pods":
		k.maxPods, err = strconv.ParseInt(value, 10, 32)
	case "--pods-per-core":
		k.podsPerCore, err = strconv.ParseInt(value, 10, 32)
	case "--provider-id":
		k.providerID = value
	case "--cloud-provider":
		k.external = value == "external"
	case "--hostname-override":
		k.nodeName = value
	case "--eviction-hard":
		k.evictionHard, err = thresholds(value)
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

// thresholds are the signals of --eviction-hard.
func thresholds(list string) (map[string]string, error) {
	parsed := map[string]string{}
	for _, pair := range strings.Split(list, ",") {
		signal, value, found := strings.Cut(pair, "<")
		if _, err := thresholdOf(value, 1); !found || err != nil {
			return nil, fmt.Errorf("--eviction-hard: invalid threshold %q", pair)
		}
		parsed[signal] = value
	}
	return parsed, nil
}

// thresholdOf is a quantity or a percentage of the whole.
func thresholdOf(value string, whole int64) (int64, error) {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		share, err := strconv.ParseFloat(percent, 64)
		return int64(float64(whole) * share / 100), err
	}
	quantity, err := resource.ParseQuantity(value)
	return quantity.Value(), err
}
