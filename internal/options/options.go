// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds this provider's settings: flags, environment variables and the keys of the tuning ConfigMap.
// One table gives each its names, default, bounds, unit and documentation; flags, validation, tuning and the reference
// pages are made from it. A new setting is a field of Options, a row of the table, and the place that reads it.
package options

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/samber/lo"
	"go.uber.org/multierr"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

func init() {
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

type optionsKey struct{}

// Options are this provider's settings. They are not changed once parsed: tuning makes a changed copy and stores that.
// What each means is in the table.
type Options struct {
	ClusterName string

	AuthMethod               string
	Email, Password          string
	AppCredID, AppCredSecret string
	Region                   string
	ProjectID                string
	APIURL                   string
	AllowHTTP                bool
	AllowedHosts             []string
	RegionLabel              string

	Namespace             string
	CredentialsSecretName string
	TuningConfigMapName   string

	BKEClusterID, BKEClusterToken, BKEJoinEndpoint, BKELogEndpoint string
	BKEDiscoverFromPool                                            bool
	UserDataSecretNames, UserDataConfigMapNames                    []string
	JoinTokens                                                     bool
	JoinTokenGroups                                                []string
	ClusterEndpoint                                                string

	CreateProviderConfig    bool
	GarbageCollectionDryRun bool
	// MaxServers and MaxVNDPerHour limit the cluster; 0 is no limit. They cannot be tuned: a writer of the
	// ConfigMap could lift them. The prices that MaxVNDPerHour counts with can.
	MaxServers, MaxVNDPerHour float64
	// LaunchTimeout cannot be tuned: core reads it without a lock, so that it must not change while core runs.
	LaunchTimeout time.Duration

	CatalogInterval           time.Duration
	GarbageCollectionInterval time.Duration
	GarbageCollectionGrace    time.Duration
	UnavailableOfferingTTL    time.Duration
	MemoryOverheadPercent     float64
	Prices                    *pricing.Table
	ClosedZones               []string
	// BillingPeriod is what a server costs at once, BillingWindow the end of it in which its node may be disrupted.
	BillingPeriod, BillingWindow time.Duration
	HiddenFlavors                []string

	// The next are constants of internal/ttl, which no setting changes. Tests make them shorter.
	ServerPollInterval, ServerListMaxAge, ServerIDWait, VisibilityWindow, AccountPause time.Duration

	// malformed are the environment variables whose text is not a value of their type.
	malformed error
}

// Defaults returns the defaults of the table.
func Defaults() *Options {
	o := &Options{
		Prices:             pricing.DefaultTable(),
		ServerPollInterval: ttl.ServerPoll, ServerListMaxAge: ttl.ServerList, ServerIDWait: ttl.ServerIDWait,
		VisibilityWindow: ttl.Visibility, AccountPause: ttl.AccountPause,
	}
	for _, s := range table {
		if s.Default == "" {
			continue
		}
		if err := s.assign(o, s.Default); err != nil {
			panic(fmt.Sprintf("the default of %s%s: %s", s.Variable, s.Key, err)) // no build that passed its tests has one
		}
	}
	return o
}

// AddFlags registers the flags, with the environment over the defaults. Secrets have no flag: every process of a
// machine can read a command line.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	*o = *Defaults()
	for _, s := range table {
		// An empty variable counts as unset where empty is no value of the setting.
		if raw, set := os.LookupEnv(s.Variable); s.Variable != "" && set && (raw != "" || s.isText()) {
			if err := s.assign(o, raw); err != nil {
				o.malformed = multierr.Append(o.malformed, s.problem(raw, err))
			}
		}
		if s.Flag == "" {
			continue
		}
		register := fs.Func
		if _, isBool := s.field(o).(*bool); isBool {
			register = fs.BoolFunc // it can be given without a value
		}
		register(s.Flag, fmt.Sprintf("%s (default %q)", s.Doc, s.format(o)), func(raw string) error {
			return s.assign(o, raw)
		})
	}
}

// Parse reads the flags and validates everything.
func (o *Options) Parse(fs *coreoptions.FlagSet, args ...string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		return fmt.Errorf("parsing flags: %w", err)
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("validating options: %w", err)
	}
	return nil
}

// Validate names everything that is wrong, each with the variable, the value (never a secret) and the remedy. Endpoint,
// region and credentials are validated by the client that uses them, wherever they come from.
func (o *Options) Validate() error {
	errs := o.malformed
	for _, s := range table {
		if s.Variable == "" || s.check == nil {
			continue
		}
		if err := s.check(o); err != nil {
			errs = multierr.Append(errs, s.problem(s.format(o), err))
		}
	}
	return errs
}

