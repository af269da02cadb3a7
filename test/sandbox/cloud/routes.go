// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The services of the cloud. The file of each endpoint adds its routes here, so that an endpoint is in one file.
var (
	loginAPI   = &api{name: "auth"}
	accountAPI = &api{name: "bizfly_account"}
	serverAPI  = &api{name: "cloud_server"}
	engineAPI  = &api{name: "kubernetes_engine"}
	scalingAPI = &api{name: "auto_scaling"}
)

const authPrefix = "/api"

// api is what one service answers, in every region.
type api struct {
	name   string
	routes []route
}

// serve adds routes. It returns the service, so that a package variable can call it.
func (a *api) serve(routes ...route) *api { //nolint:unparam // a package variable needs a value
	a.routes = append(a.routes, routes...)
	return a
}

type handlerFunc func(*Cloud, *call) reply

// route is one endpoint, and all that a request to it may hold.
type route struct {
	method   string
	template []string
	handle   handlerFunc
	// open routes need no token.
	open bool
	// query names the parameters that the handler uses; any other is rejected.
	query []string
	// body reports that a DELETE has a body.
	body bool
}

// on is the route of a template such as "/servers/{id}". The query parameters are those that the handler uses.
func on(method, template string, handle handlerFunc, query ...string) route {
	return route{method: method, template: segments(template), handle: handle, query: query}
}

func openTo(r route) route {
	r.open = true
	return r
}

func withBody(r route) route {
	r.body = true
	return r
}

func segments(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// match returns the variables of the template, or false. A variable never matches the empty segment.
func (r route) match(path []string) ([]string, bool) {
	if len(path) != len(r.template) {
		return nil, false
	}
	var vars []string
	for i, part := range r.template {
		switch {
		case strings.HasPrefix(part, "{"):
			if path[i] == "" {
				return nil, false
			}
			value, err := url.PathUnescape(path[i])
			if err != nil {
				return nil, false
			}
			vars = append(vars, value)
		case part != path[i]:
			return nil, false
		}
	}
	return vars, true
}

// rejection reports what of a request the route does not use: what the sandbox would ignore is an error, since a client
// that relies on it could not be proved by the sandbox.
func (r route) rejection(q *call) *reply {
	for name := range q.query {
		if !slices.Contains(r.query, name) {
			return bad("unknown query parameter: %s", name)
		}
	}
	takesBody := r.body || r.method == http.MethodPost || r.method == http.MethodPut || r.method == http.MethodPatch
	if !takesBody && strings.TrimSpace(string(q.body)) != "" {
		return bad("%s takes no body", r.method)
	}
	return nil
}

// lookup finds the route of a request: of several that match, the one with the fewest variables. known is true where the path
// exists with another method; svc is nil where no
// service has the path.
func lookup(method, path string) (found *route, svc *service, vars []string, known bool) {
	var matched []string
	for i := range services {
		candidate := &services[i]
		rest, ok := strings.CutPrefix(path, candidate.prefix)
		if !ok || (rest != "" && rest[0] != '/') {
			continue
		}
		if svc == nil {
			svc = candidate
		}
		parts := segments(rest)
		routes := candidate.api.routes
		for j := range routes {
			vars, ok := routes[j].match(parts)
			if !ok {
				continue
			}
			known = true
			if routes[j].method == method && (found == nil || len(vars) < len(matched)) {
				found, matched = &routes[j], vars
			}
		}
		if found != nil {
			return found, candidate, matched, true
		}
	}
	return nil, svc, nil, known
}

// find returns the resource of an id if the call may see it.
func find[T interface{ owned(*call) bool }](q *call, resources map[string]T, kind, id string) (T, *reply) {
	found, exists := resources[id]
	if !exists || !found.owned(q) {
		return found, notFound(kind, id)
	}
	return found, nil
}

func notFound(kind, id string) *reply {
	rejection := problem(http.StatusNotFound, kind+" "+id+" could not be found.")
	return &rejection
}
