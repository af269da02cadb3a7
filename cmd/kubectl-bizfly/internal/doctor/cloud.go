// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const rejectsEverything = "every launch and every deletion is rejected"

func checkCredentials(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Login(ctx)
	secret := fmt.Sprintf("kubectl -n %s get secret %s", d.namespace(), d.Settings.CredentialsSecretName)
	var missing *connect.NoCredentialsError
	var other *connect.OtherHostError
	switch {
	case errors.As(err, &other):
		return one("HostDiffers", Error, err.Error(), "BizFly Cloud was not checked", "kubectl describe providerconfig default"), nil
	case errors.As(err, &missing):
		region, fix := effectiveRegion(ctx, d), d.set("cloud.region=HN")
		if !d.installed() {
			// There are neither a release nor a Secret yet: what counts is the environment.
			fix = "export BIZFLY_CLOUD_REGION=HN"
			secret = fix + " BIZFLY_CLOUD_APP_CRED_ID=... BIZFLY_CLOUD_APP_CRED_SECRET=..."
		}
		if _, regionErr := bizfly.ParseRegion(region); regionErr != nil && (region != "" || d.installed()) {
			return one("RegionUnknown", Error, regionErr.Error(), "there is no catalog, so no server can be launched", fix), nil
		}
		return one("CredentialsMissing", Error, err.Error(), "BizFly Cloud was not checked", secret), nil
	case isTLS(err):
		return one("EndpointTLS", Error, "the certificate of the endpoint is not trusted: "+err.Error(), rejectsEverything,
			"put the authority's certificate into spec.caBundle of the ProviderConfig (kubectl edit providerconfig default)"), nil
	case bizfly.IsAuth(err), bizfly.IsPermission(err):
		return one("CredentialsRejected", Error, "BizFly Cloud rejects the credentials: "+err.Error(), rejectsEverything,
			secret+" (then create a new application credential in the console and update the Secret)"), nil
	case err != nil:
		//nolint:nilerr // the error is the finding
		return one("EndpointUnreachable", Error, "BizFly Cloud does not answer: "+err.Error(), "nothing can be launched or deleted until it does",
			"curl -sSI "+lo.CoalesceOrEmpty(d.Settings.APIURL, bizfly.DefaultAPIURL)), nil
	}
	var found []Finding
	// A BKE cluster that is not there is found by checkBKE.
	if _, err := d.Cloud(ctx); err != nil && !bizfly.IsNotFound(err) {
		found = one("CatalogUnreadable", Error, err.Error(), "without flavors, zones and prices no server can be launched",
			"kubectl bizfly doctor (again, when BizFly Cloud answers)")
	}
	if endpoint, err := url.Parse(cloud.Config.APIURL); err == nil && endpoint.Scheme == "http" {
		found = append(found, one("EndpointWithoutTLS", Warning, fmt.Sprintf("the endpoint %s has no TLS", cloud.Config.APIURL),
			"the token travels in the clear; that is for the sandbox only", "kubectl edit providerconfig default")...)
	}
	return found, nil
}

func effectiveRegion(ctx context.Context, d *examination) string {
	effective, _ := d.Effective(ctx)
	return effective.Region
}

func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host)
}

func checkScope(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, unknown := d.Login(ctx)
	object := &v1alpha1.ProviderConfig{}
	switch err := d.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, object); {
	case apierrors.IsNotFound(err), connect.IsMissing(err):
		return nil, unknown
	case err != nil:
		return nil, err
	}
	found := reported("ProviderConfig", object)
	if pinned := object.Status.Scope; unknown == nil && pinned != nil &&
		(pinned.ProjectID != cloud.Scope.ProjectID || pinned.Region != cloud.Scope.Region || pinned.Host != cloud.Scope.Host) {
		found = append(found, one("ProjectDiffers", Error,
			fmt.Sprintf("the credentials are for %s, and this cluster's servers are in project %s, region %s at %s", cloud.Scope, pinned.ProjectID, pinned.Region,
				pinned.Host),
			"every server looks gone there, so the controller rejects such credentials", "kubectl describe providerconfig default")...)
	}
	if cause := notReady(object); cause != "" && object.StatusConditions().Root().IsFalse() {
		found = append(found, one("ProviderConfigNotReady", Error, fmt.Sprintf("ProviderConfig %s is not ready: %s", object.Name, cause),
			"the controller keeps its last valid configuration, or has none", "kubectl describe providerconfig default")...)
	}
	return found, unknown
}

