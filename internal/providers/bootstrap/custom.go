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
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"text/template"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Variables are what a template in spec.bootstrap.userData can use, for example {{ .NodeName }}. A node must get the
// kubelet settings below, since pods are scheduled by them.
type Variables struct {
	// NodeName is the name that the node must register with; it is also the server's name.
	NodeName string
	// ClusterName is the name of the cluster, CLUSTER_NAME of the controller.
	ClusterName string
	// KubernetesVersion is the image's version, for example v1.35.4; empty where the image does not say it.
	KubernetesVersion string
	// ProviderIDPrefix goes before the server's id in the kubelet's --provider-id: bizflycloud://.
	ProviderIDPrefix string
	// NetworkIDs are the ids of the server's VPC networks.
	NetworkIDs []string
	// Labels are all labels of the node, karpenter.sh/do-not-sync-taints among them.
	Labels map[string]string
	// Taints are all taints that the node must register with, karpenter.sh/unregistered first.
	Taints []corev1.Taint
	// KubeletLabels are the labels that a kubelet accepts, ready for --node-labels.
	KubeletLabels string
	// KubeletTaints are the taints, ready for --register-with-taints.
	KubeletTaints string
	// MaxPods is the kubelet's maxPods.
	MaxPods int32
	// KubeReserved is the kubelet's kubeReserved: cpu, memory and perhaps ephemeral-storage.
	KubeReserved map[string]string
	// SystemReserved is the kubelet's systemReserved: cpu, memory and perhaps ephemeral-storage.
	SystemReserved map[string]string
	// EvictionHard is the kubelet's evictionHard: memory.available and nodefs.available.
	EvictionHard map[string]string
	// Metadata is spec.metadata.
	Metadata map[string]string
}

// position is where text/template's errors say that something is wrong: the only part of them that never quotes the
// template, which may hold a join token.
var position = regexp.MustCompile(`^template: [^:]*:(\d+)(?::(\d+))?:`)

// validateCustom renders the template once with plausible values. Labels that a NodePool may bring are not known here, so
// a missing key of a map is no error yet.
func (p *DefaultProvider) validateCustom(nodeClass *v1alpha1.BizflyNodeClass) error {
	_, err := p.execute(Input{
		NodeName:          "nodepool-x7k2p-0a1b2c3d",
		NodeClass:         nodeClass,
		KubernetesVersion: "v1.35.4",
		NetworkIDs:        []string{"00000000-0000-0000-0000-000000000000"},
		CPU:               2,
		MemoryMiB:         4096,
	}, "missingkey=zero")
	return err
}

func (p *DefaultProvider) renderCustom(input Input) (*Output, error) {
	userData, err := p.execute(input, "missingkey=error")
	if err != nil {
		return nil, err
	}
	return &Output{UserData: userData, Metadata: map[string]string{}}, nil
}

func (p *DefaultProvider) execute(input Input, missingKey string) (string, error) {
	source := lo.FromPtr(lo.FromPtr(input.NodeClass.Spec.Bootstrap).UserData)
	if strings.TrimSpace(source) == "" {
		return "", invalidUserData("", "it is empty; in Custom mode it makes the server join the cluster")
	}
	// Parsed each time: a launch costs seconds and a template microseconds, and a cache would be one more thing to bound.
	parsed, err := template.New("userData").Funcs(functions).Option(missingKey).Parse(source)
	if err != nil {
		return "", invalidUserData(at(err), "the template does not parse: a brace or quote is missing, or a function does not exist; functions are "+functionNames)
	}
	variables, err := p.variables(input)
	if err != nil {
		return "", err
	}
	out := &limitedBuffer{}
	if err := parsed.Execute(out, variables); errors.Is(err, errTooLarge) {
		return "", tooLarge()
	} else if err != nil {
		return "", invalidUserData(at(err), "the template cannot be rendered: a variable or key does not exist, or a function got what it cannot use; variables are "+variableNames)
	}
	return out.String(), nil
}

func (p *DefaultProvider) variables(input Input) (*Variables, error) {
	registration, err := newRegistration(input)
	if err != nil {
		return nil, err
	}
	settings := settingsOf(input.NodeClass, input.CPU, input.MemoryMiB)
	return &Variables{
		NodeName:          input.NodeName,
		ClusterName:       p.config.ClusterName,
		KubernetesVersion: input.KubernetesVersion,
		ProviderIDPrefix:  providerid.Prefix,
		NetworkIDs:        input.NetworkIDs,
		Labels:            registration.labels,
		Taints:            registration.taints,
		KubeletLabels:     registration.labelsFlag(),
		KubeletTaints:     registration.taintsFlag(),
		MaxPods:           settings.maxPods,
		KubeReserved:      settings.kubeReserved,
		SystemReserved:    settings.systemReserved,
		EvictionHard:      settings.evictionHard,
		// A copy: what a template gets is its own.
		Metadata: maps.Clone(input.NodeClass.Spec.Metadata),
	}, nil
}

func invalidUserData(where, problem string) error {
	return &ValidationError{Reason: ReasonInvalidUserData, Message: "spec.bootstrap.userData" + where + ": " + problem}
}

// at returns the line and column of a template error, and nothing else of it.
func at(err error) string {
	found := position.FindStringSubmatch(err.Error())
	switch {
	case found == nil:
		return ""
	case found[2] == "":
		return ", line " + found[1]
	}
	return fmt.Sprintf(", line %s, column %s", found[1], found[2])
}

// variableNames is what an error says that there is.
var variableNames = func() string {
	t := reflect.TypeFor[Variables]()
	names := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		names = append(names, t.Field(i).Name)
	}
	return strings.Join(names, ", ")
}()

var errTooLarge = errors.New("the rendered user data is too large")

// limitedBuffer refuses to grow beyond what the cloud accepts, so that a template that calls itself cannot eat the
// controller's memory.
type limitedBuffer struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxUserDataBytes {
		return 0, errTooLarge
	}
	return b.Buffer.Write(p)
}
