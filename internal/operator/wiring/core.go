// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
)

// Core is Karpenter core's state over a cloud provider, as the controller and every simulation of it have it.
type Core struct {
	// Client is the one with which core plans.
	Client client.Client
	// CloudProvider is the provider as core sees it, with NodeOverlays; Undecorated is without them.
	CloudProvider, Undecorated corecloudprovider.CloudProvider
	Cluster                    *state.Cluster
	Overlays                   *nodeoverlay.InstanceTypeStore

	clock clock.Clock
}

// NewCore wires core's state by the feature gates of the context.
func NewCore(ctx context.Context, clk clock.Clock, kubeClient client.Client, provider corecloudprovider.CloudProvider,
	overlays *nodeoverlay.InstanceTypeStore) (*Core, error) {
	decorated := overlay.Decorate(provider, kubeClient, overlays)
	policies, err := health.NewRepairPolicyMatcher(ctx, decorated)
	if err != nil {
		return nil, err
	}
	planning := cloudprovider.PlanningClient(kubeClient)
	return &Core{
		Client: planning, CloudProvider: decorated, Undecorated: provider, Overlays: overlays, clock: clk,
		Cluster: state.NewCluster(clk, planning, decorated, state.WithRepairPolicyMatcher(policies)),
	}, nil
}

// Deciders are core's controllers that decide about nodes, for a simulation that runs them one by one.
type Deciders struct {
	Provisioner *provisioning.Provisioner
	Queue       *disruption.Queue
	Disruption  *disruption.Controller
}

// Deciders makes new ones over the state.
func (c *Core) Deciders(ctx context.Context, recorder karpevents.Recorder) *Deciders {
	d := &Deciders{Provisioner: provisioning.NewProvisioner(c.Client, recorder, c.CloudProvider, c.Cluster, c.clock,
		deviceallocation.NewController(c.Client), virtualpods.NewVirtualPodCache(c.Client))}
	d.Queue = disruption.NewQueue(c.Client, recorder, c.Cluster, c.clock, d.Provisioner)
	d.Disruption = disruption.NewController(ctx, c.clock, c.Client, d.Provisioner, c.CloudProvider, recorder, c.Cluster,
		d.Queue,
		cost.NewClusterCost(ctx, c.CloudProvider, c.Client))
	return d
}
