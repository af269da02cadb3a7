// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// bkeScript runs what is baked into BKE's worker images; that joins the cluster which the server's metadata names.
const bkeScript = "#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"

// bkeValues returns what nodes join BKE with. It is complete or a ValidationError.
func (p *DefaultProvider) bkeValues(ctx context.Context) (bke.Values, error) {
	values, err := p.config.BKE.Values(ctx)
	var problems []string
	for _, v := range []struct {
		name, value, missing string
		isURL                bool
	}{
		{"BKE_CLUSTER_ID", values.ClusterID, "the uid of the BKE cluster, 16 characters", false},
		{"BKE_CLUSTER_TOKEN", values.Token, "the cluster's join token", false},
		{"BKE_JOIN_ENDPOINT", values.JoinEndpoint, "the URL at which nodes join, which ends in " +
			"/engine/cluster_join/<cluster id>", true},
		{"BKE_LOG_ENDPOINT", values.LogEndpoint, "", true},
	} {
		if v.missing != "" && strings.TrimSpace(v.value) == "" {
			problems = append(problems, fmt.Sprintf("%s is not set (%s)", v.name, v.missing))
		}
		if v.isURL && v.value != "" && !bke.IsHTTP(v.value) {
			problems = append(problems, v.name+" is not an http or https URL")
		}
	}
	if len(problems) > 0 {
		learning := ""
		if err != nil {
			learning = "; " + err.Error()
		}
		return values, notConfigured("spec.bootstrapMode BKE: %s; set it in the environment of the controller, or use mode "+
			"Custom with user data of your own%s",
			strings.Join(problems, "; "), learning)
	}
	return values, nil
}

// insecureJoin names the risk of a join endpoint without TLS. It is not rejected: BKE's own pools join so.
func insecureJoin(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return ""
	}
	return fmt.Sprintf("risk: servers join at http://%s, so that the cluster's token passes in the clear and nothing "+
		"proves who answers; set BKE_JOIN_ENDPOINT to an https URL where BKE has one, or keep the servers on a private "+
		"network that you trust",
		u.Host)
}

// setBKEMetadata sets the metadata that the worker image's script reads, and the notes. The BKE cluster is read by the
// controller of the catalog, not by each launch.
func (p *DefaultProvider) setBKEMetadata(ctx context.Context, input Input, output *Output) error {
	values, err := p.bkeValues(ctx)
	if err != nil {
		return err
	}
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return err
	}
	cluster := snapshot.Cluster
	if cluster == nil {
		return catalog.ErrClusterUnknown
	}
	output.Notes = lo.Compact([]string{values.Learned, insecureJoin(values.JoinEndpoint)})
	output.Metadata = map[string]string{
		"bizfly_cloud_service": "kubernetes_engine",
		"bke_cluster_id":       values.ClusterID,
		"bke_cluster_token":    values.Token,
		"bke_join_endpoint":    values.JoinEndpoint,
		"bke_node_everywhere":  "false",
		"bke_node_localdns":    strconv.FormatBool(cluster.LocalDNS),
		// An image that was chosen by id or name does not name its version; the script then gets the cluster's.
		"kubernetes_version": cmp.Or(input.KubernetesVersion, cluster.Version.K8SVersion),
	}
	if values.LogEndpoint != "" {
		output.Metadata["bke_log_endpoint"] = values.LogEndpoint
	}
	if len(input.NetworkIDs) > 0 {
		output.Metadata["bke_node_network_id"] = input.NetworkIDs[0]
	}
	return nil
}
