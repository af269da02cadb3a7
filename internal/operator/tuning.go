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

package operator

import (
	"reflect"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
)

// followers are those that are tuned and that the operator does not know: controllers.
type followers struct {
	mu  sync.Mutex
	all []func(tuning.Values)
	// prices are in force; the same table again would make every instance type anew.
	prices *pricing.Table
}

// DefaultTuning is what is in force without a tuning ConfigMap: the options, and the defaults where there is none.
func DefaultTuning(opts *options.Options) tuning.Values {
	values := tuning.Defaults()
	values.CatalogInterval = opts.CatalogInterval
	values.GarbageCollectionInterval = opts.GarbageCollectionInterval
	values.GarbageCollectionGrace = opts.GarbageCollectionGrace
	values.UnavailableOfferingTTL = opts.UnavailableOfferingTTL
	values.ServerIDWait = opts.ServerIDWait
	values.VisibilityWindow = opts.VisibilityWindow
	values.MemoryOverheadPercent = opts.MemoryOverheadPercent
	values.LaunchTimeout = opts.LaunchTimeout
	return values
}

// tune makes the provider of the tuning, when everything is built that it tunes.
func (op *Operator) tune(opts *options.Options, reader client.Reader) {
	op.Tuning = tuning.NewDefaultProvider(tuning.Options{
		Reader:    reader,
		Namespace: opts.Namespace,
		Name:      opts.TuningConfigMapName,
		Defaults:  DefaultTuning(opts),
		Apply:     op.Apply,
	})
}

// Apply distributes values to everything that is tuned. Each takes them atomically, so that what is under way goes on with
// the old ones or the new ones and never with a mixture. The error is that of the error patterns, which come first: when
// it is not nil, nothing has changed.
func (op *Operator) Apply(values tuning.Values) error {
	op.followers.mu.Lock()
	defer op.followers.mu.Unlock()
	if err := op.Config.SetErrorPatterns(values.ErrorPatterns); err != nil {
		return err
	}
	op.Instances.SetTimes(instance.Times{
		IDWait:           values.ServerIDWait,
		VisibilityWindow: values.VisibilityWindow,
		PollInterval:     values.ServerPollInterval,
		ListMaxAge:       values.ServerListMaxAge,
	})
	op.Images.SetTTL(values.LookupCacheTTL)
	op.Networks.SetTTL(values.LookupCacheTTL)
	op.CloudProvider.SetPauses(cloudprovider.Pauses{UnavailableTTL: values.UnavailableOfferingTTL, Account: values.AccountPause})
	if !reflect.DeepEqual(op.followers.prices, values.Prices) {
		op.Pricing.SetTable(values.Prices)
		op.followers.prices = values.Prices
	}
	op.Flavors.SetConfig(flavor.Config{MemoryOverheadPercent: values.MemoryOverheadPercent, Overrides: values.FlavorOverrides})
	for _, follow := range op.followers.all {
		follow(values)
	}
	return nil
}

// OnTuning calls follow with what is in force, and whenever that changes.
func (op *Operator) OnTuning(follow func(tuning.Values)) {
	// Read before the lock is taken: Tuning calls Apply under a lock of its own.
	values := op.Tuning.Values()
	op.followers.mu.Lock()
	defer op.followers.mu.Unlock()
	op.followers.all = append(op.followers.all, follow)
	follow(values)
}
