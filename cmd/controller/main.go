// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controller runs Karpenter core with the BizFly Cloud provider. It is wiring and nothing else.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	corecontrollers "sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/nominated"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/protection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/unregistered"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/garbagecollection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/nodesize"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/surplus"
	nodeclassstatus "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/usage"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/preflight"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		fmt.Println(operator.Version())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "preflight" {
		exitOn(checkReady(os.Args[2:]))
		return
	}
	// Core panics over an option that it cannot use; Preflight reports it in one line instead.
	exitOn(options.Preflight(os.Args[1:]))

	ctx, core := coreoperator.NewOperator()
	// Core listens to no signal: without this a rollout would end the process in the middle of its calls, and its lease
	// would have to run out before another replica leads. A second signal ends it at once.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	lifecycle.LaunchTimeout = options.FromContext(ctx).LaunchTimeout
	op, err := operator.New(ctx, core)
	exitOn(err)

	cloudProvider := op.Providers.CloudProvider
	wired, err := wiring.NewCore(ctx, op.Core.Clock, op.Core.GetClient(), metrics.Decorate(cloudProvider),
		op.Core.InstanceTypeStore)
	exitOn(err)
	ours := providerControllers(op, options.FromContext(ctx), wired.Cluster)
	op.Core.
		WithControllers(ctx, cloudProvider.HoldStaticPools(wired.Cluster, corecontrollers.NewControllers(
			ctx,
			op.Core.Manager,
			op.Core.Clock,
			wired.Client,
			op.Core.EventRecorder,
			wired.CloudProvider,
			wired.Undecorated,
			wired.Cluster,
			wired.Overlays,
			op.Core.PredictionStore,
		))...).
		WithControllers(ctx, ours...).
		Start(ctx)
}

// checkReady is what `helm test` runs, with the configuration and the rights of the controller. What was installed a
// moment ago gets some time.
func checkReady(args []string) error {
	if err := options.Preflight(args); err != nil {
		return err
	}
	config, err := controllerruntime.GetConfig()
	if err != nil {
		return err
	}
	config.Timeout = ttl.Startup
	reader, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	var text string
	var failed error
	ctx := context.Background()
	_ = wait.PollUntilContextTimeout(ctx, ttl.PreflightInterval, ttl.PreflightPatience, true,
		func(context.Context) (bool, error) {
			text, failed = preflight.Look(ctx, reader)
			return failed == nil, nil
		})
	fmt.Print(text)
	return failed
}

// exitOn ends the process over an error, which it says in one line.
func exitOn(err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "karpenter-provider-bizflycloud cannot start: %s\n",
		strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(1)
}

// providerControllers are this provider's own controllers, beside core's.
func providerControllers(op *operator.Operator, opts *options.Options, cluster *state.Cluster) []controller.Controller {
	kubeClient, recorder, clk, p := op.Core.GetClient(), op.Core.EventRecorder, op.Core.Clock, op.Providers
	return []controller.Controller{
		providerconfig.NewController(clk, kubeClient, recorder, op.Config, op.Tuning, p.Catalog,
			p.CloudProvider.Launches, p.Account.UnpaidAtRest, p.Instances.Forms(), opts.CreateProviderConfig,
			op.Core.Elected()),
		catalog.NewController(p.Catalog, op.Settings),
		nodeclassstatus.NewController(kubeClient, clk, p.Catalog, p.Images, p.Networks, p.Bootstrap, p.Flavors),
		usage.NewController(kubeClient, recorder, clk, p.CloudProvider),
		server.NewController(kubeClient, p.Instances, p.Networks, p.CloudProvider.Launches, p.JoinTokens, recorder, clk),
		unregistered.NewController(kubeClient, op.ClusterUID),
		protection.NewController(kubeClient, clk, p.Account, p.Instances, recorder),
		nominated.NewController(kubeClient, cluster),
		nodesize.NewController(kubeClient, p.Flavors, recorder),
		surplus.NewController(kubeClient, cluster, recorder, clk),
		garbagecollection.NewController(garbagecollection.Config{
			Settings: op.Settings, DryRun: opts.GarbageCollectionDryRun, Recognized: op.Config.CheckControlPlane,
		}, kubeClient, op.Core.GetAPIReader(), p.Instances, recorder, clk),
		statusController[*v1alpha1.BizflyNodeClass](op),
		statusController[*v1alpha1.ProviderConfig](op),
	}
}

// statusController publishes the conditions of a kind as metrics and events, as core does for its own kinds.
func statusController[T status.Object](op *operator.Operator) controller.Controller {
	return status.NewController[T](
		op.Core.GetClient(),
		op.Core.GetEventRecorderFor("karpenter"), //nolint:staticcheck // SA1019: operatorpkg takes no other recorder yet
		status.EmitDeprecatedMetrics,
	)
}
