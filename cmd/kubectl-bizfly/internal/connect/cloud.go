// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/offline"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Cloud is BizFly Cloud with the controller's own providers over it.
type Cloud struct {
	// API is used for reading alone. Embedded is true where it is the catalog that is built into the plugin, which knows nothing of an account.
	API      bizfly.API
	Embedded bool
	// Pools changes worker pools of BKE, which nothing does but the commands that are named after it.
	Pools pool.API
	// Config is what it was reached with, Scope what the credentials are for.
	Config bizfly.Config
	Scope  bizfly.Scope
	// Settings are the controller's, tuning included.
	Settings *options.Store

	// Snapshot is the catalog; nil until it is read.
	Snapshot *catalog.Snapshot

	*wiring.Providers
	dependencies wiring.Dependencies
}

// NoCredentialsError says that nothing says how to log in to BizFly Cloud.
type NoCredentialsError struct{ Err error }

// Error names every place that credentials are looked for in.
func (e *NoCredentialsError) Error() string {
	return fmt.Sprintf("there are no usable credentials of BizFly Cloud: set BIZFLY_CLOUD_REGION with BIZFLY_CLOUD_APP_CRED_ID and "+
		"BIZFLY_CLOUD_APP_CRED_SECRET, or name files with --credential-id-file and --credential-secret-file, or use a "+
		"kubeconfig that may read the controller's Secret; "+
		"kubectl bizfly plan --offline needs none (%s)", e.Err)
}

// Unwrap returns what is wrong with those that were found.
func (e *NoCredentialsError) Unwrap() error { return e.Err }

// OtherHostError says that the endpoint is not the one at which the controller has found the servers of this cluster.
type OtherHostError struct {
	// Host is the endpoint's, Pinned the one that the ProviderConfig has recorded.
	Host, Pinned string
}

// Error says where the endpoint comes from.
func (e *OtherHostError) Error() string {
	return fmt.Sprintf("the credentials were not sent to %s: the servers of this cluster are at %s (annotation "+
		v1alpha1.AnnotationScope+" of the ProviderConfig). Set "+
		"BIZFLY_CLOUD_API_URL to the endpoint of that host, or unset it", e.Host, e.Pinned)
}

// Login logs in once. Nothing of the catalog is known yet.
func (s *Session) Login(ctx context.Context) (*Cloud, error) {
	if s.cloud == nil && s.cloudErr == nil {
		s.cloud, s.cloudErr = s.login(ctx)
	}
	return s.cloud, s.cloudErr
}

// Cloud logs in and reads the catalog, both once.
func (s *Session) Cloud(ctx context.Context) (*Cloud, error) {
	cloud, err := s.Login(ctx)
	if err != nil {
		return nil, err
	}
	if !s.read {
		s.read = true
		err := cloud.Catalog.Refresh(ctx)
		if cloud.Snapshot, _ = cloud.Catalog.Snapshot(); cloud.Snapshot == nil {
			s.readErr = fmt.Errorf("reading the catalog of BizFly Cloud: %w", err)
		} else if err != nil {
			s.Note("parts of the catalog could not be read: %s", err)
		}
	}
	if s.readErr != nil {
		return nil, s.readErr
	}
	return cloud, nil
}

// Effective returns the configuration of the cloud as the controller computes it: the ProviderConfig over the environment. Only the user's own
// credentials win over its Secret, which then is not read.
func (s *Session) Effective(ctx context.Context) (bizfly.Config, error) {
	reader := client.Reader(memory.New(nil))
	if s.Cluster != nil {
		object := &v1alpha1.ProviderConfig{}
		switch err := s.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object); {
		case IsMissing(err) || IsForbidden(err):
			s.Note("the ProviderConfig was not read: %s", err)
		case err == nil && s.ownMethod() != "":
			object.Spec.SecretRef = nil
			reader = memory.New(memory.Objects{object})
		default:
			reader = s.Cluster
		}
	}
	effective, err := config.NewDefaultProvider(config.Options{
		Reader: reader, Environment: operator.Environment(s.Settings), Namespace: s.Settings.Namespace, SecretName: s.Settings.CredentialsSecretName,
	}).Effective(ctx)
	// Of the Secret that the controller may read, the API server has said that the user may not.
	if forbidden := (*config.ForbiddenError)(nil); errors.As(err, &forbidden) && forbidden.Name == forbidden.Granted {
		err = fmt.Errorf("you may not get the Secret %s in namespace %s", forbidden.Name, forbidden.Namespace)
	}
	return effective, err
}

func (s *Session) login(ctx context.Context) (*Cloud, error) {
	if s.Offline() {
		return s.embedded(), nil
	}
	effective, err := s.Effective(ctx)
	if err != nil {
		return nil, &NoCredentialsError{Err: err}
	}
	if err := s.checkHost(ctx, effective); err != nil {
		return nil, err
	}
	effective.Registerer = prometheus.NewRegistry()
	api, err := bizfly.NewClient(effective)
	if err != nil {
		return nil, &NoCredentialsError{Err: err}
	}
	c := &Cloud{API: api, Pools: api, Config: effective}
	if c.Scope, err = api.Scope(ctx); err != nil {
		return nil, fmt.Errorf("logging in to BizFly Cloud: %w", err)
	}
	api.Confirm(c.Scope)
	settings := *s.Settings
	settings.ClusterEndpoint = lo.CoalesceOrEmpty(settings.ClusterEndpoint, hostOf(s))
	c.Settings = options.NewStore(&settings)
	s.tune(ctx, c.Settings)
	s.build(c)
	return c, nil
}

// Offline reports whether the catalog that is built into the plugin takes the place of BizFly Cloud's: the user asks for it, or the command
// allows it and there is neither a cluster nor any credential.
func (s *Session) Offline() bool {
	return s.options.Offline || s.options.AllowOffline && s.Cluster == nil && !s.anyCredential()
}

