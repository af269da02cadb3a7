// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// connectTimeout bounds one look at the endpoint that servers join at.
const connectTimeout = 5 * time.Second

// connection is an endpoint and why it cannot be reached from the user's machine; nil where it can.
type connection struct {
	scheme, host, address string
	err                   error
}

// poolServer is a server of one of BKE's pools, which is known to work in this cluster.
type poolServer struct {
	node, name, zone, plan string
	interfaces             *v1alpha1.PoolServerStatus
	metadata               []string
	// differs is what new servers of each BizflyNodeClass would have otherwise, in the order of classes.
	classes []v1alpha1.BizflyNodeClass
	differs map[string][]string
}

var (
	factJoin = loginFact("join endpoint", func(ctx context.Context, cloud *connect.Cloud) (connection, error) {
		join, err := url.Parse(cloud.BKE.Known().JoinEndpoint)
		if err != nil || join.Host == "" {
			return connection{}, nothingToCheckError("it is not known (bke.joinEndpoint)")
		}
		to := connection{scheme: join.Scheme, host: join.Host,
			address: net.JoinHostPort(join.Hostname(), cmp.Or(join.Port(), lo.Ternary(join.Scheme == "http", "80", "443")))}
		opened, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", to.address)
		if to.err = err; err == nil {
			_ = opened.Close()
		}
		return to, nil
	})

	factPoolServer = newFact("server of a pool", readPoolServer)
)

