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
	"strconv"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// attachedTypeRoot is what the cloud calls the disk that a server boots from.
const attachedTypeRoot = "rootdisk"

// createdFormats are the forms in which the API has been seen to write times; those without a zone are UTC.
var createdFormats = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"}

// convert makes an Instance of a server that is ours.
func convert(server *gobizfly.Server) *Instance {
	attempt, err := strconv.Atoi(v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataAttempt))
	if err != nil {
		attempt = 0
	}
	dataDisks, _ := dataDisksOf(server)
	return &Instance{
		ID:           server.ID,
		Name:         server.Name,
		Status:       server.Status,
		Flavor:       lo.CoalesceOrEmpty(server.Flavor.Name, server.FlavorName),
		Zone:         lo.CoalesceOrEmpty(server.AvailabilityZone, server.ZoneName),
		BillingPlan:  lo.CoalesceOrEmpty(server.BillingPlan, server.Metadata["billing_plan"]),
		NetworkPlan:  lo.CoalesceOrEmpty(server.NetworkPlan, server.Metadata["network_plan"]),
		ImageID:      v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataImage),
		UserDataHash: v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataUserDataHash),
		DataDisks:    dataDisks,
		ClusterUID:   v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataClusterUID),
		NodeClaim:    v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataNodeClaim),
		NodeClaimUID: v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataNodeClaimUID),
		NodePool:     v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataNodePool),
		NodeClass:    v1alpha1.ServerMetadata(server.Metadata, v1alpha1.MetadataNodeClass),
		Attempt:      attempt,
		CreatedAt:    created(server),
		UpdatedAt:    server.UpdatedAt,
		Volumes: lo.Map(server.AttachedVolumes, func(volume gobizfly.AttachedVolume, _ int) Volume {
			return Volume{
				ID: volume.ID, Name: volume.Name, SizeGiB: volume.Size, Medium: MediumOf(volume.Type), Root: volume.AttachedType == attachedTypeRoot,
			}
		}),
		Tags: tags(server.Metadata),
	}
}

// created is when the cloud made the server; zero when it does not say or writes something unknown.
func created(server *gobizfly.Server) time.Time {
	for _, format := range createdFormats {
		if at, err := time.Parse(format, server.CreatedAt); err == nil {
			return at
		}
	}
	return time.Time{}
}

// gone says that the server is only still listed.
func gone(server *gobizfly.Server) bool {
	return server.Status == StatusDeleted || server.Status == StatusSoftDeleted
}

// leaving says that the server is gone or on its way out.
func leaving(server *gobizfly.Server) bool { return gone(server) || server.Status == StatusDeleting }
