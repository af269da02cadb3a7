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
	"net/http"
	"net/url"
)

// connection is one set of credentials at one endpoint: the transport, the token and the catalog that belong to it.
type connection struct {
	config    Config
	endpoint  *url.URL
	region    string
	transport *http.Transport
	wire      *wire
	sessions  *refreshable[session]
	catalogs  *refreshable[*catalog]
}

// newConnection expects a valid configuration with its defaults filled in.
func newConnection(config Config, metrics *metrics, health *health, redactor *redactor) (*connection, error) {
	endpoint, err := parseEndpoint(config.APIURL)
	if err != nil {
		return nil, err
	}
	region, err := ParseRegion(config.Region)
	if err != nil {
		return nil, err
	}
	config.Region = region
	transport, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	redactor.learnCredentials(config.Password, config.AppCredSecret)
	w := &wire{
		transport: transport,
		redactor:  redactor,
		metrics:   metrics,
		health:    health,
		userAgent: userAgentName + "/" + config.Version,
	}
	if config.Transport != nil {
		w.transport = config.Transport
	}
	authenticator := &authenticator{config: config, endpoint: endpoint, wire: w}
	librarian := &librarian{config: config, endpoint: endpoint, wire: w}
	return &connection{
		config: config, endpoint: endpoint, region: region, transport: transport, wire: w,
		sessions: &refreshable[session]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: authenticator.login},
		catalogs: &refreshable[*catalog]{clock: config.Clock, spread: config.Spread, timeout: config.Timeouts.Login, fetch: librarian.read},
	}, nil
}

// scope logs in, when that has not happened yet, and says what the login proved.
func (c *connection) scope(ctx context.Context) (Scope, error) {
	session, err := c.sessions.get(ctx)
	if err != nil {
		return Scope{}, loginFailed(err)
	}
	catalog, err := c.catalogs.get(ctx)
	if err != nil {
		return Scope{}, loginFailed(err)
	}
	// A region in which the account has no servers is a wrong configuration, and better said at the start.
	if _, err := catalog.value.require(serviceServers); err != nil {
		return Scope{}, err
	}
	return c.scopeOf(session.value), nil
}

// scopeOf returns the scope of a token of this connection.
func (c *connection) scopeOf(of session) Scope {
	return Scope{Host: c.endpoint.Host, Region: c.region, ProjectID: of.projectID}
}
