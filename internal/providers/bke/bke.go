// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bke returns what nodes join and leave a cluster of BizFly Kubernetes Engine with: from the environment or,
// where that leaves something out and discovery is allowed, from the metadata of a pool server of this very cluster, or
// of a pool's launch configuration. What was learned is kept in memory only.
package bke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// LabelPoolNode is on the nodes of BKE's own pools.
const LabelPoolNode = "bke.bizflycloud.vn/node-id"

const (
	// maxConfigurations bounds how many launch configurations of pools are read before one has the values.
	maxConfigurations = 3
	// timeout bounds one try to learn the values.
	timeout = 30 * time.Second
	// retry is how long a try that failed is not repeated, since every launch needs the values: a pool or an endpoint that
	// comes back is used within that time. A try is a few reads.
	retry = time.Minute
	// relearn is how long what was learned is used before it is looked at again: join tokens are rotated, and nodes that
	// join with an old one cost money until they are given up.
	relearn = 10 * time.Minute
)

// Values are what nodes join with. They print without the token.
type Values struct {
	// ClusterID is the uid of the cluster, 16 characters.
	ClusterID string
	// Token is the secret with which nodes join and leave.
	Token string
	// JoinEndpoint is the URL at which nodes join.
	JoinEndpoint string
	// LogEndpoint is the URL to which nodes report their progress; it may be empty.
	LogEndpoint string
	// Learned describes which of them were learned and from where; empty when none was.
	Learned string
}

// String leaves the token out, so that no log can hold it.
func (v Values) String() string {
	return fmt.Sprintf("BKE cluster %q, join endpoint %q", v.ClusterID, v.JoinEndpoint)
}

// GoString is String.
func (v Values) GoString() string { return v.String() }

// Complete reports whether nodes can join with them.
func (v Values) Complete() bool {
	return !slices.ContainsFunc([]string{v.ClusterID, v.Token, v.JoinEndpoint}, func(s string) bool {
		return strings.TrimSpace(s) == ""
	})
}

// Provider returns the values.
type Provider interface {
	// Values returns the values, and learns first what is missing where that is allowed. Its error, which holds no
	// secret, is why nothing could be learned; the values that are known are returned with it.
	Values(ctx context.Context) (Values, error)
}

// Values implements Provider.
func (v Values) Values(context.Context) (Values, error) { return v, nil }

// API is the part of BizFly Cloud that is read.
type API interface {
	// GetServerMetadata returns the metadata of one server with the secrets in it.
	GetServerMetadata(ctx context.Context, id string) (map[string]string, error)
	// GetCluster returns one BKE cluster.
	GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error)
	// GetLaunchConfigurationMetadata returns the metadata of servers that a launch configuration launches, with the
	// secrets in it.
	GetLaunchConfigurationMetadata(ctx context.Context, id string) (map[string]string, error)
}

// Config is what the environment sets.
type Config struct {
	Values Values
	// Discover lets what they leave out be learned.
	Discover bool
	// APIServer is the address of the cluster's API server from outside; it may be empty.
	APIServer string
}

// DefaultProvider is the Provider over the cluster's nodes and the cloud.
type DefaultProvider struct {
	config Config
	reader client.Reader
	api    API
	clock  clock.Clock
	flight singleflight.Group

	mu      sync.Mutex // not held while anything is read
	learned *Values
	// failed is the error of the last try, and next when the next one is due.
	failed error
	next   time.Time
}

var _ Provider = (*DefaultProvider)(nil)

// NewDefaultProvider returns a provider that has learned nothing yet. The reader lists nodes.
func NewDefaultProvider(config Config, reader client.Reader, api API, clk clock.Clock) *DefaultProvider {
	return &DefaultProvider{config: config, reader: reader, api: api, clock: clk}
}

// Known returns what is known now, without a request.
func (p *DefaultProvider) Known() Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lo.FromPtrOr(p.learned, p.config.Values)
}

