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
