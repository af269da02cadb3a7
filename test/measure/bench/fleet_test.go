// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// What is measured: a catalog larger than BizFly Cloud's, in more zones than a region has, and more servers than core is
// meant for.
const (
	flavors = 300
	many    = 5000
	few     = 500
)

var ctx = coreoptions.ToContext(context.Background(), coretest.Options())

func init() { log.SetLogger(logging.NopLogger) }

// region is a catalog of 300 flavors in three zones.
func region() *cloud.Catalog {
	c, key := cloud.DefaultCatalog(), cloud.RegionHN
	for i := range c.Regions {
		if c.Regions[i].ShortName == key {
			third := c.Regions[i].Zones[1]
			third.ShortName, third.Order = "HN3", 3
			c.Regions[i].Zones = append(c.Regions[i].Zones, third)
		}
	}
	zones := []string{"HN1", "HN2", "HN3"}
	for i := range c.VolumeTypes[key] {
		c.VolumeTypes[key][i].AvailabilityZones = zones
	}
	for i := range c.VPCs[key] {
		c.VPCs[key][i].AvailabilityZones, c.VPCs[key][i].AvailabilityZoneHints = zones, zones
	}
	c.Flavors[key] = nil
	for _, category := range []string{"basic", "premium", "enterprise", "dedicated"} {
		code := category[:1] + "2"
		generation := &cloud.Generation{ID: "generation-" + code, Name: code, Code: code, Category: category, Vendor: "Intel",
			Model: "gen2", Group: category, AvailabilityZones: zones}
		for step := range flavors / 4 / 3 {
			for _, ratio := range []int{1, 2, 4} {
				cpu := 1 + step*3
				name := fmt.Sprintf("%s.%dc_%dg", code, cpu, ratio*cpu)
				c.Flavors[key] = append(c.Flavors[key], cloud.Flavor{
					ID: "flavor-" + name, Name: name, RAM: 1024 * ratio * cpu, VCPUs: cpu, Category: category, IsNew: true,
					BillingPlans: []string{cloud.PlanSaving, cloud.PlanOnDemand}, GenerationID: generation.ID, Generation: generation,
				})
			}
		}
	}
	return c
}

// account is a provider over that region, read through the real client, and a NodeClass that may use all of it.
func account(b *testing.B) (*unit.Environment, *v1alpha1.BizflyNodeClass) {
	b.Helper()
	env := unit.InMemory()
	env.Reset(ctx, cloud.Options{Catalog: region()})
	b.Cleanup(env.CloseCloud)
	nodeClass, err := env.NodeClass(ctx, unit.WithDefaults)
	if err != nil {
		b.Fatal(err)
	}
	return env, nodeClass
}

// typesOf returns its instance types.
func typesOf(b *testing.B, env *unit.Environment, nodeClass *v1alpha1.BizflyNodeClass) []*corecloudprovider.InstanceType {
	b.Helper()
	types, err := env.Flavors.List(ctx, nodeClass)
	if err != nil || len(types) != flavors || len(types[0].Offerings) != 3 {
		b.Fatalf("%d instance types: %v", len(types), err)
	}
	return types
}

// fleet is n servers with their NodeClaims and Nodes, as a cloud and a cache that answer at once.
type fleet struct {
	client.Client
	servers   []*instance.Instance
	claims    []karpv1.NodeClaim
	nodes     []corev1.Node
	byNode    map[string]*corev1.Node
	snapshot  *instance.Snapshot
	nodeClass *v1alpha1.BizflyNodeClass
}

func newFleet(nodeClass *v1alpha1.BizflyNodeClass, n int) *fleet {
	f := &fleet{nodeClass: nodeClass, byNode: map[string]*corev1.Node{}, nodes: make([]corev1.Node, n)}
	for i := range n {
		uid, id := fmt.Sprintf("11111111-0000-4000-8000-%012d", i), fmt.Sprintf("22222222-0000-4000-8000-%012d", i)
		server := &instance.Instance{
			ID: id, Name: fmt.Sprintf("general-%05d", i), Status: instance.StatusActive, Flavor: "p2.4c_8g",
			Zone: fmt.Sprintf("HN%d", 1+i%3), BillingPlan: "on_demand", ImageID: nodeClass.Status.Image().ID,
			ClusterUID: unit.ClusterUID, NodeClaim: fmt.Sprintf("general-%05d", i), NodeClaimUID: uid, NodePool: "general",
			NodeClass: nodeClass.Name, Attempt: 1,
		}
		claim := coretest.NodeClaim(karpv1.NodeClaim{
			Spec:   karpv1.NodeClaimSpec{NodeClassRef: unit.NodeClassRef()},
			Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(id), ImageID: server.ImageID, NodeName: server.Name},
		})
		claim.Name, claim.UID = server.NodeClaim, types.UID(uid)
		claim.Annotations = nodeClass.Annotations
		claim.Labels = map[string]string{"node.kubernetes.io/instance-type": server.Flavor, "topology.kubernetes.io/zone": server.Zone}
		f.servers, f.claims = append(f.servers, server), append(f.claims, *claim)
		f.nodes[i].Name, f.byNode[server.Name] = server.Name, &f.nodes[i]
		f.nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	f.snapshot = instance.NewSnapshot(f.servers)
	return f
}

