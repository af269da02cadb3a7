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
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxUserDataBytes is what the cloud accepts as user data.
const maxUserDataBytes = 16 * 1024

// Reasons of a ValidationError, also the reasons of the NodeClass's BootstrapReady condition.
const (
	// ReasonNotConfigured says that the controller's environment lacks what nodes join with.
	ReasonNotConfigured = "BootstrapNotConfigured"
	// ReasonInvalidUserData says that spec.bootstrap.userData is no template that makes user data.
	ReasonInvalidUserData = "UserDataInvalid"
)

// ValidationError says why nodes of a NodeClass could not join. It never quotes a template, a rendered value or a secret.
type ValidationError struct {
	// Reason is one of the Reason constants.
	Reason string
	// Message names field or environment variable and the remedy.
	Message string
}

// Error returns the message.
func (e *ValidationError) Error() string { return e.Message }

// DefaultProvider makes user data from its Config, the NodeClass and what the catalog knows of the BKE cluster.
type DefaultProvider struct {
	config  Config
	catalog catalog.Provider
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider makes the provider. The catalog is asked for the BKE cluster's version and local DNS.
func NewDefaultProvider(config Config, catalogProvider catalog.Provider) *DefaultProvider {
	return &DefaultProvider{config: config, catalog: catalogProvider}
}

// Validate implements Provider. A *ValidationError is returned for whatever the user can put right.
func (p *DefaultProvider) Validate(nodeClass *v1alpha1.BizflyNodeClass) error {
	if mode(nodeClass) == v1alpha1.BootstrapModeCustom {
		return p.validateCustom(nodeClass)
	}
	return p.validateBKE()
}

func (p *DefaultProvider) validateBKE() error {
	var problems []string
	for _, required := range []struct{ name, value, remedy string }{
		{"BKE_CLUSTER_ID", p.config.BKEClusterID, "the uid of the BKE cluster, 16 characters"},
		{"BKE_CLUSTER_TOKEN", p.config.BKEClusterToken, "the cluster's join token"},
		{"BKE_JOIN_ENDPOINT", p.config.BKEJoinEndpoint, "the URL at which nodes join, which ends in /engine/cluster_join/<cluster id>"},
	} {
		if strings.TrimSpace(required.value) == "" {
			problems = append(problems, fmt.Sprintf("%s is not set (%s)", required.name, required.remedy))
		}
	}
	for _, endpoint := range []struct{ name, value string }{
		{"BKE_JOIN_ENDPOINT", p.config.BKEJoinEndpoint},
		{"BKE_LOG_ENDPOINT", p.config.BKELogEndpoint},
	} {
		if endpoint.value != "" && !isURL(endpoint.value) {
			problems = append(problems, endpoint.name+" is not an http or https URL")
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &ValidationError{Reason: ReasonNotConfigured, Message: fmt.Sprintf(
		"spec.bootstrap.mode BKE: %s; set it in the environment of the controller, or use mode Custom with user data of your own",
		strings.Join(problems, "; "))}
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// Render implements Provider. Output.Metadata holds what the BKE worker image's script reads and is empty in Custom mode;
// neither this provider's own metadata nor the user's is in it.
func (p *DefaultProvider) Render(_ context.Context, input Input) (*Output, error) {
	if err := p.Validate(input.NodeClass); err != nil {
		return nil, err
	}
	var output *Output
	var err error
	if mode(input.NodeClass) == v1alpha1.BootstrapModeCustom {
		output, err = p.renderCustom(input)
	} else {
		output, err = p.renderBKE(input)
	}
	if err != nil {
		return nil, err
	}
	if len(output.UserData) > maxUserDataBytes {
		return nil, tooLarge()
	}
	return output, nil
}

func tooLarge() error {
	return &ValidationError{Reason: ReasonInvalidUserData, Message: fmt.Sprintf(
		"spec.bootstrap.userData: the rendered user data is larger than the %d bytes that the cloud accepts; let it download the rest",
		maxUserDataBytes)}
}

func mode(nodeClass *v1alpha1.BizflyNodeClass) v1alpha1.BootstrapMode {
	return cmp.Or(lo.FromPtr(nodeClass.Spec.Bootstrap).Mode, v1alpha1.BootstrapModeBKE)
}
