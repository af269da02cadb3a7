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

package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
)

const (
	shebang = "#!/bin/bash\n"

	// bkeScript is baked into BKE's worker images; it joins the cluster that the server's metadata names.
	bkeScript = "/opt/bizfly-kubernetes-engine/bootstrap.sh\n"
)

// Metadata that the worker image's script reads.
const (
	metadataService           = "bizfly_cloud_service"
	metadataClusterID         = "bke_cluster_id"
	metadataClusterToken      = "bke_cluster_token" //nolint:gosec // the name of a key, not a credential
	metadataJoinEndpoint      = "bke_join_endpoint"
	metadataLogEndpoint       = "bke_log_endpoint"
	metadataKubernetesVersion = "kubernetes_version"
	metadataNodeEverywhere    = "bke_node_everywhere"
	metadataNodeLocalDNS      = "bke_node_localdns"
	metadataNodeNetworkID     = "bke_node_network_id"

	serviceKubernetesEngine = "kubernetes_engine"
)

// renderBKE returns the script that starts the worker image's own, and the metadata that this one reads.
func (p *DefaultProvider) renderBKE(ctx context.Context, input Input) (*source, map[string]string, error) {
	values, err := p.bkeValues(ctx)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := p.catalog.Snapshot()
	if err != nil {
		return nil, nil, fmt.Errorf("rendering user data, %w", err)
	}
	if snapshot.Cluster == nil {
		return nil, nil, &ValidationError{Reason: ReasonNotConfigured, Message: "spec.bootstrapMode BKE: the cloud knows no cluster with the id " +
			"of BKE_CLUSTER_ID in this project and region; check them, or use mode Custom with user data of your own"}
	}
	metadata := map[string]string{
		metadataService:        serviceKubernetesEngine,
		metadataClusterID:      values.ClusterID,
		metadataClusterToken:   values.Token,
		metadataJoinEndpoint:   values.JoinEndpoint,
		metadataNodeEverywhere: strconv.FormatBool(false),
		metadataNodeLocalDNS:   strconv.FormatBool(snapshot.Cluster.LocalDNS),
		// An image that was chosen by id or name does not say its version; the script then gets the cluster's.
		metadataKubernetesVersion: cmp.Or(input.KubernetesVersion, snapshot.Cluster.Version.K8SVersion),
	}
	if values.LogEndpoint != "" {
		metadata[metadataLogEndpoint] = values.LogEndpoint
	}
	if len(input.NetworkIDs) > 0 {
		metadata[metadataNodeNetworkID] = input.NetworkIDs[0]
	}
	arguments, err := p.kubeletArgumentsScript(input)
	if err != nil {
		return nil, nil, err
	}
	return &source{field: "BKE's own script", text: shebang + arguments + bkeScript}, metadata, nil
}

// kubeletArgumentsScript writes the file from which the kubelet takes additional arguments, before BKE's script starts
// it. Without it the node registers untainted and pods may land before core has put its labels and taints on the node.
func (p *DefaultProvider) kubeletArgumentsScript(input Input) (string, error) {
	if p.config.BKEKubeletArgsFile == "" {
		return "", nil
	}
	registration, err := newRegistration(input)
	if err != nil {
		return "", err
	}
	line := fmt.Sprintf("KUBELET_EXTRA_ARGS=--register-with-taints=%s --node-labels=%s", registration.taintsFlag(), registration.labelsFlag())
	return fmt.Sprintf("mkdir -p %s\nprintf '%%s\\n' %s > %s\n",
		shellQuote(path.Dir(p.config.BKEKubeletArgsFile)), shellQuote(line), shellQuote(p.config.BKEKubeletArgsFile)), nil
}

// shellQuote makes one word of any text: nothing is special between single quotes but the quote itself.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