func readPoolServer(ctx context.Context, r *reading) (*poolServer, error) {
	cloud, err := r.Login(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := cloud.BKE.PoolNodes(ctx)
	if err != nil {
		return nil, err
	}
	interfaces, err := cloud.Networks.Interfaces(ctx, nodes, nil)
	if err != nil {
		return nil, err
	}
	if interfaces == nil {
		return nil, nothingToCheckError("no server of a node of BKE's pools was found to compare with")
	}
	node, _ := lo.Find(nodes, func(n corev1.Node) bool { return n.Name == interfaces.Node })
	id, _ := providerid.Parse(node.Spec.ProviderID)
	server, err := cloud.API.GetServer(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the server of node %s: %w", interfaces.Node, err)
	}
	found := &poolServer{node: interfaces.Node, name: server.Name, zone: server.AvailabilityZone, plan: server.BillingPlan,
		interfaces: interfaces,
		differs:    map[string][]string{}}
	if metadata, err := cloud.API.GetServerMetadata(ctx, id); err != nil {
		r.Note("the metadata of the server of node %s was not read: %s", interfaces.Node, err)
	} else {
		// Their values hold the token with which nodes join.
		found.metadata = slices.Sorted(maps.Keys(metadata))
	}
	if found.classes, err = factClassesOrDefaults.in(ctx, r); err != nil {
		return nil, err
	}
	for i := range found.classes {
		nodeClass := found.classes[i].DeepCopy()
		if cloud.Settings.Load().BKEDiscoverFromPool {
			nodeClass.Status.PoolServer = cmp.Or(nodeClass.Status.PoolServer, interfaces) // as the controller will
		}
		found.differs[nodeClass.Name] = differences(ctx, cloud.Networks, nodeClass, interfaces)
	}
	return found, nil
}

// serviceRules only tell where servers would be, and what there is.
var serviceRules = []rule{{about: "account", given: given2(factLogin, factServices, func(cloud *connect.Cloud,
	in []string) outcome {
	known := []Known{{Name: "project", Value: fmt.Sprintf("%s in region %s at %s", cloud.Scope.ProjectID,
		cloud.Scope.Region, cloud.Scope.Host)}}
	if len(in) > 0 {
		known = append(known, Known{Name: "services of the region", Value: strings.Join(in, ", ")})
	}
	return positive(known...)
})}}

// volumeTypeRules only tell what there is: nothing about it can be wrong.
var volumeTypeRules = []rule{{about: "volume types", given: given1(factCatalog,
	func(snapshot *catalog.Snapshot) outcome {
		return positive(Known{Name: "volume types, as name and type", Value: strings.Join(lo.Map(snapshot.VolumeTypes,
			func(t *gobizfly.VolumeType, _ int) string {
				return fmt.Sprintf("%s (%s)", t.Name, lo.CoalesceOrEmpty(t.Type, "none"))
			}), ", ")}, Known{Name: "which of the two a create request names",
			Unknown: "the controller tries the forms that were seen, and keeps the one that is accepted"})
	})}}

var joinRules = []rule{{
	code: "JoinEndpointUnreachable", about: "join endpoint", severity: Warning,
	why: "servers whose network cannot reach it either boot and never join",
	given: given1(factJoin, func(to connection) outcome {
		if to.err == nil {
			return positive(Known{Name: "join endpoint", Value: to.address + " accepts connections"})
		}
		return found(Finding{What: fmt.Sprintf("BKE's join endpoint %s cannot be reached from here: %s", to.address, to.err),
			Fix: "curl -sSI " + to.scheme + "://" + to.host})
	}),
}}

// poolServerRules compare what new servers get with a server that is known to work in this cluster.
var poolServerRules = []rule{{
	code: "PoolServerDiffers", about: "pool server", severity: Warning,
	why: "pods may not reach each other, or nodes be public where the pool's are private",
	given: given1(factPoolServer, func(server *poolServer) outcome {
		result := found(lo.FilterMap(server.classes, func(n v1alpha1.BizflyNodeClass, _ int) (Finding, bool) {
			fix := fmt.Sprintf("kubectl patch bizflynodeclass %s --type merge --patch '{\"spec\": %s}'", n.Name,
				like(server.interfaces))
			if n.Name == ofDefaults {
				fix = fmt.Sprintf(`echo '{"apiVersion": %q, "kind": "BizflyNodeClass", "metadata": {"name": "default"}, "spec": %s}' | kubectl apply -f -`,
					v1alpha1.GroupVersion, like(server.interfaces))
			}
			return Finding{Fix: fix, What: fmt.Sprintf("servers of BizflyNodeClass %s would not be like that of node %s, which "+
				"is of a pool: %s", n.Name,
				server.node, strings.Join(server.differs[n.Name], "; "))}, len(server.differs[n.Name]) > 0
		})...)
		result.known = []Known{{Name: "pool server", Value: fmt.Sprintf("%s: zone %s, billing plan %s, networks [%s], "+
			"firewalls [%s], public address: %t",
			server.name, server.zone, server.plan, strings.Join(server.interfaces.Networks,
				" "), strings.Join(server.interfaces.Firewalls, " "),
			server.interfaces.PublicIPv4)}}
		if server.metadata != nil {
			result.known = append(result.known, Known{Name: "names of its metadata", Value: strings.Join(server.metadata, ", ")})
		}
		return result
	}),
}}

// like is the part of a NodeClass that makes its servers like the pool's, as JSON.
func like(pool *v1alpha1.PoolServerStatus) string {
	terms := func(ids []string) string {
		return "[" + strings.Join(lo.Map(ids, func(id string, _ int) string { return fmt.Sprintf(`{"id": %q}`, id) }), ", ") +
			"]"
	}
	return fmt.Sprintf(`{"networkSelectorTerms": %s, "firewallSelectorTerms": %s, "publicIPv4": %t}`, terms(pool.Networks),
		terms(pool.Firewalls),
		pool.PublicIPv4)
}

// differences returns what new servers of the NodeClass have otherwise than a server of a pool. A firewall that the
// cloud attaches to each server makes no difference.
func differences(ctx context.Context, networks *network.DefaultProvider, nodeClass *v1alpha1.BizflyNodeClass,
	pool *v1alpha1.PoolServerStatus) []string {
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
			differs = append(differs, "without firewall "+strings.Join(lo.Map(missing, func(f v1alpha1.FirewallStatus,
				_ int) string {
				return f.Name
			}), ", "))
		}
	}
	if public := nodeClass.EffectivePublicIPv4(); public != pool.PublicIPv4 {
		differs = append(differs, lo.Ternary(public, "with a public address", "without a public address"))
	}
	return differs
}
