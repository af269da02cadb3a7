// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// skips are the specs that are not run, by their whole text, each with the reason why it cannot be. A spec that skips itself and is
// not listed here counts as failed.
var skips = map[string]string{
	"Chaos Runaway Scale-Up should not produce a runaway scale-up when consolidation is enabled": spot +
		": nothing would be launched, and the spec would prove nothing",
	"Drift NodePool Drift NodeRequirements": spot,
	"Integration DaemonSet should correctly account for host ports of uncached daemonset pods targeting different instance types": "needs arm64, which BizFly " +
		"Cloud does not have",
	"Repair Kubelet conditions Conditions Node Ready False":   kubelet,
	"Repair Kubelet conditions Conditions Node Ready Unknown": kubelet,
}

const (
	spot    = "needs spot capacity, which BizFly Cloud does not have"
	kubelet = "runs with core's KWOK provider only: no other can hold a kubelet's Ready condition at an injected value"
)
