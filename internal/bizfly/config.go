// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/multierr"
	"k8s.io/utils/clock"
)

const (
	// DefaultAPIURL is BizFly Cloud itself.
	DefaultAPIURL = "https://manage.bizflycloud.vn/api"
	// AuthMethodPassword logs in with Config.Email and Config.Password.
	AuthMethodPassword = "password"
	// AuthMethodAppCredential logs in with Config.AppCredID and Config.AppCredSecret.
	AuthMethodAppCredential = "application_credential"

	// defaultDomain is where the production hosts are; see services.go.
	defaultDomain = "bizflycloud.vn"
)

// regions maps every accepted spelling, in lower case, to the long name that the API uses.
var regions = map[string]string{
	"hn": "HaNoi", "hanoi": "HaNoi",
	"hcm": "HoChiMinh", "hochiminh": "HoChiMinh",
	"vc-hanoi": "VC-HaNoi",
}

// ParseRegion returns the long name of a region, for example HaNoi for HN.
func ParseRegion(name string) (string, error) {
	if long, ok := regions[strings.ToLower(strings.TrimSpace(name))]; ok {
		return long, nil
	}
	return "", fmt.Errorf("region %q is unknown, use one of HN (HaNoi), HCM (HoChiMinh), VC-HaNoi", name)
}

// Limit is the share of one class of calls.
type Limit struct {
	// QPS is how many requests per second are sent on average; 0 means the default.
	QPS float64
	// Burst is how many may be sent at once after a quiet time; 0 means the default.
	Burst int
	// Concurrency is how many may be under way at the same time; 0 means the default.
	Concurrency int
}

// Limits are the shares by class, each with its own queue, so that a burst of one class does not starve another.
type Limits struct {
	Delete, Read, Create Limit
}

// Timeouts are the deadlines that calls have whatever their context says. They start when a call is admitted and
// include its retries. 0 means the default; no setting changes them.
type Timeouts struct {
	Delete, Read, Create time.Duration
	// Login bounds a login, and each request for the service catalog or the account.
	Login time.Duration
}

// Config is everything that the client needs. It is plain data: internal/options fills it from the environment.
type Config struct {
	// APIURL is the endpoint, for example https://manage.bizflycloud.vn/api; empty means DefaultAPIURL.
	APIURL string
	// Region is the short or long name of the region (HN, HaNoi, ...).
	Region string
	// ProjectID, when set, is the project that the token must belong to; when empty, the first login decides.
	ProjectID string
	// AuthMethod is AuthMethodPassword or AuthMethodAppCredential.
	AuthMethod string
	// Email and Password are the credentials of AuthMethodPassword.
	Email, Password string
	// AppCredID and AppCredSecret are the credentials of AuthMethodAppCredential.
	AppCredID, AppCredSecret string
	// AllowHTTP permits an endpoint without TLS, which is for the sandbox: the token travels in the clear.
	AllowHTTP bool
	// AllowedHosts are the hosts at which the client may log in, each a host with or without its port, or a pattern such
	// as *.bizflycloud.vn; none allows every host.
	AllowedHosts []string
	// CABundle is PEM that is trusted in addition to the system's roots.
	CABundle []byte
	// Version is named in the user agent.
	Version string
	// Limits and Timeouts are the shares and deadlines of each class of calls.
	Limits   Limits
	Timeouts Timeouts
	// Clock is the time of token lifetimes, back-offs and rates; nil means the real one.
	Clock clock.Clock
	// Spread returns a number from 0 to n-1 by which pauses differ, so that replicas part; nil means a random one.
	Spread func(n int64) int64
	// Registerer takes the metrics; nil means controller-runtime's registry.
	Registerer prometheus.Registerer
	// Transport sends the requests instead of the network, for tests that decide when and whether they arrive; nil means
	// the network.
	Transport http.RoundTripper
}

// defaultLimits are rates that nothing changes but the configuration: the cloud documents none. At 10 a second 1,000
// servers are requested in 100 s, which is less than core's launch timeout leaves; the concurrency lets a cloud that
// takes 4 s for an answer keep that rate.
func defaultLimits() Limits {
	return Limits{
		Delete: Limit{QPS: 20, Burst: 20, Concurrency: 40},
		Read:   Limit{QPS: 20, Burst: 40, Concurrency: 20},
		Create: Limit{QPS: 10, Burst: 2, Concurrency: 40},
	}
}

// defaultTimeouts are long enough for a list of a whole project and short enough for a reconcile.
func defaultTimeouts() Timeouts {
	return Timeouts{
		Delete: 30 * time.Second, Read: 30 * time.Second, Create: time.Minute,
		Login: 20 * time.Second,
	}
}

func (c Config) withDefaults() Config {
	fill(reflect.ValueOf(&c).Elem(), reflect.ValueOf(Config{
		APIURL: DefaultAPIURL, Version: "dev", Limits: defaultLimits(), Timeouts: defaultTimeouts(),
		Clock: clock.RealClock{}, Spread: rand.Int64N,
	}))
	return c
}

