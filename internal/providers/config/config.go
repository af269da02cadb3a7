// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config decides which configuration of the cloud is active: the ProviderConfig over the environment over the
// defaults. It applies a new one only when it is valid, the cloud accepts it, and it talks about the scope
// (endpoint, region, project) that this cluster's servers are in.
package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Client is the part of the adapter that is configured.
type Client interface {
	// Reconfigure applies a configuration; requests in flight finish with the one before.
	Reconfigure(config bizfly.Config) error
	// Scope logs in where that has not happened yet.
	Scope(ctx context.Context) (bizfly.Scope, error)
	// Confirm lets calls through for exactly this scope; Confirmed returns it, and false while there is none.
	Confirm(scope bizfly.Scope)
	Confirmed() (bizfly.Scope, bool)
}

// Result is what one look at the configuration came to.
type Result struct {
	// Object is the ProviderConfig that was read; nil when there is none, or none was read.
	Object *v1alpha1.ProviderConfig
	// Scope is what the credentials are for; nil when the cloud could not be asked.
	Scope *bizfly.Scope
	// Since is when the configuration that is active became so; zero while there is none.
	Since time.Time
	// ReadErr says why the ProviderConfig could not be read: whether there is one is not known then, and nothing else
	// was checked.
	ReadErr error
	// CredentialsErr says why the credentials cannot be used; EndpointErr why the cloud could not be asked; ScopeErr
	// why the scope is rejected.
	CredentialsErr, EndpointErr, ScopeErr error
}

// Err returns all that is wrong.
func (r *Result) Err() error {
	return errors.Join(r.ReadErr, r.CredentialsErr, r.EndpointErr, r.ScopeErr)
}

// ForbiddenError says that the ProviderConfig names a Secret or ConfigMap that the controller may not read.
type ForbiddenError struct {
	// Field is the field of the ProviderConfig and Variable the environment variable of the one that may be read.
	Field, Kind, Variable string
	// Namespace is the controller's own; Name what was asked for; Granted the one that may be read.
	Namespace, Name, Granted string
}

// Error names the rule and both ways out.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s %q: the controller's Role in namespace %s grants get on the %s %q only; use that name, or "+
		"change the Role's resourceNames and %s together", e.Field, e.Name, e.Namespace, e.Kind, e.Granted, e.Variable)
}

// ReadGranted reads the object of the controller's namespace that the ProviderConfig names. It returns forbidden, which
// describes it, where the Role does not grant that.
func ReadGranted(ctx context.Context, reader client.Reader, object client.Object, forbidden *ForbiddenError) error {
	if forbidden.Name != forbidden.Granted {
		return forbidden
	}
	err := reader.Get(ctx, types.NamespacedName{Namespace: forbidden.Namespace, Name: forbidden.Name}, object)
	switch {
	case apierrors.IsForbidden(err):
		return forbidden
	case err != nil:
		return fmt.Errorf("%s %q: reading the %s in namespace %s: %w", forbidden.Field, forbidden.Name, forbidden.Kind,
			forbidden.Namespace, err)
	}
	return nil
}

// ScopeChangedError says that a configuration is about another place than the servers of this cluster are in.
type ScopeChangedError struct {
	// Wanted is what the configuration is about; Pinned where the servers are.
	Wanted, Pinned bizfly.Scope
}

// Error says what to do about it.
func (e *ScopeChangedError) Error() string {
	return fmt.Sprintf("the configuration is about %s, but NodeClaims of %s exist: delete them first, or go back to that "+
		"endpoint, region and projectID",
		e.Wanted, e.Pinned)
}

// ScopeUnrecordedError says that no scope is recorded although servers exist, and that spec.projectID does not name
// theirs.
type ScopeUnrecordedError struct {
	// Wanted is what the configuration is about; Servers how many NodeClaims name a server, or may have one by their
	// launch intent.
	Wanted  bizfly.Scope
	Servers int
}

// Error says what to do about it.
func (e *ScopeUnrecordedError) Error() string {
	return fmt.Sprintf("%d NodeClaims have or may have a server, and no scope is recorded: if these servers are in %s, "+
		"or all of them are gone, set spec.projectID to %s, else give the endpoint, region and credentials that they were "+
		"made with",
		e.Servers, e.Wanted, e.Wanted.ProjectID)
}

// effective is the ProviderConfig over the environment.
func (p *DefaultProvider) effective(ctx context.Context, object *v1alpha1.ProviderConfig) (bizfly.Config, error) {
	config, spec := p.options.Environment, object.Spec
	config.APIURL = lo.CoalesceOrEmpty(spec.Endpoint, config.APIURL)
	config.Region = lo.CoalesceOrEmpty(spec.Region, config.Region)
	config.ProjectID = lo.CoalesceOrEmpty(spec.ProjectID, config.ProjectID)
	if spec.CABundle != "" {
		config.CABundle = []byte(spec.CABundle)
	}
	if limits := spec.RateLimits; limits != nil {
		overlay(&config.Limits.Delete, limits.Delete)
		overlay(&config.Limits.Read, limits.Read)
		overlay(&config.Limits.Create, limits.Create)
	}
	if spec.SecretRef != nil {
		if err := p.credentials(ctx, cmp.Or(spec.SecretRef.Name, p.options.SecretName), &config); err != nil {
			return config, err
		}
	}
	return config, config.Validate()
}

func (p *DefaultProvider) credentials(ctx context.Context, name string, config *bizfly.Config) error {
	secret := &corev1.Secret{}
	if err := ReadGranted(ctx, p.options.Reader, secret, &ForbiddenError{Field: "spec.secretRef.name", Kind: "Secret",
		Variable:  "CREDENTIALS_SECRET_NAME",
		Namespace: p.options.Namespace, Name: name, Granted: p.options.SecretName}); err != nil {
		return err
	}
	// A Secret that is made of files has their line breaks.
	get := func(key string) string { return strings.TrimRight(string(secret.Data[key]), "\r\n") }
	config.Email, config.Password, config.AppCredID, config.AppCredSecret = "", "", "", ""
	switch {
	case get(SecretKeyAppCredID) != "" && get(SecretKeyAppCredSecret) != "":
		config.AuthMethod = bizfly.AuthMethodAppCredential
		config.AppCredID, config.AppCredSecret = get(SecretKeyAppCredID), get(SecretKeyAppCredSecret)
	case get(SecretKeyEmail) != "" && get(SecretKeyPassword) != "":
		config.AuthMethod = bizfly.AuthMethodPassword
		config.Email, config.Password = get(SecretKeyEmail), get(SecretKeyPassword)
	default:
		return fmt.Errorf("spec.secretRef.name %q: the Secret in namespace %s has neither %s and %s nor %s and %s, or they "+
			"are empty",
			name, p.options.Namespace, SecretKeyAppCredID, SecretKeyAppCredSecret, SecretKeyEmail, SecretKeyPassword)
	}
	return nil
}

func overlay(limit *bizfly.Limit, spec *v1alpha1.RateLimit) {
	if spec == nil {
		return
	}
	limit.QPS = lo.CoalesceOrEmpty(float64(spec.QPS), limit.QPS)
	limit.Burst = lo.CoalesceOrEmpty(int(spec.Burst), limit.Burst)
	limit.Concurrency = lo.CoalesceOrEmpty(int(spec.Concurrency), limit.Concurrency)
}
