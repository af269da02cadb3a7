// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect connects a suite to a sandbox through the real client. It is apart from package unit, so that suites of leaf
// packages do not link Karpenter core.
package connect

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// Client returns a client of the sandbox that is logged in, whose scope is confirmed.
func Client(ctx context.Context, sandbox *cloud.Sandbox, changes ...func(*bizfly.Config)) *bizfly.Client {
	credentials := sandbox.Credentials()
	config := bizfly.Config{
		APIURL: sandbox.APIURL, AllowHTTP: true, Region: credentials.Region, AuthMethod: bizfly.AuthMethodAppCredential,
		AppCredID: credentials.AppCredID, AppCredSecret: credentials.AppCredSecret, Registerer: prometheus.NewRegistry(),
	}
	for _, change := range changes {
		change(&config)
	}
	client := lo.Must(bizfly.NewClient(config))
	client.Confirm(lo.Must(client.Scope(ctx)))
	return client
}

// Unlimited is a change of a client that has hardly any limits.
func Unlimited(config *bizfly.Config) {
	plenty := bizfly.Limit{QPS: 1000, Burst: 1000, Concurrency: 100}
	config.Limits = bizfly.Limits{Delete: plenty, Read: plenty, Create: plenty}
}

// Catalog returns the catalog of the client's cloud, which has been read.
func Catalog(ctx context.Context, client *bizfly.Client, changes ...func(*catalog.Config)) *catalog.DefaultProvider {
	config := catalog.Config{}
	for _, change := range changes {
		change(&config)
	}
	provider := catalog.NewDefaultProvider(client, clock.RealClock{}, config)
	lo.Must0(provider.Refresh(ctx))
	return provider
}
