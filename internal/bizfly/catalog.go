// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

const (
	catalogPath = "/api/auth/service"

	serviceServers     = "cloud_server"
	serviceKubernetes  = "kubernetes_engine"
	serviceAutoScaling = "auto_scaling"
	serviceAccount     = "bizfly_account"
)

// catalog is where the services of our region are, and thereby which URLs a token may be sent to.
type catalog struct {
	endpoint *url.URL
	region   string
	services map[string]*url.URL
	// elsewhere are the regions that have a service which ours lacks, for messages.
	elsewhere map[string][]string
	// rejected says why an entry was not taken, by service.
	rejected map[string]string
}

func (c *connection) readCatalog(ctx context.Context) (none fetched[*catalog], err error) {
	target := url.URL{Scheme: c.endpoint.Scheme, Host: c.endpoint.Host, Path: catalogPath}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return none, notSent(ClassInvalid, "service catalog: the endpoint is no valid URL")
	}
	answer, err := c.wire.send(request, opReadCatalog)
	if err != nil {
		return none, prefixed("service catalog", typed(err))
	}
	var document gobizfly.ServiceList
	if err := json.Unmarshal(answer.body, &document); err != nil {
		return none, unreadable(kindList, answer.status, "service catalog: the answer is not a catalog", c.wire.cause(err))
	}
	result, err := newCatalog(c.endpoint, c.config.Region, document.Services)
	if err != nil {
		return none, err
	}
	now, life := c.config.Clock.Now(), c.config.CatalogTTL
	return fetched[*catalog]{value: result, refreshAt: now.Add(life), expiresAt: now.Add(max(ttl.MaxServiceCatalog, life))}, nil
}

func newCatalog(endpoint *url.URL, region string, entries []*gobizfly.Service) (*catalog, error) {
	entries = lo.Filter(entries, func(entry *gobizfly.Service, _ int) bool { return entry != nil && entry.CanonicalName != "" })
	if len(entries) == 0 {
		return nil, &APIError{Class: ClassOutage, Message: "service catalog: it is empty"}
	}
	c := &catalog{
		endpoint: endpoint, region: region, services: map[string]*url.URL{}, elsewhere: map[string][]string{}, rejected: map[string]string{},
	}
	// An entry without a region serves all of them, after those of our own.
	for _, global := range []bool{false, true} {
		for _, entry := range entries {
			switch long, err := ParseRegion(entry.Region); {
			case global != (entry.Region == ""):
			case !global && (err != nil || long != region):
				c.elsewhere[entry.CanonicalName] = append(c.elsewhere[entry.CanonicalName], entry.Region)
			default:
				c.add(entry)
			}
		}
	}
	return c, nil
}

func (c *catalog) add(entry *gobizfly.Service) {
	if _, ok := c.services[entry.CanonicalName]; ok {
		return
	}
	target, reason := c.accept(entry.ServiceURL)
	if reason != "" {
		c.rejected[entry.CanonicalName] = reason
		return
	}
	c.services[entry.CanonicalName] = target
}

// accept checks where an entry would send the token. Another host than the endpoint's is good enough because the
// endpoint that got the credentials names it, and only with TLS. The production hosts, which gobizfly falls back to,
// belong to no other endpoint: a sandbox that names them has copied a real catalog.
func (c *catalog) accept(raw string) (*url.URL, string) {
	target, err := url.Parse(raw)
	if err != nil || target.Host == "" || target.User != nil || target.RawQuery != "" || target.Fragment != "" {
		return nil, "its URL cannot be used"
	}
	sameHost := strings.EqualFold(target.Host, c.endpoint.Host)
	switch {
	case target.Scheme == "https":
	case target.Scheme == "http" && sameHost && c.endpoint.Scheme == "http":
	default:
		return nil, fmt.Sprintf("host %s without TLS", target.Host)
	}
	if inDomain(target.Hostname()) && !inDomain(c.endpoint.Hostname()) {
		return nil, fmt.Sprintf("production host %s in the catalog of %s", target.Host, c.endpoint.Host)
	}
	target.Path, target.RawPath = path.Clean("/"+target.Path), ""
	return target, ""
}

