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
	"strings"
	"sync"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// flavorNames remembers by which name the cloud accepts each flavor: servers of old generations are also known by a short
// one, without the category, and it is not documented which of both a create request needs.
type flavorNames struct {
	mu    sync.Mutex
	known map[string]flavorName
}

// flavorName is what is known of one flavor's names.
type flavorName struct {
	// short is true when requests use the short name, final when the other name is not tried any more.
	short, final bool
}

// of returns the name to request the flavor by.
func (n *flavorNames) of(flavor string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return lo.Ternary(n.known[flavor].short, shortName(flavor), flavor)
}

// accepted remembers that the name in use works.
func (n *flavorNames) accepted(flavor string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, exists := n.known[flavor]; exists {
		known.final = true
		n.known[flavor] = known
	}
}

// rejected reports whether the flavor is worth another request because its other name was never tried. A flavor that is
// known by neither name keeps the one of the catalog.
func (n *flavorNames) rejected(flavor, name string, err error) bool {
	if !bizfly.NamesFlavor(err) || shortName(flavor) == flavor {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known, tried := n.known[flavor]
	switch {
	case known.final:
		return false
	case !tried:
		n.known[flavor] = flavorName{short: true}
		return true
	case name == flavor:
		return true // a request at the same time has changed to the other name
	}
	n.known[flavor] = flavorName{final: true}
	return false
}

// shortName is the name of a flavor of an old generation without its category.
func shortName(flavor string) string {
	short := strings.TrimPrefix(flavor, "nix.")
	for _, category := range []string{"_basic", "_enterprise", "_dedicated"} {
		short = strings.TrimSuffix(short, category)
	}
	return short
}

// createRequest returns the body of the create request and its intent; nothing has been sent when it fails.
func (l *launcher) createRequest(ctx context.Context, request *LaunchRequest) (*gobizfly.ServerCreateRequest, Intent, error) {
	intent := Intent{}
	nodeClass := request.NodeClass
	switch {
	case request.NodeClaimUID == "" || request.Attempt < 1 || request.Record == nil:
		return nil, intent, errors.New("a launch needs the NodeClaim's UID, an attempt from 1 and a way to record the intent")
	case nodeClass == nil || nodeClass.Status.Image() == nil:
		return nil, intent, errors.New("a launch needs a NodeClass whose image has been found")
	}
	disks, err := l.disks(request)
	if err != nil {
		// The zone lacks a volume type: nothing is worth trying again, except another offering.
		return nil, intent, &bizfly.APIError{Operation: "CreateServer", Class: bizfly.ClassInvalid, NotSent: true, Message: err.Error(), Err: err}
	}
	image := nodeClass.Status.Image()
	networks := lo.Map(nodeClass.Status.Networks, func(n v1alpha1.NetworkStatus, _ int) string { return n.ID })
	firewalls := lo.Map(nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID })
	intent = Intent{
		Attempt:     request.Attempt,
		Name:        Name(request.NodeClaim, request.NodeClaimUID, l.uid, request.Attempt),
		Flavor:      request.Flavor,
		Zone:        request.Zone,
		BillingPlan: request.BillingPlan,
		ImageID:     image.ID,
		Disks:       disks,
		Networks:    networks,
		Firewalls:   firewalls,
		RequestedAt: l.clock.Now(),
	}
	script, err := l.bootstrap.Render(ctx, bootstrap.Input{
		NodeName:          intent.Name,
		NodeClaim:         request.NodeClaim,
		NodeClaimUID:      request.NodeClaimUID,
		Attempt:           request.Attempt,
		NodeClass:         nodeClass,
		KubernetesVersion: nodeClass.Status.KubernetesVersion,
		NetworkIDs:        networks,
		Labels:            request.Labels,
		Taints:            request.Taints,
		CPU:               request.CPU,
		MemoryMiB:         request.MemoryMiB,
	})
	if err != nil {
		return nil, intent, fmt.Errorf("generating user data for %s: %w", intent.Name, err)
	}
	metadata, err := l.metadata(request, script)
	if err != nil {
		return nil, intent, err
	}
	wire := lo.Map(disks, func(disk Disk, _ int) *gobizfly.ServerDisk {
		return &gobizfly.ServerDisk{Size: disk.SizeGiB, VolumeType: &disk.VolumeType}
	})
	return &gobizfly.ServerCreateRequest{
		Name:             intent.Name,
		FlavorName:       l.names.of(request.Flavor),
		SSHKey:           nodeClass.Status.SSHKeyName,
		Password:         false,
		RootDisk:         wire[0],
		DataDisks:        wire[1:],
		Type:             request.Category,
		AvailabilityZone: request.Zone,
		OS:               &gobizfly.ServerOS{ID: image.ID, Type: string(lo.CoalesceOrEmpty(image.Type, v1alpha1.ImageTypeImage))},
		Quantity:         1,
		Firewalls:        firewalls,
		NetworkPlan:      bizfly.PlanWord(nodeClass.EffectiveNetworkPlan()),
		VPCNetworkIDs:    networks,
		// The requested disks have no plan of their own and get the server's.
		BillingPlan: request.BillingPlan,
		IPv6:        lo.FromPtr(nodeClass.Spec.IPv6),
		// The API's own default differs between its clients, so it is always sent.
		IsCreatedWan: lo.ToPtr(lo.FromPtrOr(nodeClass.Spec.PublicIPv4, true)),
		UserData:     script.UserData,
		Metadata:     metadata,
	}, intent, nil
}
