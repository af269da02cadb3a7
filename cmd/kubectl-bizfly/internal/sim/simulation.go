// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim is a copy of a cluster in memory, in which the scheduler and the consolidation of Karpenter core and this provider's own launch code
// decide.
package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/readiness"
	"sigs.k8s.io/karpenter/pkg/controllers/nodepool/validation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Simulation is a copy of a cluster in which core's scheduler and our cloud provider run.
type Simulation struct {
	// Objects are the copy.
	Objects *memory.Client
	// Providers are those of the controller over the copy. No offering is marked unavailable at first.
	Providers *wiring.Providers
	// Provider is what core sees; CloudProvider is the same without NodeOverlays.
	Provider      corecloudprovider.CloudProvider
	CloudProvider *cloudprovider.CloudProvider
	// Cluster and Provisioner are core's.
	Cluster     *state.Cluster
	Provisioner *provisioning.Provisioner
	// Assumptions are what is taken for true and is not.
	Assumptions []Assumption
	// Moved is how many times each pod was evicted.
	Moved map[types.UID]int

	record   *record
	core     *wiring.Core
	deciders *wiring.Deciders
	clock    *skippingClock
	// daemons is what DaemonSets request on nodes that have joined here, by NodeClaim.
	daemons map[string]corev1.ResourceList
	// replaced are the nodes that consolidation has removed.
	replaced []*member
	// given are the objects that it is a copy of.
	given memory.Objects
	// random is set where evicted pods run where the kube-scheduler would put them.
	random *rand.Rand
}

// Assumption is a condition of a NodeClass that is not True, and that the result takes for true: which servers would be launched does not
// depend on it.
type Assumption struct {
	NodeClass string             `json:"nodeClass"`
	Condition opstatus.Condition `json:"condition"`
}

// String cites it.
func (a Assumption) String() string {
	return fmt.Sprintf("assuming that BizflyNodeClass %s becomes ready, which it is not now: %s: %s", a.NodeClass, a.Condition.Type, a.Condition.Message)
}

// New creates a simulation of copies of the objects: NodeClasses and NodePools that no controller has resolved yet are
// resolved, by the controller's own code.
func New(ctx context.Context, cloud *connect.Cloud, objects memory.Objects) (*Simulation, error) {
	core, clk, kube, store := coreoptions.FromContext(ctx), &skippingClock{}, memory.New(objects), nodeoverlay.NewInstanceTypeStore()
	d := cloud.Over(kube)
	d.Clock = clk
	if core.FeatureGates.NodeOverlay {
		d.Overlay = store
	}
	providers := wiring.Build(d)
	s := &Simulation{Objects: kube, Providers: providers, clock: clk, given: objects,
		daemons: map[string]corev1.ResourceList{}, Moved: map[types.UID]int{}, record: &record{}}
	config := providers.CloudProviderConfig
	config.APIReader, config.Instances, config.Settings = kube, &dryLauncher{}, withoutLimits(d.Settings)
	s.CloudProvider = cloudprovider.New(config)
	if err := s.resolve(ctx, cloud); err != nil {
		return nil, err
	}
	var err error
	if s.core, err = wiring.NewCore(ctx, clk, kube, s.CloudProvider, store); err != nil {
		return nil, fmt.Errorf("wiring Karpenter core: %w", err)
	}
	s.Provider, s.Cluster = s.core.CloudProvider, s.core.Cluster
	s.overlay(ctx)
	s.deciders = s.core.Deciders(ctx, s.record)
	s.Provisioner = s.deciders.Provisioner
	return s, nil
}

// overlay lets core's controller evaluate the NodeOverlays.
func (s *Simulation) overlay(ctx context.Context) {
	if !coreoptions.FromContext(ctx).FeatureGates.NodeOverlay {
		for _, overlay := range memory.Of[*karpv1alpha1.NodeOverlay](s.given) {
			s.note("NodeOverlay %s is not applied: the feature gate NodeOverlay is off", overlay.Name)
		}
		return
	}
	if _, err := nodeoverlay.NewController(s.clock, s.Objects, s.CloudProvider, s.core.Overlays, s.Cluster).Reconcile(ctx, reconcile.Request{}); err != nil {
		s.note("NodeOverlays were not applied everywhere: %s", err)
	}
	for _, overlay := range memory.All[*karpv1alpha1.NodeOverlay](s.Objects) {
		if ready := overlay.StatusConditions().Root(); !ready.IsTrue() {
			s.note("NodeOverlay %s is not applied: %s", overlay.Name, lo.CoalesceOrEmpty(
				overlay.StatusConditions().Get(karpv1alpha1.ConditionTypeValidationSucceeded).Message, ready.Message))
		}
	}
}