// Values implements Provider. Calls at the same time share one try. What is complete is returned at once, and learned
// again beside that when it is old; it stays where that fails.
func (p *DefaultProvider) Values(ctx context.Context) (Values, error) {
	if !p.config.Discover || p.config.Values.Complete() {
		return p.config.Values, nil
	}
	p.mu.Lock()
	known, failed, next := lo.FromPtrOr(p.learned, p.config.Values), p.failed, p.next
	p.mu.Unlock()
	complete := known.Complete()
	if p.clock.Now().Before(next) {
		return known, lo.Ternary(complete, nil, failed)
	}
	result := p.flight.DoChan("", func() (any, error) {
		// Others wait for it too: it has neither the deadline nor the bound of admission of its first caller.
		ctx, cancel := context.WithTimeout(bizfly.AdmitWithin(context.WithoutCancel(ctx), timeout), timeout)
		defer cancel()
		learned, err := p.learn(ctx)
		if err != nil {
			err = fmt.Errorf("learning the BKE values: %w", err)
		}
		if bizfly.IsNotSent(err) && bizfly.IsAuth(err) {
			return nil, err // before the first login, which is no try: it would delay the one after the login
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed, p.next = err, p.clock.Now().Add(lo.Ternary(err == nil, relearn, retry))
		if err == nil {
			p.learned = learned
		}
		return nil, err
	})
	if complete {
		return known, nil
	}
	select {
	case <-ctx.Done():
		return known, ctx.Err()
	case r := <-result:
		return p.Known(), r.Err
	}
}

// learn returns the values of the newest pool server of this cluster that has them, which must be of one of this
// project's clusters in the Kubernetes Engine. Servers that have joined before are not compared with: the token may
// have been rotated since. Where no server has the values, they are those of a pool's launch configuration, and what
// follows from the name of the API server.
func (p *DefaultProvider) learn(ctx context.Context) (*Values, error) {
	pool, err := p.poolServers(ctx)
	if err != nil {
		return nil, err
	}
	var found *reading
	failures := pool.failures
	for _, server := range pool.servers {
		err := p.consistent("its server's metadata", server.reading)
		if err == nil {
			found = server.reading
			break
		}
		failures = append(failures, fmt.Errorf("node %s: %w", server.node.Name, err))
	}
	if pool.nodes == 0 {
		failures = append(failures, fmt.Errorf("no node has the label %s and a provider ID; a cluster that has only "+
			"Karpenter's nodes needs BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN and BKE_JOIN_ENDPOINT", LabelPoolNode))
	}
	if found == nil {
		if found, err = p.withoutServers(ctx, pool.servers); err != nil {
			return nil, errors.Join(append(failures, err)...)
		}
	}
	if _, err := p.api.GetCluster(ctx, found.Values.ClusterID); err != nil {
		return nil, fmt.Errorf("reading cluster %s, which %s names: %w", found.Values.ClusterID, found.clusterFrom, err)
	}
	values := p.completed(found)
	values.Learned = strings.Join(lo.Compact(append([]string{values.Learned}, pool.ignored...)), "; ")
	return values, nil
}

// reading are values with where they are from: metadata, the configuration, or the name of the API server.
type reading struct {
	Values Values
	// from is the source of the metadata.
	from string
	// clusterFrom and joinFrom are the sources of id and join endpoint; that of a join endpoint does not matter where it
	// is configured.
	clusterFrom, joinFrom string
}

// readingOf returns what metadata holds. What it leaves out is what is configured, or follows from the name of the API
// server.
func (p *DefaultProvider) readingOf(metadata map[string]string, from string) *reading {
	id, join := clusterOf(p.config.APIServer)
	r := &reading{Values: Values{
		ClusterID:    cmp.Or(metadata[metadataClusterID], p.config.Values.ClusterID, id),
		Token:        cmp.Or(metadata["bke_cluster_token"], p.config.Values.Token),
		JoinEndpoint: cmp.Or(metadata["bke_join_endpoint"], p.config.Values.JoinEndpoint),
		LogEndpoint:  metadata["bke_log_endpoint"],
	}, from: from, clusterFrom: from, joinFrom: from}
	if metadata[metadataClusterID] == "" {
		r.clusterFrom = lo.Ternary(p.config.Values.ClusterID == "", apiServerName, "BKE_CLUSTER_ID")
	}
	if r.Values.JoinEndpoint == "" && r.Values.ClusterID == id {
		r.Values.JoinEndpoint, r.joinFrom = join, apiServerName
	}
	return r
}

// consistent checks what was read from metadata; its errors hold no token.
func (p *DefaultProvider) consistent(of string, read *reading) error {
	if !read.Values.Complete() {
		return errors.New(of + " lacks bke_cluster_id, bke_cluster_token or bke_join_endpoint")
	}
	if configured := p.config.Values.ClusterID; configured != "" && read.Values.ClusterID != configured {
		return fmt.Errorf("%s bke_cluster_id %q is not BKE_CLUSTER_ID %q", of, read.Values.ClusterID, configured)
	}
	if !IsHTTP(read.Values.JoinEndpoint) {
		return errors.New(of + " bke_join_endpoint is not an http or https URL")
	}
	// A launch configuration need not say in another way of which cluster its token is.
	if _, id, named := strings.Cut(read.Values.JoinEndpoint, "/cluster_join/"); named &&
		!strings.HasPrefix(id, read.Values.ClusterID) {
		return fmt.Errorf("%s bke_join_endpoint %q is not where nodes join cluster %s", of, read.Values.JoinEndpoint,
			read.Values.ClusterID)
	}
	return nil
}

// IsHTTP reports whether the text is an http or https URL.
func IsHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// completed adds to the values of the environment what they leave out.
func (p *DefaultProvider) completed(found *reading) *Values {
	values := p.config.Values
	var sources []string
	learned := map[string][]string{}
	for _, field := range []struct {
		name       string
		to         *string
		read, from string
	}{
		{"BKE_CLUSTER_ID", &values.ClusterID, found.Values.ClusterID, found.clusterFrom},
		{"BKE_CLUSTER_TOKEN", &values.Token, found.Values.Token, found.from},
		{"BKE_JOIN_ENDPOINT", &values.JoinEndpoint, found.Values.JoinEndpoint, found.joinFrom},
		{"BKE_LOG_ENDPOINT", &values.LogEndpoint, found.Values.LogEndpoint, found.from},
	} {
		if strings.TrimSpace(*field.to) == "" && field.read != "" {
			*field.to = field.read
			sources, learned[field.from] = append(sources, field.from), append(learned[field.from], field.name)
		}
	}
	values.Learned = strings.Join(lo.Map(lo.Uniq(sources), func(from string, _ int) string {
		return fmt.Sprintf("%s learned from %s", strings.Join(learned[from], ", "), from)
	}), "; ")
	return &values
}
