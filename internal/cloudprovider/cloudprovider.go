// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudprovider translates between Karpenter core and this cloud's providers: it selects the offering of a
// launch, records the launch, learns from its outcome, and detects drift.
package cloudprovider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/patrickmn/go-cache"
	"github.com/samber/lo"
	"github.com/samber/lo/mutable"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/flavor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// Name is the name of the provider in core's metrics.
const Name = "bizflycloud"

// NodeClassLabel is the label of this provider's nodes whose value is their NodeClass.
var NodeClassLabel = karpv1.NodeClassLabelKey(v1alpha1.GroupVersion.WithKind(v1alpha1.NodeClassKind).GroupKind())

var _ cloudprovider.CloudProvider = (*CloudProvider)(nil)

// InstanceTypeOverlay applies NodeOverlays to instance types; core's nodeoverlay.InstanceTypeStore is one.
type InstanceTypeOverlay interface {
	// ApplyAll returns the instance types as the overlays of the NodePool change them; it changes none of those given.
	ApplyAll(nodePoolName string, instanceTypes []*cloudprovider.InstanceType) ([]*cloudprovider.InstanceType, error)
}

// Instances are the servers of this cluster.
type Instances interface {
	launch.Servers
	// Get returns a server, from a list of a few seconds ago where it is in one; ErrNotFound when it provably does not
	// exist or is not ours.
	Get(ctx context.Context, id string) (*instance.Instance, error)
	// Delete deletes a server with the disks that are its own. It is idempotent, and returns ErrNotFound once the
	// server is provably gone.
	Delete(ctx context.Context, request instance.DeleteRequest) error
	// Reboot resets a server, once for each operationID.
	Reboot(ctx context.Context, id, operationID string) error
	// Ports returns the network interfaces of the project from a list that is at most this old: read only.
	Ports(ctx context.Context, maxAge time.Duration) (*instance.Ports, error)
	// Last returns the last lists of servers and interfaces without a request, each nil where there is none of this
	// age: read only.
	Last(maxAge time.Duration) (*instance.Snapshot, *instance.Ports)
}

// Config has the dependencies of a CloudProvider.
type Config struct {
	// KubeClient is the manager's client: reads come from its cache.
	KubeClient client.Client
	// APIReader reads from the API server itself: what decides whether a server is launched must not be stale.
	APIReader client.Reader
	Recorder  karpevents.Recorder
	Clock     clock.Clock
	Instances Instances
	Flavors   *flavor.DefaultProvider
	Catalog   catalog.Provider
	Capacity  *capacity.DefaultProvider
	// Overlay is core's store of NodeOverlays when that feature gate is on, and nil when it is off.
	Overlay  InstanceTypeOverlay
	Settings *options.Store
	// NewCache returns a cache whose entries live for a while.
	NewCache func(lifetime time.Duration) *cache.Cache
	// Recognized returns a config.ControlPlaneChangedError where this cluster may be a clone of the one whose servers
	// it sees. Nil asks nothing.
	Recognized func(ctx context.Context) error
}

// CloudProvider is the BizflyCloudProvider: core's methods over this cloud's providers.
type CloudProvider struct {
	config Config
	clone  cloneCheck
	// denied are the NodeClaims, by UID, whose servers were lately not found while their kubelets report.
	denied *cache.Cache
	// Launches are the launches of its NodeClaims, which are followed until their nodes register.
	Launches *launch.Launcher
}

// New returns a CloudProvider.
func New(c Config) *CloudProvider {
	return &CloudProvider{config: c, denied: c.NewCache(ttl.GoneServer), Launches: launch.New(launch.Config{
		KubeClient: c.KubeClient, APIReader: c.APIReader, Recorder: c.Recorder, Clock: c.Clock,
		Servers: c.Instances, Flavors: c.Flavors, Catalog: c.Catalog, Capacity: c.Capacity, Settings: c.Settings,
		NewCache: c.NewCache,
	})}
}

// Name returns the provider's name.
func (c *CloudProvider) Name() string { return Name }

