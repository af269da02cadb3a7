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

package cloudprovider

import (
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// repairPolicies are what core repairs a node for when its NodeRepair gate is on, under the budgets of the NodePool and
// never while more than 20 % of its nodes are unhealthy. Of several policies that apply, core takes the most disruptive
// action, so the one for servers that do not run tolerates less than the reboot, which would fail there.
var repairPolicies = []cloudprovider.RepairPolicy{
	// Nothing runs, and nothing can be drained.
	{
		ConditionType: v1alpha1.ConditionTypeServerRunning, ConditionStatus: corev1.ConditionFalse, ReasonRegex: ".*",
		TolerationDuration: 3 * time.Minute, TerminationGracePeriod: lo.ToPtr(time.Duration(0)), Priority: 20, Action: cloudprovider.ReplaceNode,
	},
	// The server runs and its kubelet is silent: mostly a hung kernel, which a reboot ends where nothing else does. Its
	// pods are evicted at the same time, five minutes after the last heartbeat. Core replaces the node when it does not
	// come back, and after two reboots within a day.
	{
		ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, ReasonRegex: ".*",
		TolerationDuration: 5 * time.Minute, TerminationGracePeriod: lo.ToPtr(time.Duration(0)), Priority: 10, Action: cloudprovider.RebootNode,
	},
	// node-problem-detector's conditions, which it never takes back, so there is nothing to wait for: a hung kernel runs again
	// after a reboot, a file system that was mounted read-only does not.
	{
		ConditionType: "KernelDeadlock", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(time.Minute), Priority: 5, Action: cloudprovider.RebootNode,
	},
	{
		ConditionType: "ReadonlyFilesystem", ConditionStatus: corev1.ConditionTrue, ReasonRegex: ".*",
		TolerationDuration: time.Minute, TerminationGracePeriod: lo.ToPtr(5 * time.Minute), Priority: 5, Action: cloudprovider.ReplaceNode,
	},
	// The fallback. A kubelet that reports NotReady often recovers by itself, and can still end pods.
	{
		ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse,
		TolerationDuration: 15 * time.Minute, TerminationGracePeriod: lo.ToPtr(5 * time.Minute), Action: cloudprovider.ReplaceNode,
	},
}