// ToContext puts the options into a context.
func (o *Options) ToContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, optionsKey{}, o)
}

// FromContext returns the options of a context, nil when it has none.
func FromContext(ctx context.Context) *Options {
	opts, _ := ctx.Value(optionsKey{}).(*Options)
	return opts
}

// Preflight parses everything that the binary is configured with, core's options and those of the log included, so that
// main can report what is wrong in one line; core itself, which parses it again, would panic.
func Preflight(args []string) error {
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("karpenter-provider-bizflycloud", flag.ContinueOnError)}
	for _, injectable := range coreoptions.Injectables {
		injectable.AddFlags(fs)
	}
	for _, injectable := range coreoptions.Injectables {
		if err := injectable.Parse(fs, args...); err != nil {
			return err
		}
	}
	return nil
}

// Store holds the active settings, which must not be changed. Readers load them once per decision, so that a change
// never shows in the middle of one.
type Store struct{ atomic.Pointer[Options] }

// NewStore returns a store with these settings active.
func NewStore(o *Options) *Store {
	s := &Store{}
	s.Store(o)
	return s
}

// table is every setting.
var table = []*Setting{
	checked(plain("cluster-name", "CLUSTER_NAME", "",
		"The name of the cluster, written into the metadata of its servers. Required.",
		func(o *Options) *string { return &o.ClusterName }), checkClusterName),
	plain("bizfly-auth-method", "BIZFLY_CLOUD_AUTH_METHOD", "application_credential",
		"How to log in: password or application_credential.",
		func(o *Options) *string { return &o.AuthMethod }),
	plain("bizfly-region", "BIZFLY_CLOUD_REGION", "",
		"The region: HN (HaNoi), HCM (HoChiMinh) or VC-HaNoi. Required.",
		func(o *Options) *string { return &o.Region }),
	plain("bizfly-project-id", "BIZFLY_CLOUD_PROJECT_ID", "",
		"The project. Empty: the credential's own.",
		func(o *Options) *string { return &o.ProjectID }),
	plain("bizfly-api-url", "BIZFLY_CLOUD_API_URL", "",
		"The endpoint. Empty: BizFly Cloud's own.",
		func(o *Options) *string { return &o.APIURL }),
	plain("bizfly-allow-http", "BIZFLY_CLOUD_ALLOW_HTTP", "false",
		"Permit an endpoint without TLS. For the sandbox only.",
		func(o *Options) *bool { return &o.AllowHTTP }),
	{
		Flag: "bizfly-allowed-hosts", Variable: "BIZFLY_CLOUD_ALLOWED_HOSTS", Unit: "list, separated by commas",
		// Not all of bizflycloud.vn: the API server of each user's cluster has a name there too.
		Default: "manage.bizflycloud.vn,*.manage.bizflycloud.vn",
		Doc: "Hosts, beside that of BIZFLY_CLOUD_API_URL, to which a ProviderConfig may send the credentials, or patterns " +
			"such as *.manage.bizflycloud.vn.",
		field: func(o *Options) any { return &o.AllowedHosts }, check: checkAllowedHosts,
	},
	checked(plain("region-label", "BIZFLY_CLOUD_REGION_LABEL", "",
		"The value of topology.kubernetes.io/region as the cloud controller manager writes it. Empty: the region's short "+
			"name.",
		func(o *Options) *string { return &o.RegionLabel }), checkRegionLabel),

	plain("system-namespace", "SYSTEM_NAMESPACE", "karpenter",
		"The controller's own namespace.",
		func(o *Options) *string { return &o.Namespace }),
	plain("credentials-secret-name", "CREDENTIALS_SECRET_NAME", "karpenter-provider-bizflycloud",
		"The only Secret that a ProviderConfig may name: the controller's Role grants no other.",
		func(o *Options) *string { return &o.CredentialsSecretName }),
	plain("tuning-configmap-name", "TUNING_CONFIGMAP_NAME", DefaultTuningConfigMapName,
		"The only ConfigMap that it may name for tuning.",
		func(o *Options) *string { return &o.TuningConfigMapName }),

	plain("bke-cluster-id", "BKE_CLUSTER_ID", "",
		"The uid of the BKE cluster. Empty without BizFly Kubernetes Engine.",
		func(o *Options) *string { return &o.BKEClusterID }),
	plain("bke-join-endpoint", "BKE_JOIN_ENDPOINT", "",
		"Where BKE's worker image joins the cluster.",
		func(o *Options) *string { return &o.BKEJoinEndpoint }),
	plain("bke-log-endpoint", "BKE_LOG_ENDPOINT", "",
		"Where BKE's worker image reports its progress.",
		func(o *Options) *string { return &o.BKELogEndpoint }),
	plain("bke-discover-from-pool", "BKE_DISCOVER_FROM_POOL", "false",
		"Learn BKE values that are not set, networks and firewalls from a pool server of this cluster.",
		func(o *Options) *bool { return &o.BKEDiscoverFromPool }),
	checked(list("user-data-secret-names", "USER_DATA_SECRET_NAMES", "",
		"The Secrets that spec.userDataFrom may name, separated by commas.",
		func(o *Options) *[]string { return &o.UserDataSecretNames }), checkUserDataSecrets),
	list("user-data-configmap-names", "USER_DATA_CONFIGMAP_NAMES", "",
		"The ConfigMaps that spec.userDataFrom may name, separated by commas.",
		func(o *Options) *[]string { return &o.UserDataConfigMapNames }),
	plain("join-tokens", "JOIN_TOKENS", "false",
		"Permit spec.joinToken of NodeClasses, which writes a bootstrap token per server to kube-system.",
		func(o *Options) *bool { return &o.JoinTokens }),
	checked(list("join-token-groups", "JOIN_TOKEN_GROUPS",
		"system:bootstrappers:karpenter,system:bootstrappers:kubeadm:default-node-token,"+
			"system:bootstrappers:k3s:default-node-token",
		"The groups of each bootstrap token beside system:bootstrappers. The default has those of kubeadm and k3s, to which "+
			"they bind a joining node's rights.",
		func(o *Options) *[]string { return &o.JoinTokenGroups }), checkJoinTokenGroups),
	{
		Flag: "cluster-endpoint", Variable: "CLUSTER_ENDPOINT",
		Doc:   "The API server as nodes reach it, host:port, for templates. Empty: that of kube-public/cluster-info.",
		field: func(o *Options) any { return &o.ClusterEndpoint }, check: checkClusterEndpoint,
		document: func(o *Options, raw string) error {
			o.ClusterEndpoint = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(raw), "https://"), "/")
			return nil
		},
	},

	plain("create-provider-config", "CREATE_PROVIDER_CONFIG", "true",
		"Create the ProviderConfig default where there is none.",
		func(o *Options) *bool { return &o.CreateProviderConfig }),
	plain("garbage-collection-dry-run", "GARBAGE_COLLECTION_DRY_RUN", "false",
		"Only report which servers without a NodeClaim would be deleted.",
		func(o *Options) *bool { return &o.GarbageCollectionDryRun }),
	limit("max-servers", "MAX_SERVERS", "servers",
		"How many servers the cluster may have, those without a NodeClaim and launches under way included. 0: no limit.",
		func(o *Options) *float64 { return &o.MaxServers }),
	limit("max-vnd-per-hour", "MAX_VND_PER_HOUR", "VND per hour",
		"What these servers may cost, root disks and plans included. Nothing is launched while the price of one is not "+
			"known. 0: no limit.",
		func(o *Options) *float64 { return &o.MaxVNDPerHour }),
	duration("launch-timeout", "LAUNCH_TIMEOUT", "", "3m", 10*time.Second, 10*time.Minute,
		"How long a NodeClaim may be without the id of its server before it is replaced: longer than a slow create, and at "+
			"most 10m, since core gives its node 15 minutes from the creation of the NodeClaim to register. Core reads it only "+
			"at the start.",
		func(o *Options) *time.Duration { return &o.LaunchTimeout }),

	secret("BIZFLY_CLOUD_EMAIL", "The account's e-mail address, for the method password.",
		func(o *Options) *string { return &o.Email }),
	secret("BIZFLY_CLOUD_PASSWORD", "Its password.",
		func(o *Options) *string { return &o.Password }),
	secret("BIZFLY_CLOUD_APP_CRED_ID", "The application credential's id, for the method application_credential.",
		func(o *Options) *string { return &o.AppCredID }),
	secret("BIZFLY_CLOUD_APP_CRED_SECRET", "Its secret.",
		func(o *Options) *string { return &o.AppCredSecret }),
	secret("BKE_CLUSTER_TOKEN", "The token with which servers join the BKE cluster, and leave it.",
		func(o *Options) *string { return &o.BKEClusterToken }),

	duration("catalog-interval", "CATALOG_INTERVAL", "catalogInterval", "10m", 10*time.Second, 24*time.Hour,
		"How often flavors, zones, volume types and Kubernetes versions are read.",
		func(o *Options) *time.Duration { return &o.CatalogInterval }),
	duration("garbage-collection-interval", "GARBAGE_COLLECTION_INTERVAL", "garbageCollectionInterval", "2m", time.Second,
		time.Hour,
		"How often the controller looks for servers without a NodeClaim.",
		func(o *Options) *time.Duration { return &o.GarbageCollectionInterval }),
	checked(duration("garbage-collection-grace", "GARBAGE_COLLECTION_GRACE", "", "5m", 10*time.Second, 24*time.Hour,
		"The age below which a server without a NodeClaim is not deleted: it may be a launch under way. It must exceed "+
			"LAUNCH_TIMEOUT, which cannot be tuned either.",
		func(o *Options) *time.Duration { return &o.GarbageCollectionGrace }), checkGrace),
	duration("unavailable-offering-ttl", "UNAVAILABLE_OFFERING_TTL", "unavailableOfferingTTL", "3m", time.Second,
		24*time.Hour,
		"How long an offering without capacity is not tried again. What is unavailable already keeps its time.",
		func(o *Options) *time.Duration { return &o.UnavailableOfferingTTL }),
	{
		Flag: "vm-memory-overhead-percent", Variable: "VM_MEMORY_OVERHEAD_PERCENT", Key: "vmMemoryOverheadPercent",
		Unit: "fraction", Bounds: "0 to less than 0.5", Default: "0.075",
		Doc: "The part of a flavor's memory that its node does not see, until nodes have reported it; 0.02 to 0.07 were " +
			"measured. More than 0.075 is subtracted also after that. It counts for new nodes.",
		field: func(o *Options) any { return &o.MemoryOverheadPercent }, check: checkOverhead,
	},
	names("closedZones", "zone", "names of zones, for example HN1; a name that no zone has closes nothing",
		"Zones in which nothing is launched while they are listed. Their nodes stay: they have the annotation "+
			"karpenter.sh/do-not-disrupt meanwhile. Expiration and repair still replace them.",
		func(o *Options) *[]string { return &o.ClosedZones }),
	duration("", "", "billingPeriod", "1s", time.Second, 24*time.Hour,
		"What BizFly Cloud charges at once: 1s, or 1h where a started hour counts in full. With 1h, a node whose hour is "+
			"paid stays and takes pods: it has the annotation karpenter.sh/do-not-disrupt until the last minutes of the hour. "+
			"Expiration and repair go on.",
		func(o *Options) *time.Duration { return &o.BillingPeriod }),
	duration("", "", "billingWindow", "10m", 2*time.Minute, 30*time.Minute,
		"How long before the end of a paid hour its node may be disrupted. The last minute is left out: the server must be "+
			"gone before the next hour begins.",
		func(o *Options) *time.Duration { return &o.BillingWindow }),
	names("hiddenFlavors", "flavor", "names of flavors, for example p2.8c_16g; a name that no flavor has hides nothing",
		"Flavors of which nothing is launched while they are listed. Their nodes do not drift. Consolidation may still "+
			"replace them.",
		func(o *Options) *[]string { return &o.HiddenFlavors }),
	{
		Key: "prices", Unit: "YAML, VND per hour", Bounds: "the part of the price table to change; every rate above 0",
		Doc: "What differs from the built-in [table.yaml](../../internal/pricing/table.yaml): " +
			"[prices](../concepts/pricing.md).",
		field: func(o *Options) any { return &o.Prices }, document: parsePrices,
	},
}

// DefaultTuningConfigMapName is the ConfigMap that the controller's Role grants unless that was changed.
const DefaultTuningConfigMapName = "karpenter-provider-bizflycloud-tuning"

// Protection are the settings that protect nodes, by the active keys of a tuning ConfigMap.
func Protection(tuning map[string]string) *Options {
	o := &Options{}
	for _, setting := range table {
		if slices.Contains([]string{"closedZones", "billingPeriod", "billingWindow"}, setting.Key) {
			_ = setting.Apply(o, lo.CoalesceOrEmpty(tuning[setting.Key], setting.Default)) // an invalid value is never active
		}
	}
	return o
}
