// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap creates the user data and the server metadata that turn a new server into a node, and returns the
// kubelet settings that this node will really have, so that the scheduler computes with the same.
package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxUserDataBytes is how much user data is sent. BizFly Cloud documents no limit; this is the least that similar
// clouds have, and what the API's own field holds.
const maxUserDataBytes = 16 * 1024

// Config is what the cluster gives every node.
type Config struct {
	// Options are the settings that the controller has started with.
	Options *options.Options
	// BKE returns what nodes join BKE with.
	BKE bke.Provider
	// Reader reads Secrets, ConfigMaps and Services by name, without a cache.
	Reader client.Reader
	// JoinTokens issues a bootstrap token per server; nil rejects NodeClasses that need one.
	JoinTokens jointoken.Provider
	// CABundle is the certificate of the cluster's authority as the controller itself was given it, PEM; empty is looked
	// up.
	CABundle []byte
}

// Input is one server to be.
type Input struct {
	// NodeName is the name of the server and of its node.
	NodeName string
	// NodeClaim and Attempt are the launch that a join token is for.
	NodeClaim *karpv1.NodeClaim
	Attempt   int
	NodeClass *v1alpha1.BizflyNodeClass
	// KubernetesVersion is the image's, for example v1.35.4; empty for images that are not BKE's.
	KubernetesVersion string
	// NetworkIDs are the VPC networks in the order of the ports.
	NetworkIDs []string
	Labels     map[string]string
	// CPU is the number of vCPUs, and MemoryMiB the memory, of the flavor.
	CPU, MemoryMiB int
}

// Output is what the server is created with.
type Output struct {
	// UserData is plain text, not base64.
	UserData string
	// Metadata is what the worker image's script reads; it holds the join token, so it is never logged.
	Metadata map[string]string
	// UserDataHash identifies the templates that the user data was rendered from; empty without any.
	UserDataHash string
	// Notes are for the user although nothing is wrong.
	Notes []string
	// PodAccess is why user data does not keep pods off the metadata service although the NodeClass asks for it; nil where
	// it does.
	PodAccess *ValidationError
}

// Reservations are the kubelet settings that decide how much of a server pods can use.
type Reservations struct {
	// MaxPods is the most pods that the node runs.
	MaxPods int32
	// Kept is what the kubelet keeps from pods: for itself, for the operating system, and below what it evicts pods.
	Kept corev1.ResourceList
	// Configured reports whether the user decides them, so that pods never get more than they leave. Else they are an
	// estimate of what the BKE worker image decides, and what nodes report replaces them.
	Configured bool
}

// Reasons of a ValidationError, also the reasons of the NodeClass's BootstrapReady condition.
const (
	// ReasonNotConfigured says that the controller's environment lacks what nodes join with.
	ReasonNotConfigured = "BootstrapNotConfigured"
	// ReasonInvalidUserData says that spec.userData is no template that makes user data.
	ReasonInvalidUserData = "UserDataInvalid"
	// ReasonUserDataSource says that the Secret or ConfigMap of spec.userDataFrom is not there or may not be read.
	ReasonUserDataSource = "UserDataSourceUnusable"
	// ReasonJoinTokensDisabled says that spec.joinToken needs what the controller was not given.
	ReasonJoinTokensDisabled = "JoinTokensDisabled" //nolint:gosec // the name of a reason, not a credential
)

// ValidationError is why nodes of a NodeClass could not join, or what their user data cannot do. It never quotes a
// template, a rendered value or a secret.
type ValidationError struct {
	// Reason is one of the Reason constants.
	Reason string
	// Message names field or environment variable and the remedy.
	Message string
}

// Error returns the message.
func (e *ValidationError) Error() string { return e.Message }

func notConfigured(format string, args ...any) error {
	return &ValidationError{Reason: ReasonNotConfigured, Message: fmt.Sprintf(format, args...)}
}

func invalidUserData(field, where, problem string) error {
	return &ValidationError{Reason: ReasonInvalidUserData, Message: field + where + ": " + problem}
}

// DefaultProvider renders user data from its Config, the NodeClass and what the catalog has of the BKE cluster.
type DefaultProvider struct {
	config  Config
	catalog catalog.Provider
}

// NewDefaultProvider returns a provider. The catalog has the BKE cluster's version and local DNS.
func NewDefaultProvider(config Config, catalogProvider catalog.Provider) *DefaultProvider {
	return &DefaultProvider{config: config, catalog: catalogProvider}
}

// Resolve reads and tries what user data is rendered from. A *ValidationError names what keeps nodes of this NodeClass
// from joining, with field or environment variable and remedy; any other error means that this is not known.
func (p *DefaultProvider) Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) (*Output, error) {
	return p.render(ctx, plausible(nodeClass), true)
}

// Render returns user data and metadata. Output.Metadata holds what the BKE worker image's script reads and is empty in
// Custom mode; neither this provider's own metadata nor the user's is in it.
func (p *DefaultProvider) Render(ctx context.Context, input Input) (*Output, error) {
	return p.render(ctx, input, false)
}