// embedded is the catalog of the plugin, with the settings of its environment. There is no BKE cluster to read.
func (s *Session) embedded() *Cloud {
	settings := *s.Settings
	settings.BKEClusterID, settings.BKEDiscoverFromPool = "", false
	c := &Cloud{API: offline.NewAPI(), Embedded: true, Settings: options.NewStore(&settings)}
	s.build(c)
	return c
}

// checkHost rejects an endpoint that is not where the controller has pinned the scope of this cluster: credentials go nowhere else,
// whoever may have written the endpoint. Without a pinned scope, or the right to read it, there is nothing to compare with. A read that
// fails otherwise leaves it unknown.
func (s *Session) checkHost(ctx context.Context, effective bizfly.Config) error {
	if s.Cluster == nil {
		return nil
	}
	object := &v1alpha1.ProviderConfig{}
	err := s.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object)
	if err != nil && !apierrors.IsNotFound(err) && !IsMissing(err) && !IsForbidden(err) {
		return fmt.Errorf("the credentials were not sent: reading the ProviderConfig, whose status names the host that they are for: %w", err)
	}
	if object.RecordedScope() == nil {
		return nil
	}
	endpoint, err := url.Parse(lo.CoalesceOrEmpty(effective.APIURL, bizfly.DefaultAPIURL))
	if err != nil {
		return &NoCredentialsError{Err: err}
	}
	if pinned := object.RecordedScope().Host; pinned != "" && endpoint.Host != pinned {
		return &OtherHostError{Host: endpoint.Host, Pinned: pinned}
	}
	return nil
}

// Elsewhere is an error where the credentials are for another place than the servers of this cluster are in, which nothing there shows.
func (c *Cloud) Elsewhere(object v1alpha1.ProviderConfig) error {
	pinned := object.RecordedScope()
	if pinned == nil || pinned.ProjectID == c.Scope.ProjectID && pinned.Region == c.Scope.Region && pinned.Host == c.Scope.Host {
		return nil
	}
	return fmt.Errorf("the credentials are for %s, and this cluster's servers are in project %s, region %s at %s", c.Scope, pinned.ProjectID, pinned.Region,
		pinned.Host)
}

// tune applies the ConfigMap of prices and flavors that the controller applies.
func (s *Session) tune(ctx context.Context, settings *options.Store) {
	object := &v1alpha1.ProviderConfig{}
	if s.Cluster == nil || s.Cluster.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object) != nil {
		return
	}
	result := tuning.NewDefaultProvider(s.Cluster, settings).Sync(ctx, object)
	if result.Err != nil {
		s.Note("the tuning was not read, so the values of the ProviderConfig's status apply: %s", result.Err)
	}
}

// build makes the providers of the controller. Without a writer: templates are only tried here, which issues no token.
func (s *Session) build(c *Cloud) {
	d := wiring.Dependencies{API: c.API, APIReader: memory.New(nil), Settings: c.Settings}
	if s.Cluster != nil {
		d.APIReader = s.Cluster
	}
	if s.REST != nil {
		d.CABundle, d.APIServer = operator.Authority(s.REST), s.REST.Host
	}
	c.Providers, c.dependencies = wiring.Build(d), d
}

// Over is what providers over a copy of the cluster are built from. They share the catalog.
func (c *Cloud) Over(copied client.Client) wiring.Dependencies {
	d := c.dependencies
	d.Client, d.Catalog = copied, c.Catalog
	return d
}

// BKECluster returns the uid of the BKE cluster whose pools may be changed: the one of the user's environment, else the one that a server of
// its pools names. A Deployment does not choose it: before the installation, a tenant's is the only one with the controller's label.
func (c *Cloud) BKECluster(ctx context.Context, s *Session) (string, error) {
	if own := os.Getenv("BKE_CLUSTER_ID"); own != "" {
		return own, nil
	}
	reader, err := s.Reader()
	if err != nil {
		return "", fmt.Errorf("the BKE cluster is not known: set BKE_CLUSTER_ID (%w)", err)
	}
	discovered := bke.Config{Discover: true, APIServer: hostOf(s)}
	learned, err := bke.NewDefaultProvider(discovered, reader, c.API, clock.RealClock{}).Values(ctx)
	if err != nil {
		return "", fmt.Errorf("the BKE cluster is not known: set BKE_CLUSTER_ID (%w)", err)
	}
	return learned.ClusterID, nil
}

func hostOf(s *Session) string {
	if s.REST == nil {
		return ""
	}
	return s.REST.Host
}

// Catalog is the catalog that is built into the plugin.
type Catalog struct {
	// Region and Zones are those of the flavors, Flavors how many there are.
	Region  string   `json:"region"`
	Zones   []string `json:"zones"`
	Flavors int      `json:"flavors"`
	// PricesAsOf is the day of the price table, as 2026-11-21.
	PricesAsOf string `json:"pricesAsOf"`
}

// EmbeddedCatalog describes the plugin's catalog; nil is that of BizFly Cloud.
func (c *Cloud) EmbeddedCatalog() *Catalog {
	if !c.Embedded {
		return nil
	}
	return &Catalog{
		Region: c.Snapshot.Region.ShortName, Zones: c.OpenZones(), Flavors: len(c.Snapshot.Flavors),
		PricesAsOf: c.Settings.Load().Prices.AsOf,
	}
}

// OpenZones are the zones of the catalog in which servers can be launched.
func (c *Cloud) OpenZones() []string {
	return lo.FilterMap(c.Snapshot.Zones(), func(z catalog.Zone, _ int) (string, bool) { return z.Name, z.Active })
}
