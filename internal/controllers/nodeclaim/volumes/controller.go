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

// Package volumes records on a NodeClaim, before its node registers, which disks and network interfaces were attached to its
// server. What was there before any pod could run is the server's own, and that record is what later allows a disk to be
// deleted and an address to be released.
package volumes

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// concurrency is enough for hundreds of launches, which share one list of the servers.
	concurrency = 10
	// claimVolumePrefix begins the names of volumes that the CSI driver creates for PersistentVolumeClaims.
	claimVolumePrefix = "pvc-"
)

// Controller records disks.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, instances instance.Provider) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.volumes" }

// Reconcile records the disks of a NodeClaim's server once the server runs.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if _, recorded := claim.Annotations[v1alpha1.AnnotationOwnedVolumes]; recorded || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok {
		return reconcile.Result{}, nil
	}
	registered := controllers.IsTrue(claim, karpv1.ConditionTypeRegistered)
	again := reconcile.Result{RequeueAfter: lo.Ternary(registered, ttl.VolumesLateInterval, ttl.VolumesInterval)}
	// A list that is older than the NodeClaim's own state can lack disks, and then it is read again; it cannot have others.
	servers, err := c.instances.Snapshot(ctx, again.RequeueAfter)
	if err != nil {
		return reconcile.Result{}, err
	}
	server := servers.Get(id)
	if server == nil || server.Status != instance.StatusActive {
		// A server that is being built may not list all of its disks yet.
		return again, nil
	}
	owned := ownedVolumes(server, registered)
	if len(owned) == 0 {
		return again, nil
	}
	annotations := map[string]string{v1alpha1.AnnotationOwnedVolumes: strings.Join(owned, ",")}
	if !registered {
		// The addresses that the server was launched with: later a user may attach another.
		ports := c.ports(ctx)
		if addresses := instance.AddressesOf(ports, id); len(addresses) > 0 {
			annotations[v1alpha1.AnnotationOwnedAddresses] = strings.Join(addresses, ",")
		}
		annotations[v1alpha1.AnnotationDelivered] = cloudprovider.Delivered(server, ports)
	}
	condition := slices.IndexFunc(claim.Status.Conditions, func(c status.Condition) bool { return c.Type == karpv1.ConditionTypeRegistered })
	if condition < 0 {
		return again, nil
	}
	// What is tested is what makes "before registration" true: a NodeClaim that has registered since the list was read is rejected.
	at := "/status/conditions/" + strconv.Itoa(condition)
	adds := lo.MapEntries(annotations, func(key, value string) (string, any) {
		return controllers.Pointer("metadata", "annotations", key), value
	})
	if claim.Annotations == nil {
		adds = map[string]any{"/metadata/annotations": annotations}
	}
	// In a burst a cache lags by many seconds, and retries of hundreds of NodeClaims each second would use up the requests that core needs.
	return controllers.Guarded(c.kubeClient.Patch(ctx, claim, controllers.Guard(map[string]any{
		at + "/type": karpv1.ConditionTypeRegistered, at + "/status": claim.Status.Conditions[condition].Status,
	}, adds)), again.RequeueAfter)
}

// ports are the interfaces of the project's servers. The record of the disks does not wait for them, because without it no disk
// is ever deleted, and what the cloud has named after the server is found without a record; without them, networks are compared
// as they are.
func (c *Controller) ports(ctx context.Context) []instance.Port {
	ports, err := c.instances.Ports(ctx, 0)
	if err != nil {
		log.FromContext(ctx).Error(err, "recording the addresses and networks of servers")
	}
	return ports
}

// ownedVolumes returns the ids of the disks that are the server's own. Pods may run once the node has registered, and
// have volumes attached, so then only the disk that the server boots from is certain; and a name of the CSI driver's is
// never ours. Nothing is returned until the root disk is listed, since the record is written once.
func ownedVolumes(server *instance.Instance, registered bool) []string {
	if !lo.ContainsBy(server.Volumes, func(v instance.Volume) bool { return v.Root }) {
		return nil
	}
	owned := lo.FilterMap(server.Volumes, func(v instance.Volume, _ int) (string, bool) {
		return v.ID, v.Root || (!registered && !strings.HasPrefix(v.Name, claimVolumePrefix))
	})
	slices.Sort(owned)
	return owned
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllers.NodeClaims(m, c.Name(), concurrency, func(claim *karpv1.NodeClaim) string {
		return claim.Annotations[v1alpha1.AnnotationOwnedVolumes]
	}).Complete(reconcile.AsReconciler(m.GetClient(), c))
}
