// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// BenchmarkRest2000 is what this provider does in two minutes in which nothing happens to 2,000 nodes, per node.
func BenchmarkRest2000(b *testing.B) { rest(b, 2000) }

// BenchmarkRest5000 must cost as much per node.
func BenchmarkRest5000(b *testing.B) { rest(b, many) }

// BenchmarkRest500 must cost as much per node.
func BenchmarkRest500(b *testing.B) { rest(b, few) }

// BenchmarkRest100 may cost more per node, since some work does not depend on their number.
func BenchmarkRest100(b *testing.B) { rest(b, 100) }

// steady is the real instance provider over a cloud in which no deletion is under way and which lists no interfaces.
type steady struct{ *instance.DefaultProvider }

func (steady) Ports(context.Context, time.Duration) (*instance.Ports, error) {
	return &instance.Ports{}, nil
}

func (steady) Leftovers(context.Context) ([]instance.Leftover, error) { return nil, nil }

// rest runs the periodic work of the real controllers, and what core asks for: in two minutes, the longest of the intervals.
func rest(b *testing.B, nodes int) {
	env, nodeClass := account(b)
	empty := heap()
	f := newFleet(nodeClass, nodes)
	f.Client = env.Client
	for i := range f.claims {
		id, _ := providerid.Parse(f.claims[i].Status.ProviderID) // and that of the root disk
		f.claims[i].StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		f.claims[i].Annotations = lo.Assign(f.claims[i].Annotations, map[string]string{
			v1alpha1.AnnotationDelivered: fmt.Sprintf(`{"billingPlan":"on_demand","interfaces":["p"],"disks":{%q:{"gib":40,"type":"SSD"}}}`, id),
		})
	}
	instances := steady{f.cloud()}
	config := env.CloudProviderConfig
	config.KubeClient, config.APIReader, config.Instances = f, f, instances
	provider := cloudprovider.New(config)
	collector := garbagecollection.NewController(garbagecollection.Config{Settings: env.Settings}, f, f, instances, env.Recorder, env.Clock)
	servers := server.NewController(f, instances, env.Networks, provider.Launches, nil, env.Recorder, env.Clock)
	conditions := usage.NewController(f, env.Recorder, env.Clock, provider)
	// The conditions are written once.
	if _, err := conditions.Reconcile(ctx, nodeClass); err != nil {
		b.Fatal(err)
	}
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(nodeClass), nodeClass); err != nil {
		b.Fatal(err)
	}
	ok := func(done bool, err error) {
		if !done || err != nil {
			b.Helper()
			b.Fatal("the fleet is not at rest", err)
		}
	}
	minutes := func() {
		_, err := collector.Reconcile(ctx)
		ok(true, err)
		claims, err := provider.List(ctx)
		ok(len(claims) == nodes, err)
		for range ttl.InPlace / ttl.NodeClassConditions {
			_, err = conditions.Reconcile(ctx, nodeClass)
			ok(true, err)
		}
		for i := range f.claims {
			result, err := servers.Reconcile(ctx, &f.claims[i])
			ok(result.RequeueAfter == ttl.InPlace, err)
			reason, err := provider.IsDrifted(ctx, &f.claims[i])
			ok(reason == "", err)
		}
	}
	minutes() // what is kept from pass to pass belongs to the start
	used := heap() - empty
	m := measure(b)
	for b.Loop() {
		minutes()
	}
	m.report()
	b.ReportMetric(float64(m.spent)/float64(b.N)/float64(nodes), "cpu-ns/node")
	b.ReportMetric(used/float64(nodes), "heap-B/node")
}
