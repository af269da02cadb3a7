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

package config

import (
	"cmp"
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// effective is the ProviderConfig over the environment.
func (p *DefaultProvider) effective(ctx context.Context, object *v1alpha1.ProviderConfig) (bizfly.Config, error) {
	config, spec := p.Environment, object.Spec
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
		if err := p.credentials(ctx, cmp.Or(spec.SecretRef.Name, p.SecretName), &config); err != nil {
			return config, err
		}
	}
	return config, config.Validate()
}

func (p *DefaultProvider) credentials(ctx context.Context, name string, config *bizfly.Config) error {
	if name != p.SecretName {
		return &SecretForbiddenError{Namespace: p.Namespace, Name: name, Granted: p.SecretName}
	}
	secret := &corev1.Secret{}
	if err := p.Reader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, secret); err != nil {
		if apierrors.IsForbidden(err) {
			return &SecretForbiddenError{Namespace: p.Namespace, Name: name, Granted: p.SecretName}
		}
		return fmt.Errorf("spec.secretRef.name %q: reading the Secret in namespace %s: %w", name, p.Namespace, err)
	}
	get := func(key string) string { return string(secret.Data[key]) }
	config.Email, config.Password, config.AppCredID, config.AppCredSecret = "", "", "", ""
	switch {
	case get(SecretKeyAppCredID) != "" && get(SecretKeyAppCredSecret) != "":
		config.AuthMethod = bizfly.AuthMethodAppCredential
		config.AppCredID, config.AppCredSecret = get(SecretKeyAppCredID), get(SecretKeyAppCredSecret)
	case get(SecretKeyEmail) != "" && get(SecretKeyPassword) != "":
		config.AuthMethod = bizfly.AuthMethodPassword
		config.Email, config.Password = get(SecretKeyEmail), get(SecretKeyPassword)
	default:
		return fmt.Errorf("spec.secretRef.name %q: the Secret in namespace %s has neither %s and %s nor %s and %s, or they are empty",
			name, p.Namespace, SecretKeyAppCredID, SecretKeyAppCredSecret, SecretKeyEmail, SecretKeyPassword)
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
