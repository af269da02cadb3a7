// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	coreapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	name = "scale"
	// bench is the annotation of the NodePool's template whose change makes nodes drift.
	bench = "bench"
	// packed is how many pods fill a node, and three how many do before a consolidation.
	packed, three = 20, 3
	// settled is how long nothing must change for a cluster to be at its fixed point.
	settled = 45 * time.Second
	// shortest and longest bound how long what was launched is given to come to rest: until the controller has used less than
	// restful cores for calm.
	shortest, longest, calm = time.Minute, 6 * time.Minute, 20 * time.Second
	restful                 = 0.5
)

// scenario is what is done with a cluster of a size.
type scenario struct {
	name  string
	nodes int
}

// provider is what is measured.
type provider struct {
	// kwok says that it is core's own.
	kwok bool
	// unlimited lifts the rate limits.
	unlimited bool
}

var providers = map[string]provider{
	"kwok":             {kwok: true},
	"bizfly":           {},
	"bizfly-unlimited": {unlimited: true},
}

func providerNames() []string {
	return []string{"kwok", "bizfly", "bizfly-unlimited"}
}

// nodeClass and flavor return what nodes are made of: of either provider, four vCPUs and eight GiB.
func (p provider) nodeClass() client.Object {
	if p.kwok {
		return &kwokv1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (p provider) flavor() string { return lo.Ternary(p.kwok, "c-4x-amd64-linux", "nix.4c_8g") }

func (p provider) ref() *karpv1.NodeClassReference {
	if p.kwok {
		return &karpv1.NodeClassReference{Group: kwokapis.Group, Kind: "KWOKNodeClass", Name: name}
	}
	return &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: name}
}

// run is one scenario with one provider on a control plane of its own.
type run struct {
	*flags
	scenario
	provider
	env     *environment.Environment
	kube    client.Client
	meter   *meter
	results []Result
	// tell is what every result says of itself.
	tell Result
}

func (f *flags) measure(ctx context.Context, s scenario, name string, round int) (results []Result, err error) {
	r := &run{flags: f, scenario: s, provider: providers[name], tell: Result{Provider: name, Scenario: s.name, Nodes: s.nodes, Round: round}}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.env.Stop()) }()
	// What ends a process ends the measurement.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.env.Context(), func() { cancel(context.Cause(r.env.Context())) })()
	return r.results, r.play(ctx)
}

// start starts the control plane and the controller, with everything ready for the first pod.
func (r *run) start(ctx context.Context) (err error) {
	if r.env, err = environment.Start(ctx, environment.Options{
		Seed: 1, NodeLease: 10 * time.Minute, NoController: true, KwokNodes: r.kwok, Audit: true,
		// Both providers are measured with core's own batches.
		ControllerEnv: map[string]string{"BATCH_IDLE_DURATION": ""},
	}); err != nil {
		return err
	}
	r.kube = r.env.Client()
	r.meter = &meter{env: r.env}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if _, err := r.env.StartController(ctx, r.overrides()); err != nil {
		return err
	}
	if !r.kwok && r.unlimited {
		if err := r.unlimit(ctx); err != nil {
			return err
		}
	}
	return await(ctx, time.Minute, "the NodePool to be ready", func() (bool, error) {
		pool := &karpv1.NodePool{}
		err := r.kube.Get(ctx, types.NamespacedName{Name: name}, pool)
		return pool.StatusConditions().Root().IsTrue(), err
	})
}

// overrides are the environment of the controller.
func (r *run) overrides() map[string]string {
	if r.kwok {
		return map[string]string{environment.BinaryOverride: os.Getenv("KWOK_CONTROLLER")}
	}
	// A NodeClaim must not be ended because this machine is slow: that would be measured instead.
	return map[string]string{"LAUNCH_TIMEOUT": "10m", "GARBAGE_COLLECTION_GRACE": "15m"}
}

