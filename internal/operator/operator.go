// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator builds everything that the controllers and the cloud provider need, once and in the order of its
// dependencies: configuration, client and, through package wiring, the providers.
package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Operator is core's operator with this provider's own parts.
type Operator struct {
	Core *coreoperator.Operator

	// ClusterUID is the UID of the namespace kube-system: the identity of this cluster.
	ClusterUID string

	// Config keeps the active configuration.
	Config *config.DefaultProvider
	// API rejects all calls about what a project owns until its scope is confirmed.
	API *bizfly.Client

	Providers *wiring.Providers
	// Settings are the active settings; Tuning changes them while the controller runs.
	Settings *options.Store
	Tuning   *tuning.DefaultProvider
}

// New builds the operator, logs in and reads the catalog once. Its error is one line that says what to change.
func New(ctx context.Context, core *coreoperator.Operator) (*Operator, error) {
	opts := options.FromContext(ctx)
	log.FromContext(ctx).Info("starting "+Name, "version", coreoperator.Version, "revision", Commit(), "goversion",
		runtime.Version())
	reader := core.GetAPIReader()
	if err := StripManagedFields(ctx, core.GetCache(), &corev1.Node{}, &corev1.Pod{}, &karpv1.NodeClaim{}); err != nil {
		return nil, err
	}
	op := &Operator{Core: core, Settings: options.NewStore(opts)}
	op.Tuning = tuning.NewDefaultProvider(reader, op.Settings)
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return nil, fmt.Errorf("reading the namespace %s, whose UID identifies this cluster: %w", metav1.NamespaceSystem, err)
	}
	op.ClusterUID = string(namespace.UID)
	op.connect(opts, reader)
	dependencies := wiring.Dependencies{
		API: op.API, Client: op.Core.GetClient(), APIReader: reader, Recorder: op.Core.EventRecorder, Settings: op.Settings,
		ClusterUID: op.ClusterUID, CABundle: Authority(op.Core.GetConfig()), APIServer: op.Core.GetConfig().Host,
		Recognized: op.Config.CheckControlPlane,
	}
	if coreoptions.FromContext(ctx).FeatureGates.NodeOverlay {
		dependencies.Overlay = op.Core.InstanceTypeStore
	}
	op.Providers = wiring.Build(dependencies)
	return op, op.firstContact(ctx, opts)
}

// StripManagedFields keeps the managed fields of kinds out of the cache, which must not have been started. Nothing here
// reads them, and core copies every Node and NodeClaim in each of its simulations. A patch of an object without them
// does not change them.
func StripManagedFields(ctx context.Context, informers crcache.Informers, kinds ...client.Object) error {
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind)
		// Core makes the manager, and leaves no other way to its cache.
		if shared, ok := informer.(toolscache.SharedInformer); ok && err == nil {
			err = shared.SetTransform(crcache.TransformStripManagedFields())
		}
		if err != nil {
			return fmt.Errorf("preparing the cache of %T: %w", kind, err)
		}
	}
	return nil
}

// firstContact logs in and reads the catalog once. A controller that has never reached BizFly Cloud is configured
// wrongly and ends with the error; one whose scope is recorded or whose NodeClaims have servers has, and starts all the
// same, so that neither an outage nor a credential that has expired meanwhile blocks an upgrade: what needs BizFly
// Cloud waits for it, and the ProviderConfig reports why.
func (op *Operator) firstContact(ctx context.Context, opts *options.Options) error {
	ctx, cancel := context.WithTimeout(ctx, ttl.Startup)
	defer cancel()
	result := op.Config.Sync(ctx)
	if result.Object != nil {
		// The controller syncs again, and reports the result.
		_ = op.Tuning.Sync(ctx, result.Object)
		op.Providers.Instances.Forms().Restore(result.Object.Status.RequestForms)
	}
	_, waits := errors.AsType[*config.ScopeUnrecordedError](result.ScopeErr)
	reached := waits || result.Object != nil && result.Object.RecordedScope() != nil
	if !reached {
		endpoint := lo.CoalesceOrEmpty(opts.APIURL, bizfly.DefaultAPIURL)
		switch {
		case result.ReadErr != nil:
			return result.ReadErr
		case result.CredentialsErr != nil:
			return fmt.Errorf("the login at %s was rejected: check %s, or the Secret that the ProviderConfig %s names: %w",
				endpoint, credentialVariables(opts), v1alpha1.ProviderConfigName, result.CredentialsErr)
		case result.EndpointErr != nil:
			return fmt.Errorf("BIZFLY_CLOUD_API_URL=%q does not answer: check the address, name resolution, proxy and "+
				"firewall: %w",
				endpoint, result.EndpointErr)
		}
	}
	// NodeClasses that need what could not be learned report it, and try again.
	if _, err := op.Providers.BKE.Values(ctx); err != nil {
		log.FromContext(ctx).Error(err, "not all BKE values are known yet")
	}
	err := op.Providers.Catalog.Refresh(ctx)
	if _, unread := op.Providers.Catalog.Snapshot(); err == nil || unread == nil {
		return nil
	}
	if reached {
		log.FromContext(ctx).Error(err, "starting without the catalog of the cloud, which is read as soon as it answers")
		return nil
	}
	return fmt.Errorf("reading the catalog of the cloud for the first time: %w", err)
}

// credentialVariables names the variables that the method of login reads.
func credentialVariables(opts *options.Options) string {
	if opts.AuthMethod == bizfly.AuthMethodPassword {
		return "BIZFLY_CLOUD_EMAIL and BIZFLY_CLOUD_PASSWORD"
	}
	return "BIZFLY_CLOUD_APP_CRED_ID and BIZFLY_CLOUD_APP_CRED_SECRET"
}

// connect creates the client, which the first look at the configuration makes active.
func (op *Operator) connect(opts *options.Options, reader client.Reader) {
	environment := Environment(opts)
	op.API = bizfly.NewInactiveClient(environment)
	op.Config = config.NewDefaultProvider(config.Options{
		Reader:      reader,
		Client:      op.API,
		Environment: environment,
		Namespace:   opts.Namespace,
		SecretName:  opts.CredentialsSecretName,
	})
}

// Authority is the certificate that a client trusts the API server by; nil where it has none of its own.
func Authority(config *rest.Config) []byte {
	loaded := rest.CopyConfig(config)
	_ = rest.LoadTLSFiles(loaded) // what cannot be read, the client has reported
	return loaded.CAData
}

// Environment is the configuration of the client that the environment sets. Its own endpoint is an allowed host.
func Environment(opts *options.Options) bizfly.Config {
	allowed := slices.Clone(opts.AllowedHosts)
	if endpoint, err := url.Parse(lo.CoalesceOrEmpty(opts.APIURL, bizfly.DefaultAPIURL)); err == nil &&
		endpoint.Host != "" {
		allowed = append(allowed, endpoint.Host)
	}
	return bizfly.Config{
		APIURL:        opts.APIURL,
		Region:        opts.Region,
		ProjectID:     opts.ProjectID,
		AuthMethod:    opts.AuthMethod,
		Email:         opts.Email,
		Password:      opts.Password,
		AppCredID:     opts.AppCredID,
		AppCredSecret: opts.AppCredSecret,
		AllowHTTP:     opts.AllowHTTP,
		AllowedHosts:  allowed,
		Version:       coreoperator.Version,
	}
}
