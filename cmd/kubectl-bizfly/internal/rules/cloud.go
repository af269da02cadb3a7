// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const rejectsEverything = "every launch and every deletion is rejected"

// credentialRules say which one thing is wrong with the login.
var credentialRules = []rule{
	{code: "HostDiffers", about: "credentials and endpoint", severity: Error, why: "BizFly Cloud was not checked",
		fix:   "kubectl describe providerconfig default",
		given: failedLogin("HostDiffers", nil)},
	{code: "RegionUnknown", about: "credentials and endpoint", severity: Error,
		why: "there is no catalog, so no server can be launched",
		given: failedLogin("RegionUnknown", func(s setup, f *Finding, attempt login) {
			_, err := bizfly.ParseRegion(attempt.region)
			f.What, f.Fix = err.Error(), lo.Ternary(s.installed(), s.set("cloud.region=HN"), "export BIZFLY_CLOUD_REGION=HN")
		})},
	{code: "CredentialsMissing", about: "credentials and endpoint", severity: Error, why: "BizFly Cloud was not checked",
		given: failedLogin("CredentialsMissing", func(s setup, f *Finding, _ login) {
			// Before an installation there are neither a release nor a Secret: what counts is the environment.
			f.Fix = lo.Ternary(s.installed(), s.secret(),
				"export BIZFLY_CLOUD_REGION=HN BIZFLY_CLOUD_APP_CRED_ID=... BIZFLY_CLOUD_APP_CRED_SECRET=...")
		})},
	{code: "EndpointTLS", about: "credentials and endpoint", severity: Error, why: rejectsEverything,
		fix: "put the authority's certificate into spec.caBundle of the ProviderConfig (kubectl edit providerconfig default)",
		given: failedLogin("EndpointTLS", func(_ setup, f *Finding, _ login) {
			f.What = "the certificate of the endpoint is not trusted: " + f.What
		})},
	{code: "CredentialsRejected", about: "credentials and endpoint", severity: Error, why: rejectsEverything,
		given: failedLogin("CredentialsRejected", func(s setup, f *Finding, _ login) {
			f.What = "BizFly Cloud rejects the credentials: " + f.What
			f.Fix = s.secret() + " (then create a new application credential in the console and update the Secret)"
		})},
	{code: "EndpointUnreachable", about: "credentials and endpoint", severity: Error,
		why: "nothing can be launched or deleted until it does",
		given: failedLogin("EndpointUnreachable", func(s setup, f *Finding, _ login) {
			f.What, f.Fix = "BizFly Cloud does not answer: "+f.What, "curl -sSI "+lo.CoalesceOrEmpty(s.Settings.APIURL,
				bizfly.DefaultAPIURL)
		})},
	// A BKE cluster that is not there is found by its own rule.
	{code: "CatalogUnreadable", about: "credentials and endpoint", severity: Error,
		why: "without flavors, zones and prices no server can be launched",
		fix: "kubectl bizfly doctor (again, when BizFly Cloud answers)",
		given: given1(factUnread, func(err error) outcome {
			return failsIf(err != nil && !bizfly.IsNotFound(err), "%s", err)
		})},
	{code: "EndpointWithoutTLS", about: "credentials and endpoint", severity: Warning,
		why: "the token travels in the clear; that is for the sandbox only",
		fix: "kubectl edit providerconfig default",
		given: given1(factLogin, func(cloud *connect.Cloud) outcome {
			return failsIf(strings.HasPrefix(strings.ToLower(cloud.Config.APIURL), "http:"), "the endpoint %s has no TLS",
				cloud.Config.APIURL)
		})},
}

// secret is the command that shows the controller's credentials.
func (s setup) secret() string {
	return fmt.Sprintf("kubectl -n %s get secret %s", s.namespace(), s.Settings.CredentialsSecretName)
}

// failedLogin is the decision of the rule with that code: whether the login failed in its way.
func failedLogin(code string, describe func(setup, *Finding, login)) given {
	return given2(factAttempt, factSetup, func(attempt login, s setup) outcome {
		if attempt.err == nil {
			return positive()
		}
		if loginCode(attempt, s.installed()) != code {
			return inapplicable("the login failed otherwise")
		}
		f := Finding{What: attempt.err.Error()}
		if describe != nil {
			describe(s, &f, attempt)
		}
		return found(f)
	})
}

