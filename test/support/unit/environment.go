// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unit is what the suites of the cloud provider and its controllers run in: a real API server, and over a
// sandbox of the cloud the real client and the real providers.
package unit

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/option"
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

// ClusterUID is the identity of the cluster under test.
const ClusterUID = "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a"

// NodeClassName is the name of the NodeClass that NodeClass makes.
const NodeClassName = "default"

// Environment is one API server for a suite, and one cloud and one process of the controller for each spec.
type Environment struct {
	*coretest.Environment
	// APIReader reads and writes without a cache.
	APIReader client.Client
	// Clock is the time of capacity, cloud provider and controllers; the cloud and the waits for its servers run in real time.
	Clock *clocktesting.FakeClock
	// Recorder remembers events.
	Recorder *coretest.EventRecorder

	// IDWait and VisibilityWindow are how long a launch waits for its server, in real time: longer than the busiest machine takes.
	// Specs of what happens afterwards call WithoutIDWait, or tune the window.
	IDWait, VisibilityWindow time.Duration
	// Settings are those of the process.
	Settings *options.Store

	Sandbox *cloud.Sandbox
	*wiring.Providers
}

// Settings are the defaults with changes.
func Settings(change func(*options.Options)) *options.Store {
	changed := options.Defaults()
	change(changed)
	return options.NewStore(changed)
}

// Tune changes the settings of the process.
func (e *Environment) Tune(change func(*options.Options)) {
	changed := *e.Settings.Load()
	change(&changed)
	e.Settings.Store(&changed)
}

// WithoutIDWait lets launches end before they know the id of their server, until the process is restarted.
func (e *Environment) WithoutIDWait() {
	e.Tune(func(o *options.Options) { o.ServerIDWait = time.Millisecond })
}

// WithoutVisibilityWindow lets the next attempt of a launch report its outcome as unknown at once.
func (e *Environment) WithoutVisibilityWindow() {
	e.Tune(func(o *options.Options) { o.ServerIDWait, o.VisibilityWindow = e.IDWait, time.Nanosecond })
}

// CoreContext returns a context with the defaults of core's options.
func CoreContext() context.Context {
	return coreoptions.ToContext(context.Background(), coretest.Options())
}

// indexes are those that core adds; with them a client reads from a cache.
func indexes(ctx context.Context) option.Function[coretest.EnvironmentOptions] {
	return coretest.WithFieldIndexers(
		coretest.NodeProviderIDFieldIndexer(ctx), coretest.NodeClaimProviderIDFieldIndexer(ctx),
		coretest.NodeClaimNodeClassRefFieldIndexer(ctx), coretest.NodePoolNodeClassRefFieldIndexer(ctx),
		coretest.VolumeAttachmentFieldIndexer(ctx),
	)
}

// Start starts an API server for environments.
func Start(ctx context.Context) *Environment {
	env := apiServer(indexes(ctx))
	return &Environment{
		Environment: env,
		APIReader:   lo.Must(client.New(env.Config, client.Options{Scheme: scheme.Scheme})),
		IDWait:      suite.Patience, VisibilityWindow: suite.Patience,
	}
}

// Reset starts a new cloud and a new process over it. A cloud with a fake clock shares it.
func (e *Environment) Reset(ctx context.Context, options cloud.Options) {
	e.CloseCloud()
	e.Sandbox = cloud.Start(options)
	e.Recorder = coretest.NewEventRecorder()
	if shared, fake := options.Clock.(*clocktesting.FakeClock); fake {
		e.Clock = shared
	} else {
		e.Clock = clocktesting.NewFakeClock(time.Now())
	}
	e.Restart(ctx)
}

// CloseCloud ends the cloud of a spec.
func (e *Environment) CloseCloud() {
	if e.Sandbox != nil {
		e.Sandbox.Close()
		e.Sandbox = nil
	}
}

