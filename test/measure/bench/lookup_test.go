// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"sync"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
)

// BenchmarkInstanceTypesWarm is what core asks hundreds of times per minute. It must allocate nothing and take no lock:
// it costs two lookups in a sync.Map, and a lock would cost a third.
func BenchmarkInstanceTypesWarm(b *testing.B) {
	env, nodeClass := account(b)
	env.Capacity.MarkUnavailable(ctx, capacity.Offering{Zone: "HN3"}, capacity.ReasonInsufficientCapacity, time.Hour)
	typesOf(b, env, nodeClass)
	m := measure(b)
	for b.Loop() {
		if types, err := env.Flavors.List(ctx, nodeClass); err != nil || len(types) != flavors {
			b.Fatal(len(types), err)
		}
	}
	m.report()
}

// BenchmarkSyncMapLoad is what the warm lookup is measured against.
func BenchmarkSyncMapLoad(b *testing.B) {
	_, nodeClass := account(b)
	var known sync.Map
	known.Store(nodeClass.UID, 1)
	m := measure(b)
	for b.Loop() {
		if _, ok := known.Load(nodeClass.UID); !ok {
			b.Fatal("missing")
		}
	}
	m.report()
}

// BenchmarkInstanceTypesMark is one offering that becomes unavailable and available again: two of 900 offerings are built again.
func BenchmarkInstanceTypesMark(b *testing.B) {
	env, nodeClass := account(b)
	scope := capacity.Offering{Flavor: typesOf(b, env, nodeClass)[7].Name, Zone: "HN1", BillingPlan: "on_demand"}
	m := measure(b)
	for b.Loop() {
		env.Capacity.MarkUnavailable(ctx, scope, capacity.ReasonInsufficientCapacity, time.Minute)
		typesOf(b, env, nodeClass)
		env.Clock.Step(time.Minute)
		typesOf(b, env, nodeClass)
	}
	m.report()
}

// BenchmarkInstanceTypesFull builds all of them twice, as often as the benchmark above asks.
func BenchmarkInstanceTypesFull(b *testing.B) {
	env, nodeClass := account(b)
	m := measure(b)
	for b.Loop() {
		for range 2 {
			env.Flavors.Flush()
			typesOf(b, env, nodeClass)
		}
	}
	m.report()
}

// BenchmarkServerLookup5000 is what each reconciliation of a NodeClaim does among 5,000 servers: find one by its id, and those
// that were launched for a NodeClaim.
func BenchmarkServerLookup5000(b *testing.B) { lookUp(b, many) }

// BenchmarkServerLookup500 must cost as much.
func BenchmarkServerLookup500(b *testing.B) { lookUp(b, few) }

func lookUp(b *testing.B, n int) {
	_, nodeClass := account(b)
	f := newFleet(nodeClass, n)
	provider, uid := f.cloud(), f.servers[n/2].NodeClaimUID
	if _, err := provider.Snapshot(ctx, 0); err != nil {
		b.Fatal(err)
	}
	m := measure(b)
	for b.Loop() {
		servers, err := provider.Snapshot(ctx, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		of := servers.OfNodeClaim(uid)
		if len(of) != 1 || servers.Get(of[0].ID) != of[0] {
			b.Fatal(of)
		}
	}
	m.report()
}

// BenchmarkServerRefresh5000 is what one list of 5,000 servers costs all of its readers together: conversion and index.
func BenchmarkServerRefresh5000(b *testing.B) { refresh(b, many) }

// BenchmarkServerRefresh500 must cost a tenth.
func BenchmarkServerRefresh500(b *testing.B) { refresh(b, few) }

func refresh(b *testing.B, n int) {
	_, nodeClass := account(b)
	provider := newFleet(nodeClass, n).cloud()
	m := measure(b)
	for b.Loop() {
		if servers, err := provider.Snapshot(ctx, 0); err != nil || len(servers.All()) != n {
			b.Fatal(servers, err)
		}
	}
	m.report()
}
