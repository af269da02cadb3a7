// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/flavors"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// preflight are the checks before an installation. Each request of theirs is a login or only reads.
var preflight = []check{
	{"cluster", checkCluster},
	{"API server version", checkVersion},
	{"credentials and endpoint", checkCredentials},
	{"account", checkAccount},
	{"volume types", checkVolumeTypes},
	{"BKE cluster", checkBKE},
	{"join endpoint", checkJoinEndpoint},
	{"worker pools", checkPools},
	{"other autoscalers", checkAutoscalers},
	{"cloud controller manager", checkCCM},
	{"pool server", checkPoolServer},
	{"NodeClasses", checkNodeClasses},
	{"flavors", checkFlavors},
	{"volumes", checkCSI},
}

// unseen is what no request shows.
var unseen = []Fact{
	{Name: "quota of servers, vCPUs, memory, disks and addresses",
		Unknown: "BizFly Cloud has no request that shows it; kubectl bizfly doctor reports rejections"},
	{Name: "boot and join", Unknown: "no server was created"},
}

const (
	// connectTimeout bounds one look at the endpoint that servers join at.
	connectTimeout = 5 * time.Second
)

// services are what the controller asks, and what each is for.
var services = map[string]string{
	"cloud_server":      "servers, disks and networks",
	"kubernetes_engine": "worker images, and nodes that leave the cluster",
	"bizfly_account":    "the state of the account and the zones of the region",
	"auto_scaling":      "launch configurations of worker pools, which show what nodes join with",
}

func checkAccount(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Login(ctx)
	if err != nil {
		return nil, err
	}
	d.know("project", "%s in region %s at %s", cloud.Scope.ProjectID, cloud.Scope.Region, cloud.Scope.Host)
	account, err := cloud.API.Account(ctx)
	var found []Finding
	if missing := lo.Without(slices.Sorted(maps.Keys(services)), account.Services...); len(account.Services) > 0 {
		d.know("services of the region", "%s", strings.Join(account.Services, ", "))
		for _, name := range missing {
			found = append(found, one("ServiceMissing", lo.Ternary(name == "cloud_server", Error, Info),
				fmt.Sprintf("the service catalog has no %s for the region", name), "it is asked for "+services[name]+", which are read elsewhere or missed",
				"bizfly --help (another region may have it: set cloud.region)")...)
		}
	}
	switch {
	case err != nil:
		d.leave("account", "it could not be asked whether it is paid: "+err.Error())
	case account.Unpaid != "":
		found = append(found, one("AccountUnpaid", Error, account.Unpaid, "BizFly Cloud rejects each launch with status 403",
			"pay the invoice or top up the balance in the BizFly Cloud console")...)
	default:
		d.know("account", "nothing is unpaid")
	}
	return found, nil
}

func checkVolumeTypes(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := cloud.Catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	d.know("volume types, as name and type", "%s", strings.Join(lo.Map(snapshot.VolumeTypes, func(t *gobizfly.VolumeType, _ int) string {
		return fmt.Sprintf("%s (%s)", t.Name, lo.CoalesceOrEmpty(t.Type, "none"))
	}), ", "))
	d.leave("which of the two a create request names", "the controller tries the forms that were seen, and keeps the one that is accepted")
	return nil, nil
}

// checkJoinEndpoint connects to where servers join, from the user's machine.
func checkJoinEndpoint(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Login(ctx)
	if err != nil {
		return nil, err
	}
	join, err := url.Parse(cloud.BKE.Known().JoinEndpoint)
	if err != nil || join.Host == "" {
		return nil, nothingToCheckError("it is not known (bke.joinEndpoint)")
	}
	address := net.JoinHostPort(join.Hostname(), cmp.Or(join.Port(), lo.Ternary(join.Scheme == "http", "80", "443")))
	connection, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return one("JoinEndpointUnreachable", Warning, fmt.Sprintf("BKE's join endpoint %s cannot be reached from here: %s", address, err),
			"servers whose network cannot reach it either boot and never join", "curl -sSI "+join.Scheme+"://"+join.Host), nil
	}
	_ = connection.Close()
	d.know("join endpoint", "%s accepts connections", address)
	return nil, nil
}

