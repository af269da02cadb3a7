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
	"context"
	"errors"
	"fmt"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// defaultRootDiskGiB is the root disk of a NodeClass that says nothing, as in the API's defaults.
	defaultRootDiskGiB = 40
	bytesPerGiB        = 1 << 30
)

// order turns a request into the intent and the body of the order; nothing has been sent when it fails.
func (p *DefaultProvider) order(ctx context.Context, request *LaunchRequest) (*gobizfly.ServerCreateRequest, Intent, error) {
	intent := Intent{}
	nodeClass := request.NodeClass
	switch {
	case request.NodeClaimUID == "" || request.Attempt < 1 || request.Record == nil:
		return nil, intent, errors.New("a launch needs the claim's UID, an attempt from 1 and somebody who records it")
	case nodeClass == nil || nodeClass.Status.Image == nil:
		return nil, intent, errors.New("a launch needs a NodeClass whose image has been found")
	}
	disk, err := p.rootDisk(request)
	if err != nil {
		return nil, intent, err
	}
	intent = Intent{
		Attempt:     request.Attempt,
		Name:        Name(request.NodeClaim, request.NodeClaimUID, p.config.ClusterUID, request.Attempt),
		Flavor:      request.Flavor,
		Zone:        request.Zone,
		BillingPlan: request.BillingPlan,
		ImageID:     nodeClass.Status.Image.ID,
		OrderedAt:   p.config.Clock.Now(),
	}
	networks := lo.Map(nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID })
	script, err := p.bootstrap.Render(ctx, bootstrap.Input{
		NodeName:          intent.Name,
		NodeClass:         nodeClass,
		KubernetesVersion: nodeClass.Status.KubernetesVersion,
		NetworkIDs:        networks,
		Labels:            request.Labels,
		Taints:            request.Taints,
		CPU:               request.CPU,
		MemoryMiB:         request.MemoryMiB,
	})
	if err != nil {
		return nil, intent, fmt.Errorf("making user data for %s: %w", intent.Name, err)
	}
	metadata, err := p.metadata(request, script.Metadata)
	if err != nil {
		return nil, intent, err
	}
	return &gobizfly.ServerCreateRequest{
		Name:             intent.Name,
		FlavorName:       request.Flavor,
		SSHKey:           nodeClass.Status.SSHKey,
		Password:         false,
		RootDisk:         disk,
		Type:             request.Category,
		AvailabilityZone: request.Zone,
		OS:               &gobizfly.ServerOS{ID: nodeClass.Status.Image.ID, Type: "image"},
		Quantity:         1,
		Firewalls:        lo.Map(nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID }),
		NetworkPlan:      string(lo.CoalesceOrEmpty(nodeClass.Spec.NetworkPlan, v1alpha1.NetworkPlanFreeDataTransfer)),
		VPCNetworkIDs:    networks,
		BillingPlan:      request.BillingPlan,
		// The API's own default differs between its clients, so it is always said.
		IsCreatedWan: lo.ToPtr(lo.FromPtrOr(nodeClass.Spec.PublicIPv4, true)),
		UserData:     script.UserData,
		Metadata:     metadata,
	}, intent, nil
}

// rootDisk is the disk that the server boots from: its size in GiB and the volume type of its category and zone.
func (p *DefaultProvider) rootDisk(request *LaunchRequest) (*gobizfly.ServerDisk, error) {
	spec := lo.FromPtr(request.NodeClass.Spec.RootDisk)
	size := defaultRootDiskGiB
	if spec.Size != nil {
		size = int((spec.Size.Value() + bytesPerGiB - 1) / bytesPerGiB)
	}
	volumeType := spec.VolumeType
	if volumeType == "" {
		medium := lo.CoalesceOrEmpty(spec.Type, v1alpha1.DiskTypeSSD)
		var ok bool
		if volumeType, ok = p.zones.VolumeType(request.Zone, request.Category, medium); !ok {
			return nil, invalid("spec.rootDisk.type: zone %s sells no %s disk for %s servers; choose another type or set spec.rootDisk.volumeType",
				request.Zone, medium, request.Category)
		}
	}
	return &gobizfly.ServerDisk{Size: size, VolumeType: &volumeType}, nil
}