// GetSupportedNodeClasses returns fresh objects, because core reads NodeClasses into them.
func (c *CloudProvider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.BizflyNodeClass{}}
}

// Get returns the NodeClaim of a server. Only BizFly Cloud's own answer makes it not found.
func (c *CloudProvider) Get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	id, ok := providerid.Parse(providerID)
	if !ok {
		return nil, foreign(providerID)
	}
	server, err := c.config.Instances.Get(ctx, id)
	if err != nil {
		return nil, notFound(err, "getting", id)
	}
	return c.describe(server), nil
}

// List returns a NodeClaim for each server of this cluster. It is complete or an error: core deletes registered
// NodeClaims that it lacks, without a budget, once their nodes are not ready. So the absence of their servers is proved
// by their ids, too.
func (c *CloudProvider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	snapshot, err := c.config.Instances.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	unlisted, err := c.findUnlisted(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	// Drift compares the networks as well, which the list of servers does not include.
	reading, cancel := context.WithTimeout(ctx, ttl.InterfacesRead)
	defer cancel()
	if _, err := c.config.Instances.Ports(reading, ttl.PeriodicServers); err != nil {
		log.FromContext(ctx).V(1).Info("the networks of servers are not compared for now", "error", err.Error())
	}
	listed := lo.Map(snapshot.All(), func(s *instance.Instance, _ int) *karpv1.NodeClaim { return c.describe(s) })
	return slices.Concat(listed, unlisted), nil
}

const (
	// maxUnlistedRead is how many servers one call of List reads by their ids. Those that are gone are remembered, so
	// that the next call gets on.
	maxUnlistedRead = 100
	// unlistedReadAtOnce is how many of them are read side by side.
	unlistedReadAtOnce = 10
)

// findUnlisted reads the servers of registered NodeClaims that a list lacks, and returns those that exist: a list that
// has lost its metadata lacks them all. One that cannot be read counts as one that exists, so that it does not keep
// core from finding others gone.
func (c *CloudProvider) findUnlisted(ctx context.Context, snapshot *instance.Snapshot) ([]*karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	if err := c.config.KubeClient.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	unlisted := lo.Filter(claims.Items, func(claim karpv1.NodeClaim, _ int) bool {
		id, launched := providerid.Parse(claim.Status.ProviderID)
		return launched && snapshot.Get(id) == nil && IsManaged(&claim) && claim.DeletionTimestamp.IsZero() &&
			claim.StatusConditions(status.WithObservedOnly()).IsTrue(karpv1.ConditionTypeRegistered)
	})
	// In another order each time, so that servers that exist do not keep those behind them from being found gone.
	mutable.Shuffle(unlisted)
	read := lo.Subset(unlisted, 0, maxUnlistedRead)
	found := make([]*karpv1.NodeClaim, len(read))
	workqueue.ParallelizeUntil(ctx, unlistedReadAtOnce, len(read), func(i int) {
		id, _ := providerid.Parse(read[i].Status.ProviderID)
		server, err := c.config.Instances.Get(ctx, id)
		switch {
		case err == nil:
			found[i] = c.describe(server)
			return
		case errors.Is(err, instance.ErrNotFound):
			found[i], err = c.findElsewhere(ctx, &read[i])
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "a server that the list of servers lacks counts as one that exists",
				"NodeClaim", klog.KObj(&read[i]))
			found[i] = read[i].DeepCopy()
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if left := len(unlisted) - len(read); left > 0 {
		return nil, fmt.Errorf("the list of servers lacks those of %d NodeClaims, of which %d were not read yet",
			len(unlisted), left)
	}
	return lo.Compact(found), nil
}

// findElsewhere returns a NodeClaim whose server BizFly Cloud denies, while its kubelet reports: the server was moved
// to another project and runs. Core would delete the NodeClaim where it cannot read the node, or once the kubelet is
// not ready for a moment.
func (c *CloudProvider) findElsewhere(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	if claim.Status.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	if err := c.config.KubeClient.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	switch nodeutils.GetCondition(node, corev1.NodeReady).Status {
	case corev1.ConditionTrue, corev1.ConditionFalse:
		// For less than a minute the node of a server that was deleted looks the same.
		if c.denied.Add(string(claim.UID), nil, cache.DefaultExpiration) != nil {
			c.config.Recorder.Publish(events.ServerElsewhere(claim))
		}
		return claim.DeepCopy(), nil
	default:
		return nil, nil
	}
}

// errDeletionAccepted is why a server still exists whose deletion BizFly Cloud has not rejected.
var errDeletionAccepted = errors.New("BizFly Cloud has accepted the request")

// Delete deletes the NodeClaim's server with the disks that are recorded as its own. It needs no NodeClass: everything
// that it must know is on the NodeClaim and on the server.
func (c *CloudProvider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok {
		return foreign(claim.Status.ProviderID)
	}
	if err := c.checkClone(ctx, claim); err != nil {
		return err
	}
	err := c.config.Instances.Delete(ctx, instance.DeleteRequest{
		ID:              id,
		Node:            cmp.Or(claim.Status.NodeName, launch.IntentOf(claim).Name),
		Since:           lo.FromPtr(claim.DeletionTimestamp).Time,
		RecordedVolumes: launch.OwnedVolumes(claim),
	})
	if errors.Is(err, instance.ErrUnpaid) || !errors.Is(err, instance.ErrNotFound) && c.deletedSlowly(claim, err != nil) {
		// Nothing ends before the server is gone, because its node may run pods.
		c.config.Recorder.Publish(events.ServerDeletionFailed(cmp.Or(claim.Status.NodeName, claim.Name), id,
			cmp.Or(err, errDeletionAccepted)))
	}
	if errors.Is(err, instance.ErrNotOurs) {
		// Its NodeClaim ends, and nothing would report it again: it is paid for until a user deletes it.
		log.FromContext(ctx).Info("not deleting a server whose metadata does not prove it to be this cluster's",
			"server", id)
		c.config.Recorder.Publish(events.ServerLeft(claim, id))
	}
	return notFound(err, "deleting", id)
}

// deletedSlowly reports whether core has been trying to delete the server for so long that a user must know. Core notes
// when a deletion was accepted; one that was rejected from the first on counts from the end of the drain.
func (c *CloudProvider) deletedSlowly(claim *karpv1.NodeClaim, rejected bool) bool {
	conditions := claim.StatusConditions()
	began := lo.FromPtr(claim.DeletionTimestamp).Time
	steps := []string{karpv1.ConditionTypeDrained, karpv1.ConditionTypeVolumesDetached,
		karpv1.ConditionTypeInstanceTerminating}
	for _, before := range steps {
		if condition := conditions.Get(before); condition.IsTrue() && condition.LastTransitionTime.After(began) {
			began = condition.LastTransitionTime.Time
		}
	}
	return (rejected || conditions.IsTrue(karpv1.ConditionTypeInstanceTerminating)) && !began.IsZero() &&
		c.config.Clock.Since(began) > ttl.SlowDeletion
}

// GetInstanceTypes returns every flavor that the NodePool's NodeClass can use, available or not. It also answers for a
// NodeClass that is not ready at the moment, as long as its zones were resolved once: running nodes still need a price,
// and core launches nothing for a NodePool whose NodeClass is not ready.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context,
	pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	nodeClass, err := c.nodeClass(ctx, pool.Spec.Template.Spec.NodeClassRef)
	if err != nil {
		return nil, fmt.Errorf("resolving the NodeClass of NodePool %q: %w", pool.Name, err)
	}
	if len(nodeClass.Status.Zones) == 0 {
		return nil, cloudprovider.NewNodeClassNotReadyError(
			fmt.Errorf("BizflyNodeClass %q has no zones resolved yet", nodeClass.Name))
	}
	instanceTypes, err := c.config.Flavors.List(ctx, nodeClass)
	if err != nil {
		return nil, fmt.Errorf("listing instance types for BizflyNodeClass %q: %w", nodeClass.Name, err)
	}
	return instanceTypes, nil
}

// describe returns the NodeClaim of a server from the server alone, so that deleted configuration never hides a server.
func (c *CloudProvider) describe(server *instance.Instance) *karpv1.NodeClaim {
	region := ""
	if snapshot, err := c.config.Catalog.Snapshot(); err == nil {
		region = snapshot.RegionLabel()
	}
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: server.Flavor,
		corev1.LabelTopologyZone:       server.Zone,
		corev1.LabelTopologyRegion:     region,
		karpv1.CapacityTypeLabelKey:    karpv1.CapacityTypeOnDemand,
		karpv1.NodePoolLabelKey:        server.NodePool,
		NodeClassLabel:                 server.NodeClass,
	}
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              server.NodeClaim,
			Labels:            lo.OmitByValues(labels, []string{""}),
			CreationTimestamp: metav1.NewTime(server.CreatedAt),
		},
		Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(server.ID), ImageID: server.ImageID},
	}
	if server.Deleting() {
		// The API does not return since when; core only asks whether.
		claim.DeletionTimestamp = lo.ToPtr(metav1.NewTime(c.config.Clock.Now()))
	}
	return claim
}