// pool returns a NodePool of the copy.
func (s *Simulation) pool(ctx context.Context, name string) (*karpv1.NodePool, error) {
	pool := &karpv1.NodePool{}
	return pool, s.Objects.Get(ctx, types.NamespacedName{Name: name}, pool)
}

func (s *Simulation) note(format string, args ...any) { s.record.note(format, args...) }

// Notes limit what the result can be relied on for.
func (s *Simulation) Notes() []string {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return slices.Clone(s.record.notes)
}

// resolve fills the status of NodeClasses and NodePools that have none.
func (s *Simulation) resolve(ctx context.Context, cloud *connect.Cloud) error {
	controller := status.NewController(s.Objects, s.clock, cloud.Catalog, cloud.Images, cloud.Networks, cloud.Bootstrap,
		s.Providers.Flavors)
	for _, nodeClass := range memory.All[*v1alpha1.BizflyNodeClass](s.Objects) {
		if cloud.Embedded {
			s.resolveEmbedded(cloud, nodeClass)
			continue
		}
		if root := nodeClass.StatusConditions().Root(); root.IsTrue() && root.ObservedGeneration == nodeClass.Generation {
			continue
		}
		if _, err := controller.Reconcile(ctx, nodeClass); err != nil {
			return fmt.Errorf("resolving BizflyNodeClass %s: %w", nodeClass.Name, err)
		}
		for _, condition := range nodeClass.Status.Conditions {
			if condition.IsTrue() || condition.Type == opstatus.ConditionReady || lo.Contains(usage.ConditionTypes, condition.Type) {
				continue
			}
			assumption := Assumption{nodeClass.Name, condition}
			s.Assumptions = append(s.Assumptions, assumption)
			s.note("%s", assumption)
			if len(nodeClass.Status.Zones) > 0 {
				nodeClass.StatusConditions().SetTrue(condition.Type)
			}
		}
		s.Objects.Put(nodeClass)
	}
	return s.readyNodePools(ctx)
}

// readyNodePools makes NodePools ready that no controller has seen yet. Those that a controller has rejected stay as they are.
func (s *Simulation) readyNodePools(ctx context.Context) error {
	nodePools := memory.All[*karpv1.NodePool](s.Objects)
	for _, pool := range nodePools {
		if pool.Spec.Replicas != nil {
			s.note("NodePool %s is static (spec.replicas: %d): no plan launches, removes or counts its nodes, and the pods on them stay there", pool.Name,
				*pool.Spec.Replicas)
		}
		ref := lo.FromPtr(pool.Spec.Template.Spec.NodeClassRef)
		nodeClass, exists := memory.Find[*v1alpha1.BizflyNodeClass](s.Objects, client.ObjectKey{Name: ref.Name})
		if !exists {
			s.note("NodePool %s is left out: its BizflyNodeClass %q does not exist", pool.Name, ref.Name)
			continue
		}
		if invalid := InvalidClaims(pool); invalid != "" {
			s.note("NodePool %s is left out: %s", pool.Name, invalid)
			pool.StatusConditions().SetFalse(karpv1.ConditionTypeValidationSucceeded, "NodeClaimsInvalid", invalid)
			s.Objects.Put(pool)
			continue
		}
		if len(pool.Status.Conditions) > 0 {
			if !pool.StatusConditions().Root().IsTrue() {
				s.note("NodePool %s is left out: it is not ready (%s)", pool.Name, pool.StatusConditions().Root().Message)
			}
			continue
		}
		if len(nodeClass.Status.Zones) == 0 {
			s.note("NodePool %s is left out: no zone of its BizflyNodeClass %s is known", pool.Name, nodeClass.Name)
			continue
		}
		for _, controller := range []reconcile.ObjectReconciler[*karpv1.NodePool]{
			validation.NewController(s.clock, s.Objects, s.CloudProvider), readiness.NewController(s.clock, s.Objects, s.CloudProvider),
		} {
			if _, err := controller.Reconcile(ctx, pool); err != nil {
				return fmt.Errorf("checking NodePool %s: %w", pool.Name, err)
			}
		}
		if root := pool.StatusConditions().Root(); !root.IsTrue() {
			s.note("NodePool %s is left out: it is not ready (%s)", pool.Name, root.Message)
		}
	}
	if len(nodePools) == 0 {
		s.note("no NodePool is known, so no pod fits anywhere; plan with those of a file (plan compare FILE: a NodePool and its BizflyNodeClass, as " +
			"in config/samples), or plan manifests with the default sample (plan -f FILE --offline)")
	}
	return nil
}

