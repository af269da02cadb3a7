// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling_test runs Karpenter core's own provisioner, disruption and termination against our provider, with
// core's own builders and expectations: pods of many shapes must run where they belong.
package scheduling_test

import (
	"context"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestScheduling(t *testing.T) { suite.Run(t, "Scheduling") }

var _ = AfterEach(func() { expectations.ExpectCleanedUp(ctx, env.Client) })

var _ = unit.Suite(ctx, &env, unit.WithNodeClass)

// planner is core's provisioner with what it knows of the cluster.
type planner struct {
	client      client.Client
	provider    corecloudprovider.CloudProvider
	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
	virtual     *virtualpods.Cache
}

func newPlanner(provider corecloudprovider.CloudProvider) *planner {
	// None unless the gate NodeRepair is on.
	repairPolicies := lo.Must(health.NewRepairPolicyMatcher(ctx, provider))
	p := &planner{client: cloudprovider.PlanningClient(env.Client), provider: provider}
	p.cluster = state.NewCluster(env.Clock, p.client, provider, state.WithRepairPolicyMatcher(repairPolicies))
	p.virtual = virtualpods.NewVirtualPodCache(p.client)
	p.provisioner = provisioning.NewProvisioner(p.client, env.Recorder, provider, p.cluster, env.Clock, deviceallocation.NewController(p.client), p.virtual)
	return p
}

// provision applies the pods, launches what core plans for them, and binds them.
func (p *planner) provision(pods ...*corev1.Pod) {
	GinkgoHelper()
	expectations.ExpectProvisioned(ctx, bindingClient{env.Client}, p.cluster, p.provider, p.provisioner, pods...)
}

// bindingClient is the client of core's expectations, except that it does not wait a second for each Binding to appear in a cache that
// can hold none.
type bindingClient struct{ client.Client }

// Create implements client.Client.
func (q bindingClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if _, binding := object.(*corev1.Binding); binding {
		return env.APIReader.Create(ctx, object, options...)
	}
	return q.Client.Create(ctx, object, options...)
}

// nodeOf is the node that the pod was bound to.
func nodeOf(pod *corev1.Pod) *corev1.Node {
	GinkgoHelper()
	return expectations.ExpectScheduled(ctx, env.Client, pod)
}

// serverOf is the server that the pod really runs on.
func serverOf(pod *corev1.Pod) cloud.Server {
	GinkgoHelper()
	return env.Server(nodeOf(pod).Spec.ProviderID)
}

// applied creates a NodePool.
func applied(pool *karpv1.NodePool) *karpv1.NodePool {
	GinkgoHelper()
	expectations.ExpectApplied(ctx, env.Client, pool)
	return pool
}

// ready lets core assume that the NodePool is validated and its NodeClass ready.
func ready(pool *karpv1.NodePool) *karpv1.NodePool {
	GinkgoHelper()
	applied(pool)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	expectations.ExpectApplied(ctx, env.Client, pool)
	return pool
}

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list("cpu", cpu, "memory", memory)}
}

// labelled is the metadata of pods that a selector finds.
func labelled(app string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Labels: map[string]string{"app": app}}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// typesOf are what the NodePool may be launched with, by name.
func typesOf(provider corecloudprovider.CloudProvider, pool *karpv1.NodePool) map[string]*corecloudprovider.InstanceType {
	GinkgoHelper()
	types := lo.Must(provider.GetInstanceTypes(ctx, pool))
	return lo.SliceToMap(types, func(it *corecloudprovider.InstanceType) (string, *corecloudprovider.InstanceType) { return it.Name, it })
}