// errNoCluster says that there is no BKE cluster to look at, as in a cluster that is not BKE's.
const errNoCluster = nothingToCheckError("no BKE cluster is known")

func checkBKE(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Login(ctx)
	if err != nil {
		return nil, err
	}
	values, err := cloud.BKE.Values(ctx)
	if err != nil {
		//nolint:nilerr // the error is the finding
		return one("BKEUnknown", Error, "the BKE cluster could not be learned from a worker pool: "+err.Error(), "nodes cannot join",
			d.set("bke.clusterID=... (docs/reference/bootstrap.md)")), nil
	}
	if values.ClusterID == "" {
		return nil, errNoCluster
	}
	var found []Finding
	if _, err := cloud.API.GetCluster(ctx, values.ClusterID); bizfly.IsNotFound(err) {
		found = append(found, one("BKEClusterNotFound", Error, fmt.Sprintf("the project has no BKE cluster %q", values.ClusterID),
			"no worker image is known, and no node can join", "bizfly kubernetes list (then the chart's value bke.clusterID)")...)
	} else if err != nil {
		return nil, err
	}
	// Not every cluster whose BKE cluster is known launches worker images: NodeClasses of mode Custom need neither.
	nodeClasses, severity := &v1alpha1.BizflyNodeClassList{}, Warning
	_ = d.List(ctx, nodeClasses) // checkNodeClasses reports the error
	if lo.ContainsBy(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass) bool { return n.EffectiveBootstrapMode() == v1alpha1.BootstrapModeBKE }) {
		severity = Error
	}
	for name, value := range map[string]string{"bke.clusterToken (BKE_CLUSTER_TOKEN)": values.Token, "bke.joinEndpoint (BKE_JOIN_ENDPOINT)": values.JoinEndpoint} {
		if value == "" {
			found = append(found, one("BKEJoinIncomplete", severity, fmt.Sprintf("%s is not set", name),
				"servers of NodeClasses in mode BKE boot and never join, and each is replaced after 15 minutes",
				"kubectl bizfly doctor -o yaml (docs/reference/bootstrap.md says where the value is found)")...)
		}
	}
	if join, err := url.Parse(values.JoinEndpoint); values.JoinEndpoint != "" && (err != nil || join.Host == "") {
		found = append(found, one("BKEJoinEndpointInvalid", Error, fmt.Sprintf("BKE_JOIN_ENDPOINT %q is no URL", values.JoinEndpoint), "servers boot and never join",
			d.set("bke.joinEndpoint=... (docs/reference/bootstrap.md)"))...)
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return found, nil
}

func checkPools(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	id := cloud.BKE.Known().ClusterID
	if id == "" {
		return nil, errNoCluster
	}
	cluster, err := cloud.API.GetCluster(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the BKE cluster: %w", err)
	}
	return lo.FilterMap(cluster.WorkerPools, func(found gobizfly.ExtendedWorkerPool, _ int) (Finding, bool) {
		p := pool.Of(found)
		return Finding{
			Code: "WorkerPoolAutoscaling", Severity: Warning, What: fmt.Sprintf("the worker pool %s scales by itself (%d to %d nodes)", p.Name, p.MinSize, p.MaxSize),
			Why: "BKE's autoscaler and Karpenter see the same pending pods: each launches a node for them, and you pay for two",
			Fix: fmt.Sprintf("kubectl bizfly pool pin %s", p.Name),
		}, p.Scales()
	}), nil
}

// ofDefaults is how reports call the NodeClass that there is before an installation.
const ofDefaults = "of defaults"

