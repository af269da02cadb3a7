// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"reflect"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Keys of the credentials Secret: those of the cloud controller manager's own, so that one Secret can serve both.
const (
	SecretKeyAppCredID     = "application_credential_id"
	SecretKeyAppCredSecret = "application_credential_secret"
	SecretKeyEmail         = "email"
	SecretKeyPassword      = "password"
)

// Options are what the provider is made with.
type Options struct {
	// Reader reads the ProviderConfig, its Secret by name, and the NodeClaims. It must not be a cache: the
	// Role grants one Secret by name, and a cache would have to list them all.
	Reader client.Reader
	// Client is the adapter that is configured, and closed until its scope is confirmed.
	Client Client
	// Environment is the configuration that ProviderConfig is laid over.
	Environment bizfly.Config
	// Namespace is the controller's own; SecretName the Secret that its Role grants.
	Namespace, SecretName string
	// Clock is the time; nil is the real one.
	Clock clock.PassiveClock
}

// DefaultProvider looks at the configuration. One goroutine at a time may call Sync: start-up, then the controller.
type DefaultProvider struct {
	Options

	// active is the effective configuration that is applied, nil before the first, and since is when it was.
	active *bizfly.Config
	since  time.Time
	// kept is whether the active configuration names no project and has that of the NodeClaims which existed when it became active.
	kept bool
	// named is the project that the ProviderConfig names, empty where it names none.
	named string
	// last is what probe and serversOf have asked last.
	last *probed
}

// probed is a configuration that is not active, and what the cloud has answered about it.
type probed struct {
	config bizfly.Config
	client *bizfly.Client
	// servers are the ids of all servers of the scope, nil before they were listed; at is when.
	servers []string
	at      time.Time
}

// NewDefaultProvider returns a provider that has looked at nothing yet.
func NewDefaultProvider(config Options) *DefaultProvider {
	config.Clock = cmp.Or[clock.PassiveClock](config.Clock, clock.RealClock{})
	return &DefaultProvider{Options: config}
}

// Effective returns the configuration that Sync would check now, valid or with the error that says why it is not.
func (p *DefaultProvider) Effective(ctx context.Context) (bizfly.Config, error) {
	object, err := p.read(ctx)
	if err != nil {
		return bizfly.Config{}, err
	}
	return p.effective(ctx, object)
}

// Initial returns the configuration to create the client with. The client logs in for the catalog before Sync has applied a
// configuration, so where Sync would reject the endpoint or region of the ProviderConfig, it gets those of the environment.
func (p *DefaultProvider) Initial(ctx context.Context) (bizfly.Config, error) {
	object, err := p.read(ctx)
	if err != nil {
		return bizfly.Config{}, err
	}
	effective, err := p.effective(ctx, object)
	if err != nil || object.Status.Scope == nil || p.allowTarget(ctx, effective, bizfly.Scope(*object.Status.Scope)) == nil {
		return effective, err
	}
	object.Spec.Endpoint, object.Spec.Region = "", ""
	return p.effective(ctx, object)
}

// read returns the ProviderConfig, an empty one without a name where there is none.
func (p *DefaultProvider) read(ctx context.Context) (*v1alpha1.ProviderConfig, error) {
	object := &v1alpha1.ProviderConfig{}
	err := p.Reader.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ProviderConfig %s: %w", v1alpha1.ProviderConfigName, err)
	}
	return object, nil
}

// Sync reads the configuration and applies it where that may be done. It never withdraws a good one for a bad one: what is wrong is in the
// result, and the old configuration stays.
func (p *DefaultProvider) Sync(ctx context.Context) *Result {
	result := &Result{}
	object, err := p.read(ctx)
	if err != nil {
		result.ReadErr = err
		return result
	}
	if object.Name != "" {
		result.Object = object
	}
	p.named = object.Spec.ProjectID
	effective, err := p.effective(ctx, object)
	if err != nil {
		result.CredentialsErr = err
		return result
	}
	pinned := p.pinnedScope(object)
	p.apply(ctx, effective, pinned, result)
	result.Since = p.since
	p.guard(ctx, pinned, result)
	return result
}

