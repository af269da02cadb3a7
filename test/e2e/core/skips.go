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

	"Performance Drift Performance should efficiently handle drift replacement of pods with topology constraints":               twoCores,
	"Performance Do Not Disrupt Performance Test should efficiently scale three deployments and test disruption protection":     twoCores,
	"Performance Host Name Spreading Deployment Reg should efficiently scale two deployments with host name topology spreading": twoCores,
	"Performance Wide Deployments should efficiently scale 30 deployments with varied resources and topology constraints":       twoCores,
	"Performance Self Anti-Affinity Deployment Interference should efficiently scale two deployments with self anti-affinity": "waits 5 minutes for 500 more " +
		"nodes, and two cores need longer to simulate so many (docs/contribute/benchmarks.md)",
	"Performance Host Name Spreading Deployment XL should efficiently scale two deployments with host name topology spreading at XL scale": "is Host Name " +
		"Spreading Deployment Reg with twice the pods: more than 600 nodes, too many for two cores",

	"DRA KWOK Driver GPU Configuration should create and manage ResourceSlices based on CRD configuration":                                     devices,
	"DRA KWOK Driver GPU Configuration should handle DRAConfig updates dynamically":                                                            devices,
	"DRA KWOK Driver Advanced Device Configuration should support FPGA device types":                                                           devices,
	"DRA KWOK Driver Advanced Device Configuration should support multiple ResourceSlices for single instance type":                            devices,
	"DRA KWOK Driver Multi-Driver Support should support multiple drivers simultaneously":                                                      devices,
	"DRA KWOK Driver Multi-Driver Support should warn on duplicate driver configs":                                                             devices,
	"DRA KWOK Driver DRA Pod Scheduling in KWOK Environment should prepare DRA testing infrastructure for future Karpenter DRA implementation": kwokTypes,
	"DRA KWOK Driver DRA Pod Scheduling in KWOK Environment should ignore DRA pods when IgnoreDRARequests is enabled (default behavior)": kwokTypes +
		", so that it would prove nothing; test/component/scheduling has our own",
	"DRA KWOK Driver Configuration Validation should reject invalid DRAConfig via API server validation": driverOnly,
	"DRA KWOK Driver CRD-Specific Features should support DRAConfig CRD status fields":                   driverOnly,
}

const (
	twoCores   = "has not been run to its end yet: two cores take more than an hour for its hundreds of nodes"
	spot       = "needs spot capacity, which BizFly Cloud does not have"
	kubelet    = "runs with core's KWOK provider only: no other can hold a kubelet's Ready condition at an injected value"
	devices    = "needs the devices that core's DRA driver for KWOK gives to instance types of core's KWOK provider"
	kwokTypes  = "launches instance types of core's KWOK provider only"
	driverOnly = "tests the custom resource of core's DRA driver for KWOK, and nothing of a provider"
)
