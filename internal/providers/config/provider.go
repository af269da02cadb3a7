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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
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
	options Options

	// active is the effective configuration that is applied, nil before the first, and since is when it was.
	active *bizfly.Config
	since  time.Time
	// kept is whether the active configuration names no project and has that of the NodeClaims which existed when it
	// became active.
	kept bool
	// last is what probe has asked last.
	last *probed
}

// probed is a configuration that is not active, and the client that asks about it.
type probed struct {
	config bizfly.Config
	client *bizfly.Client
}

// NewDefaultProvider returns a provider that has looked at nothing yet.
func NewDefaultProvider(config Options) *DefaultProvider {
	config.Clock = cmp.Or[clock.PassiveClock](config.Clock, clock.RealClock{})
	return &DefaultProvider{options: config}
}

// Effective returns the configuration that Sync would check now, valid or with the error that says why it is not.
func (p *DefaultProvider) Effective(ctx context.Context) (bizfly.Config, error) {
	object, err := p.read(ctx)
	if err != nil {
		return bizfly.Config{}, err
	}
	return p.effective(ctx, object)
}

// read returns the ProviderConfig, an empty one without a name where there is none.
func (p *DefaultProvider) read(ctx context.Context) (*v1alpha1.ProviderConfig, error) {
	object := &v1alpha1.ProviderConfig{}
	err := p.options.Reader.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ProviderConfig %s: %w", v1alpha1.ProviderConfigName, err)
	}
	return object, nil
}

// Sync reads the configuration and applies it where that may be done. It never withdraws a good one for a bad one: what
// is wrong is in the result, and the old configuration stays.
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
	effective, err := p.effective(ctx, object)
	if err != nil {
		result.CredentialsErr = err
		return result
	}
	pinned := p.pinnedScope(object)
	if p.active == nil || !reflect.DeepEqual(*p.active, effective) || p.kept && !p.claimsExist(ctx) {
		p.check(ctx, object, effective, pinned, result)
	}
	result.Since = p.since
	p.guard(ctx, object, pinned, result)
	return result
}

// check applies a configuration that is not active where that may be done. A process that starts with one that is about
// another scope keeps to what the environment says about the recorded one: what runs there must be drained and deleted.
func (p *DefaultProvider) check(ctx context.Context, object *v1alpha1.ProviderConfig, effective bizfly.Config,
	pinned *bizfly.Scope, result *Result) {
	// The login itself then rejects a token of another project. Without NodeClaims the credential's own is meant, or a
	// project that spec.projectID named once would stay after it was removed there, and servers be launched in it.
	candidate, kept := effective, effective.ProjectID == "" && pinned != nil && p.claimsExist(ctx)
	if kept {
		candidate.ProjectID = pinned.ProjectID
	}
	wanted := target(candidate)
	if pinned != nil {
		// A login at another host would give it the credentials.
		wanted.ProjectID = cmp.Or(wanted.ProjectID, pinned.ProjectID)
		if result.ScopeErr = p.allow(ctx, object, pinned, wanted); result.ScopeErr != nil {
			if p.active == nil {
				p.applyRecorded(ctx, object, *pinned)
			}
			return
		}
	}
	scope, proceed := p.scopeOf(ctx, candidate, pinned, result)
	if !proceed {
		return
	}
	if result.ScopeErr = p.allow(ctx, object, pinned, scope); result.ScopeErr != nil {
		return
	}
	candidate.ProjectID = scope.ProjectID
	result.CredentialsErr = p.apply(effective, candidate, kept)
}

// apply makes a candidate active, which is what the effective configuration comes to.
func (p *DefaultProvider) apply(effective, candidate bizfly.Config, kept bool) error {
	if err := p.options.Client.Reconfigure(candidate); err != nil {
		return err
	}
	p.active, p.kept, p.since = &effective, kept, p.options.Clock.Now()
	return nil
}

// applyRecorded makes active what the environment says, without the ProviderConfig's place, where that is about the
// recorded scope.
func (p *DefaultProvider) applyRecorded(ctx context.Context, object *v1alpha1.ProviderConfig, pinned bizfly.Scope) {
	elsewhere := object.DeepCopy()
	elsewhere.Spec.Endpoint, elsewhere.Spec.Region, elsewhere.Spec.ProjectID = "", "", ""
	recorded, err := p.effective(ctx, elsewhere)
	candidate := recorded
	candidate.ProjectID = cmp.Or(candidate.ProjectID, pinned.ProjectID)
	if err == nil && target(candidate) == pinned {
		_ = p.apply(recorded, candidate, false) // it is valid
	}
}

