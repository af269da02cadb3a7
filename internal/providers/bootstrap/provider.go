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
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxUserDataBytes is how much user data is sent. The cloud documents no limit; this is the least that any cloud of its kind
// has, and what the API's own field holds.
const maxUserDataBytes = 16 * 1024

// Reasons of a ValidationError, also the reasons of the NodeClass's BootstrapReady condition.
const (
	// ReasonNotConfigured says that the controller's environment lacks what nodes join with.
	ReasonNotConfigured = "BootstrapNotConfigured"
	// ReasonInvalidUserData says that spec.userData is no template that makes user data.
	ReasonInvalidUserData = "UserDataInvalid"
	// ReasonUserDataSecret says that the Secret of spec.userDataFrom is not there or may not be read.
	ReasonUserDataSecret = "UserDataSecretUnusable"
	// ReasonJoinTokensDisabled says that spec.joinToken needs what the controller was not given.
	ReasonJoinTokensDisabled = "JoinTokensDisabled" //nolint:gosec // the name of a reason, not a credential
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
	if config.BKE == nil {
		config.BKE = bke.Values{
			ClusterID: config.BKEClusterID, Token: config.BKEClusterToken, JoinEndpoint: config.BKEJoinEndpoint, LogEndpoint: config.BKELogEndpoint,
		}
	}
	return &DefaultProvider{config: config, catalog: catalogProvider}
}

// Resolve implements Provider. A *ValidationError is returned for whatever the user can put right.
func (p *DefaultProvider) Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Resolution, error) {
	resolution := &Resolution{}
	if err := p.validateJoinToken(nodeClass); err != nil {
		return nil, err
	}
	if mode(nodeClass) == v1alpha1.BootstrapModeBKE {
		values, err := p.bkeValues(ctx)
		if err != nil {
			return nil, err
		}
		resolution.InsecureHost = values.InsecureHost()
		resolution.Notes = lo.Compact([]string{values.Learned})
	}
	sources, err := p.sources(ctx, nodeClass)
	if err != nil {
		return nil, err
	}
	resolution.UserDataHash = hashOf(sources)
	pieces, err := p.execute(ctx, sources, plausible(nodeClass), true)
	if err != nil {
		return nil, err
	}
	if mode(nodeClass) == v1alpha1.BootstrapModeBKE {
		pieces = append(pieces, source{text: shebang + bkeScript})
	}
	userData, err := merge(pieces)
	if err != nil {
		return nil, err
	}
	if len(userData) > maxUserDataBytes {
		return nil, tooLarge()
	}
	return resolution, nil
}

func (p *DefaultProvider) validateJoinToken(nodeClass *v1alpha1.BizflyNodeClass) error {
	if nodeClass.Spec.JoinToken == nil || p.config.JoinTokens != nil {
		return nil
	}
	return &ValidationError{Reason: ReasonJoinTokensDisabled, Message: "spec.joinToken: the controller may not make bootstrap tokens; " +
		"set the chart's value joinTokens.enabled (JOIN_TOKENS=true), which grants it a Role in kube-system, or leave joinToken out"}
}

// bkeValues are what nodes join BKE with, all of them there.
func (p *DefaultProvider) bkeValues(ctx context.Context) (bke.Values, error) {
	before := p.config.BKE.Known()
	values, err := p.config.BKE.Values(ctx)
	var problems []string
	for _, required := range []struct{ name, value, remedy string }{
		{"BKE_CLUSTER_ID", values.ClusterID, "the uid of the BKE cluster, 16 characters"},
		{"BKE_CLUSTER_TOKEN", values.Token, "the cluster's join token"},
		{"BKE_JOIN_ENDPOINT", values.JoinEndpoint, "the URL at which nodes join, which ends in /engine/cluster_join/<cluster id>"},
	} {
		if strings.TrimSpace(required.value) == "" {
			problems = append(problems, fmt.Sprintf("%s is not set (%s)", required.name, required.remedy))
		}
	}
	for _, endpoint := range []struct{ name, value string }{
		{"BKE_JOIN_ENDPOINT", values.JoinEndpoint},
		{"BKE_LOG_ENDPOINT", values.LogEndpoint},
	} {
		if endpoint.value != "" && !isURL(endpoint.value) {
			problems = append(problems, endpoint.name+" is not an http or https URL")
		}
	}
	if len(problems) > 0 {
		message := fmt.Sprintf("spec.bootstrapMode BKE: %s; set it in the environment of the controller, or use mode Custom with user data of your own",
			strings.Join(problems, "; "))
		if err != nil {
			message += "; " + err.Error()
		}
		return values, &ValidationError{Reason: ReasonNotConfigured, Message: message}
	}
	if snapshot, err := p.catalog.Snapshot(); before.ClusterID != values.ClusterID || (err == nil && snapshot.ClusterUnknown) {
		// The catalog did not know until now which cluster to read, whoever has learned it.
		if err := p.catalog.Refresh(ctx); err != nil {
			return values, fmt.Errorf("reading the BKE cluster that was learned: %w", err)
		}
	}
	return values, nil
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// Render implements Provider. Output.Metadata holds what the BKE worker image's script reads and is empty in Custom mode;
// neither this provider's own metadata nor the user's is in it.
func (p *DefaultProvider) Render(ctx context.Context, input Input) (*Output, error) {
	if err := p.validateJoinToken(input.NodeClass); err != nil {
		return nil, err
	}
	output := &Output{Metadata: map[string]string{}}
	var own *source
	if mode(input.NodeClass) == v1alpha1.BootstrapModeBKE {
		var err error
		if own, output.Metadata, err = p.renderBKE(ctx, input); err != nil {
			return nil, err
		}
	}
	sources, err := p.sources(ctx, input.NodeClass)
	if err != nil {
		return nil, err
	}
	output.UserDataHash = hashOf(sources)
	pieces, err := p.execute(ctx, sources, input, false)
	if err != nil {
		return nil, err
	}
	if own != nil {
		pieces = append(pieces, *own)
	}
	if output.UserData, err = merge(pieces); err != nil {
		return nil, err
	}
	if len(output.UserData) > maxUserDataBytes {
		return nil, tooLarge()
	}
	return output, nil
}

func tooLarge() error {
	return &ValidationError{Reason: ReasonInvalidUserData, Message: fmt.Sprintf(
		"spec.userData: the rendered user data, with all its parts, is larger than the %d bytes that are accepted; let it download the rest",
		maxUserDataBytes)}
}

func mode(nodeClass *v1alpha1.BizflyNodeClass) v1alpha1.BootstrapMode {
	return nodeClass.EffectiveBootstrapMode()
}
