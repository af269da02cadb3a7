// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bke

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

// apiServerName is the source of what follows from the name of the API server.
const apiServerName = "the name of the API server"

// withoutServers returns the values of a cluster none of whose pool servers has them all. Of what was read of those,
// only the cluster counts. That launch configurations can be read, and hold the token, is not certain: see the hedge
// register, docs/contribute/first-contact.md.
func (p *DefaultProvider) withoutServers(ctx context.Context, read []poolServer) (*reading, error) {
	// What is configured, and follows from the name of the API server, may be enough.
	found := p.readingOf(nil, apiServerName)
	if len(read) > 0 {
		found = p.readingOf(map[string]string{metadataClusterID: read[0].reading.Values.ClusterID},
			read[0].reading.clusterFrom)
	}
	if found.Values.Complete() {
		return found, p.consistent(found.joinFrom, found)
	}
	if found.Values.ClusterID == "" {
		return nil, errors.New("no server has what nodes join with, and which cluster this is follows from nothing else: " +
			"set BKE_CLUSTER_ID")
	}
	cluster, err := p.api.GetCluster(ctx, found.Values.ClusterID)
	if err != nil {
		return nil, fmt.Errorf("reading cluster %s to find its launch configurations: %w", found.Values.ClusterID, err)
	}
	known := found.Values.ClusterID
	failures := []error{errors.New("no server and no launch configuration of a pool has what nodes join with")}
	// A pool of servers elsewhere has none.
	pools := lo.Filter(cluster.WorkerPools, func(p gobizfly.ExtendedWorkerPool, _ int) bool {
		return p.LaunchConfigID != ""
	})
	for _, pool := range pools[:min(len(pools), maxConfigurations)] {
		of := "the launch configuration of pool " + pool.Name
		metadata, err := p.api.GetLaunchConfigurationMetadata(ctx, pool.LaunchConfigID)
		if id := metadata[metadataClusterID]; err == nil && id != "" && id != known {
			err = fmt.Errorf("its bke_cluster_id %q is not this cluster's %q", id, known)
		}
		if err == nil {
			found = p.readingOf(metadata, of)
			err = p.consistent("its metadata", found)
		}
		if err == nil {
			return found, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", of, err))
	}
	return nil, errors.Join(failures...)
}

// idLength is how long the uid of a cluster is.
const idLength = 16

// clusterOf returns the cluster's id and join endpoint, where the API server is called by BKE's names: it is at
// <id>.api.<domain> where nodes join at engine.api.<domain>. Both are empty where it is not.
func clusterOf(apiServer string) (id, joinEndpoint string) {
	if !strings.Contains(apiServer, "://") {
		apiServer = "https://" + apiServer
	}
	u, err := url.Parse(apiServer)
	if err != nil {
		return "", ""
	}
	id, domain, _ := strings.Cut(u.Hostname(), ".")
	if len(id) != idLength || !strings.HasPrefix(domain, "api.") {
		return "", ""
	}
	return id, "http://engine." + domain + "/engine/cluster_join/" + id
}