// loginCode is the code of the rule that a failed login breaks.
func loginCode(attempt login, installed bool) string {
	err := attempt.err
	var missing *connect.NoCredentialsError
	var other *connect.OtherHostError
	_, regionErr := bizfly.ParseRegion(attempt.region)
	switch {
	case errors.As(err, &other):
		return "HostDiffers"
	case errors.As(err, &missing):
		return lo.Ternary(regionErr != nil && (attempt.region != "" || installed), "RegionUnknown", "CredentialsMissing")
	case isTLS(err):
		return "EndpointTLS"
	case bizfly.IsAuth(err), bizfly.IsPermission(err):
		return "CredentialsRejected"
	}
	return "EndpointUnreachable"
}

func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host)
}

var accountRules = []rule{{
	code: "AccountUnpaid", about: "account", severity: Error, why: "BizFly Cloud rejects each launch with status 403",
	fix: "pay the invoice or top up the balance in the BizFly Cloud console",
	given: given1(factAccount, func(account bizfly.Account) outcome {
		if account.Unpaid != "" {
			return found(Finding{What: account.Unpaid})
		}
		return positive(Known{Name: "account", Value: "nothing is unpaid"})
	}),
}, {
	code: "BalanceLow", about: "account", severity: Warning,
	why: "BizFly Cloud rejects launches of an account in debt, and stops its servers later",
	fix: "top up the balance in the BizFly Cloud console",
	given: given3(factAccount, factServers, factFlavorPrices, func(account bizfly.Account, servers []*gobizfly.Server,
		prices map[string]float64) outcome {
		perHour := lo.SumBy(servers, func(s *gobizfly.Server) float64 { return prices[s.Flavor.Name] })
		unpriced := lo.CountBy(servers, func(s *gobizfly.Server) bool { return prices[s.Flavor.Name] == 0 })
		most, without := "", "other services"
		if unpriced > 0 {
			most, without = "at most ", fmt.Sprintf("other services and %s whose price is not known", output.Plural(unpriced, "server"))
		}
		if account.Balance == nil || perHour == 0 {
			return inapplicable("the account shows no balance, or no server runs")
		}
		hours := *account.Balance / perHour
		text := fmt.Sprintf("%s VND, which pays for %s%.0f hours of the project's servers (%s VND per hour, without %s)",
			output.VND(*account.Balance), most, hours, output.VND(perHour), without)
		if account.Unpaid == "" && hours < soonHours {
			return found(Finding{What: "the balance is " + text})
		}
		return positive(Known{Name: "balance", Value: text})
	}),
}}

// soonHours is three days: a balance that lasts no longer may not outlive a weekend.
const soonHours = 72

// scopeRules compare what the controller has stored with the credentials.
var scopeRules = []rule{
	{code: "ProjectDiffers", about: "project", severity: Error, why: "every server looks gone there, so the controller " +
		"rejects such credentials",
		fix: "kubectl describe providerconfig default",
		given: given2(factLogin, factProviderConfig, func(cloud *connect.Cloud, config *v1alpha1.ProviderConfig) outcome {
			err := cloud.Elsewhere(lo.FromPtr(config))
			return failsIf(err != nil, "%s", err)
		})},
	{code: "ProviderConfigNotReady", about: "project", severity: Error,
		why: "the controller keeps its last valid configuration, or has none",
		fix: "kubectl describe providerconfig default",
		given: given1(factProviderConfig, func(config *v1alpha1.ProviderConfig) outcome {
			if config == nil {
				return inapplicable("there is no ProviderConfig")
			}
			cause := notReady(config)
			return failsIf(cause != "" && config.StatusConditions().Root().IsFalse(), "ProviderConfig %s is not ready: %s",
				config.Name, cause)
		})},
}

var bkeRules = []rule{
	{code: "BKEUnknown", about: "BKE cluster", severity: Error, why: "nodes cannot join",
		given: given2(factBKE, factSetup, func(known bkeCluster, s setup) outcome {
			if known.unlearned == nil {
				return positive()
			}
			return found(Finding{What: "the BKE cluster could not be learned from a worker pool: " + known.unlearned.Error(),
				Fix: s.set("bke.clusterID=... (docs/reference/bootstrap.md)")})
		})},
	{code: "BKEClusterNotFound", about: "BKE cluster", severity: Error,
		why: "no worker image is known, and no node can join",
		fix: "bizfly kubernetes list (then the chart's value bke.clusterID)",
		given: given1(factBKE, func(known bkeCluster) outcome {
			return failsIf(known.missing, "the project has no BKE cluster %q", known.values.ClusterID)
		})},
}

