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
	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/cost"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/inplace"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/nodesize"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/registration"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/repair"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/volumes"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/hash"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/launches"
	nodeclassstatus "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/termination"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodepool/capacitytype"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// providerControllers are this provider's own controllers, beside core's.
func providerControllers(op *operator.Operator, opts *options.Options) []controller.Controller {
	kubeClient, recorder := op.GetClient(), op.EventRecorder
	all := []controller.Controller{
		providerconfig.NewController(op.Clock, kubeClient, recorder, op.Config, op.Tuning, op.Zones, opts.CreateProviderConfig, op.Elected(), op.Foreign...),
		catalog.NewController(op.Catalog, catalog.Config{Settings: op.Settings}),
		nodeclassstatus.NewController(kubeClient, recorder, op.Clock, op.Zones, op.Images, op.Networks, op.Bootstrap, op.Flavors),
		hash.NewController(kubeClient),
		launches.NewController(kubeClient, op.CloudProvider, op.Clock),
		termination.NewController(kubeClient, recorder),
		usage.NewController(kubeClient, recorder, op.Clock, op.Catalog),
		launch.NewController(kubeClient, op.Instances, op.CloudProvider, recorder, op.Clock),
		registration.NewController(kubeClient),
		volumes.NewController(kubeClient, op.Instances),
		repair.NewController(kubeClient, op.Instances, recorder, op.Clock),
		inplace.NewController(kubeClient, op.Instances, recorder, op.Clock),
		nodesize.NewController(kubeClient, op.Flavors, recorder),
		cost.NewController(kubeClient, op.Flavors),
		capacitytype.NewController(kubeClient, recorder, op.Clock),
		garbagecollection.NewController(garbagecollection.Config{
			Settings: op.Settings, DryRun: opts.GarbageCollectionDryRun,
		}, kubeClient, op.GetAPIReader(), op.Instances, recorder, op.Clock),
		statusController[*v1alpha1.BizflyNodeClass](op),
		statusController[*v1alpha1.ProviderConfig](op),
	}
	if op.JoinTokens != nil {
		all = append(all, jointoken.NewController(kubeClient, op.JoinTokens))
	}
	return all
}

// statusController publishes the conditions of a kind as metrics and events, as core does for its own kinds.
func statusController[T status.Object](op *operator.Operator) controller.Controller {
	return status.NewController[T](
		op.GetClient(),
		op.GetEventRecorderFor("karpenter"), //nolint:staticcheck // SA1019: operatorpkg takes no other recorder yet
		status.EmitDeprecatedMetrics,
	)
}
