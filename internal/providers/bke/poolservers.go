// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// metadataClusterID names the BKE cluster in a server's metadata.
	metadataClusterID = "bke_cluster_id"
	// maxNewest and maxOldest bound the pool nodes whose servers are read. The newest have joined with the values that
	// are valid now. The oldest are there because who may create a Node, with a label and a provider ID of its choice,
	// cannot make it older than it is.
	maxNewest, maxOldest = 3, 5
	// maxClaims is of how many NodeClaims the servers decide, and maxClaimReads how many are looked at for them: servers
	// of other NodeClaims may be gone.
	maxClaims, maxClaimReads = 3, 20
)

// SelectPoolNodes selects the nodes of BKE's own pools. BKE may label Karpenter's nodes like its own; their metadata
// came from here.
var SelectPoolNodes = client.MatchingLabelsSelector{Selector: lo.Must(labels.Parse(LabelPoolNode + ",!" +
	karpv1.NodePoolLabelKey))}

// poolServer is a node of a pool with what its server's metadata says.
type poolServer struct {
	node    corev1.Node
	reading *reading
}

// poolServers are what some pool nodes lead to.
type poolServers struct {
	// servers are those of this cluster, the newest node first.
	servers []poolServer
	// nodes is how many nodes were looked at.
	nodes int
	// ignored are notes about nodes whose server is of another cluster, and failures why those of others do not count.
	ignored  []string
	failures []error
}

// unread are why servers could not be read that may be of this cluster.
func (s *poolServers) unread() []error {
	return lo.Reject(s.failures, func(err error, _ int) bool { return bizfly.IsNotFound(err) || isNotOfPool(err) })
}

// PoolNodes returns some nodes of BKE's own pools whose servers name this cluster, the newest first.
func (p *DefaultProvider) PoolNodes(ctx context.Context) ([]corev1.Node, error) {
	pool, err := p.poolServers(ctx)
	if err != nil {
		return nil, err
	}
	if len(pool.servers) == 0 {
		return nil, errors.Join(pool.unread()...)
	}
	return lo.Map(pool.servers, func(s poolServer, _ int) corev1.Node { return s.node }), nil
}