var workerPoolRules = []rule{{
	code: "WorkerPoolAutoscaling", about: "worker pools", severity: Warning, why: "BKE's autoscaler and Karpenter see " +
		"the same pending pods: " + twoNodes,
	given: given1(factBKE, func(known bkeCluster) outcome {
		if known.unlearned != nil || known.missing {
			return inapplicable("the BKE cluster is not known")
		}
		return found(lo.FilterMap(known.pools, func(of gobizfly.ExtendedWorkerPool, _ int) (Finding, bool) {
			p := pool.Of(of)
			return Finding{
				What: fmt.Sprintf("the worker pool %s scales by itself (%d to %d nodes)", p.Name, p.MinSize,
					p.MaxSize), Fix: "kubectl bizfly pool pin " + p.Name,
			}, p.Scales()
		})...)
	}),
}}

// neededPorts are what every node needs.
var neededPorts = []struct {
	inbound  bool
	protocol string
	port     int
	purpose  string
}{
	{false, "tcp", 443, "images and BKE's join endpoint"},
	{false, "udp", 53, "name resolution"},
	{true, "tcp", 10250, "logs and exec, which the API server asks the kubelet for"},
}

var firewallRules = []rule{
	{code: "PublicWithoutFirewall", about: "firewalls", severity: Warning,
		why: "the account's default firewall decides who on the Internet reaches the kubelet and NodePorts",
		given: given2(factNodeClasses, factSelected, func(nodeClasses *v1alpha1.BizflyNodeClassList,
			selected map[string][]v1alpha1.FirewallStatus) outcome {
			if len(nodeClasses.Items) == 0 {
				return inapplicable("there is no BizflyNodeClass")
			}
			return found(lo.FilterMap(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass, _ int) (Finding, bool) {
				firewalls, resolved := selected[n.Name]
				return Finding{
					What: fmt.Sprintf("BizflyNodeClass %s gives each server a public address and selects no firewall", n.Name),
					Fix:  "kubectl edit bizflynodeclass " + n.Name + " (spec.firewallSelectorTerms, or publicIPv4: false)",
				}, n.EffectivePublicIPv4() && resolved && len(firewalls) == 0
			})...)
		})},
	// Rules of a default firewall belong to the cloud, so only those of selected ones count.
	{code: "FirewallPort", about: "firewalls", severity: Warning,
		given: given2(factFirewalls, factSelected, func(all []*gobizfly.Firewall,
			selected map[string][]v1alpha1.FirewallStatus) outcome {
			byID := lo.KeyBy(all, func(f *gobizfly.Firewall) string { return f.ID })
			var findings []Finding
			for _, name := range sortedKeys(selected) {
				for _, need := range neededPorts {
					if len(selected[name]) > 0 && !opens(selected[name], byID, need.inbound, need.protocol, need.port) {
						findings = append(findings, Finding{
							What: fmt.Sprintf("no firewall of BizflyNodeClass %s allows %s %s/%d", name, lo.Ternary(need.inbound, "inbound",
								"outbound"),
								need.protocol, need.port),
							Why: "a node needs it for " + need.purpose,
							Fix: fmt.Sprintf("add the rule to firewall %s in the BizFly Cloud console", selected[name][0].Name),
						})
					}
				}
			}
			return found(findings...)
		})},
}

// opens reports whether a rule of one of the firewalls opens a port.
func opens(selected []v1alpha1.FirewallStatus, byID map[string]*gobizfly.Firewall, inbound bool, protocol string,
	port int) bool {
	return lo.ContainsBy(selected, func(s v1alpha1.FirewallStatus) bool {
		firewall := lo.FromPtr(byID[s.ID])
		return lo.ContainsBy(lo.Ternary(inbound, firewall.InBound, firewall.OutBound),
			func(r gobizfly.FirewallRule) bool { return allows(r, protocol, port) })
	})
}

// allows reports whether a rule opens a port.
func allows(r gobizfly.FirewallRule, protocol string, port int) bool {
	if r.Protocol != "" && !strings.EqualFold(r.Protocol, protocol) && !strings.EqualFold(r.Protocol, "any") {
		return false
	}
	low, high := r.PortRangeMin, r.PortRangeMax
	if low == 0 && high == 0 && r.PortRange != "" {
		first, last, isRange := strings.Cut(r.PortRange, "-")
		low, _ = strconv.Atoi(first)
		high = low
		if isRange {
			high, _ = strconv.Atoi(last)
		}
	}
	return low == 0 && high == 0 || low <= port && port <= high
}
