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

package operator

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// PreflightCommand is the argument that makes the binary check its configuration and end: `helm test` runs it.
const PreflightCommand = "preflight"

// Preflight checks everything that an installation needs before it can launch a server, with the configuration and the rights of
// the controller, and changes nothing. It writes one line for each check; its error counts those that failed.
func Preflight(ctx context.Context, reader client.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, ttl.Startup)
	defer cancel()
	opts := options.FromContext(ctx)
	failed := 0
	passed := func(what string, err error) bool {
		if err != nil {
			failed++
			_, _ = fmt.Fprintf(out, "FAILED %s: %s\n", what, strings.ReplaceAll(err.Error(), "\n", "; "))
			return false
		}
		_, _ = fmt.Fprintf(out, "ok     %s\n", what)
		return true
	}
	op := &Operator{Settings: options.NewStore(opts)}
	if passed("the configuration", op.connect(ctx, opts, reader)) {
		login := "the login at " + lo.CoalesceOrEmpty(opts.APIURL, bizfly.DefaultAPIURL) + " in " + opts.Region
		if passed(login, op.Config.Sync(ctx).Err()) {
			op.buildBKE(opts, reader, clock.RealClock{})
			if opts.BKEClusterID != "" || opts.BKEDiscoverFromPool {
				_, err := op.BKE.Values(ctx)
				passed("the cluster in BizFly Kubernetes Engine", err)
			}
			passed("the catalog of BizFly Cloud", op.Catalog.Refresh(ctx))
		}
	}
	configs, classes, pools := &v1alpha1.ProviderConfigList{}, &v1alpha1.BizflyNodeClassList{}, &karpv1.NodePoolList{}
	for _, list := range []client.ObjectList{configs, classes, pools} {
		if err := reader.List(ctx, list); err != nil {
			passed("the custom resource definitions", err)
		}
	}
	for i := range configs.Items {
		passed("ProviderConfig "+configs.Items[i].Name, ready(&configs.Items[i]))
	}
	for i := range classes.Items {
		passed("BizflyNodeClass "+classes.Items[i].Name, ready(&classes.Items[i]))
	}
	for i := range pools.Items {
		passed("NodePool "+pools.Items[i].Name, ready(&pools.Items[i]))
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed (above)", failed)
	}
	return nil
}

// ready returns the conditions for which an object is not ready.
func ready(object status.Object) error {
	conditions := object.StatusConditions()
	if conditions.Root().IsTrue() {
		return nil
	}
	causes := lo.FilterMap(object.GetConditions(), func(c status.Condition, _ int) (string, bool) {
		return fmt.Sprintf("%s=%s (%s) %s", c.Type, c.Status, c.Reason, c.Message), !c.IsTrue() && c.Type != status.ConditionReady
	})
	if len(causes) == 0 {
		return fmt.Errorf("it is not ready yet")
	}
	return fmt.Errorf("%s", strings.Join(causes, ", "))
}
