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

// Command controller runs Karpenter core with the BizFly Cloud provider. It is wiring and nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	corecontrollers "sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/logging"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/doctor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/session"
	// Its options join core's.
	_ "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/logging"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		fmt.Println(operator.Version())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "preflight" {
		exitOn(preflight(os.Args[2:]))
		return
	}
	// Core panics over an option that it cannot use; Preflight reports it in one line instead.
	exitOn(options.Preflight(os.Args[1:]))

	ctx, core := coreoperator.NewOperator()
	// Core listens to no signal: without this a rollout would end the process in the middle of its calls, and its lease would
	// have to run out before another replica leads. A second signal ends it at once.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	lifecycle.LaunchTimeout = options.FromContext(ctx).LaunchTimeout
	op, err := operator.New(ctx, core)
	exitOn(err)

	undecorated := metrics.Decorate(op.CloudProvider)
	cloudProvider := overlay.Decorate(undecorated, op.GetClient(), op.InstanceTypeStore)
	repairPolicies, err := health.NewRepairPolicyMatcher(ctx, cloudProvider)
	exitOn(err)
	clusterState := state.NewCluster(op.Clock, op.GetClient(), cloudProvider, state.WithRepairPolicyMatcher(repairPolicies))

	ours := providerControllers(op, options.FromContext(ctx))
	op.
		WithControllers(ctx, corecontrollers.NewControllers(
			ctx,
			op.Manager,
			op.Clock,
			op.GetClient(),
			op.EventRecorder,
			cloudProvider,
			undecorated,
			clusterState,
			op.InstanceTypeStore,
			op.PredictionStore,
		)...).
		WithControllers(ctx, ours...).
		Start(ctx)
}

// preflight runs the checks of `kubectl bizfly doctor` with the configuration and the rights of the controller: `helm test` does.
func preflight(args []string) error {
	if err := options.Preflight(args); err != nil {
		return err
	}
	log.SetLogger(logging.NopLogger)
	ctx, cancel := context.WithTimeout(context.Background(), ttl.Startup)
	defer cancel()
	s, err := session.NewInController(ctx, controllerruntime.GetConfig, args...)
	if err != nil {
		return err
	}
	printer, err := output.New(os.Stdout, os.Stderr, output.Table)
	if err != nil {
		return err
	}
	report := doctor.Examine(s.Context(ctx), s)
	doctor.Print(printer, report)
	if report.Failed(false) {
		return errors.New("the checks found errors (above)")
	}
	return nil
}

// exitOn ends the process over an error, which it says in one line.
func exitOn(err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "karpenter-provider-bizflycloud cannot start: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(1)
}
