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

package instance

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxMetadataValue is how long a metadata value may be, in bytes, so that it fits whatever the compute service counts.
const maxMetadataValue = 255

// metadata makes a server's metadata: the user's, then what the bootstrap script reads, then our own, so that a user
// can break neither the join nor our identity, even where the API server's validation was bypassed.
func (p *DefaultProvider) metadata(request *LaunchRequest, script *bootstrap.Output) (map[string]string, error) {
	result := lo.MapValues(lo.PickBy(request.NodeClass.Spec.Tags, func(key, _ string) bool {
		return !lo.SomeBy(v1alpha1.ReservedMetadataPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	}), func(value, _ string) string { return bounded(value) })
	for key, value := range script.Metadata {
		// A shortened token or endpoint would boot a paid server that never joins. The value may be a secret.
		if length := len(value); length > maxMetadataValue {
			return nil, invalid("the bootstrap value %s is %d bytes long and server metadata holds %d", key, length, maxMetadataValue)
		}
		result[key] = value
	}
	maps.Copy(result, lo.MapValues(lo.OmitByValues(map[string]string{
		v1alpha1.MetadataManaged:      "true",
		v1alpha1.MetadataClusterName:  p.config.ClusterName,
		v1alpha1.MetadataClusterUID:   p.config.ClusterUID,
		v1alpha1.MetadataName:         Name(request.NodeClaim, request.NodeClaimUID, p.config.ClusterUID, request.Attempt),
		v1alpha1.MetadataNodeClaim:    request.NodeClaim,
		v1alpha1.MetadataNodeClaimUID: request.NodeClaimUID,
		v1alpha1.MetadataAttempt:      strconv.Itoa(request.Attempt),
		v1alpha1.MetadataNodePool:     request.NodePool,
		v1alpha1.MetadataNodeClass:    request.NodeClass.Name,
		v1alpha1.MetadataImage:        request.NodeClass.Status.Image().ID,
		// Not that of the NodeClass's status: templates are read anew for each launch, and a server that has the present ones
		// must not be replaced over those of a minute ago.
		v1alpha1.MetadataUserDataHash: script.UserDataHash,
		v1alpha1.MetadataDataDisks:    strconv.Itoa(len(request.NodeClass.Spec.DataDisks)),
	}, []string{""}), func(value, _ string) string { return bounded(value) }))
	return result, nil
}

// bounded cuts a value to what fits, between two characters.
func bounded(value string) string {
	if len(value) <= maxMetadataValue {
		return value
	}
	cut := maxMetadataValue
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut]
}

// ours says whether the server is this cluster's. Names prove nothing: two clusters may have the same.
func (p *DefaultProvider) ours(server *gobizfly.Server) bool {
	return p.config.ClusterUID != "" && v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataClusterUID) == p.config.ClusterUID
}

// builtFor says whether the server is the one that this very order made.
func (p *DefaultProvider) builtFor(server *gobizfly.Server, nodeClaimUID string, intent Intent) bool {
	return p.ours(server) &&
		v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataNodeClaimUID) == nodeClaimUID &&
		v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataAttempt) == strconv.Itoa(intent.Attempt) &&
		server.Name == intent.Name
}

// tags are the metadata without what lets somebody join the cluster.
func tags(metadata map[string]string) map[string]string {
	return lo.OmitBy(metadata, func(key, _ string) bool {
		key = strings.ToLower(key)
		return strings.Contains(key, "token") || strings.Contains(key, "secret") || strings.Contains(key, "password")
	})
}

// invalid is a request that we know to be wrong without asking the cloud.
func invalid(format string, args ...any) error {
	return &bizfly.APIError{Operation: "CreateServer", Class: bizfly.ClassInvalid, NotSent: true, Message: fmt.Sprintf(format, args...)}
}
