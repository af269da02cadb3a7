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

// Package options holds this provider's settings: flags, environment variables and the keys of the tuning ConfigMap. One
// table (table.go) gives each its names, default, bounds, unit and documentation; flags, validation, tuning and the
// reference pages are made from it. A new setting is a field of Options, a row of the table, and the place that reads it.
package options

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/multierr"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/pricing"
)

func init() {
	coreoptions.Injectables = append(coreoptions.Injectables, &Options{})
}

type optionsKey struct{}

// Options are this provider's settings. They are not changed once parsed: tuning makes a changed copy and stores that. What
// each means is in the table.
type Options struct {
	ClusterName string

	AuthMethod               string
	Email, Password          string
	AppCredID, AppCredSecret string
	Region                   string
	ProjectID                string
	APIURL                   string
	AllowHTTP                bool
	RegionLabel              string

	Namespace             string
	CredentialsSecretName string
	TuningConfigMapName   string

	BKEClusterID, BKEClusterToken, BKEJoinEndpoint, BKELogEndpoint string
	BKEKubeletArgsFile                                             string
	BKEDiscoverFromPool                                            bool
	UserDataSecretNames                                            []string
	JoinTokens                                                     bool
	ClusterEndpoint                                                string
	ClusterDNS                                                     []string

	CreateProviderConfig    bool
	EnforceClusterMaxNodes  bool
	GarbageCollectionDryRun bool
	// LaunchTimeout cannot be tuned: core reads it without a lock, so that it must not change while core runs.
	LaunchTimeout time.Duration

	CatalogInterval           time.Duration
	GarbageCollectionInterval time.Duration
	GarbageCollectionGrace    time.Duration
	ServerPollInterval        time.Duration
	ServerListMaxAge          time.Duration
	LookupCacheTTL            time.Duration
	UnavailableOfferingTTL    time.Duration
	AccountPause              time.Duration
	ServerIDWait              time.Duration
	VisibilityWindow          time.Duration
	MemoryOverheadPercent     float64
	Prices                    *pricing.Table
	FlavorOverrides           map[string]FlavorOverride
	ErrorPatterns             []bizfly.ErrorPattern

	// malformed are the environment variables whose text is not a value of their type.
	malformed error
}

// Defaults returns the defaults of the table.
func Defaults() *Options {
	o := &Options{Prices: pricing.DefaultTable()}
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

// AddFlags registers the flags, with the environment over the defaults. Secrets have no flag: every process of a machine
// can read a command line.
func (o *Options) AddFlags(fs *coreoptions.FlagSet) {
	*o = *Defaults()
	for _, s := range table {
		// An empty variable counts as unset where empty is no value of the setting.
		if raw, set := os.LookupEnv(s.Variable); s.Variable != "" && set && (raw != "" || s.isText()) {
			if err := s.assign(o, raw); err != nil {
				o.malformed = multierr.Append(o.malformed, s.problem(raw, err))
			}
		}
		if s.Flag != "" {
			fs.Var(flagValue{o, s}, s.Flag, s.Doc)
		}
	}
}

// flagValue is a setting as a flag.
type flagValue struct {
	options *Options
	setting *Setting
}

// String implements flag.Value; the zero value is what package flag compares defaults with.
func (v flagValue) String() string {
	if v.setting == nil {
		return ""
	}
	return v.setting.format(v.options)
}

// Set implements flag.Value.
func (v flagValue) Set(raw string) error { return v.setting.assign(v.options, raw) }

// IsBoolFlag lets a switch be given without a value.
func (v flagValue) IsBoolFlag() bool {
	_, isBool := v.setting.field(v.options).(*bool)
	return isBool
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

// Store holds the active settings. Readers load them once per decision, so that a change never shows in the middle of one.
type Store struct {
	current atomic.Pointer[Options]

	mu        sync.Mutex
	followers []func(*Options)
}

// NewStore returns a store with these settings active; nil means the defaults.
func NewStore(o *Options) *Store {
	if o == nil {
		o = Defaults()
	}
	s := &Store{}
	s.current.Store(o)
	return s
}

// Load returns the active settings, which must not be changed.
func (s *Store) Load() *Options { return s.current.Load() }

// Set makes settings active.
func (s *Store) Set(o *Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(o)
	for _, follow := range s.followers {
		follow(o)
	}
}

// OnChange calls follow after each change; it must not block. Only what has to act at once follows, all others load.
func (s *Store) OnChange(follow func(*Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers = append(s.followers, follow)
}
