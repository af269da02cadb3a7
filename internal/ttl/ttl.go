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

// Package ttl is the page of the times that are fixed: how long things are remembered and how often they are looked at, each
// with its reason. Times that a user may change are settings; their table is in internal/options.
package ttl

import "time"

const (
	// Startup bounds the one conversation with the cloud that a start needs.
	Startup = time.Minute
	// Cleanup is how often caches drop what has expired, which costs a walk through all entries.
	Cleanup = 10 * time.Minute
	// Deletion is how long a deletion under way is remembered; it exceeds the longest that the cloud takes.
	Deletion = time.Hour
	// Launch is how long what was learned of a NodeClaim's launch or removal is remembered; after LAUNCH_TIMEOUT and the
	// registration timeout, 18 minutes by default, nothing asks for it any more.
	Launch = time.Hour

	// ProviderConfigInterval is how soon a changed ProviderConfig, Secret or tuning ConfigMap takes effect. They are read
	// and not watched, because a watch would need the right to list every Secret of the namespace.
	ProviderConfigInterval = 5 * time.Second
	// ProviderConfigClosedInterval is the same while no scope is written down, which keeps the client closed.
	ProviderConfigClosedInterval = 500 * time.Millisecond
	// Judgement is how long the cloud's answer about a configuration that is not active is cached: one that was rejected is
	// looked at every few seconds and must not log in as often.
	Judgement = 30 * time.Second
	// Hung is how long one look at the configuration may take before the process is restarted: five times what its reads
	// and its login may take together.
	Hung = 10 * time.Minute
	// ConfigMapRead bounds one read of the tuning ConfigMap.
	ConfigMapRead = 10 * time.Second

	// CatalogRefresh bounds one refresh of the catalog: the client's own deadline per read plus its retries fit in it.
	CatalogRefresh = time.Minute
	// CatalogBackoff is how soon a failed refresh is tried again. Until the first success nothing can be launched.
	CatalogBackoff = 30 * time.Second
)
