// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

const (
	catalogPath = "/api/auth/service"

	serviceServers     = "cloud_server"
	serviceKubernetes  = "kubernetes_engine"
	serviceAutoScaling = "auto_scaling"
	serviceAccount     = "bizfly_account"
)

// serviceCatalog is where the services of our region are, and thereby which URLs a token may be sent to.
type serviceCatalog struct {
	endpoint *url.URL
	region   string
	services map[string]*url.URL
	// absent says why an entry was not taken, by service, for messages.
	absent map[string][]string
}

func (c *connection) readServices(ctx context.Context) (*serviceCatalog, error) {
	var document gobizfly.ServiceList
	if err := c.read(ctx, c.endpoint.ResolveReference(&url.URL{Path: catalogPath}), "", opReadServices,
		&document); err != nil {
		return nil, prefixed("service catalog", typed(err))
	}
	services := newServiceCatalog(c.endpoint, c.config.Region, document.Services)
	// Without servers the region is a wrong one, or the answer is: it would be used for hours.
	_, err := services.require(serviceServers)
	return services, err
}

func newServiceCatalog(endpoint *url.URL, region string, entries []*gobizfly.Service) *serviceCatalog {
	c := &serviceCatalog{endpoint: endpoint, region: region, services: map[string]*url.URL{},
		absent: map[string][]string{}}
	regional, global := lo.FilterReject(lo.Compact(entries), func(entry *gobizfly.Service, _ int) bool {
		return entry.Region != ""
	})
	// An entry without a region serves all of them, after those of our own.
	for _, entry := range append(regional, global...) {
		if long, _ := ParseRegion(entry.Region); entry.Region != "" && long != region {
			c.absent[entry.CanonicalName] = append(c.absent[entry.CanonicalName], "only in "+entry.Region)
			continue
		}
		c.add(entry)
	}
	return c
}

func (c *serviceCatalog) add(entry *gobizfly.Service) {
	if _, ok := c.services[entry.CanonicalName]; ok {
		return
	}
	target, reason := c.accept(entry.ServiceURL)
	if reason != "" {
		c.absent[entry.CanonicalName] = append(c.absent[entry.CanonicalName], "its URL is not accepted: "+reason)
		return
	}
	c.services[entry.CanonicalName] = target
}

// accept checks where an entry would send the token. Another host than the endpoint's is good enough because the
// endpoint that got the credentials names it, and only with TLS. The production hosts, which gobizfly falls back to,
// belong to no other endpoint: a sandbox that names them has copied a real catalog.
func (c *serviceCatalog) accept(raw string) (*url.URL, string) {
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
func (c *serviceCatalog) require(service string) (*url.URL, error) {
	if target, ok := c.services[service]; ok {
		return target, nil
	}
	of := fmt.Sprintf("the service catalog of %s has no %s in region %s", c.endpoint.Host, service, c.region)
	return nil, notSent(ClassOutage, "%s", strings.Join(append([]string{of}, lo.Uniq(c.absent[service])...), ", "))
}
