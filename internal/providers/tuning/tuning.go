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

// Package tuning reads the ConfigMap with which a user changes intervals, times, prices, flavors and error patterns while
// the controller runs. One table of keys is both how the ConfigMap is read and what docs/tuning.md is made from.
package tuning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// DefaultConfigMapName is the ConfigMap that the controller's Role grants unless that was changed.
const DefaultConfigMapName = "karpenter-provider-bizflycloud-tuning"

// maxShown bounds how much of a bad value is repeated: one may be a whole document.
const maxShown = 60

// Values are everything that can be tuned. They are plain data and not changed once made.
type Values struct {
	// CatalogInterval is how often flavors, zones, volume types and Kubernetes versions are read.
	CatalogInterval time.Duration
	// GarbageCollectionInterval is how often servers without a claim are looked for.
	GarbageCollectionInterval time.Duration
	// ServerPollInterval is the time between two looks for servers that were ordered.
	ServerPollInterval time.Duration
	// ServerListMaxAge is how old a list of servers may be.
	ServerListMaxAge time.Duration
	// LookupCacheTTL is how long lists of images, networks, firewalls and keys are believed.
	LookupCacheTTL time.Duration
	// UnavailableOfferingTTL is how long an offering without room is not tried again.
	UnavailableOfferingTTL time.Duration
	// AccountPause is how long all launches rest after a refusal for the whole account.
	AccountPause time.Duration
	// ServerIDWait is how long one launch waits for the id of its server.
	ServerIDWait time.Duration
	// VisibilityWindow is how long an order whose answer was lost is looked for.
	VisibilityWindow time.Duration
	// GarbageCollectionGrace is the age below which no server is collected; it exceeds LaunchTimeout.
	GarbageCollectionGrace time.Duration
	// MemoryOverheadPercent is the percentage of a flavor's memory that its node does not see.
	MemoryOverheadPercent float64
	// Prices is the price table.
	Prices *pricing.Table
	// FlavorOverrides say by the flavor's name what the cloud does not say or says wrongly.
	FlavorOverrides map[string]flavor.Override
	// ErrorPatterns are tried before the built-in ones.
	ErrorPatterns []bizfly.ErrorPattern

	// LaunchTimeout is an option and no key: core reads it without a lock, so that it must not change while core runs.
	LaunchTimeout time.Duration
}

// Defaults are the values of a controller whose environment says nothing.
func Defaults() Values {
	return Values{
		CatalogInterval:           10 * time.Minute,
		GarbageCollectionInterval: 2 * time.Minute,
		ServerPollInterval:        2 * time.Second,
		ServerListMaxAge:          3 * time.Second,
		LookupCacheTTL:            time.Minute,
		UnavailableOfferingTTL:    3 * time.Minute,
		AccountPause:              time.Minute,
		ServerIDWait:              30 * time.Second,
		VisibilityWindow:          2 * time.Minute,
		GarbageCollectionGrace:    5 * time.Minute,
		MemoryOverheadPercent:     flavor.DefaultMemoryOverheadPercent,
		Prices:                    pricing.DefaultTable(),
		LaunchTimeout:             3 * time.Minute,
	}
}

// Problem is a key, or a part of its value, that is ignored.
type Problem struct {
	// Key is the key of the ConfigMap, with the entry where only one of several is ignored.
	Key string
	// Value is what was given, shortened.
	Value string
	// Remedy is what is wrong, or what may be used instead: bounds and unit.
	Remedy string
}

// String is for conditions and events.
func (p Problem) String() string {
	if p.Value == "" {
		return fmt.Sprintf("%s is ignored: %s", p.Key, p.Remedy)
	}
	return fmt.Sprintf("%s=%s is ignored: %s", p.Key, p.Value, p.Remedy)
}

func problem(key, value, remedy string) Problem {
	value = strings.Join(strings.Fields(value), " ")
	if len(value) > maxShown {
		value = strings.ToValidUTF8(value[:maxShown], "") + "..."
	}
	return Problem{Key: key, Value: value, Remedy: strings.ReplaceAll(remedy, "\n", "; ")}
}

// Parse lays the data of a ConfigMap over the defaults. What cannot be used is named and ignored, as if it were not
// there; the rest applies.
func Parse(data map[string]string, defaults Values) (Values, []Problem) {
	values := defaults
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(data)) {
		known, ok := lo.Find(keys, func(k key) bool { return k.name == name })
		if !ok {
			problems = append(problems, problem(name, data[name], "there is no such key, use one of "+
				strings.Join(lo.Map(keys, func(k key, _ int) string { return k.name }), ", ")))
			continue
		}
		problems = append(problems, known.parse(&values, data[name])...)
	}
	return values, problems
}

// Result is what one look at the ConfigMap came to.
type Result struct {
	// ConfigMap is the name of the one that was asked for; empty for none.
	ConfigMap string
	// Problems are the keys that are ignored.
	Problems []Problem
	// Changed are the keys whose values came into force now.
	Changed []string
	// Err says why the ConfigMap could not be used: a *ForbiddenError, ErrNotFound, or that it could not be read.
	Err error
}

// Provider keeps the tuning in force.
type Provider interface {
	// Sync reads the ConfigMap that the ProviderConfig names and puts it in force. Without one, or when it does not exist,
	// that is the defaults; while it cannot be read, what is in force stays.
	Sync(ctx context.Context, object *v1alpha1.ProviderConfig) *Result
}
