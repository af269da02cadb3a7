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

package tuning

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// readTimeout bounds one read of the ConfigMap.
const readTimeout = 10 * time.Second

// ErrNotFound says that the ConfigMap which the ProviderConfig names does not exist.
var ErrNotFound = errors.New("the ConfigMap does not exist")

// ForbiddenError says that the ProviderConfig names a ConfigMap that the controller may not read.
type ForbiddenError struct {
	// Namespace is the controller's own; Name the ConfigMap that was asked for; Granted the one that may be read.
	Namespace, Name, Granted string
}

// Error names the rule and both ways out.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("spec.tuningConfigMapRef.name %q: the controller's Role in namespace %s grants get on the ConfigMap %q only; use that name, or change the Role's resourceNames and TUNING_CONFIGMAP_NAME together",
		e.Name, e.Namespace, e.Granted)
}

// Options are what the provider is made with.
type Options struct {
	// Reader reads the ConfigMap by name. It must not be a cache: the Role grants one ConfigMap by name, and a cache would
	// have to list them all.
	Reader client.Reader
	// Namespace is the controller's own; Name the ConfigMap that its Role grants.
	Namespace, Name string
	// Defaults are the values in force without a ConfigMap, with which everything was made that can be tuned.
	Defaults Values
	// Apply puts values in force.
	Apply func(Values) error
}

// DefaultProvider is the Provider.
type DefaultProvider struct {
	Options

	// mu makes one change at a time; no request is made under it.
	mu    sync.Mutex
	force Values
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns a provider with the defaults in force.
func NewDefaultProvider(options Options) *DefaultProvider {
	return &DefaultProvider{Options: options, force: options.Defaults}
}

// Values returns what is in force.
func (p *DefaultProvider) Values() Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.force
}

// Sync is Provider's.
func (p *DefaultProvider) Sync(ctx context.Context, object *v1alpha1.ProviderConfig) *Result {
	result := &Result{}
	if ref := object.Spec.TuningConfigMapRef; ref != nil {
		result.ConfigMap = ref.Name
	}
	values, err := p.read(ctx, result)
	if err != nil {
		result.Err = err
		return result
	}
	if err := p.apply(ctx, values, result); err != nil {
		result.Err = err
	}
	return result
}

// read returns the values that should be in force, or why that is not known.
func (p *DefaultProvider) read(ctx context.Context, result *Result) (Values, error) {
	switch result.ConfigMap {
	case "":
		return p.Defaults, nil
	case p.Name:
	default:
		return Values{}, &ForbiddenError{Namespace: p.Namespace, Name: result.ConfigMap, Granted: p.Name}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	configMap := &corev1.ConfigMap{}
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, configMap)
	switch {
	case apierrors.IsNotFound(err):
		result.Err = fmt.Errorf("spec.tuningConfigMapRef.name %q: %w in namespace %s, so the defaults are in force; make it or remove the reference",
			p.Name, ErrNotFound, p.Namespace)
		return p.Defaults, nil
	case apierrors.IsForbidden(err):
		return Values{}, &ForbiddenError{Namespace: p.Namespace, Name: p.Name, Granted: p.Name}
	case err != nil:
		return Values{}, fmt.Errorf("spec.tuningConfigMapRef.name %q: reading the ConfigMap in namespace %s: %w", p.Name, p.Namespace, err)
	}
	values, problems := Parse(configMap.Data, p.Defaults)
	for _, name := range slices.Sorted(maps.Keys(configMap.BinaryData)) {
		problems = append(problems, problem(name, "", "it is under binaryData, put it under data"))
	}
	result.Problems = problems
	return values, nil
}

// apply puts values in force that differ from those that are. What fails is tried again at the next look.
func (p *DefaultProvider) apply(ctx context.Context, values Values, result *Result) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := differing(p.force, values)
	if len(changed) == 0 {
		return nil
	}
	if err := p.Apply(values); err != nil {
		return fmt.Errorf("putting the tuning in force: %w", err)
	}
	p.force, result.Changed = values, changed
	log.FromContext(ctx).WithValues("ConfigMap", result.ConfigMap, "keys", changed).Info("a changed tuning is in force")
	return nil
}

// differing are the names of the keys whose values differ.
func differing(before, after Values) []string {
	return lo.FilterMap(keys, func(k key, _ int) (string, bool) {
		return k.name, !reflect.DeepEqual(k.value(&before), k.value(&after))
	})
}