// scopeOf returns what a configuration is about, and whether it may be applied.
func (p *DefaultProvider) scopeOf(ctx context.Context, candidate bizfly.Config, pinned *bizfly.Scope,
	result *Result) (scope bizfly.Scope, proceed bool) {
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

// probe asks the cloud whom a configuration is for, without applying it. Its client is kept: a configuration that was
// rejected is checked every few seconds, and logs in as seldom as the active one would.
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

// target is the scope that a valid configuration is about as far as it says so itself.
func target(config bizfly.Config) bizfly.Scope {
	region, _ := bizfly.ParseRegion(config.Region)
	endpoint, _ := url.Parse(lo.CoalesceOrEmpty(config.APIURL, bizfly.DefaultAPIURL))
	return bizfly.Scope{Host: endpoint.Host, Region: region, ProjectID: config.ProjectID}
}

// allow returns why a scope is rejected.
func (p *DefaultProvider) allow(ctx context.Context, object *v1alpha1.ProviderConfig, pinned *bizfly.Scope,
	wanted bizfly.Scope) error {
	if decision, err := decide(pinned, wanted, object.Spec.ProjectID, nil); decision == keep {
		return err
	}
	claims, err := p.claims(ctx)
	if err == nil {
		_, err = decide(pinned, wanted, object.Spec.ProjectID, claims)
	}
	return err
}

// decision is what becomes of a scope that a configuration is about.
type decision string

const (
	adopt  decision = "adopt"  // it is written down, and servers are launched in it
	keep   decision = "keep"   // it is the one that is written down
	reject decision = "reject" // anything exists that would not be found there
)

// decide returns what becomes of a scope, and why it is rejected. Where none is recorded although servers exist, as
// with a ProviderConfig that was deleted while no controller ran, the user must name the project.
func decide(pinned *bizfly.Scope, wanted bizfly.Scope, named string, claims []karpv1.NodeClaim) (decision, error) {
	servers := lo.CountBy(claims, func(claim karpv1.NodeClaim) bool {
		return claim.Status.ProviderID != "" || claim.Annotations[v1alpha1.AnnotationLaunchIntent] != ""
	})
	switch {
	case pinned != nil && *pinned == wanted:
		return keep, nil
	case pinned != nil && len(claims) > 0:
		return reject, &ScopeChangedError{Wanted: wanted, Pinned: *pinned}
	case pinned == nil && servers > 0 && named != wanted.ProjectID:
		return reject, &ScopeUnrecordedError{Wanted: wanted, Servers: servers}
	}
	return adopt, nil
}

// claimsExist reports whether there is any NodeClaim, also of another provider, or whether that cannot be read. It is
// asked often, and reads only one.
func (p *DefaultProvider) claimsExist(ctx context.Context) bool {
	list := &karpv1.NodeClaimList{}
	return p.options.Reader.List(ctx, list, client.Limit(1)) != nil || len(list.Items) > 0
}

// claims returns the NodeClaims of this provider.
func (p *DefaultProvider) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	if err := p.options.Reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims, whose servers must not be lost: %w", err)
	}
	return lo.Filter(list.Items, func(claim karpv1.NodeClaim, _ int) bool {
		return lo.FromPtr(claim.Spec.NodeClassRef).Group == v1alpha1.Group
	}), nil
}

// guard opens the adapter for the pinned scope and for nothing else. While nothing is pinned it stays closed: the
// leader pins first, so that a crash in between leaves no server in a scope that is not written down.
func (p *DefaultProvider) guard(ctx context.Context, object *v1alpha1.ProviderConfig, pinned *bizfly.Scope,
	result *Result) {
	if p.active == nil {
		return
	}
	if pinned != nil {
		if confirmed, ok := p.options.Client.Confirmed(); !ok || confirmed != *pinned {
			p.options.Client.Confirm(*pinned)
		}
	}
	if result.Scope != nil || result.Err() != nil {
		return
	}
	// The active configuration has been proved before, or will be at the next login; this asks the cloud only for the
	// latter.
	scope, err := p.options.Client.Scope(ctx)
	switch {
	case bizfly.IsAuth(err) || bizfly.IsPermission(err):
		result.CredentialsErr = err
	case err == nil:
		// Another scope that was allowed when it became active need not be allowed any more when it is written down: a
		// NodeClaim may have been made since, of which only the leader of that time knew.
		if result.ScopeErr = p.allow(ctx, object, pinned, scope); result.ScopeErr == nil {
			result.Scope = &scope
		}
	default:
		result.EndpointErr = err
	}
}

// pinnedScope is the scope that is written down. A ProviderConfig may have been deleted, and created anew for another
// place: the servers are still where they were confirmed to be.
func (p *DefaultProvider) pinnedScope(object *v1alpha1.ProviderConfig) *bizfly.Scope {
	if recorded := object.RecordedScope(); recorded != nil {
		return lo.ToPtr(bizfly.Scope(*recorded))
	}
	if confirmed, ok := p.options.Client.Confirmed(); ok {
		return &confirmed
	}
	return nil
}
