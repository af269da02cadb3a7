// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tuning reads the ConfigMap with which a user changes settings while the controller runs. Which keys there are
// is in the table of internal/options.
package tuning

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxShown bounds how much of an invalid value is repeated: one may be a complete document.
const maxShown = 60

// Result is that of one Sync.
type Result struct {
	// ConfigMap is the name of the one that was asked for; empty for none.
	ConfigMap string
	// Problems name the keys that cannot be used, with their values, shortened, what may be used instead, and which value
	// is active meanwhile.
	Problems []string
	// Changed are the keys whose values became active now.
	Changed []string
	// Active are the keys whose values are active, with the text that they were given as.
	Active map[string]string
	// Err says why the ConfigMap could not be used: a *config.ForbiddenError, or that it does not exist or could not be
	// read.
	Err error
}

// DefaultProvider keeps the tuning active. One goroutine at a time may call Sync: start-up, then the controller.
type DefaultProvider struct {
	// reader reads the ConfigMap by name. It is no cache: the Role grants one ConfigMap by name, and a cache would have to
	// list them all.
	reader   client.Reader
	settings *options.Store
	start    *options.Options

	// active are the texts of the keys that are active; nil before the first Sync.
	active map[string]string
}

// NewDefaultProvider returns a provider that changes these settings, which are the defaults of the keys. The reader
// must not be a cache.
func NewDefaultProvider(reader client.Reader, settings *options.Store) *DefaultProvider {
	return &DefaultProvider{reader: reader, settings: settings, start: settings.Load()}
}

// Sync reads the ConfigMap that the ProviderConfig names and makes it active. A ConfigMap that is missing or cannot be
// read changes nothing, and a key that is invalid keeps its last valid value, which after a restart is the one in the
// status of the ProviderConfig. A key, or a reference, that was removed returns to the default.
func (p *DefaultProvider) Sync(ctx context.Context, object *v1alpha1.ProviderConfig) *Result {
	result := &Result{}
	if ref := object.Spec.TuningConfigMapRef; ref != nil {
		result.ConfigMap = cmp.Or(ref.Name, p.start.TuningConfigMapName)
		if p.active == nil {
			// What was active before the restart stays until the ConfigMap says otherwise.
			p.apply(ctx, object.Status.Tuning, result)
			result.Problems, result.Changed = nil, nil
		}
	}
	data, err := p.read(ctx, result.ConfigMap)
	if err != nil {
		result.Err = err
	} else {
		p.apply(ctx, data, result)
	}
	result.Active = maps.Clone(p.active)
	return result
}

// read returns the keys of the ConfigMap.
func (p *DefaultProvider) read(ctx context.Context, name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ttl.ConfigMapRead)
	defer cancel()
	configMap := &corev1.ConfigMap{}
	err := config.ReadGranted(ctx, p.reader, configMap, &config.ForbiddenError{Field: "spec.tuningConfigMapRef.name",
		Kind:     "ConfigMap",
		Variable: "TUNING_CONFIGMAP_NAME", Namespace: p.start.Namespace, Name: name, Granted: p.start.TuningConfigMapName})
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("spec.tuningConfigMapRef.name %q: the ConfigMap does not exist in namespace %s, so the active "+
			"values stay; create it (empty for the defaults) or remove the reference", name, p.start.Namespace)
	}
	return configMap.Data, err
}

// apply activates the valid keys on top of the defaults.
func (p *DefaultProvider) apply(ctx context.Context, data map[string]string, result *Result) {
	before, next, valid := p.active, *p.start, map[string]string{}
	for _, setting := range options.Table() {
		key := setting.Key
		raw, given := data[key]
		last, known := before[key]
		var err error
		switch {
		case key == "" || !given:
			continue
		case len(raw) > v1alpha1.MaxTuningValueBytes:
			err = fmt.Errorf("it has %d bytes, of which at most %d are accepted", len(raw), v1alpha1.MaxTuningValueBytes)
		default:
			err = setting.Apply(&next, raw)
		}
		switch {
		case err == nil:
			valid[key] = raw
		case known:
			_ = setting.Apply(&next, last) // as when it was valid
			valid[key] = last
			result.Problems = append(result.Problems, problem(key, raw, fmt.Sprintf("%s. The last valid value stays active",
				err)))
		default:
			result.Problems = append(result.Problems, problem(key, raw,
				fmt.Sprintf("%s. There is no last valid value, so the default is active", err)))
		}
	}
	result.Problems = append(result.Problems, unknownKeys(data)...)
	p.active = valid
	result.Changed = lo.Reject(lo.Union(lo.Keys(before), lo.Keys(valid)), func(key string, _ int) bool {
		return before[key] == valid[key]
	})
	if len(result.Changed) > 0 {
		p.settings.Store(&next)
		log.FromContext(ctx).WithValues("ConfigMap", result.ConfigMap, "keys",
			result.Changed).Info("a changed tuning is active")
	}
}

// unknownKeys names the keys that do not exist.
func unknownKeys(data map[string]string) []string {
	known := lo.FilterMap(options.Table(), func(s *options.Setting, _ int) (string, bool) { return s.Key, s.Key != "" })
	return lo.Map(lo.Without(slices.Sorted(maps.Keys(data)), known...), func(name string, _ int) string {
		return problem(name, data[name], "there is no such key, use one of "+strings.Join(known, ", "))
	})
}

// problem is for events and conditions.
func problem(key, value, remedy string) string {
	value = lo.Ellipsis(strings.Join(strings.Fields(value), " "), maxShown)
	return fmt.Sprintf("%s=%s is invalid: %s", key, value, strings.ReplaceAll(remedy, "\n", "; "))
}