// prepare creates what the scenario needs in the cluster and the cloud.
func (r *run) prepare(ctx context.Context) error {
	labels := map[string]string{"app": name}
	pods := corev1.PodSpec{
		TerminationGracePeriodSeconds: lo.ToPtr[int64](0),
		Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(r.request()), corev1.ResourceMemory: resource.MustParse("64Mi")},
		}}},
	}
	if r.podsPerNode() == 1 {
		pods.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		}}}}
	}
	objects := []client.Object{
		r.nodeClass(),
		&karpv1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: karpv1.NodePoolSpec{
				Template: karpv1.NodeClaimTemplate{
					ObjectMeta: karpv1.ObjectMeta{Annotations: map[string]string{bench: "1"}},
					Spec: karpv1.NodeClaimTemplateSpec{
						NodeClassRef: r.ref(),
						Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
							{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{r.flavor()}},
							{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
						},
					},
				},
				Disruption: karpv1.Disruption{
					ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
					ConsolidateAfter:    karpv1.MustParseNillableDuration("5s"),
					Budgets:             []karpv1.Budget{{Nodes: "100%"}},
				},
			},
		},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault},
			Spec: appsv1.DeploymentSpec{
				Replicas: lo.ToPtr[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pods},
			},
		},
	}
	if r.kwok {
		objects = append(lo.Map(kwokapis.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition, _ int) client.Object { return crd.DeepCopy() }), objects...)
	}
	for _, object := range objects {
		// The definitions may not be served yet.
		if err := await(ctx, time.Minute, fmt.Sprintf("%T to be created", object), func() (bool, error) {
			return r.kube.Create(ctx, object) == nil, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// unlimit lifts the rate limits to the highest that the ProviderConfig allows.
func (r *run) unlimit(ctx context.Context) error {
	limit := &v1alpha1.RateLimit{QPS: 1000, Burst: 1000, Concurrency: 100}
	return await(ctx, time.Minute, "the rate limits to be applied", func() (bool, error) {
		config := &v1alpha1.ProviderConfig{}
		if err := r.kube.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		config.Spec.RateLimits = &v1alpha1.RateLimits{Create: limit, Read: limit, Delete: limit}
		return r.kube.Update(ctx, config) == nil, nil
	})
}

// request is what a pod asks for, so that as many as should fit on a node: of four vCPUs, either provider leaves at least 3.9.
func (r *run) request() string {
	return map[int]string{1: "1", three: "1200m", packed: "190m"}[r.podsPerNode()]
}

func (r *run) podsPerNode() int {
	switch r.scenario.name {
	case scenarioPacked:
		return packed
	case scenarioConsolidation:
		return three
	}
	return 1
}

// play goes through the phases of the scenario.
func (r *run) play(ctx context.Context) error {
	pods := r.scenario.nodes * r.podsPerNode()
	up := func() error { return r.scale(ctx, pods) }
	if r.scenario.name == scenarioUp || r.scenario.name == scenarioPacked {
		if err := r.phase(ctx, "up", up); err != nil {
			return err
		}
	} else if err := up(); err != nil {
		return err
	}
	switch r.scenario.name {
	case scenarioUp:
		if r.rest > 0 {
			if err := r.phase(ctx, "settle", func() error { return r.settle(ctx) }); err != nil {
				return err
			}
			if err := r.phase(ctx, "rest", func() error { return pause(ctx, r.rest) }); err != nil {
				return err
			}
		}
		fallthrough
	case scenarioPacked:
		return r.phase(ctx, "down", func() error { return r.down(ctx) })
	case scenarioDrift:
		return r.phase(ctx, "drift", func() error { return r.drift(ctx) })
	case scenarioConsolidation:
		return r.phase(ctx, "consolidation", func() error { return r.consolidate(ctx) })
	case scenarioRestart:
		// What an upgrade meets: a cluster at rest. Right after a burst, the new controller would be measured with the old one's work.
		if err := r.settle(ctx); err != nil {
			return err
		}
		return r.restart(ctx, pods)
	}
	return nil
}

// scale waits until every pod is bound.
func (r *run) scale(ctx context.Context, pods int) error {
	if err := r.replicas(ctx, pods); err != nil {
		return err
	}
	return await(ctx, r.timeout, "the last pod to be bound", func() (bool, error) { return r.bound(ctx, pods) })
}

func (r *run) replicas(ctx context.Context, pods int) error {
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault}}
	if err := r.kube.Patch(ctx, target, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, "{\"spec\":{\"replicas\":%d}}", pods))); err != nil {
		return fmt.Errorf("scaling to %d pods: %w", pods, err)
	}
	return nil
}

