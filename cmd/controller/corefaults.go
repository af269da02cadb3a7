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

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/corefaults"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

// coreFaults are the cures of faults of this version of core.
func coreFaults(ctx context.Context, op *operator.Operator, memory *corefaults.ClaimMemory, cloudProvider cloudprovider.CloudProvider, cluster *state.Cluster) []controller.Controller {
	cures := []controller.Controller{corefaults.NewStaleClaims(memory, op.GetAPIReader(), cluster)}
	if coreoptions.FromContext(ctx).FeatureGates.NodeRepair {
		cures = append(cures, corefaults.NewLateNodes(op.GetClient(), cloudProvider, op.Clock, op.EventRecorder))
	}
	return cures
}