// render renders the templates of the NodeClass, and puts BKE's own script behind them in BKE mode; tried means that
// this only shows whether that is possible, and issues no join token.
func (p *DefaultProvider) render(ctx context.Context, input Input, tried bool) (*Output, error) {
	if input.NodeClass.Spec.JoinToken != nil && p.config.JoinTokens == nil {
		return nil, &ValidationError{Reason: ReasonJoinTokensDisabled,
			Message: "spec.joinToken: the controller may not create bootstrap tokens; set the chart's value " +
				"joinTokens.enabled (JOIN_TOKENS=true), which grants it a Role in kube-system, or leave joinToken out"}
	}
	output := &Output{Metadata: map[string]string{}}
	var own []source
	if input.NodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeBKE {
		if err := p.setBKEMetadata(ctx, input, output); err != nil {
			return nil, err
		}
		own = []source{{field: "BKE's own script", text: bkeScript}}
	}
	sources, err := p.sources(ctx, input.NodeClass)
	if err != nil {
		return nil, err
	}
	variables, err := p.variables(ctx, input, tried)
	if err != nil {
		return nil, err
	}
	pieces := make([]source, 0, len(sources)+len(own))
	for _, s := range sources {
		text, err := s.render(variables, tried)
		if err != nil {
			return nil, err
		}
		// cloud-init takes what begins with an empty line and then #! for a script, which the kernel does not run, nor by an
		// interpreter whose name ends with a carriage return.
		if begun := strings.TrimLeft(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff\r\n\t "); begun != "" {
			pieces = append(pieces, source{field: s.field, text: begun})
		}
		output.Notes = append(output.Notes, lo.Compact([]string{noteOnFlags(text)})...)
	}
	if len(pieces)+len(own) == 0 && !tried { // labels of the NodePool may decide
		return nil, invalidUserData(sources[0].field, "", "it renders to nothing, so that no server would join")
	}
	pieces, output.PodAccess = withoutPodAccess(input.NodeClass, pieces)
	if output.UserData, err = merge(append(pieces, own...)); err != nil {
		return nil, err
	}
	if len(output.UserData) > maxUserDataBytes {
		return nil, errTooLarge
	}
	output.UserDataHash = hashOf(sources)
	return output, nil
}

const (
	fieldUserData     = "spec.userData"
	fieldUserDataFrom = "spec.userDataFrom"

	// maxTemplateBytes bounds a template from a Secret or ConfigMap; what it makes is bounded by what the cloud accepts.
	maxTemplateBytes = 64 * 1024
)

// source is one template.
type source struct {
	// field is what errors call it.
	field string
	text  string
}

// sources are the templates of a NodeClass in the order in which their parts are put together.
func (p *DefaultProvider) sources(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) ([]source, error) {
	spec := nodeClass.Spec
	var sources []source
	if spec.UserDataFrom != nil {
		from, err := p.fromObject(ctx, spec.UserDataFrom)
		if err != nil {
			return nil, err
		}
		sources = append(sources, *from)
	}
	if spec.UserData != nil {
		sources = append(sources, source{field: fieldUserData, text: *spec.UserData})
	}
	for _, s := range sources {
		if strings.TrimSpace(s.text) == "" {
			return nil, invalidUserData(s.field, "", "it is empty; leave it out, or add a template")
		}
	}
	if len(sources) == 0 && nodeClass.EffectiveBootstrapMode() == v1alpha1.BootstrapModeCustom {
		return nil, invalidUserData(fieldUserData, "",
			"it is empty, and so is userDataFrom; in Custom mode they make the server join the cluster")
	}
	return sources, nil
}

// fromObject reads a template from a Secret or ConfigMap of the controller's own namespace. Those that it may read are
// an option, so that one that it was not meant to read is rejected here with the remedy, whatever its Role says.
func (p *DefaultProvider) fromObject(ctx context.Context, from *v1alpha1.UserDataSource) (*source, error) {
	secret, configMap := &corev1.Secret{}, &corev1.ConfigMap{}
	object, kind, ref, selector := client.Object(secret), "Secret", "secretKeyRef", lo.FromPtr(from.SecretKeyRef)
	names, value, variable := p.config.Options.UserDataSecretNames, "userDataSecrets", "USER_DATA_SECRET_NAMES"
	if from.ConfigMapKeyRef != nil {
		object, kind, ref, selector = configMap, "ConfigMap", "configMapKeyRef", *from.ConfigMapKeyRef
		names, value, variable = p.config.Options.UserDataConfigMapNames, "userDataConfigMaps", "USER_DATA_CONFIGMAP_NAMES"
	}
	reject := func(format string, args ...any) error {
		return &ValidationError{Reason: ReasonUserDataSource,
			Message: fmt.Sprintf("%s.%s.name %q: ", fieldUserDataFrom, ref, selector.Name) + fmt.Sprintf(format, args...)}
	}
	granted := func() error {
		return reject("the controller may not read this %s; name it in the chart's value %s (%s, now %q)", kind, value,
			variable, strings.Join(names, ","))
	}
	if !slices.Contains(names, selector.Name) {
		return nil, granted()
	}
	switch err := p.config.Reader.Get(ctx, client.ObjectKey{Namespace: p.config.Options.Namespace, Name: selector.Name},
		object); {
	case apierrors.IsNotFound(err):
		return nil, reject("there is no such %s in the controller's namespace %s; create it", kind,
			p.config.Options.Namespace)
	case apierrors.IsForbidden(err):
		return nil, granted()
	case err != nil:
		return nil, &lookupError{fmt.Errorf("reading the %s of %s: %w", kind, fieldUserDataFrom, err)}
	}
	text, found := configMap.Data[selector.Key]
	if data, inData := secret.Data[selector.Key]; inData {
		text, found = string(data), true
	}
	if !found {
		return nil, reject("it has no key %q; set %s.%s.key or add it", selector.Key, fieldUserDataFrom, ref)
	}
	if len(text) > maxTemplateBytes {
		return nil, reject("its key %q has %d bytes, at most %d are read", selector.Key, len(text), maxTemplateBytes)
	}
	return &source{field: fieldUserDataFrom, text: text}, nil
}

// hashOf identifies the templates by their texts and order, wherever they come from.
func hashOf(sources []source) string {
	if len(sources) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, s := range sources {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(s.text), s.text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