// poolServers reads the servers of some pool nodes. A kubelet's credential or a join token is enough to create a Node
// with any label and provider ID, so a server counts only if its own metadata names this cluster, and Karpenter has not
// launched it.
func (p *DefaultProvider) poolServers(ctx context.Context) (*poolServers, error) {
	list := &corev1.NodeList{}
	if err := p.reader.List(ctx, list, SelectPoolNodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	sample := sampleOf(list.Items)
	pool := &poolServers{nodes: len(sample)}
	var read []poolServer
	for _, node := range sample {
		reading, err := p.read(ctx, node)
		if err != nil {
			pool.failures = append(pool.failures, fmt.Errorf("node %s: %w", node.Name, err))
			continue
		}
		read = append(read, poolServer{node: node, reading: reading})
	}
	id, source, err := p.thisCluster(ctx, read, pool.unread())
	if err != nil {
		return nil, err
	}
	for _, server := range read {
		if server.reading.Values.ClusterID == id {
			pool.servers = append(pool.servers, server)
			continue
		}
		pool.failures = append(pool.failures, fmt.Errorf("node %s: %w", server.node.Name, notOfPoolError(fmt.Sprintf(
			"its server's metadata %s %q is not %s %q", metadataClusterID, server.reading.Values.ClusterID, source, id))))
		pool.ignored = append(pool.ignored, fmt.Sprintf("node %s is ignored, since its server is of cluster %s",
			server.node.Name, server.reading.Values.ClusterID))
	}
	return pool, nil
}

// notOfPoolError is why a server is none of a pool of this cluster.
type notOfPoolError string

func (e notOfPoolError) Error() string { return string(e) }

func isNotOfPool(err error) bool {
	_, is := errors.AsType[notOfPoolError](err)
	return is
}

// sampleOf returns the newest and the oldest of the nodes with a provider ID of ours, the newest first. Of several that
// name one server only the oldest counts.
func sampleOf(nodes []corev1.Node) []corev1.Node {
	sorted := lo.Filter(nodes, func(node corev1.Node, _ int) bool {
		_, parsed := providerid.Parse(node.Spec.ProviderID)
		return parsed
	})
	slices.SortFunc(sorted, func(a, b corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	sorted = lo.UniqBy(sorted, func(node corev1.Node) string { return node.Spec.ProviderID })
	slices.Reverse(sorted)
	if len(sorted) <= maxNewest+maxOldest {
		return sorted
	}
	return slices.Concat(sorted[:maxNewest], sorted[len(sorted)-maxOldest:])
}

func (p *DefaultProvider) read(ctx context.Context, node corev1.Node) (*reading, error) {
	id, _ := providerid.Parse(node.Spec.ProviderID)
	metadata, err := p.api.GetServerMetadata(ctx, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading server %s: %w", id, err)
	case lo.CoalesceOrEmpty(metadata[v1alpha1.MetadataManaged], metadata[v1alpha1.OlderMetadataManaged]) != "":
		return nil, notOfPoolError("its server was launched by Karpenter")
	case metadata[metadataClusterID] == "":
		return nil, notOfPoolError("its server's metadata lacks " + metadataClusterID)
	}
	return p.readingOf(metadata, "the pool server of node "+node.Name), nil
}

// thisCluster returns which BKE cluster this is, with what says so. Where neither the configuration, nor what was
// learned before, nor the name of the API server does, it is the cluster that the servers of NodeClaims have joined: it
// does not change while there are any. Without those, most pool servers decide, once those that could not be read would
// change nothing.
func (p *DefaultProvider) thisCluster(ctx context.Context, read []poolServer, unread []error) (id, source string,
	err error) {
	if known := p.Known().ClusterID; known != "" {
		return known, lo.Ternary(p.config.Values.ClusterID != "", "BKE_CLUSTER_ID", "that which was learned before"), nil
	}
	if id, _ := clusterOf(p.config.APIServer); id != "" {
		return id, apiServerName, nil
	}
	joined, err := p.joinedByNodeClaims(ctx)
	if joined != "" || err != nil {
		return joined, "that of NodeClaims' servers", err
	}
	ids := lo.Map(read, func(s poolServer, _ int) string { return s.reading.Values.ClusterID })
	most := mostNamed(ids)
	if len(unread) > 0 && 2*lo.Count(ids, most) <= len(ids)+len(unread) {
		return "", "", fmt.Errorf("which cluster most pool servers are of is not known: %w", errors.Join(unread...))
	}
	return most, "that of most pool servers", nil
}

// mostNamed returns the id that most servers name, the newest first; of as many, that of the older ones.
func mostNamed(ids []string) string {
	counts := lo.CountValues(ids)
	most := ""
	for _, id := range slices.Backward(ids) {
		if counts[id] > counts[most] {
			most = id
		}
	}
	return most
}

// joinedByNodeClaims returns the cluster that the servers of NodeClaims have joined by their metadata, and nothing
// where there are none.
func (p *DefaultProvider) joinedByNodeClaims(ctx context.Context) (string, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.reader.List(ctx, claims); err != nil && !meta.IsNoMatchError(err) {
		return "", fmt.Errorf("listing NodeClaims, whose servers have joined this cluster: %w", err)
	}
	servers := lo.FilterMap(claims.Items, func(claim karpv1.NodeClaim, _ int) (string, bool) {
		if !v1alpha1.IsOurs(claim.Spec.NodeClassRef) {
			return "", false
		}
		return providerid.Parse(claim.Status.ProviderID)
	})
	var ids []string
	for i, server := range servers {
		if len(ids) == maxClaims {
			break
		}
		if i == maxClaimReads {
			return "", fmt.Errorf("the servers of %d NodeClaims, which have joined this cluster, are gone", i)
		}
		metadata, err := p.api.GetServerMetadata(ctx, server)
		if bizfly.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading server %s of a NodeClaim, which has joined this cluster: %w", server, err)
		}
		ids = append(ids, metadata[metadataClusterID])
	}
	return mostNamed(lo.Compact(ids)), nil
}
