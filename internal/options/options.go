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

// Package options holds this provider's flags and environment variables. It joins Karpenter core's own options, so that
// one command line and one environment configure the whole binary.
package options

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/env"
)

func init() {
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

type optionsKey struct{}

// Options are this provider's settings. Every field has a flag and an environment variable, but for secrets, which are
// read from the environment alone: a command line is readable by every process of the machine.
type Options struct {
	// ClusterName is the cluster's name, for people (CLUSTER_NAME, required).
	ClusterName string

	// AuthMethod is password or application_credential (BIZFLY_CLOUD_AUTH_METHOD).
	AuthMethod string
	// Email and Password are the credentials of the password method (BIZFLY_CLOUD_EMAIL, BIZFLY_CLOUD_PASSWORD).
	Email, Password string
	// AppCredID and AppCredSecret are the application credential (BIZFLY_CLOUD_APP_CRED_ID, BIZFLY_CLOUD_APP_CRED_SECRET).
	AppCredID, AppCredSecret string
	// Region is the region, short or long (BIZFLY_CLOUD_REGION), for example HN or HaNoi.
	Region string
	// ProjectID is the project; empty means the credential's own (BIZFLY_CLOUD_PROJECT_ID).
	ProjectID string
	// APIURL is the endpoint; empty means BizFly Cloud's own (BIZFLY_CLOUD_API_URL).
	APIURL string
	// AllowHTTP permits an endpoint without TLS, for the sandbox (BIZFLY_CLOUD_ALLOW_HTTP).
	AllowHTTP bool
	// RegionLabel is the value of topology.kubernetes.io/region (BIZFLY_CLOUD_REGION_LABEL): what the cloud controller
	// manager was told to write. Empty means the region's short name, its default.
	RegionLabel string

	// Namespace is the controller's own namespace (SYSTEM_NAMESPACE): that of the credentials Secret.
	Namespace string
	// CredentialsSecretName is the Secret that the controller's Role grants (CREDENTIALS_SECRET_NAME): the only one that
	// a ProviderConfig may name.
	CredentialsSecretName string
	// TuningConfigMapName is the ConfigMap that the controller's Role grants (TUNING_CONFIGMAP_NAME): the only one that a
	// ProviderConfig may name.
	TuningConfigMapName string

	// BKEClusterID, BKEClusterToken, BKEJoinEndpoint and BKELogEndpoint let servers join a cluster of BizFly Kubernetes
	// Engine (BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN, BKE_JOIN_ENDPOINT, BKE_LOG_ENDPOINT).
	BKEClusterID, BKEClusterToken, BKEJoinEndpoint, BKELogEndpoint string
	// BKEKubeletArgsFile is the file from which the worker image's kubelet reads extra arguments
	// (BKE_KUBELET_ARGS_FILE); empty where that is not known.
	BKEKubeletArgsFile string

	// LaunchTimeout is how long core waits for a claim's server id (LAUNCH_TIMEOUT).
	LaunchTimeout time.Duration
	// ServerIDWait is how long one call of Create waits for the server's id (SERVER_ID_WAIT).
	ServerIDWait time.Duration
	// VisibilityWindow is how long an order without an answer is watched before its claim is given up
	// (VISIBILITY_WINDOW).
	VisibilityWindow time.Duration
	// CatalogInterval is how often flavors, zones and versions are read (CATALOG_INTERVAL).
	CatalogInterval time.Duration
	// GarbageCollectionInterval is how often servers without a claim are looked for (GARBAGE_COLLECTION_INTERVAL).
	GarbageCollectionInterval time.Duration
	// GarbageCollectionGrace is the age below which no server is collected (GARBAGE_COLLECTION_GRACE); it must exceed
	// the longest launch.
	GarbageCollectionGrace time.Duration
	// GarbageCollectionDryRun tells which servers without a claim would be deleted and deletes none
	// (GARBAGE_COLLECTION_DRY_RUN).
	GarbageCollectionDryRun bool
	// CreateProviderConfig lets the leader make the ProviderConfig default where there is none (CREATE_PROVIDER_CONFIG). Whoever
	// applies one of their own, as the chart does, turns it off, or the two race for it.
	CreateProviderConfig bool
	// EnforceClusterMaxNodes launches no more nodes than the package of the BKE cluster allows
	// (ENFORCE_CLUSTER_MAX_NODES).
	EnforceClusterMaxNodes bool
	// UnavailableOfferingTTL is how long an offering without room is not tried again (UNAVAILABLE_OFFERING_TTL).
	UnavailableOfferingTTL time.Duration
	// MemoryOverheadPercent is the part of a flavor's memory that the node does not see (VM_MEMORY_OVERHEAD_PERCENT).
	MemoryOverheadPercent float64

	// Bootstrap is what user data needs.
	Bootstrap
}

// AddFlags registers the flags with the environment as their defaults.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	fs.StringVar(&o.ClusterName, "cluster-name", env.WithDefaultString("CLUSTER_NAME", ""), "The name of the cluster, written into the metadata of its servers. Required.")
	fs.StringVar(&o.AuthMethod, "bizfly-auth-method", env.WithDefaultString("BIZFLY_CLOUD_AUTH_METHOD", "application_credential"), "How to log in: password or application_credential. The credentials themselves are read from the environment only.")
	fs.StringVar(&o.Region, "bizfly-region", env.WithDefaultString("BIZFLY_CLOUD_REGION", ""), "The region: HN (HaNoi), HCM (HoChiMinh) or VC-HaNoi. Required.")
	fs.StringVar(&o.ProjectID, "bizfly-project-id", env.WithDefaultString("BIZFLY_CLOUD_PROJECT_ID", ""), "The project. Empty means the one that the credential belongs to.")
	fs.StringVar(&o.APIURL, "bizfly-api-url", env.WithDefaultString("BIZFLY_CLOUD_API_URL", ""), "The endpoint. Empty means BizFly Cloud's own.")
	fs.BoolVarWithEnv(&o.AllowHTTP, "bizfly-allow-http", "BIZFLY_CLOUD_ALLOW_HTTP", false, "Permit an endpoint without TLS. For the sandbox only.")
	fs.StringVar(&o.RegionLabel, "region-label", env.WithDefaultString("BIZFLY_CLOUD_REGION_LABEL", ""), "The value of topology.kubernetes.io/region as the cloud controller manager writes it. Empty means the region's short name.")

	fs.StringVar(&o.Namespace, "system-namespace", env.WithDefaultString("SYSTEM_NAMESPACE", "karpenter"), "The controller's own namespace, in which the credentials Secret is.")
	fs.StringVar(&o.CredentialsSecretName, "credentials-secret-name", env.WithDefaultString("CREDENTIALS_SECRET_NAME", "karpenter-provider-bizflycloud"), "The only Secret that a ProviderConfig may name, because the controller's Role grants no other.")
	fs.StringVar(&o.TuningConfigMapName, "tuning-configmap-name", env.WithDefaultString("TUNING_CONFIGMAP_NAME", "karpenter-provider-bizflycloud-tuning"), "The only ConfigMap that a ProviderConfig may name for tuning, because the controller's Role grants no other.")

	fs.StringVar(&o.BKEClusterID, "bke-cluster-id", env.WithDefaultString("BKE_CLUSTER_ID", ""), "The uid of the BKE cluster. Empty without BizFly Kubernetes Engine.")
	fs.StringVar(&o.BKEJoinEndpoint, "bke-join-endpoint", env.WithDefaultString("BKE_JOIN_ENDPOINT", ""), "Where BKE's worker image joins the cluster.")
	fs.StringVar(&o.BKELogEndpoint, "bke-log-endpoint", env.WithDefaultString("BKE_LOG_ENDPOINT", ""), "Where BKE's worker image reports its progress.")
	fs.StringVar(&o.BKEKubeletArgsFile, "bke-kubelet-args-file", env.WithDefaultString("BKE_KUBELET_ARGS_FILE", ""), "The file from which BKE's worker image reads KUBELET_EXTRA_ARGS. Where it is set, nodes register with Karpenter's taints and labels.")

	fs.DurationVar(&o.LaunchTimeout, "launch-timeout", env.WithDefaultDuration("LAUNCH_TIMEOUT", 3*time.Minute), "How long a claim may be without the id of its server before it is given up.")
	fs.DurationVar(&o.ServerIDWait, "server-id-wait", env.WithDefaultDuration("SERVER_ID_WAIT", 30*time.Second), "How long one launch waits for the id of its server before it lets others schedule.")
	fs.DurationVar(&o.VisibilityWindow, "visibility-window", env.WithDefaultDuration("VISIBILITY_WINDOW", 2*time.Minute), "How long an order whose answer was lost is looked for before its claim is given up.")
	fs.DurationVar(&o.CatalogInterval, "catalog-interval", env.WithDefaultDuration("CATALOG_INTERVAL", 10*time.Minute), "How often flavors, zones, volume types and Kubernetes versions are read.")
	fs.DurationVar(&o.GarbageCollectionInterval, "garbage-collection-interval", env.WithDefaultDuration("GARBAGE_COLLECTION_INTERVAL", 2*time.Minute), "How often servers without a claim are looked for.")
	fs.DurationVar(&o.GarbageCollectionGrace, "garbage-collection-grace", env.WithDefaultDuration("GARBAGE_COLLECTION_GRACE", 5*time.Minute), "The age below which a server without a claim is left alone. Must exceed launch-timeout.")
	fs.BoolVarWithEnv(&o.GarbageCollectionDryRun, "garbage-collection-dry-run", "GARBAGE_COLLECTION_DRY_RUN", false, "Tell by log and event which servers without a claim would be deleted, and delete none.")
	fs.BoolVarWithEnv(&o.CreateProviderConfig, "create-provider-config", "CREATE_PROVIDER_CONFIG", true, "Make the ProviderConfig default where there is none. Off where it is installed with the controller.")
	fs.BoolVarWithEnv(&o.EnforceClusterMaxNodes, "enforce-cluster-max-nodes", "ENFORCE_CLUSTER_MAX_NODES", false, "Launch no more nodes than the package of the BKE cluster allows.")
	fs.DurationVar(&o.UnavailableOfferingTTL, "unavailable-offering-ttl", env.WithDefaultDuration("UNAVAILABLE_OFFERING_TTL", 3*time.Minute), "How long an offering without room is not tried again.")
	fs.Float64Var(&o.MemoryOverheadPercent, "vm-memory-overhead-percent", withDefaultFloat("VM_MEMORY_OVERHEAD_PERCENT", 7.5), "The percentage of a flavor's memory that its node does not see, until nodes have reported it. More than 7.5 is left out whatever they report.")

	o.Bootstrap.addFlags(fs)
}