// apply applies a configuration that differs from the active one.
func (p *DefaultProvider) apply(ctx context.Context, effective bizfly.Config, pinned *bizfly.Scope, result *Result) {
	if p.active != nil && reflect.DeepEqual(*p.active, effective) && (!p.kept || p.claimsExist(ctx)) {
		return
	}
	// The login itself then rejects a token of another project. Without NodeClaims the credential's own is meant, or a project that
	// spec.projectID named once would stay after it was removed there, and servers be launched in it.
	candidate, kept := effective, effective.ProjectID == "" && pinned != nil && p.claimsExist(ctx)
	if kept {
		candidate.ProjectID = pinned.ProjectID
	}
	if pinned != nil {
		// A login at another host would give it the credentials.
		if err := p.allowTarget(ctx, candidate, *pinned); err != nil {
			result.ScopeErr = err
			return
		}
	}
	scope, proceed := p.scopeOf(ctx, candidate, pinned, result)
	if !proceed {
		return
	}
	if err := p.allow(ctx, scope, pinned, candidate); err != nil {
		result.ScopeErr = err
		return
	}
	candidate.ProjectID = scope.ProjectID
	if err := p.Client.Reconfigure(candidate); err != nil {
		result.CredentialsErr = err
		return
	}
	p.active, p.kept, p.since = &effective, kept, p.Clock.Now()
}

// scopeOf returns what a configuration is about, and whether it may be applied.
func (p *DefaultProvider) scopeOf(ctx context.Context, candidate bizfly.Config, pinned *bizfly.Scope, result *Result) (scope bizfly.Scope, proceed bool) {
	scope, err := p.probe(ctx, candidate)
	switch {
	case err == nil:
		result.Scope = &scope
		return scope, true
	case bizfly.IsAuth(err) || bizfly.IsPermission(err) || bizfly.IsInvalid(err):
		result.CredentialsErr = err
	case p.active == nil && pinned != nil:
		// A restart during an outage: what was pinned is known to have worked, the client logs in when it can, and
		// rejects a token of another project then.
		result.EndpointErr = err
		return target(candidate), true
	default:
		result.EndpointErr = err
	}
	return scope, false
}

// probe asks the cloud whom a configuration is for, without applying it. Its client is kept: a configuration that was rejected is checked
// every few seconds, and logs in as seldom as the active one would.
func (p *DefaultProvider) probe(ctx context.Context, config bizfly.Config) (bizfly.Scope, error) {
	if p.last == nil || !reflect.DeepEqual(p.last.config, config) {
		last := &probed{config: config}
		config.Registerer = prometheus.NewRegistry() // which is not served
		var err error
		if last.client, err = bizfly.NewClient(config); err != nil {
			return bizfly.Scope{}, err
		}
		p.last = last
	}
	return p.last.client.Scope(ctx)
}

// serversOf returns the ids of all servers where a configuration is about, and remembers them for a while. They are only compared with ids
// that are known.
func (p *DefaultProvider) serversOf(ctx context.Context, config bizfly.Config) ([]string, error) {
	scope, err := p.probe(ctx, config)
	if err != nil {
		return nil, err
	}
	if p.last.servers != nil && p.Clock.Since(p.last.at) <= ttl.ProbedServers {
		return p.last.servers, nil
	}
	p.last.client.Confirm(scope)
	servers, err := p.last.client.ListServers(ctx)
	if err != nil {
		return nil, err
	}
	p.last.servers, p.last.at = lo.Map(servers, func(server *gobizfly.Server, _ int) string { return server.ID }), p.Clock.Now()
	return p.last.servers, nil
}

// target is the scope that a valid configuration is about as far as it says so itself.
func target(config bizfly.Config) bizfly.Scope {
	region, _ := bizfly.ParseRegion(config.Region)
	endpoint, _ := url.Parse(lo.CoalesceOrEmpty(config.APIURL, bizfly.DefaultAPIURL))
	return bizfly.Scope{Host: endpoint.Host, Region: region, ProjectID: config.ProjectID}
}

// allowTarget is allow for a configuration before its login, by what the configuration names itself.
func (p *DefaultProvider) allowTarget(ctx context.Context, candidate bizfly.Config, pinned bizfly.Scope) error {
	wanted := target(candidate)
	wanted.ProjectID = lo.CoalesceOrEmpty(wanted.ProjectID, pinned.ProjectID)
	return p.allow(ctx, wanted, &pinned, candidate)
}

