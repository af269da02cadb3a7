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

package flavor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
)

// empty is a cluster without claims, for benchmarks, which have no API server.
type empty struct{ client.Client }

func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// BenchmarkInstanceTypesWarm is the lookup that core makes hundreds of times in a scheduling round: 300 flavors in 3
// zones, nothing changed. Compare it with BenchmarkSyncMapLoad of the same run.
func BenchmarkInstanceTypesWarm(b *testing.B) {
	ctx := context.Background()
	r := newRoom(newHandmade(manyFlavors(300)...), empty{})
	nodeClass := newNodeClass("HN1", "HN2", "HN3")
	r.marks.MarkUnavailable(ctx, capacity.Offering{Zone: "HN3"}, capacity.ReasonInsufficientCapacity, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if types, err := r.List(ctx, nodeClass); err != nil || len(types) != 300 {
			b.Fatal(len(types), err)
		}
	}
}

// BenchmarkSyncMapLoad is the yardstick of BenchmarkInstanceTypesWarm.
func BenchmarkSyncMapLoad(b *testing.B) {
	var m sync.Map
	uid := newNodeClass().UID
	m.Store(uid, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := m.Load(uid); !ok {
			b.Fatal("missing")
		}
	}
}

// BenchmarkInstanceTypesMark is what a sold-out offering costs: one of 300 types is made anew.
func BenchmarkInstanceTypesMark(b *testing.B) {
	ctx := context.Background()
	source := newHandmade(manyFlavors(300)...)
	r := newRoom(source, empty{})
	nodeClass := newNodeClass("HN1", "HN2", "HN3")
	scope := capacity.Offering{Flavor: source.snapshot.Flavors[7].Name, Zone: "HN1", BillingPlan: "on_demand"}
	b.ReportAllocs()
	for b.Loop() {
		r.marks.MarkUnavailable(ctx, scope, capacity.ReasonInsufficientCapacity, time.Minute)
		if _, err := r.List(ctx, nodeClass); err != nil {
			b.Fatal(err)
		}
		r.clock.Step(time.Minute)
		if _, err := r.List(ctx, nodeClass); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInstanceTypesCold is what a change of the catalog costs: everything is made anew.
func BenchmarkInstanceTypesCold(b *testing.B) {
	ctx := context.Background()
	source := newHandmade(manyFlavors(300)...)
	r := newRoom(source, empty{})
	nodeClass := newNodeClass("HN1", "HN2", "HN3")
	b.ReportAllocs()
	for b.Loop() {
		source.change(func(*catalog.Snapshot) {})
		if _, err := r.List(ctx, nodeClass); err != nil {
			b.Fatal(err)
		}
	}
}