// Restart starts a new process over the same cloud and API server: it remembers nothing.
func (e *Environment) Restart(ctx context.Context, changes ...func(*wiring.Dependencies)) {
	bke := e.Sandbox.BKE()
	e.Settings = Settings(func(o *options.Options) {
		o.ServerIDWait, o.VisibilityWindow, o.ServerPollInterval, o.ServerListMaxAge = e.IDWait, e.VisibilityWindow, 5*time.Millisecond, time.Nanosecond
		o.ClusterName, o.BKEClusterID, o.BKEClusterToken = "unit", bke.ClusterUID, bke.ClusterToken
		o.BKEJoinEndpoint, o.BKELogEndpoint, o.JoinTokens = bke.JoinEndpoint, bke.LogEndpoint, true
	})
	d := wiring.Dependencies{
		API: connect.Client(ctx, e.Sandbox, connect.Unlimited), Client: e.Client, APIReader: e.APIReader, Recorder: e.Recorder, Settings: e.Settings,
		ClusterUID: ClusterUID, Clock: e.Clock, ServerClock: clock.RealClock{},
	}
	for _, change := range changes {
		change(&d)
	}
	e.Providers = wiring.Build(d)
	// NodeClasses report what cannot be learned.
	_, _ = e.BKE.Values(ctx)
	if err := e.Catalog.Refresh(ctx); err != nil {
		// A part that is down need not keep anything from being launched.
		lo.Must1(e.Catalog.Snapshot())
	}
}

// SteppingClock is a fake clock on which waiting takes no time: a wait moves it forward. Core validates every disruption again
// after 15 seconds.
type SteppingClock struct{ *clocktesting.FakeClock }

// After implements clock.Clock.
func (c SteppingClock) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	fired := make(chan time.Time, 1)
	fired <- c.Now()
	return fired
}

// NodeClass makes a NodeClass and resolves it, as its controller would.
func (e *Environment) NodeClass(ctx context.Context, mutate ...func(*v1alpha1.BizflyNodeClass)) (*v1alpha1.BizflyNodeClass, error) {
	nodeClass := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: NodeClassName}}
	for _, change := range mutate {
		change(nodeClass)
	}
	if err := e.Client.Create(ctx, nodeClass); err != nil {
		return nil, err
	}
	return nodeClass, e.Resolve(ctx, nodeClass)
}

// Resolve fills the status of a NodeClass and stamps its hash.
func (e *Environment) Resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) error {
	nodeClass.Annotations = lo.Assign(nodeClass.Annotations, map[string]string{
		v1alpha1.AnnotationNodeClassHash: nodeClass.Hash(), v1alpha1.AnnotationNodeClassHashVersion: v1alpha1.NodeClassHashVersion,
	})
	if err := e.Client.Update(ctx, nodeClass); err != nil {
		return err
	}
	resolved, err := e.Images.Resolve(ctx, nodeClass)
	if err != nil {
		return err
	}
	if nodeClass.Status.PoolServer, err = e.Networks.PoolServer(ctx, nodeClass); err != nil {
		return err
	}
	networks, err := e.Networks.Networks(ctx, nodeClass)
	if err != nil {
		return err
	}
	firewalls, err := e.Networks.Firewalls(ctx, nodeClass)
	if err != nil {
		return err
	}
	snapshot, err := e.Catalog.Snapshot()
	if err != nil {
		return err
	}
	nodeClass.Status.Images = []v1alpha1.ImageStatus{{ID: resolved.ID, Name: resolved.Name, Type: resolved.Type}}
	nodeClass.Status.KubernetesVersion = resolved.KubernetesVersion
	nodeClass.Status.Networks = lo.Map(networks, func(n network.Network, _ int) v1alpha1.NetworkStatus {
		return v1alpha1.NetworkStatus{ID: n.ID, Name: n.Name}
	})
	nodeClass.Status.Firewalls = firewalls
	nodeClass.Status.Zones = lo.FilterMap(snapshot.Zones(), func(z catalog.Zone, _ int) (string, bool) {
		return z.Name, z.Active && (len(nodeClass.Spec.Zones) == 0 || lo.Contains(nodeClass.Spec.Zones, z.Name))
	})
	for _, condition := range conditions {
		nodeClass.StatusConditions().SetTrue(condition)
	}
	return e.Client.Status().Update(ctx, nodeClass)
}