// allow rejects another scope while anything exists that would not be found there.
func (p *DefaultProvider) allow(ctx context.Context, wanted bizfly.Scope, pinned *bizfly.Scope, candidate bizfly.Config) error {
	if pinned == nil {
		return p.provenByServers(ctx, wanted, candidate)
	}
	if wanted == *pinned {
		return nil
	}
	claims, err := p.claims(ctx)
	if err == nil && len(claims) > 0 {
		return &ScopeChangedError{Wanted: wanted, Pinned: *pinned}
	}
	return err
}

// claimsExist reports whether there is any NodeClaim, also of another provider, or whether that cannot be read. It is asked often, and reads
// only one.
func (p *DefaultProvider) claimsExist(ctx context.Context) bool {
	list := &karpv1.NodeClaimList{}
	return p.Reader.List(ctx, list, client.Limit(1)) != nil || len(list.Items) > 0
}

// claims returns the NodeClaims of this provider.
func (p *DefaultProvider) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	if err := p.Reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims, whose servers must not be lost: %w", err)
	}
	return lo.Filter(list.Items, func(claim karpv1.NodeClaim, _ int) bool {
		return lo.FromPtr(claim.Spec.NodeClassRef).Group == v1alpha1.Group
	}), nil
}

// provenByServers lets a scope be written down for the first time. Where servers exist already, the one that was written down
// has been lost, as with a ProviderConfig that was deleted while no controller ran, and at least one of them must be found in this one,
// unless the user has named the project.
func (p *DefaultProvider) provenByServers(ctx context.Context, wanted bizfly.Scope, candidate bizfly.Config) error {
	claims, err := p.claims(ctx)
	if err != nil {
		return err
	}
	ids := lo.FilterMap(claims, func(claim karpv1.NodeClaim, _ int) (string, bool) { return providerid.Parse(claim.Status.ProviderID) })
	if len(ids) == 0 || p.named == wanted.ProjectID {
		return nil
	}
	servers, err := p.serversOf(ctx, candidate)
	if err != nil {
		return fmt.Errorf("looking for the servers of NodeClaims in %s: %w", wanted, err)
	}
	if lo.Some(ids, servers) {
		return nil
	}
	return &ScopeUnprovenError{Wanted: wanted, Servers: len(ids)}
}

// guard opens the adapter for the pinned scope and for nothing else. While nothing is pinned it stays closed: the
// leader pins first, so that a crash in between leaves no server in a scope that is not written down.
func (p *DefaultProvider) guard(ctx context.Context, pinned *bizfly.Scope, result *Result) {
	if p.active == nil {
		return
	}
	if pinned != nil {
		if confirmed, ok := p.Client.Confirmed(); !ok || confirmed != *pinned {
			p.Client.Confirm(*pinned)
		}
	}
	if result.Scope != nil || result.Err() != nil {
		return
	}
	// The active configuration has been proved before, or will be at the next login; this asks the cloud only for the latter. It is also what
	// ends an outage of the login on a replica that calls nothing else.
	scope, err := p.Client.Scope(ctx)
	since := p.Client.OutageSince()
	switch {
	case bizfly.IsAuth(err) || bizfly.IsPermission(err):
		result.CredentialsErr = err
	case !since.IsZero():
		result.EndpointErr = fmt.Errorf("the cloud has not given an answer that makes sense since %s; running nodes are not touched, and launches and deletions "+
			"go on when it does",
			since.UTC().Format(time.RFC3339))
	case err == nil:
		// Another scope that was allowed when it became active need not be allowed any more when it is written down: a
		// NodeClaim may have been made since, of which only the leader of that time knew.
		config := *p.active
		config.ProjectID = scope.ProjectID
		if result.ScopeErr = p.allow(ctx, scope, pinned, config); result.ScopeErr == nil {
			result.Scope = &scope
		}
	default:
		result.EndpointErr = err
	}
}

// pinnedScope is the scope that is written down. A ProviderConfig may have been deleted, and created anew for another
// place: the servers are still where they were confirmed to be.
func (p *DefaultProvider) pinnedScope(object *v1alpha1.ProviderConfig) *bizfly.Scope {
	if object.Status.Scope != nil {
		return lo.ToPtr(bizfly.Scope(*object.Status.Scope))
	}
	if confirmed, ok := p.Client.Confirmed(); ok {
		return &confirmed
	}
	return nil
}
