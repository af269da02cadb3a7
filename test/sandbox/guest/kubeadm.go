// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// joinConfiguration is the part of kubeadm's JoinConfiguration, v1beta3 and v1beta4, that a machine here follows.
type joinConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Discovery  struct {
		BootstrapToken *struct {
			Token                    string   `json:"token"`
			APIServerEndpoint        string   `json:"apiServerEndpoint"`
			CACertHashes             []string `json:"caCertHashes"`
			UnsafeSkipCAVerification bool     `json:"unsafeSkipCAVerification"`
		} `json:"bootstrapToken"`
		TLSBootstrapToken string `json:"tlsBootstrapToken"`
	} `json:"discovery"`
	NodeRegistration struct {
		Name             string         `json:"name"`
		Taints           []corev1.Taint `json:"taints"`
		KubeletExtraArgs any            `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
	Patches struct {
		Directory string `json:"directory"`
	} `json:"patches"`
}

// kubeletConfiguration is the part of a KubeletConfiguration that changes anything here.
type kubeletConfiguration struct {
	MaxPods            *int64            `json:"maxPods"`
	PodsPerCore        int64             `json:"podsPerCore"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	EvictionHard       map[string]string `json:"evictionHard"`
	EvictionSoft       map[string]string `json:"evictionSoft"`
	EvictionSoftGrace  map[string]string `json:"evictionSoftGracePeriod"`
	RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
	ProviderID         string            `json:"providerID"`
}

// kubeadm is kubeadm join.
func (c *computer) kubeadm(call joinCall, p *prepared) error {
	// A kubelet without configuration reserves nothing.
	p.kubelet.kubeReserved, p.kubelet.reserved = noReservation, noReservation
	flags, endpoint := flagsOf(call.args)
	credentials := &tokenCredentials{endpoint: endpoint, pins: flags["--discovery-token-ca-cert-hash"]}
	_, credentials.anyAuthority = flags["--discovery-token-unsafe-skip-ca-verification"]
	for _, name := range []string{"--discovery-token", "--tls-bootstrap-token", "--token"} {
		for _, value := range flags[name] {
			credentials.token = value
		}
	}
	for _, name := range flags["--node-name"] {
		p.kubelet.nodeName = name
	}
	for _, directory := range flags["--patches"] {
		if err := c.patches(directory, &p.kubelet); err != nil {
			return err
		}
	}
	for _, name := range flags["--config"] {
		if err := c.joinConfiguration(name, credentials, &p.kubelet); err != nil {
			return err
		}
	}
	if _, _, err := net.SplitHostPort(credentials.endpoint); err != nil {
		return fmt.Errorf("kubeadm: %q is not host:port of an API server", credentials.endpoint)
	}
	if !validToken(credentials.token) {
		return errors.New("kubeadm: the token is not [a-z0-9]{6}.[a-z0-9]{16}") // no value: it is a secret
	}
	if len(credentials.pins) == 0 && !credentials.anyAuthority {
		return errors.New("kubeadm: neither caCertHashes nor unsafeSkipCAVerification is set")
	}
	p.credentials = credentials
	return nil
}

// flagsOf reads a command line: the values of each flag, and the last word that is none.
func flagsOf(args []string) (flags map[string][]string, word string) {
	flags = map[string][]string{}
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "--") {
			word = args[i]
			continue
		}
		if !inline && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			value = args[i]
		}
		flags[name] = append(flags[name], value)
	}
	return flags, word
}

