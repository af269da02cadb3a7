// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// k3sConfig is where an agent finds what its command line does not set.
const k3sConfig = "/etc/rancher/k3s/config.yaml"

var noReservation = map[corev1.ResourceName]resource.Quantity{}

// k3s is k3s agent: command line over environment over file, as k3s reads them.
func (c *computer) k3s(call joinCall, p *prepared) error {
	p.kubelet.kubeReserved, p.kubelet.reserved = noReservation, noReservation
	options := map[string][]string{}
	if content, exists := c.read(k3sConfig); exists {
		file := map[string]any{}
		if err := yaml.Unmarshal(content, &file); err != nil {
			return fmt.Errorf("k3s: %s is not YAML", k3sConfig)
		}
		for name, value := range file {
			if list, ok := value.([]any); ok {
				for _, element := range list {
					options[name] = append(options[name], fmt.Sprint(element))
				}
				continue
			}
			options[name] = []string{fmt.Sprint(value)}
		}
	}
	for option, variable := range map[string]string{"server": "K3S_URL", "token": "K3S_TOKEN", "node-name": "K3S_NODE_NAME"} {
		if value := call.env[variable]; value != "" {
			options[option] = []string{value}
		}
	}
	for i := 0; i < len(call.args); i++ {
		name, value, inline := strings.Cut(strings.TrimLeft(call.args[i], "-"), "=")
		if !inline && i+1 < len(call.args) {
			i++
			value = call.args[i]
		}
		options[name] = append(options[name], value)
	}
	return p.k3s(options)
}

func (p *prepared) k3s(options map[string][]string) error {
	last := func(name string) string {
		if values := options[name]; len(values) > 0 {
			return values[len(values)-1]
		}
		return ""
	}
	k := &p.kubelet
	k.nodeName = last("node-name")
	if err := k.addLabels(strings.Join(options["node-label"], ",")); err != nil {
		return err
	}
	if err := k.addTaints(strings.Join(options["node-taint"], ",")); err != nil {
		return err
	}
	for _, argument := range options["kubelet-arg"] {
		if err := k.apply("--" + argument); err != nil {
			return err
		}
	}
	credentials := &agentCredentials{server: last("server"), token: last("token")}
	if rest, full := strings.CutPrefix(credentials.token, "K10"); full {
		hash, token, found := strings.Cut(rest, "::")
		if !found {
			return errors.New("k3s: a token that begins with K10 needs :: after the hash")
		}
		credentials.authority, credentials.token = hash, token
	}
	if !strings.HasPrefix(credentials.server, "https://") {
		return fmt.Errorf("k3s: --server %q is not an https URL", credentials.server)
	}
	if !validToken(credentials.token) {
		return errors.New("k3s: the token is not [K10hash::][a-z0-9]{6}.[a-z0-9]{16}")
	}
	p.credentials = credentials
	return nil
}

// reservations reads a map of quantities.
func reservations(values map[string]string) (map[corev1.ResourceName]resource.Quantity, error) {
	parsed := map[corev1.ResourceName]resource.Quantity{}
	for name, text := range values {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("reservation %s=%q: %w", name, text, err)
		}
		parsed[corev1.ResourceName(name)] = quantity
	}
	return parsed, nil
}