var conditions = []string{
	v1alpha1.ConditionTypeZonesReady, v1alpha1.ConditionTypeImagesReady, v1alpha1.ConditionTypeNetworksReady, v1alpha1.ConditionTypeFirewallsReady,
	v1alpha1.ConditionTypeSSHKeyReady, v1alpha1.ConditionTypeBootstrapReady, v1alpha1.ConditionTypeDisksReady,
	v1alpha1.ConditionTypeFlavorsReady,
}

// SetCondition sets one condition of a NodeClass.
func (e *Environment) SetCondition(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass, set func(status.ConditionSet)) error {
	set(nodeClass.StatusConditions())
	return e.Client.Status().Update(ctx, nodeClass)
}

// NodeClassRef refers to the NodeClass that NodeClass makes.
func NodeClassRef() *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: NodeClassName}
}

// NodePool makes a NodePool of that NodeClass that is ready.
func NodePool(requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	pool := coretest.NodePool(karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
		Spec: karpv1.NodeClaimTemplateSpec{NodeClassRef: NodeClassRef(), Requirements: requirements},
	}}})
	return pool
}

// Requirement is one requirement of a NodePool or a claim.
func Requirement(key string, operator corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values}
}

// NodeClaim makes a claim of that NodeClass that was not launched yet, with the finalizer that core adds first.
func (e *Environment) NodeClaim(ctx context.Context, pool *karpv1.NodePool, requirements ...karpv1.NodeSelectorRequirementWithMinValues) (*karpv1.NodeClaim,
	error) {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "general-", Finalizers: []string{karpv1.TerminationFinalizer},
			Labels: map[string]string{karpv1.NodeClassLabelKey(NodeClassRef().GroupKind()): NodeClassName}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: NodeClassRef(), Requirements: requirements},
	}
	if claim.Spec.Requirements == nil {
		claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	}
	if pool != nil {
		claim.Labels[karpv1.NodePoolLabelKey] = pool.Name
		claim.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: pool.Hash(), karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion}
		claim.Spec.Requirements = append(claim.Spec.Requirements, pool.Spec.Template.Spec.Requirements...)
	}
	return claim, e.Client.Create(ctx, claim)
}

// Launched creates a claim, launches it, and writes down what core writes down.
func (e *Environment) Launched(ctx context.Context) (*karpv1.NodeClaim, error) {
	claim, err := e.NodeClaim(ctx, nil)
	if err != nil {
		return nil, err
	}
	return e.Launch(ctx, claim)
}

// Launch calls Create and writes down what core writes down.
func (e *Environment) Launch(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	created, err := e.CloudProvider.Create(ctx, claim.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", claim.Name, err)
	}
	stored := &karpv1.NodeClaim{}
	if err := e.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), stored); err != nil {
		return nil, err
	}
	stored.Labels = lo.Assign(created.Labels, stored.Labels)
	stored.Annotations = lo.Assign(stored.Annotations, created.Annotations)
	if err := e.Client.Update(ctx, stored); err != nil {
		return nil, err
	}
	stored.Status.ProviderID, stored.Status.ImageID = created.Status.ProviderID, created.Status.ImageID
	stored.Status.Capacity, stored.Status.Allocatable = created.Status.Capacity, created.Status.Allocatable
	stored.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	return stored, e.Client.Status().Update(ctx, stored)
}

// Cleanup deletes every object that specs make.
func (e *Environment) Cleanup(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{}, &v1alpha1.BizflyNodeClassList{}, &corev1.PersistentVolumeList{},
	} {
		if err := e.deleteAll(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

func (e *Environment) deleteAll(ctx context.Context, list client.ObjectList) error {
	if err := e.APIReader.List(ctx, list); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		object := item.(client.Object)
		if len(object.GetFinalizers()) > 0 {
			stored := object.DeepCopyObject().(client.Object)
			object.SetFinalizers(nil)
			if err := client.IgnoreNotFound(e.Client.Patch(ctx, object, client.MergeFrom(stored))); err != nil {
				return err
			}
		}
		if err := client.IgnoreNotFound(e.Client.Delete(ctx, object, client.GracePeriodSeconds(0))); err != nil {
			return err
		}
	}
	return nil
}