// fill sets the fields that are zero.
func fill(value, defaults reflect.Value) {
	switch {
	case value.Kind() == reflect.Struct:
		for i := range value.NumField() {
			fill(value.Field(i), defaults.Field(i))
		}
	case value.IsZero():
		value.Set(defaults)
	}
}

// Validate names every field that cannot work, with its environment variable, its value (never a secret) and the
// remedy, on one line.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs error
	reject := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = multierr.Append(errs, fmt.Errorf(format, args...))
		}
	}
	endpoint, err := parseEndpoint(c.APIURL)
	reject(err != nil, "BIZFLY_CLOUD_API_URL: %w", err)
	reject(err == nil && endpoint.Scheme == "http" && !c.AllowHTTP,
		"BIZFLY_CLOUD_API_URL: %q would send the credentials without encryption, use https (plain http must be allowed "+
			"explicitly and is for the sandbox)", c.APIURL)
	reject(err == nil && len(c.AllowedHosts) > 0 && !allowedHost(c.AllowedHosts, endpoint),
		"BIZFLY_CLOUD_API_URL (spec.endpoint of the ProviderConfig): the credentials are not sent to %q, use a host of "+
			"BIZFLY_CLOUD_ALLOWED_HOSTS=%q, or add this one there", c.APIURL, strings.Join(c.AllowedHosts, ","))
	_, err = ParseRegion(c.Region)
	reject(err != nil, "BIZFLY_CLOUD_REGION: %w", err)
	reject(c.ProjectID != "" && !validID(c.ProjectID),
		"BIZFLY_CLOUD_PROJECT_ID: %q is not a project id, copy it from the dashboard or leave it empty for the credential's "+
			"own project",
		c.ProjectID)
	c.validateCredentials(reject)
	reject(len(c.CABundle) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CABundle),
		"CABundle: none of its %d bytes is a PEM certificate, give it CERTIFICATE blocks", len(c.CABundle))
	return errs
}

func (c Config) validateCredentials(reject func(bool, string, ...any)) {
	required := func(value, variable, other string) {
		reject(value == "", "%s: is empty but BIZFLY_CLOUD_AUTH_METHOD is %q, set it or use %q", variable, c.AuthMethod,
			other)
	}
	switch c.AuthMethod {
	case AuthMethodPassword:
		required(c.Email, "BIZFLY_CLOUD_EMAIL", AuthMethodAppCredential)
		required(c.Password, "BIZFLY_CLOUD_PASSWORD", AuthMethodAppCredential)
	case AuthMethodAppCredential:
		required(c.AppCredID, "BIZFLY_CLOUD_APP_CRED_ID", AuthMethodPassword)
		required(c.AppCredSecret, "BIZFLY_CLOUD_APP_CRED_SECRET", AuthMethodPassword)
	default:
		reject(true, "BIZFLY_CLOUD_AUTH_METHOD: %q is unknown, use %q or %q", c.AuthMethod, AuthMethodPassword,
			AuthMethodAppCredential)
	}
}

// parseEndpoint brings the endpoint into one form, whose path ends in /api.
func parseEndpoint(raw string) (*url.URL, error) {
	endpoint, err := url.Parse(raw)
	// The text of a parse error may repeat a password in the URL.
	if err != nil {
		return nil, fmt.Errorf("is not a URL, use for example %s", DefaultAPIURL)
	}
	// Without a scheme, what stands before the @ is parsed as something else than a user.
	if strings.Contains(raw, "@") || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		return nil, fmt.Errorf("the URL of host %q has a user, query or fragment, use scheme, host and path only",
			endpoint.Host)
	}
	if (endpoint.Scheme != "https" && endpoint.Scheme != "http") || endpoint.Hostname() == "" {
		return nil, fmt.Errorf("%q is not an http(s) URL with a host, use for example %s", raw, DefaultAPIURL)
	}
	endpoint.Path = path.Clean("/" + endpoint.Path)
	if !strings.HasSuffix(endpoint.Path, "/api") {
		endpoint.Path = path.Join(endpoint.Path, "api")
	}
	endpoint.RawPath = ""
	return endpoint, nil
}

// allowedHost reports whether one of the hosts or patterns matches the endpoint. An IPv6 address may end with a zone of
// any text, so none with a zone does.
func allowedHost(allowed []string, endpoint *url.URL) bool {
	return !strings.Contains(endpoint.Host, "%") && slices.ContainsFunc(allowed, func(pattern string) bool {
		for _, host := range []string{endpoint.Host, endpoint.Hostname()} {
			if matched, err := path.Match(strings.ToLower(pattern), strings.ToLower(host)); matched && err == nil {
				return true
			}
		}
		return false
	})
}

// String describes the configuration without its secrets, so that it may be logged by accident.
func (c Config) String() string {
	return fmt.Sprintf("{APIURL:%s Region:%s ProjectID:%s AuthMethod:%s AllowHTTP:%t Version:%s}",
		c.APIURL, c.Region, c.ProjectID, c.AuthMethod, c.AllowHTTP, c.Version)
}

// GoString is String: %#v must not print secrets either.
func (c Config) GoString() string { return c.String() }

// MarshalJSON writes what String says: structured loggers must not print secrets either.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }
