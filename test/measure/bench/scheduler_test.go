// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"testing"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	coretest "sigs.k8s.io/karpenter/pkg/test"
)

// BenchmarkScheduler1000 is core's scheduler with 1,000 diverse pods and our instance types.
func BenchmarkScheduler1000(b *testing.B) { schedule(b, 1000, ours(b)) }

// BenchmarkSchedulerCore1000 is the same with as many of core's own fake types.
func BenchmarkSchedulerCore1000(b *testing.B) { schedule(b, 1000, fake.InstanceTypes(flavors)) }

// BenchmarkScheduler5000 is core's scheduler with 5,000 diverse pods and our instance types.
func BenchmarkScheduler5000(b *testing.B) { schedule(b, 5000, ours(b)) }

// BenchmarkSchedulerCore5000 is the same with as many of core's own fake types.
func BenchmarkSchedulerCore5000(b *testing.B) { schedule(b, 5000, fake.InstanceTypes(flavors)) }

func ours(b *testing.B) []*corecloudprovider.InstanceType {
	b.Helper()
	env, nodeClass := account(b)
	return typesOf(b, env, nodeClass)
}

// schedule solves the pods anew in each turn, as core's own benchmark does in its first.
func schedule(b *testing.B, count int, instanceTypes []*corecloudprovider.InstanceType) {
	pods := diversePods(count)
	nodes := 0
	m := measure(b)
	for b.Loop() {
		m.pause()
		scheduler := newScheduler(b, pods, instanceTypes)
		m.resume()
		results, err := scheduler.Solve(ctx, pods)
		if err != nil || len(results.PodErrors) > 0 {
			b.Fatalf("%d pods found no place: %v %v", len(results.PodErrors), err, lo.Slice(lo.Values(results.PodErrors), 0, 2))
		}
		nodes = len(results.NewNodeClaims)
	}
	m.report()
	b.ReportMetric(float64(nodes), "nodes")
}

func newScheduler(b *testing.B, pods []*corev1.Pod, instanceTypes []*corecloudprovider.InstanceType) *scheduling.Scheduler {
	b.Helper()
	pool := coretest.NodePool(karpv1.NodePool{Spec: karpv1.NodePoolSpec{Limits: karpv1.Limits{
		corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi"),
	}}})
	byPool := map[string][]*corecloudprovider.InstanceType{pool.Name: instanceTypes}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = instanceTypes
	kubeClient := fakeclient.NewFakeClient()
	cluster := state.NewCluster(clock.RealClock{}, kubeClient, provider)
	options := []scheduling.Options{scheduling.NumConcurrentReconciles(5)}
	topology, err := scheduling.NewTopology(ctx, kubeClient, cluster, nil, []*karpv1.NodePool{pool}, byPool, pods, options...)
	if err != nil {
		b.Fatal(err)
	}
	return scheduling.NewScheduler(ctx, kubeClient, []*karpv1.NodePool{pool}, cluster, nil, topology, byPool, nil,
		events.NewRecorder(&record.FakeRecorder{}), clock.RealClock{}, nil, nil, options...)
}

// diversePods are pods of core's test package, shaped like those of its benchmark: a fifth each without wishes, spread
// over zones, spread over nodes, preferably with others of their kind in a zone, and away from others on a node.
func diversePods(count int) []*corev1.Pod {
	shapes := []func() coretest.PodOptions{
		coretest.MakeGenericPodOptions,
		func() coretest.PodOptions { return coretest.MakeTopologySpreadPodOptions(corev1.LabelTopologyZone) },
		func() coretest.PodOptions { return coretest.MakeTopologySpreadPodOptions(corev1.LabelHostname) },
		func() coretest.PodOptions { return coretest.MakePodAffinityPodOptions(corev1.LabelTopologyZone) },
		func() coretest.PodOptions { return coretest.MakePodAntiAffinityPodOptions(corev1.LabelHostname) },
	}
	pods := make([]*corev1.Pod, 0, count)
	for i := range count {
		pod := coretest.Pod(shapes[i%len(shapes)]())
		pod.UID = uuid.NewUUID() // the scheduler caches by it
		pods = append(pods, pod)
	}
	return pods
}