// checkPoolServer compares what new servers get with a server that is known to work in this cluster.
func checkPoolServer(ctx context.Context, d *examination) ([]Finding, error) {
	cloud, err := d.Login(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := cloud.BKE.PoolNodes(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := cloud.Networks.Interfaces(ctx, nodes, nil)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, nothingToCheckError("no server of a node of BKE's pools was found to compare with")
	}
	node, _ := lo.Find(nodes, func(n corev1.Node) bool { return n.Name == pool.Node })
	id, _ := providerid.Parse(node.Spec.ProviderID)
	server, err := cloud.API.GetServer(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the server of node %s: %w", pool.Node, err)
	}
	d.know("pool server", "%s: zone %s, billing plan %s, networks [%s], firewalls [%s], public address: %t", server.Name, server.AvailabilityZone,
		server.BillingPlan, strings.Join(pool.Networks, " "), strings.Join(pool.Firewalls, " "), pool.PublicIPv4)
	if metadata, err := cloud.API.GetServerMetadata(ctx, id); err != nil {
		d.Note("the metadata of the server of node %s was not read: %s", pool.Node, err)
	} else {
		// Their values hold the token with which nodes join.
		d.know("names of its metadata", "%s", strings.Join(slices.Sorted(maps.Keys(metadata)), ", "))
	}
	nodeClasses, err := d.nodeClasses(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for i := range nodeClasses {
		nodeClass := &nodeClasses[i]
		if cloud.Settings.Load().BKEDiscoverFromPool {
			nodeClass.Status.PoolServer = cmp.Or(nodeClass.Status.PoolServer, pool) // as the controller will
		}
		if differs := differences(ctx, cloud.Networks, nodeClass, pool); len(differs) > 0 {
			fix := fmt.Sprintf("kubectl patch bizflynodeclass %s --type merge --patch '{\"spec\": %s}'", nodeClass.Name, like(pool))
			if nodeClass.Name == ofDefaults {
				fix = fmt.Sprintf(`echo '{"apiVersion": %q, "kind": "BizflyNodeClass", "metadata": {"name": "default"}, "spec": %s}' | kubectl apply -f -`,
					v1alpha1.GroupVersion, like(pool))
			}
			found = append(found, one("PoolServerDiffers", Warning,
				fmt.Sprintf("servers of BizflyNodeClass %s would not be like that of node %s, which is of a pool: %s", nodeClass.Name, pool.Node,
					strings.Join(differs, "; ")),
				"pods may not reach each other, or nodes be public where the pool's are private", fix)...)
		}
	}
	return found, nil
}

// like is the part of a NodeClass that makes its servers like the pool's, as JSON.
func like(pool *v1alpha1.PoolServerStatus) string {
	terms := func(ids []string) string {
		return "[" + strings.Join(lo.Map(ids, func(id string, _ int) string { return fmt.Sprintf(`{"id": %q}`, id) }), ", ") + "]"
	}
	return fmt.Sprintf(`{"networkSelectorTerms": %s, "firewallSelectorTerms": %s, "publicIPv4": %t}`, terms(pool.Networks), terms(pool.Firewalls),
		pool.PublicIPv4)
}

// nodeClasses are those of the cluster, or one of defaults.
func (d *examination) nodeClasses(ctx context.Context) ([]v1alpha1.BizflyNodeClass, error) {
	list := &v1alpha1.BizflyNodeClassList{}
	if err := d.List(ctx, list); err != nil && !connect.IsMissing(err) {
		return nil, err
	}
	if len(list.Items) > 0 {
		return list.Items, nil
	}
	standard, err := price.StandardNodeClass(nil)
	if err != nil {
		return nil, err
	}
	standard.Name = ofDefaults
	return []v1alpha1.BizflyNodeClass{*standard}, nil
}

// checkFlavors counts what NodePools leave of the catalog.
func checkFlavors(ctx context.Context, d *examination) ([]Finding, error) {
	pools := &karpv1.NodePoolList{}
	if err := d.List(ctx, pools); err != nil && !connect.IsMissing(err) {
		return nil, err
	}
	var found []Finding
	names := lo.Map(pools.Items, func(p karpv1.NodePool, _ int) string { return p.Name })
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		rows, err := flavors.List(ctx, d.Session, flavors.Options{NodePool: name})
		if err != nil {
			return nil, err
		}
		left := lo.Filter(rows, func(r flavors.Row, _ int) bool { return r.Available })
		whose := lo.Ternary(name == "", "a NodePool without requirements", "NodePool "+name)
		if len(left) == 0 {
			found = append(found, one("NoFlavorLeft", Error, whose+" leaves no flavor that can be launched", "no node is launched for it",
				strings.TrimSuffix("kubectl bizfly flavors --nodepool "+name, " --nodepool "))...)
			continue
		}
		cheapest := lo.MinBy(left, func(a, b flavors.Row) bool { return a.VNDPerHour < b.VNDPerHour })
		d.know("flavors of "+whose, "%d in %s, from %s at %s VND per hour", len(lo.UniqBy(left, func(r flavors.Row) string { return r.Flavor })),
			strings.Join(slices.Sorted(maps.Keys(lo.KeyBy(left, func(r flavors.Row) string { return r.Zone }))), " and "), cheapest.Flavor,
			output.VND(cheapest.VNDPerHour))
	}
	return found, nil
}

// differences returns what new servers of the NodeClass have otherwise than a server of a pool. A firewall that the cloud attaches to each
// server makes no difference.
func differences(ctx context.Context, networks *network.DefaultProvider, nodeClass *v1alpha1.BizflyNodeClass, pool *v1alpha1.PoolServerStatus) []string {
	var differs []string
	if wanted, err := networks.Networks(ctx, nodeClass); err == nil {
		ids := lo.Map(wanted, func(n network.Network, _ int) string { return n.ID })
		if missing := lo.Without(pool.Networks, ids...); len(missing) > 0 {
			differs = append(differs, "not in network "+strings.Join(missing, ", "))
		}
	}
	like := &v1alpha1.BizflyNodeClass{Status: v1alpha1.BizflyNodeClassStatus{PoolServer: pool}}
	wanted, unread := networks.Firewalls(ctx, like)
	if firewalls, err := networks.Firewalls(ctx, nodeClass); err == nil && unread == nil {
		if missing, _ := lo.Difference(wanted, firewalls); len(missing) > 0 {
			differs = append(differs, "without firewall "+strings.Join(lo.Map(missing, func(f v1alpha1.FirewallStatus, _ int) string { return f.Name }), ", "))
		}
	}
	if public := nodeClass.EffectivePublicIPv4(); public != pool.PublicIPv4 {
		differs = append(differs, lo.Ternary(public, "with a public address", "without a public address"))
	}
	return differs
}
