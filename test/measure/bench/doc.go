// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures what core asks of the provider all the time: instance types, drift, the list of servers, the
// choice of an offering, garbage collection, and core's own scheduler with our instance types. `make bench` runs it in
// rounds and compares ratios and allocations with their bounds (bounds_test.go); nothing here promises a time.
package bench