// InvalidClaims says why the API server would reject each NodeClaim of a NodePool; empty where it would not. No
// controller of core looks at that before it creates one.
func InvalidClaims(pool *karpv1.NodePool) string {
	invalid := append(metav1validation.ValidateLabels(map[string]string{karpv1.NodePoolLabelKey: pool.Name},
		field.NewPath("metadata", "name")), apivalidation.ValidateAnnotations(pool.Spec.Template.Annotations,
		field.NewPath("spec", "template", "metadata", "annotations"))...)
	if len(invalid) == 0 {
		return ""
	}
	return "no NodeClaim of it can be created: " + invalid.ToAggregate().Error()
}

// Empty makes every pod that Karpenter would place wait for a node, and takes all others away, those on nodes of static NodePools too. So it does
// with the nodes. What PodDisruptionBudgets and budgets of NodePools at times allow makes consolidation slower and changes nothing about where it
// ends, and a plan must not depend on the time of day.
func (s *Simulation) Empty(ctx context.Context) error {
	if err := s.learnDaemonSets(ctx); err != nil {
		return err
	}
	static, nodes := s.Static(), memory.All[*corev1.Node](s.Objects)
	poolOf := lo.SliceToMap(nodes, func(node *corev1.Node) (string, string) {
		return node.Name, node.Labels[karpv1.NodePoolLabelKey]
	})
	s.Objects.SetPods(lo.Filter(memory.All[*corev1.Pod](s.Objects), func(pod *corev1.Pod, _ int) bool {
		planned := input.Counts(pod) && !static.Has(poolOf[pod.Spec.NodeName])
		input.Unbind(pod)
		return planned
	}))
	removeAll(s.Objects, nodes)
	removeAll(s.Objects, memory.All[*karpv1.NodeClaim](s.Objects))
	removeAll(s.Objects, memory.All[*policyv1.PodDisruptionBudget](s.Objects))
	for _, pool := range memory.All[*karpv1.NodePool](s.Objects) {
		pool.Spec.Disruption.Budgets = lo.Filter(pool.Spec.Disruption.Budgets, func(b karpv1.Budget, _ int) bool { return b.Schedule == nil })
		s.Objects.Put(pool)
	}
	return nil
}

func removeAll[T client.Object](from *memory.Client, objects []T) {
	for _, object := range objects {
		from.Remove(object)
	}
}

// Observe passes the nodes that exist to core's state.
func (s *Simulation) Observe(ctx context.Context) error {
	if err := s.learnDaemonSets(ctx); err != nil {
		return err
	}
	for _, claim := range memory.All[*karpv1.NodeClaim](s.Objects) {
		s.Cluster.UpdateNodeClaim(claim)
	}
	for _, node := range memory.All[*corev1.Node](s.Objects) {
		if err := s.Cluster.UpdateNode(ctx, node); err != nil {
			return fmt.Errorf("reading node %s: %w", node.Name, err)
		}
	}
	return nil
}

// learnDaemonSets lets core see the newest pod of each DaemonSet, which admission may have changed.
func (s *Simulation) learnDaemonSets(ctx context.Context) error {
	for _, daemonSet := range memory.All[*appsv1.DaemonSet](s.Objects) {
		if err := s.Cluster.UpdateDaemonSet(ctx, daemonSet); err != nil {
			return fmt.Errorf("reading DaemonSet %s: %w", daemonSet.Name, err)
		}
	}
	return nil
}

// resolveEmbedded makes a NodeClass ready in the zones that it asks for: what else it names is in an account, and prices do not depend on it.
func (s *Simulation) resolveEmbedded(cloud *connect.Cloud, nodeClass *v1alpha1.BizflyNodeClass) {
	open := cloud.OpenZones()
	nodeClass.Status.Zones = lo.Filter(open, func(zone string, _ int) bool {
		return len(nodeClass.Spec.Zones) == 0 || slices.Contains(nodeClass.Spec.Zones, zone)
	})
	if len(nodeClass.Status.Zones) == 0 {
		s.note("BizflyNodeClass %s asks for the zones %v, and the embedded catalog has %v", nodeClass.Name, nodeClass.Spec.Zones, open)
	}
	conditions := nodeClass.StatusConditions()
	for _, condition := range conditions.List() {
		conditions.SetTrue(condition.Type)
	}
	s.Objects.Put(nodeClass)
}