// checkNodeClasses resolves each NodeClass as the controller does: zones, flavors, image, networks, egress, firewalls, keys,
// disks and what nodes join with. Before the installation it resolves one of defaults.
func checkNodeClasses(ctx context.Context, d *examination) ([]Finding, error) {
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	listErr := d.List(ctx, nodeClasses)
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	if listErr != nil && d.Cluster != nil {
		d.Note("NodeClasses were not read: %s", listErr)
	}
	if len(nodeClasses.Items) == 0 {
		standard, err := price.StandardNodeClass(nil)
		if err != nil {
			return nil, err
		}
		standard.Name = ofDefaults
		nodeClasses.Items = append(nodeClasses.Items, *standard)
	}
	var objects memory.Objects
	var found []Finding
	for i := range nodeClasses.Items {
		found = append(found, reported("BizflyNodeClass", &nodeClasses.Items[i])...)
		// Resolved anew: what the controller found last may be older than the fault.
		nodeClasses.Items[i].Status.Conditions = nil
		objects = append(objects, &nodeClasses.Items[i])
	}
	simulation, err := sim.New(ctx, cloud, objects)
	if err != nil {
		return found, err
	}
	return append(found, lo.Map(simulation.Assumptions, func(u sim.Assumption, _ int) Finding {
		f := Finding{
			Code: "NodeClass" + strings.TrimSuffix(strings.TrimSuffix(u.Condition.Type, "Ready"), "Available"), Severity: Error,
			What: fmt.Sprintf("BizflyNodeClass %s: %s: %s", u.NodeClass, u.Condition.Reason, u.Condition.Message),
			Why:  "no server is launched with it", Fix: "kubectl edit bizflynodeclass " + u.NodeClass,
		}
		if u.NodeClass == ofDefaults {
			f.Fix = "kubectl bizfly doctor --preflight (again, once there is a BizflyNodeClass that sets what this names)"
		}
		if u.Condition.Type == v1alpha1.ConditionTypeEgressAvailable {
			f.Severity, f.Why = Warning, "servers cannot pull images, and perhaps cannot reach the API server"
		}
		return f
	})...), nil
}

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

// checkFirewalls looks at the rules of the firewalls that NodeClasses select. Those of a default firewall belong to the cloud, and are
// only pointed out.
func checkFirewalls(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	if err := d.List(ctx, nodeClasses); err != nil {
		return nil, err
	}
	all, err := cloud.API.ListFirewalls(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing firewalls: %w", err)
	}
	byID := lo.KeyBy(all, func(f *gobizfly.Firewall) string { return f.ID })
	var found []Finding
	for i := range nodeClasses.Items {
		nodeClass := &nodeClasses.Items[i]
		selected, err := cloud.Networks.Firewalls(ctx, nodeClass)
		if nodeClass.EffectivePublicIPv4() && err == nil && len(selected) == 0 {
			found = append(found, one("PublicWithoutFirewall", Warning,
				fmt.Sprintf("BizflyNodeClass %s gives each server a public address and selects no firewall", nodeClass.Name),
				"the account's default firewall decides who on the Internet reaches the kubelet and NodePorts", "kubectl edit bizflynodeclass "+nodeClass.Name+
					" (spec.firewallSelectorTerms, or publicIPv4: false)")...)
		}
		if err != nil || len(selected) == 0 {
			continue // checkNodeClasses reports it
		}
		for _, need := range neededPorts {
			open := false
			for _, s := range selected {
				if firewall := byID[s.ID]; firewall != nil {
					open = open || lo.ContainsBy(lo.Ternary(need.inbound, firewall.InBound, firewall.OutBound),
						func(r gobizfly.FirewallRule) bool { return allows(r, need.protocol, need.port) })
				}
			}
			if !open {
				found = append(found, one("FirewallPort", Warning,
					fmt.Sprintf("no firewall of BizflyNodeClass %s allows %s %s/%d", nodeClass.Name, lo.Ternary(need.inbound, "inbound", "outbound"), need.protocol,
						need.port),
					"a node needs it for "+need.purpose, fmt.Sprintf("add the rule to firewall %s in the BizFly Cloud console", selected[0].Name))...)
			}
		}
	}
	return found, nil
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