func (c *computer) joinConfiguration(name string, credentials *tokenCredentials, k *kubelet) error {
	content, exists := c.read(name)
	if !exists {
		return fmt.Errorf("kubeadm: there is no file %s", name)
	}
	for _, document := range strings.Split("\n"+string(content), "\n---") {
		join := joinConfiguration{}
		if err := yaml.Unmarshal([]byte(document), &join); err != nil {
			return fmt.Errorf("kubeadm: %s is not the YAML of a JoinConfiguration", name)
		}
		if join.Kind != "JoinConfiguration" {
			continue
		}
		if join.APIVersion != "kubeadm.k8s.io/v1beta3" && join.APIVersion != "kubeadm.k8s.io/v1beta4" {
			return fmt.Errorf("kubeadm: it knows no JoinConfiguration of %q", join.APIVersion)
		}
		if minor := k.minor(); join.APIVersion == "kubeadm.k8s.io/v1beta3" && minor >= 37 {
			return fmt.Errorf("kubeadm: 1.%d knows no JoinConfiguration of %q", minor, join.APIVersion)
		}
		if token := join.Discovery.BootstrapToken; token != nil {
			*credentials = tokenCredentials{endpoint: token.APIServerEndpoint, token: token.Token, pins: token.CACertHashes,
				anyAuthority: token.UnsafeSkipCAVerification}
		}
		k.nodeName = join.NodeRegistration.Name
		k.taints = append(k.taints, join.NodeRegistration.Taints...)
		if err := k.extraArgs(join.APIVersion, join.NodeRegistration.KubeletExtraArgs); err != nil {
			return err
		}
		if join.Patches.Directory != "" {
			if err := c.patches(join.Patches.Directory, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// minor is that of the kubelet's version, and 0 where it has none.
func (k *kubelet) minor() int {
	var major, minor int
	_, _ = fmt.Sscanf(k.version, "v%d.%d", &major, &minor)
	return minor
}

// extraArgs are a map in v1beta3 and a list in v1beta4; the other form is rejected by a strict decoder, as kubeadm's is.
func (k *kubelet) extraArgs(version string, args any) error {
	switch args := args.(type) {
	case nil:
		return nil
	case map[string]any:
		if version == "kubeadm.k8s.io/v1beta3" {
			for name, value := range args {
				if err := k.apply(fmt.Sprintf("--%s=%v", name, value)); err != nil {
					return err
				}
			}
			return nil
		}
	case []any:
		if version == "kubeadm.k8s.io/v1beta4" {
			for _, arg := range args {
				pair, ok := arg.(map[string]any)
				if !ok {
					return errors.New("kubeadm: kubeletExtraArgs is no list of name and value")
				}
				if err := k.apply(fmt.Sprintf("--%v=%v", pair["name"], pair["value"])); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return fmt.Errorf("kubeadm: kubeletExtraArgs has not the form of %s", version)
}

// patches are those of the kubelet's configuration.
func (c *computer) patches(directory string, k *kubelet) error {
	for _, name := range []string{"kubeletconfiguration.yaml", "kubeletconfiguration+merge.yaml", "kubeletconfiguration+strategic.yaml"} {
		if content, exists := c.read(path.Join(directory, name)); exists {
			if err := k.configure(content); err != nil {
				return fmt.Errorf("kubeadm: patch %s: %w", name, err)
			}
		}
	}
	return nil
}

// configure takes a KubeletConfiguration.
func (k *kubelet) configure(content []byte) error {
	configuration := kubeletConfiguration{}
	if err := yaml.Unmarshal(content, &configuration); err != nil {
		return errors.New("it is not the YAML of a KubeletConfiguration")
	}
	if configuration.MaxPods != nil {
		k.maxPods = *configuration.MaxPods
	}
	k.podsPerCore = configuration.PodsPerCore
	var err error
	if k.kubeReserved, err = reservations(configuration.KubeReserved); err != nil {
		return err
	}
	if k.reserved, err = reservations(configuration.SystemReserved); err != nil {
		return err
	}
	for signal := range configuration.EvictionSoft {
		if configuration.EvictionSoftGrace[signal] == "" {
			return fmt.Errorf("evictionSoft %s has no evictionSoftGracePeriod", signal)
		}
	}
	if len(configuration.EvictionHard) > 0 {
		for signal, value := range configuration.EvictionHard {
			if _, err := thresholdOf(value, 1); err != nil {
				return fmt.Errorf("evictionHard %s: %q is no threshold", signal, value)
			}
		}
		k.evictionHard = configuration.EvictionHard
	}
	k.taints = append(k.taints, configuration.RegisterWithTaints...)
	k.providerID = configuration.ProviderID
	return nil
}