// Get copies what is asked for, as the manager's cache does.
func (f *fleet) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *v1alpha1.BizflyNodeClass:
		f.nodeClass.DeepCopyInto(o)
	case *karpv1.NodeClaim:
		claim, found := lo.Find(f.claims[:1], func(c karpv1.NodeClaim) bool { return c.Name == key.Name })
		if !found {
			return fmt.Errorf("NodeClaim %s is not the first of the fleet", key.Name)
		}
		claim.DeepCopyInto(o)
	case *corev1.Node:
		f.byNode[key.Name].DeepCopyInto(o)
	default:
		return fmt.Errorf("the fleet has no %T", into)
	}
	return nil
}

// List returns what the fleet has without copying it.
func (f *fleet) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch o := into.(type) {
	case *karpv1.NodeClaimList:
		o.Items = f.claims
	case *corev1.NodeList:
		o.Items = f.nodes
	case *v1alpha1.BizflyNodeClassList:
		o.Items = []v1alpha1.BizflyNodeClass{*f.nodeClass}
	default:
		return fmt.Errorf("the fleet has no %T", into)
	}
	return nil
}

// Patch accepts every write and keeps none, so that each turn of a benchmark launches for the same NodeClaim.
func (f *fleet) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// cloud returns the real instance provider over the servers of the fleet.
func (f *fleet) cloud() *instance.DefaultProvider {
	api := memoryAPI{servers: lo.Map(f.servers, func(s *instance.Instance, _ int) *gobizfly.Server {
		return &gobizfly.Server{
			ID: s.ID, Name: s.Name, Status: s.Status, FlavorName: s.Flavor, AvailabilityZone: s.Zone, BillingPlan: s.BillingPlan, NetworkPlan: "free_datatransfer",
			CreatedAt: "2026-01-01T00:00:00Z", AttachedVolumes: []gobizfly.AttachedVolume{{ID: s.ID, AttachedType: "rootdisk"}},
			Metadata: map[string]string{
				v1alpha1.MetadataClusterUID: s.ClusterUID, v1alpha1.MetadataNodeClaim: s.NodeClaim, v1alpha1.MetadataNodeClaimUID: s.NodeClaimUID,
				v1alpha1.MetadataNodePool: s.NodePool, v1alpha1.MetadataNodeClass: s.NodeClass, v1alpha1.MetadataImage: s.ImageID, v1alpha1.MetadataAttempt: "1",
			},
		}
	})}
	settings := unit.Settings(func(o *options.Options) { o.ServerListMaxAge = 0 })
	return instance.NewDefaultProvider(instance.Config{ClusterUID: unit.ClusterUID, Settings: settings, Clock: clock.RealClock{}}, api, nil, nil, nil)
}

// memoryAPI is a cloud whose list of servers is in memory.
type memoryAPI struct {
	bizfly.API
	servers []*gobizfly.Server
}

func (a memoryAPI) ListServers(context.Context) ([]*gobizfly.Server, error) { return a.servers, nil }

// inventory is the cloud's side of a fleet.
type inventory struct {
	*instance.DefaultProvider
	fleet *fleet
}

func (i inventory) Snapshot(context.Context, time.Duration) (*instance.Snapshot, error) {
	return i.fleet.snapshot, nil
}

func (i inventory) Ports(context.Context, time.Duration) (*instance.Ports, error) {
	return &instance.Ports{}, nil
}

func (i inventory) Last(time.Duration) (*instance.Snapshot, *instance.Ports) {
	return i.fleet.snapshot, nil
}

func (i inventory) Leftovers(context.Context) ([]instance.Leftover, error) { return nil, nil }

func (i inventory) Intent(r *instance.LaunchRequest) (instance.Intent, error) {
	return instance.Intent{Attempt: r.Attempt, Name: r.NodeClaim.Name, Flavor: r.Flavor, Zone: r.Zone, BillingPlan: r.BillingPlan}, nil
}

func (i inventory) Doubted(string, *v1alpha1.BizflyNodeClass) bool { return false }

func (i inventory) Launch(_ context.Context, r *instance.LaunchRequest, intent instance.Intent) (*instance.Instance, instance.Intent, error) {
	return &instance.Instance{ID: "33333333-0000-4000-8000-000000000000", Name: intent.Name, Status: instance.StatusActive,
		Flavor: r.Flavor, Zone: r.Zone, NodeClaim: r.NodeClaim.Name, NodePool: r.NodeClaim.Labels[karpv1.NodePoolLabelKey], NodeClass: r.NodeClass.Name,
	}, intent, nil
}