// Parse reads the flags, then the secrets, and validates everything.
func (o *Options) Parse(fs *coreoptions.FlagSet, args ...string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		return fmt.Errorf("parsing flags, %w", err)
	}
	o.Email, o.Password = os.Getenv("BIZFLY_CLOUD_EMAIL"), os.Getenv("BIZFLY_CLOUD_PASSWORD")
	o.AppCredID, o.AppCredSecret = os.Getenv("BIZFLY_CLOUD_APP_CRED_ID"), os.Getenv("BIZFLY_CLOUD_APP_CRED_SECRET")
	o.BKEClusterToken = os.Getenv("BKE_CLUSTER_TOKEN")
	o.Bootstrap.parse()
	if err := o.Validate(); err != nil {
		return fmt.Errorf("validating options, %w", err)
	}
	return nil
}

// ToContext puts the options into a context.
func (o *Options) ToContext(ctx context.Context) context.Context { return ToContext(ctx, o) }

// ToContext puts options into a context.
func ToContext(ctx context.Context, opts *Options) context.Context {
	return context.WithValue(ctx, optionsKey{}, opts)
}

// FromContext returns the options of a context, nil when it has none.
func FromContext(ctx context.Context) *Options {
	opts, _ := ctx.Value(optionsKey{}).(*Options)
	return opts
}

// Preflight parses everything that the binary is configured with, core's options and those of the log included, so that
// main can say what is wrong in one line; core itself, which parses it again, would panic.
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
