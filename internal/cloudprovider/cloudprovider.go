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

// Package cloudprovider translates between Karpenter core and this cloud's providers: it chooses the offering of a
// launch, remembers what was ordered, and says what has drifted.
package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/journal"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/zone"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Name is the name of the provider in core's metrics.
const Name = "bizflycloud"

// nodeClassKind is the one kind of NodeClass that is ours.
const nodeClassKind = "BizflyNodeClass"

// Defaults of Config.
const (
	// DefaultUnavailableTTL is how long a sold-out offering is not tried: long enough that launches do not circle,
	// short enough that new capacity is used soon.
	DefaultUnavailableTTL = 3 * time.Minute
	// DefaultAccountPause is how long all launches rest after the cloud refused for the whole account.
	DefaultAccountPause = time.Minute
)

var _ cloudprovider.CloudProvider = (*CloudProvider)(nil)

// InstanceTypeOverlay applies NodeOverlays to instance types; core's nodeoverlay.InstanceTypeStore is one.
type InstanceTypeOverlay interface {
	// ApplyAll returns the instance types as the overlays of the NodePool make them; it edits none of those given.
	ApplyAll(nodePoolName string, instanceTypes []*cloudprovider.InstanceType) ([]*cloudprovider.InstanceType, error)
}

// Config is what a CloudProvider is made of.
type Config struct {
	// KubeClient is the manager's client: reads come from its cache.
	KubeClient client.Client
	// APIReader reads from the API server itself: what decides whether a server is ordered must not be stale.
	APIReader client.Reader
	// Recorder publishes events.
	Recorder karpevents.Recorder
	// Clock is the time.
	Clock clock.Clock
	// Instances are the servers.
	Instances instance.Provider
	// Flavors makes instance types.
	Flavors flavor.Provider
	// Zones knows the region's label.
	Zones zone.Provider
	// Capacity keeps the marks of sold-out offerings.
	Capacity capacity.Provider
	// Overlay is core's store of NodeOverlays when that feature gate is on, and nil when it is off.
	Overlay InstanceTypeOverlay
	// BestEffortMinValues is true when core's MIN_VALUES_POLICY is BestEffort.
	BestEffortMinValues bool
	// UnavailableTTL is how long a sold-out offering is not tried; 0 means DefaultUnavailableTTL.
	UnavailableTTL time.Duration
	// AccountPause is how long all launches rest after a refusal for the whole account; 0 means DefaultAccountPause.
	AccountPause time.Duration
	// MaxNodes returns how many nodes the cluster may have, 0 without a limit; nil enforces none.
	MaxNodes func() int
	// LaunchRecords remembers by claim UID what was ordered, for an hour; nil makes one.
	LaunchRecords *cache.Cache
	// LaunchFailures counts by NodeClass the failed launches that are not for want of capacity; nil makes one.
	LaunchFailures *cache.Cache
	// PausedTypes keeps, by NodeClass UID, the instance types of NodeClasses whose launches pause; nil makes one.
	PausedTypes *cache.Cache
	// NodePoolChecks remembers by NodePool UID for what input its requirements were last checked; nil makes one.
	NodePoolChecks *cache.Cache
	// Removals remembers by claim UID why a claim was deleted, for an hour; nil makes one.
	Removals *cache.Cache
	// Journal gets a line for each launch and each removal; nil writes it to the log.
	Journal *journal.Journal
	// Placements remembers by claim UID the zones of launches under way, for a minute; nil makes one.
	Placements *cache.Cache
}

// CloudProvider is the BizflyCloudProvider: core's nine methods over this cloud's providers.
type CloudProvider struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
	instances  instance.Provider
	flavors    flavor.Provider
	zones      zone.Provider
	capacity   capacity.Provider
	overlay    InstanceTypeOverlay
	bestEffort bool
	records    *launchRecords
	failures   *launchFailures
	paused     *pausedTypes
	poolChecks *cache.Cache
	placements *placements
	removals   *cache.Cache
	journal    *journal.Journal
	maxNodes   func() int
	// pauses may be changed while launches are under way; each uses those that are in force when it fails.
	pauses atomic.Pointer[Pauses]
	// listed is the last answer of the cloud to List, which drift looks at without asking the cloud.
	listed atomic.Pointer[listing]
}

