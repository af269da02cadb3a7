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

package bizfly

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

const (
	catalogPath  = "/api/auth/service"
	catalogRoute = "/auth/service"

	serviceServers    = "cloud_server"
	serviceKubernetes = "kubernetes_engine"
	serviceAccount    = "bizfly_account"

	// maxCatalogAge is how long an old catalog is used when a new one cannot be read: the services outlive an outage
	// of the login.
	maxCatalogAge = 24 * time.Hour
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
	// document is the catalog as gobizfly gets it: only what we accept, all of it in our region.
	document []byte
}

// librarian reads the catalog.
type librarian struct {
	config   Config
	endpoint *url.URL
	wire     *wire
}

func (l *librarian) read(ctx context.Context) (fetched[*catalog], error) {
	target := url.URL{Scheme: l.endpoint.Scheme, Host: l.endpoint.Host, Path: catalogPath}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return fetched[*catalog]{}, notSent(ClassInvalid, "service catalog: the endpoint is no valid URL")
	}
	answer, err := l.wire.send(request, exchangeInfo{kind: kindList, route: catalogRoute})
	if err != nil {
		apiError, ok := asAPIError(err)
		if !ok {
			return fetched[*catalog]{}, err
		}
		apiError.Message = strings.TrimSuffix("service catalog: "+apiError.Message, ": ")
		return fetched[*catalog]{}, apiError
	}
	var document gobizfly.ServiceList
	if err := json.Unmarshal(answer.body, &document); err != nil {
		return fetched[*catalog]{}, &APIError{Class: ClassOutage, Status: answer.status, Message: "service catalog: the answer is not a catalog", Err: l.wire.redactor.cause(err)}
	}
	result, err := newCatalog(l.endpoint, l.config.Region, document.Services)
	if err != nil {
		return fetched[*catalog]{}, err
	}
	now := l.config.Clock.Now()
	return fetched[*catalog]{value: result, refreshAt: now.Add(l.config.CatalogTTL), expiresAt: now.Add(max(maxCatalogAge, l.config.CatalogTTL))}, nil
}

func newCatalog(endpoint *url.URL, region string, entries []*gobizfly.Service) (*catalog, error) {
	entries = lo.Filter(entries, func(entry *gobizfly.Service, _ int) bool { return entry != nil && entry.CanonicalName != "" })
	if len(entries) == 0 {
		return nil, &APIError{Class: ClassOutage, Message: "service catalog: it is empty"}
	}
	c := &catalog{endpoint: endpoint, region: region, services: map[string]*url.URL{}, elsewhere: map[string][]string{}, rejected: map[string]string{}}
	// An entry without a region serves all of them, but gobizfly would not find it: it becomes ours, after our own.
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
	names := lo.Keys(c.services)
	slices.Sort(names)
	document, err := json.Marshal(gobizfly.ServiceList{Services: lo.Map(names, func(name string, _ int) *gobizfly.Service {
		return &gobizfly.Service{CanonicalName: name, Region: region, Enabled: true, ServiceURL: c.services[name].String()}
	})})
	if err != nil {
		return nil, fmt.Errorf("encoding the service catalog, %w", err)
	}
	c.document = document
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
// are nobody's neighbour but their own: a sandbox that names them has copied a real catalog.
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
		return nil, notSent(ClassOutage, "the service catalog of %s offers %s in region %s with a URL that is not accepted: %s", c.endpoint.Host, service, c.region, reason)
	}
	if others := lo.Uniq(c.elsewhere[service]); len(others) > 0 {
		return nil, notSent(ClassOutage, "the service catalog of %s has no %s in region %s, only in %s", c.endpoint.Host, service, c.region, strings.Join(others, ", "))
	}
	return nil, notSent(ClassOutage, "the service catalog of %s has no %s in region %s", c.endpoint.Host, service, c.region)
}

// permits tells whether a URL is below the base of a service.
func permits(base, target *url.URL) bool {
	if base.Scheme != target.Scheme || !strings.EqualFold(base.Host, target.Host) || target.User != nil {
		return false
	}
	prefix := strings.TrimSuffix(base.EscapedPath(), "/") + "/"
	requested := target.EscapedPath()
	return strings.HasPrefix(requested, prefix) && !strings.Contains(requested, "..") && !strings.Contains(requested, "//")
}