// nodeClaimOf returns the NodeClaim that Create returns, with a label for every requirement that the instance type and
// the offering decide, because a NodePool may require any of them and core compares labels.
func (c *CloudProvider) nodeClaimOf(launched *launch.Result) *karpv1.NodeClaim {
	claim := c.describe(launched.Server)
	// Core writes it together with the labels.
	claim.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: launch.EncodeIntent(launched.Intent)}
	instanceType, offering := flavor.Find(launched.Types, launched.Server.Flavor, launched.Server.Zone)
	if instanceType != nil {
		claim.Labels = lo.Assign(claim.Labels, launch.TypeLabels(instanceType, offering))
		if offering != nil && offering.Price > 0 {
			claim.Labels[v1alpha1.LabelLaunchPrice] = strconv.FormatFloat(offering.Price, 'f', 0, 64)
		}
		claim.Status.Capacity = withoutZeros(instanceType.Capacity)
		claim.Status.Allocatable = withoutZeros(instanceType.Allocatable())
	}
	return claim
}

func withoutZeros(list corev1.ResourceList) corev1.ResourceList {
	return lo.PickBy(list,
		func(_ corev1.ResourceName, quantity resource.Quantity) bool { return !resources.IsZero(quantity) })
}

// nodeClass reads a NodeClass from the cache. The errors of a reference that can never be resolved are not-found ones.
func (c *CloudProvider) nodeClass(ctx context.Context,
	ref *karpv1.NodeClassReference) (*v1alpha1.BizflyNodeClass, error) {
	if !v1alpha1.IsOurs(ref) {
		to := lo.FromPtr(ref)
		return nil, nodeClassNotFound(strings.Join([]string{to.Group, to.Kind, to.Name}, "/"))
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.config.KubeClient.Get(ctx, client.ObjectKey{Name: ref.Name}, nodeClass); err != nil {
		return nil, err
	}
	return nodeClass, nil
}

func nodeClassNotFound(name string) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("bizflynodeclasses").GroupResource(), name)
}

// IsManaged reports whether the NodeClaim's NodeClass is of our kind.
func IsManaged(claim *karpv1.NodeClaim) bool { return v1alpha1.IsOurs(claim.Spec.NodeClassRef) }

func foreign(providerID string) error {
	return cloudprovider.NewNodeClaimNotFoundError(
		fmt.Errorf("provider id %q is not of the form %s<server id>", providerID, providerid.Prefix))
}

// notFound wraps the error of a call about a server; core acts on the type of one that says that the server does not
// exist.
func notFound(err error, doing, id string) error {
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("%s server %s: %w", doing, id, err)
	if errors.Is(err, instance.ErrNotFound) {
		return cloudprovider.NewNodeClaimNotFoundError(wrapped)
	}
	return wrapped
}