// New makes a CloudProvider.
func New(config Config) *CloudProvider {
	orNew := func(c *cache.Cache, ttl time.Duration) *cache.Cache {
		if c != nil {
			return c
		}
		return cache.New(ttl, time.Minute)
	}
	c := &CloudProvider{
		kubeClient: config.KubeClient,
		recorder:   config.Recorder,
		clock:      config.Clock,
		instances:  config.Instances,
		flavors:    config.Flavors,
		zones:      config.Zones,
		capacity:   config.Capacity,
		overlay:    config.Overlay,
		bestEffort: config.BestEffortMinValues,
		records: &launchRecords{
			kubeClient: config.KubeClient,
			apiReader:  config.APIReader,
			memory:     orNew(config.LaunchRecords, time.Hour),
		},
		failures:   &launchFailures{clock: config.Clock, cache: orNew(config.LaunchFailures, failureWindow)},
		paused:     &pausedTypes{cache: orNew(config.PausedTypes, failureWindow)},
		poolChecks: orNew(config.NodePoolChecks, 10*time.Minute),
		maxNodes:   config.MaxNodes,
		placements: &placements{underWay: orNew(config.Placements, placementMemory)},
		removals:   orNew(config.Removals, time.Hour),
		journal:    lo.CoalesceOrEmpty(config.Journal, journal.New(log.Log)),
	}
	c.SetPauses(Pauses{UnavailableTTL: config.UnavailableTTL, Account: config.AccountPause})
	return c
}

// Pauses are how long what failed is left alone.
type Pauses struct {
	// UnavailableTTL is how long a sold-out offering is not tried; 0 means DefaultUnavailableTTL.
	UnavailableTTL time.Duration
	// Account is how long all launches rest after a refusal for the whole account; 0 means DefaultAccountPause.
	Account time.Duration
}

// SetPauses changes the pauses of failures from now on. Marks that are there keep the time that they were made with.
func (c *CloudProvider) SetPauses(pauses Pauses) {
	pauses.UnavailableTTL = lo.CoalesceOrEmpty(pauses.UnavailableTTL, DefaultUnavailableTTL)
	pauses.Account = lo.CoalesceOrEmpty(pauses.Account, DefaultAccountPause)
	c.pauses.Store(&pauses)
}

// Pauses returns the pauses in force.
func (c *CloudProvider) Pauses() Pauses { return *c.pauses.Load() }

// Name returns the provider's name.
func (c *CloudProvider) Name() string { return Name }

// GetSupportedNodeClasses returns fresh objects, because core reads NodeClasses into them.
func (c *CloudProvider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.BizflyNodeClass{}}
}

// RepairPolicies returns what core repairs a node for when its NodeRepair gate is on. A kubelet that is silent is
// usually a server that is gone or stuck; one that says NotReady may still recover by itself. The last two conditions are
// node-problem-detector's, which never takes them back, so there is nothing to wait for: a hung kernel runs again after a
// reboot, a file system that was mounted read-only does not.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, TolerationDuration: 10 * time.Minute, Action: cloudprovider.ReplaceNode},
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, ReasonRegex: ".*", TolerationDuration: 15 * time.Minute, Action: cloudprovider.ReplaceNode},
		{ConditionType: "KernelDeadlock", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*", TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(time.Minute), Action: cloudprovider.RebootNode},
		{ConditionType: "ReadonlyFilesystem", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*", TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(5 * time.Minute), Action: cloudprovider.ReplaceNode},
	}
}

// Reboot restarts the server of a NodeClaim in place.
func (c *CloudProvider) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

// Get returns the claim of a server. Only the cloud's own word makes it not found.
func (c *CloudProvider) Get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	id, ok := providerid.Parse(providerID)
	if !ok {
		return nil, foreign(providerID)
	}
	server, err := c.instances.Get(ctx, id)
	if errors.Is(err, instance.ErrNotFound) {
		return nil, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("getting server %s: %w", id, err))
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", id, err)
	}
	return c.describe(server), nil
}

