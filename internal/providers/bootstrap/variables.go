// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// serverIDCommand reads the metadata service or, where there is none, the firmware.
	serverIDCommand = `{ curl -sf --retry 5 --retry-connrefused --max-time 10 ` +
		`http://169.254.169.254/openstack/latest/meta_data.json ` +
		`| sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' | grep . || tr 'A-F' 'a-f' < /sys/class/dmi/id/product_uuid; }`

	// triedJoinToken stands in for the token while a template is tried.
	triedJoinToken = "abcdef.0123456789abcdef"
	// defaultTokenTTL is that of the API.
	defaultTokenTTL = 30 * time.Minute
)

// Variables are what a template can use, for example {{ .NodeName }}. A node must get the kubelet settings below, since
// pods are scheduled by them.
type Variables struct {
	// NodeName is the name that the node must register with; it is also the server's name.
	NodeName string
	// ClusterName is the name of the cluster, CLUSTER_NAME of the controller.
	ClusterName string
	// KubernetesVersion is the image's version, for example v1.35.4; empty where the image does not name it.
	KubernetesVersion string
	// ProviderIDPrefix is the prefix of the server's id in the kubelet's --provider-id: bizflycloud://.
	ProviderIDPrefix string
	// ServerIDCommand is a shell command that prints the id of the server on which it runs: SERVER_ID=$({{
	// .ServerIDCommand }}).
	ServerIDCommand string
	// NetworkIDs are the ids of the server's VPC networks.
	NetworkIDs []string
	// Labels are all labels of the node, karpenter.sh/do-not-sync-taints among them.
	Labels map[string]string
	// Taints are all taints that the node must register with, karpenter.sh/unregistered first, startup taints last.
	Taints []Taint
	// KubeletLabels are the labels that a kubelet accepts, ready for --node-labels.
	KubeletLabels string
	// KubeletTaints are the taints, ready for --register-with-taints.
	KubeletTaints string
	// KubeletConfiguration is a KubeletConfiguration with all settings below and the taints, as YAML.
	KubeletConfiguration string
	// KubeletArgs are the settings below as arguments of the kubelet by name, such as max-pods, and others that
	// spec.kubelet sets.
	KubeletArgs map[string]string
	// MaxPods is the kubelet's maxPods, lowered to what podsPerCore allows on this server.
	MaxPods int32
	// PodsPerCore is the kubelet's podsPerCore; 0 is no limit.
	PodsPerCore int32
	// KubeReserved is the kubelet's kubeReserved.
	KubeReserved map[string]string
	// SystemReserved is the kubelet's systemReserved.
	SystemReserved map[string]string
	// EvictionHard is the kubelet's evictionHard.
	EvictionHard map[string]string
	// EvictionSoft is the kubelet's evictionSoft; it may be empty.
	EvictionSoft map[string]string
	// EvictionSoftGracePeriod is the kubelet's; it may be empty.
	EvictionSoftGracePeriod map[string]string
	// Values are spec.userDataValues, for example .Values.version.
	Values map[string]string

	// What follows is looked up when a template uses it, once for all that it does with it.
	cluster    *cluster
	clusterDNS []string
	joinToken  func() (string, error)
}

// Taint is a taint of the node, with the fields of Kubernetes' own and without its methods, which templates could call.
type Taint struct {
	Key    string             `json:"key"`
	Value  string             `json:"value,omitempty"`
	Effect corev1.TaintEffect `json:"effect"`
}

// APIServerEndpoint is the API server as nodes reach it, host:port: CLUSTER_ENDPOINT, else that of
// kube-public/cluster-info.
func (v *Variables) APIServerEndpoint() (string, error) { return v.cluster.endpoint() }

// CABundle is the certificate of the cluster's authority, PEM: what the controller trusts, else that of
// kube-public/cluster-info.
func (v *Variables) CABundle() (string, error) { return v.cluster.authority() }

// CACertHashes are kubeadm's pins of that certificate, for example sha256:7c8d...
func (v *Variables) CACertHashes() ([]string, error) { return v.cluster.authorityHashes() }

// ClusterDNS are the addresses of the cluster's DNS: spec.kubelet.clusterDNS, else those of the Service
// kube-system/kube-dns.
func (v *Variables) ClusterDNS() (_ []string, err error) {
	if len(v.clusterDNS) == 0 {
		v.clusterDNS, err = v.cluster.dns()
	}
	return v.clusterDNS, err
}

// JoinToken is a bootstrap token made for this server, id.secret. It needs spec.joinToken.
func (v *Variables) JoinToken() (string, error) { return v.joinToken() }

func (p *DefaultProvider) variables(ctx context.Context, input Input, tried bool) (*Variables, error) {
	registration, err := newRegistration(input)
	if err != nil {
		return nil, err
	}
	settings := settingsOf(input.NodeClass, input.CPU, input.MemoryMiB)
	configuration, arguments, err := rendered(settings, registration.taints)
	if err != nil {
		return nil, err
	}
	return &Variables{
		NodeName:          input.NodeName,
		ClusterName:       p.config.Options.ClusterName,
		KubernetesVersion: input.KubernetesVersion,
		ProviderIDPrefix:  providerid.Prefix,
		ServerIDCommand:   serverIDCommand,
		NetworkIDs:        input.NetworkIDs,
		Labels:            registration.labels,
		Taints: lo.Map(registration.taints, func(t corev1.Taint, _ int) Taint {
			return Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		}),
		KubeletLabels:           registration.labelsFlag(),
		KubeletTaints:           registration.taintsFlag(),
		KubeletConfiguration:    configuration,
		KubeletArgs:             arguments,
		MaxPods:                 *settings.MaxPods,
		PodsPerCore:             lo.FromPtr(settings.PodsPerCore),
		KubeReserved:            settings.KubeReserved,
		SystemReserved:          settings.SystemReserved,
		EvictionHard:            settings.EvictionHard,
		EvictionSoft:            settings.EvictionSoft,
		EvictionSoftGracePeriod: settings.EvictionSoftGracePeriod,
		Values:                  input.NodeClass.Spec.UserDataValues,
		cluster:                 &cluster{ctx: ctx, config: &p.config},
		clusterDNS:              settings.ClusterDNS,
		joinToken:               sync.OnceValues(p.tokenOf(ctx, input, tried)),
	}, nil
}

const errNoJoinToken = problem("the template uses .JoinToken, and spec.joinToken is not set; set it, for example " +
	"joinToken: {}")

// tokenOf creates a join token when a template uses it, and none while a template is only tried.
func (p *DefaultProvider) tokenOf(ctx context.Context, input Input, tried bool) func() (string, error) {
	return func() (string, error) {
		spec := input.NodeClass.Spec.JoinToken
		switch {
		case spec == nil:
			return "", errNoJoinToken
		case tried:
			return triedJoinToken, nil
		}
		token, err := p.config.JoinTokens.Issue(ctx, jointoken.Request{
			NodeClaim: input.NodeClaim,
			NodeName:  input.NodeName,
			Attempt:   input.Attempt,
			TTL:       cmp.Or(spec.TTL.Duration, defaultTokenTTL),
		})
		if err != nil {
			return "", &lookupError{err}
		}
		return token, nil
	}
}

// variableList are the names of all variables.
var variableList = func() []string {
	t := reflect.TypeFor[*Variables]()
	names := lo.FilterMap(reflect.VisibleFields(t.Elem()), func(f reflect.StructField, _ int) (string, bool) {
		return f.Name, f.IsExported()
	})
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}()

// variableNames is for errors.
var variableNames = strings.Join(variableList, ", ")
