// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// disks is the step that records on a NodeClaim, before its node registers, which disks and network interfaces were
// attached to its server. What was there before any pod could run is the server's own, and that record is what later
// allows a disk to be deleted. BizFly Cloud was seen to attach data disks some 20 seconds after the server ran: the
// record grows until it has as many as were requested.
type disks struct {
	kubeClient client.Client
	instances  Instances
}

// reconcile records the disks of a NodeClaim's server once the server runs.
func (d *disks) reconcile(ctx context.Context, s *subject) (time.Duration, error) {
	text, known := s.claim.Annotations[v1alpha1.AnnotationDelivered], len(launch.OwnedVolumes(s.claim))
	disksKnown := known > 0 && (s.registered || s.server != nil && known > s.server.DataDisks)
	if disksKnown && len(launch.OwnedInterfaces(s.claim)) > 0 {
		return 0, nil
	}
	// Once the node has registered, only the root disk can still be recorded, and the interfaces.
	again := lo.Ternary(s.registered, ttl.RunningServer, ttl.DisksInterval)
	if s.server == nil || s.server.Status != instance.StatusActive {
		// A server that is being built may not list all of its disks yet.
		return again, nil
	}
	owned := ownedVolumes(s.server, s.registered, known > 0)
	condition := slices.IndexFunc(s.claim.Status.Conditions,
		func(c status.Condition) bool { return c.Type == karpv1.ConditionTypeRegistered })
	if len(owned) == 0 || condition < 0 {
		return again, nil
	}
	var registered time.Time
	if s.registered {
		registered = s.claim.Status.Conditions[condition].LastTransitionTime.Time
	}
	record := launch.EncodeDelivered(s.claim, s.server, owned, d.ports(ctx, known > 0 || s.registered), registered)
	if record == text {
		return again, nil
	}
	// What is tested is what makes "before registration" true: a NodeClaim that has registered since the list was read
	// is rejected.
	at := "/status/conditions/" + strconv.Itoa(condition)
	adds := map[string]any{controllers.Pointer("metadata", "annotations", v1alpha1.AnnotationDelivered): record}
	if s.claim.Annotations == nil {
		adds = map[string]any{"/metadata/annotations": map[string]string{v1alpha1.AnnotationDelivered: record}}
	}
	// In a burst a cache lags by many seconds, and retries of hundreds of NodeClaims each second would use up the
	// requests that core needs.
	result, err := controllers.AfterGuarded(d.kubeClient.Patch(ctx, s.claim, controllers.Guard(map[string]any{
		at + "/type": karpv1.ConditionTypeRegistered, at + "/status": s.claim.Status.Conditions[condition].Status,
	}, adds)), again)
	return result.RequeueAfter, err
}

// ports are the interfaces of the project's servers. The record of the disks does not wait for them, because without it
// no data disk is ever deleted. Where they could not be read in time, they are recorded from the list by which
// firewalls are compared, so that a fleet that lacks them sends no requests of its own. Until then, firewalls stay.
func (d *disks) ports(ctx context.Context, late bool) instance.Ports {
	if late {
		return d.instances.LastPorts(ttl.ListedServers)
	}
	ports, err := d.instances.Ports(ctx, 0)
	if err != nil {
		log.FromContext(ctx).Error(err, "recording the addresses and networks of servers")
	}
	return ports
}

// ownedVolumes returns the disks that are the server's own. Pods may run once the node has registered, and have volumes
// attached, so then only the disk that the server boots from is certain; and a name of the CSI driver's is never ours.
// What comes after the first record may be a user's: it is the server's own if it is called so. Nothing is returned
// until the root disk is listed: a list without it is not complete.
func ownedVolumes(server *instance.Instance, registered, recorded bool) []instance.Volume {
	if !lo.ContainsBy(server.Volumes, func(v instance.Volume) bool { return v.Root }) {
		return nil
	}
	return lo.Filter(server.Volumes, func(v instance.Volume, _ int) bool {
		return v.Root || !registered && !strings.HasPrefix(v.Name, instance.CSIVolumePrefix) && (!recorded || server.Names(v))
	})
}