// List returns a claim for each server of this cluster. It is whole or an error.
func (c *CloudProvider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	servers, err := c.instances.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	c.listed.Store(&listing{
		at:      c.clock.Now(),
		servers: lo.KeyBy(servers, func(s *instance.Instance) string { return s.ID }),

		interfaces: c.lookAtInterfaces(ctx),
	})
	return lo.Map(servers, func(s *instance.Instance, _ int) *karpv1.NodeClaim { return c.describe(s) }), nil
}

// Delete deletes the claim's server with the disks that are recorded as its own. It needs no NodeClass: everything that
// it must know is on the claim and on the server.
func (c *CloudProvider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok {
		return foreign(claim.Status.ProviderID)
	}
	err := c.instances.Delete(ctx, instance.DeleteRequest{
		ID:                id,
		Name:              serverName(claim),
		RecordedVolumes:   OwnedVolumes(claim),
		RecordedAddresses: OwnedAddresses(claim),
		Reason:            removalReason(claim),
		Description:       describeClaim(claim),
	})
	if errors.Is(err, instance.ErrNotOurs) {
		// Its node goes, and nobody would look for it again: it is paid for until a person deletes it.
		log.FromContext(ctx).Info("left the server of a deleted claim alone, because its metadata does not prove it to be this cluster's", "server", id)
		c.recorder.Publish(events.ServerLeft(claim, id))
	}
	if errors.Is(err, instance.ErrNotFound) {
		return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("deleting server %s: %w", id, err))
	}
	if err != nil {
		return fmt.Errorf("deleting server %s: %w", id, err)
	}
	return nil
}

// GetInstanceTypes returns every flavor that the NodePool's NodeClass can use, sold out or not. It also answers for a
// NodeClass that is not ready at the moment, as long as its zones were resolved once: running nodes still need a price,
// and core launches nothing for a NodePool whose NodeClass is not ready.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	if pool == nil {
		return nil, errors.New("instance types belong to a NodePool, and none was given")
	}
	nodeClass, err := c.nodeClass(ctx, pool.Spec.Template.Spec.NodeClassRef)
	if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass of NodePool %q: %w", pool.Name, err)
	}
	if len(nodeClass.Status.Zones) == 0 {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("BizflyNodeClass %q has no zones resolved yet", nodeClass.Name))
	}
	instanceTypes, err := c.flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, fmt.Errorf("listing instance types for BizflyNodeClass %q: %w", nodeClass.Name, err)
	}
	c.checkNodePool(pool, instanceTypes)
	if _, full := c.networkFull(nodeClass); full || c.failures.pausing(nodeClass) {
		return c.paused.of(nodeClass.UID, instanceTypes), nil
	}
	return instanceTypes, nil
}

// nodeClass reads a NodeClass from the cache. The errors of a reference that can never be resolved are not-found ones.
func (c *CloudProvider) nodeClass(ctx context.Context, ref *karpv1.NodeClassReference) (*v1alpha1.BizflyNodeClass, error) {
	if !isOurs(ref) {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("bizflynodeclasses").GroupResource(), refString(ref))
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: ref.Name}, nodeClass); err != nil {
		return nil, err
	}
	return nodeClass, nil
}

// IsManaged says whether the claim's NodeClass is of our kind.
func IsManaged(claim *karpv1.NodeClaim) bool { return isOurs(claim.Spec.NodeClassRef) }

func isOurs(ref *karpv1.NodeClassReference) bool {
	return ref != nil && ref.Group == v1alpha1.Group && ref.Kind == nodeClassKind
}

func refString(ref *karpv1.NodeClassReference) string {
	if ref == nil {
		return "(no nodeClassRef)"
	}
	return strings.Join([]string{ref.Group, ref.Kind, ref.Name}, "/")
}

func foreign(providerID string) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("provider id %q is not of the form %s<server id>", providerID, providerid.Prefix))
}