// bound reports whether there are so many pods and none is without a node. It reads no more than one pod.
func (r *run) bound(ctx context.Context, pods int) (bool, error) {
	deployment := &appsv1.Deployment{}
	if err := r.kube.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: name}, deployment); err != nil ||
		int(deployment.Status.Replicas) != pods {
		return false, err
	}
	unbound := &metav1.PartialObjectMetadataList{}
	unbound.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := r.kube.List(ctx, unbound, client.InNamespace(corev1.NamespaceDefault), client.MatchingFields{"spec.nodeName": ""}, client.Limit(1))
	return err == nil && len(unbound.Items) == 0, err
}

// settle waits until what was launched has come to rest: events that wait for their turn are written, and core has looked whether it
// can consolidate.
func (r *run) settle(ctx context.Context) error {
	begun, quiet := time.Now(), time.Now()
	for now := begun; now.Sub(begun) < shortest || now.Sub(quiet) < calm && now.Sub(begun) < longest; now = time.Now() {
		before, after := &snapshot{}, &snapshot{}
		if err := errors.Join(r.meter.process(before), pause(ctx, calm/4), r.meter.process(after)); err != nil {
			return err
		}
		if (after.cpu-before.cpu)/time.Since(now).Seconds() >= restful {
			quiet = time.Now()
		}
	}
	return nil
}

// down waits until the last NodeClaim is gone.
func (r *run) down(ctx context.Context) error {
	if err := r.replicas(ctx, 0); err != nil {
		return err
	}
	return await(ctx, r.timeout, "the last NodeClaim to be gone", func() (bool, error) {
		claims, err := r.claims(ctx)
		return len(claims) == 0, err
	})
}

// drift changes the NodePool and waits until all nodes are new and all pods on one.
func (r *run) drift(ctx context.Context) error {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Appendf(nil, "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{%q:\"2\"}}}}}", bench)
	if err := r.kube.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("changing the NodePool: %w", err)
	}
	return await(ctx, r.timeout, "the last drifted NodeClaim to be gone", func() (bool, error) {
		claims, err := r.claims(ctx)
		if err != nil || len(claims) != r.scenario.nodes || lo.SomeBy(claims, func(c metav1.PartialObjectMetadata) bool {
			return c.Annotations[bench] != "2" || !c.DeletionTimestamp.IsZero()
		}) {
			return false, err
		}
		return r.bound(ctx, r.scenario.nodes*r.podsPerNode())
	})
}

// consolidate takes two of three pods away and waits until the NodeClaims do not change any more.
func (r *run) consolidate(ctx context.Context) error {
	if err := r.replicas(ctx, r.scenario.nodes); err != nil {
		return err
	}
	var before []string
	changed := time.Now()
	return await(ctx, r.timeout, "the nodes to be consolidated", func() (bool, error) {
		claims, err := r.claims(ctx)
		if err != nil {
			return false, err
		}
		now := lo.Map(claims, func(c metav1.PartialObjectMetadata, _ int) string { return string(c.UID) })
		slices.Sort(now)
		if !slices.Equal(now, before) {
			before, changed = now, time.Now()
			r.tell.Left = len(now)
		}
		// The time in which nothing happened is not counted.
		r.tell.Idle = time.Since(changed).Seconds()
		return len(now) < r.scenario.nodes && time.Since(changed) >= settled, nil
	})
}

// restart measures from the start of the controller until it has decided about a pod that came meanwhile.
func (r *run) restart(ctx context.Context, pods int) error {
	if err := r.env.Controller().Stop(); err != nil {
		return err
	}
	if err := r.replicas(ctx, pods+1); err != nil {
		return err
	}
	r.meter.restarted = true
	return r.phase(ctx, "restart", func() error {
		if _, err := r.env.StartController(ctx, r.overrides()); err != nil {
			return err
		}
		return await(ctx, r.timeout, "the first decision", func() (bool, error) {
			claims, err := r.claims(ctx)
			return len(claims) > r.scenario.nodes, err
		})
	})
}

func (r *run) claims(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(schema.GroupVersionKind{Group: coreapis.Group, Version: "v1", Kind: "NodeClaimList"})
	if err := r.kube.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return claims.Items, nil
}