func inDomain(host string) bool {
	host = strings.ToLower(host)
	return host == defaultDomain || strings.HasSuffix(host, "."+defaultDomain)
}

// require returns the base of a service, or the error that keeps gobizfly from falling back to its production host.
func (c *catalog) require(service string) (*url.URL, error) {
	if target, ok := c.services[service]; ok {
		return target, nil
	}
	if reason, ok := c.rejected[service]; ok {
		return nil, notSent(ClassOutage, "the service catalog of %s offers %s in region %s with a URL that is not accepted: %s",
			c.endpoint.Host, service, c.region, reason)
	}
	only := ""
	if others := lo.Uniq(c.elsewhere[service]); len(others) > 0 {
		only = ", only in " + strings.Join(others, ", ")
	}
	return nil, notSent(ClassOutage, "the service catalog of %s has no %s in region %s%s", c.endpoint.Host, service, c.region, only)
}

// fetched is a value with the times from which it should and must be fetched again.
type fetched[T any] struct {
	value                T
	refreshAt, expiresAt time.Time
	// generation is the number of the fetch that brought it; 0 means never.
	generation uint64
}

// refreshable is a value that all callers share and that one of them at a time fetches: the token and the catalog.
// It is refreshed in the background while it is still good, so that no call waits for that, and after a failure it is
// not fetched again before an exponential back-off has passed. No lock is held while fetching.
type refreshable[T any] struct {
	clock   clock.PassiveClock
	spread  func(n int64) int64
	timeout time.Duration
	fetch   func(ctx context.Context) (fetched[T], error)
	flights singleflight.Group

	mu        sync.Mutex
	current   fetched[T]
	failures  int
	notBefore time.Time
	failure   *APIError
}

// state returns the value at hand, whether it is still good or not, and the last failure while its back-off lasts.
func (r *refreshable[T]) state(now time.Time) (fetched[T], *APIError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || !now.Before(r.notBefore) {
		return r.current, nil
	}
	failure := typed(r.failure)
	failure.RetryAfter = r.notBefore.Sub(now)
	return r.current, failure
}

// get returns a value that is good and newer than the generation that the cloud rejected (0 for none). It fetches one where there is none,
// or joins the fetch under way, which goes on when this caller gives up, since others wait for it too.
func (r *refreshable[T]) get(ctx context.Context, rejected uint64) (fetched[T], error) {
	now := r.clock.Now()
	current, failure := r.state(now)
	good := current.generation > rejected && now.Before(current.expiresAt)
	switch {
	case good && (failure != nil || now.Before(current.refreshAt)):
		return current, nil //nolint:nilerr // a good value outlives the failure of its renewal
	case failure != nil:
		return current, failure
	}
	flight := r.flights.DoChan("", func() (any, error) { return r.refresh(current.generation) })
	if good {
		return current, nil
	}
	select {
	case <-ctx.Done():
		return fetched[T]{}, contextError(ctx)
	case result := <-flight:
		return result.Val.(fetched[T]), result.Err
	}
}

// refresh fetches a value newer than the known one, with a deadline of its own.
func (r *refreshable[T]) refresh(known uint64) (fetched[T], error) {
	switch current, failure := r.state(r.clock.Now()); {
	case current.generation > known: // another flight has landed since the caller looked
		return current, nil
	case failure != nil:
		return current, failure
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	value, err := r.fetch(ctx)
	if err != nil {
		return value, r.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value.generation = r.current.generation + 1
	r.current, r.failures, r.failure = value, 0, nil
	return value, nil
}

func (r *refreshable[T]) failed(err error) *APIError {
	apiError := typed(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	apiError.RetryAfter = max(backoff(r.spread, r.failures), apiError.RetryAfter)
	r.failures++
	r.failure, r.notBefore = apiError, r.clock.Now().Add(apiError.RetryAfter)
	return typed(apiError)
}

// backoff doubles with each failure up to ttl.MaxLoginBackoff, minus up to a quarter, so that replicas part.
func backoff(spread func(int64) int64, failures int) time.Duration {
	wait := min(ttl.FirstLoginBackoff<<min(failures, 16), ttl.MaxLoginBackoff)
	return wait - time.Duration(spread(int64(wait)/4+1))
}
