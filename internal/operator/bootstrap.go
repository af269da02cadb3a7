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
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
)

// buildBKE makes what knows how nodes join BKE, and the catalog, which reads that cluster once it is known.
func (op *Operator) buildBKE(opts *options.Options, reader client.Reader, clk clock.Clock) {
	op.BKE = bke.NewDefaultProvider(bke.Config{
		Values: bke.Values{
			ClusterID: opts.BKEClusterID, Token: opts.BKEClusterToken, JoinEndpoint: opts.BKEJoinEndpoint, LogEndpoint: opts.BKELogEndpoint,
		},
		Discover: opts.BKEDiscoverFromPool,
	}, reader, op.API, clk)
	config := catalog.Config{BKEClusterID: opts.BKEClusterID}
	if opts.BKEDiscoverFromPool {
		config.LearnedBKEClusterID = func() string { return op.BKE.Known().ClusterID }
	}
	op.Catalog = catalog.NewDefaultProvider(op.API, clk, config)
}

// buildBootstrap makes what makes user data.
func (op *Operator) buildBootstrap(opts *options.Options, reader client.Reader, writer client.Client, clk clock.Clock) {
	config := bootstrap.Config{
		ClusterName:         opts.ClusterName,
		BKE:                 op.BKE,
		BKEKubeletArgsFile:  opts.BKEKubeletArgsFile,
		Reader:              reader,
		Namespace:           opts.Namespace,
		UserDataSecretNames: opts.UserDataSecretNames,
		ClusterEndpoint:     opts.ClusterEndpoint,
		CABundle:            authority(op.GetConfig()),
		ClusterDNS:          opts.ClusterDNS,
	}
	if opts.JoinTokens {
		op.JoinTokens = jointoken.NewDefaultProvider(writer, clk)
		config.JoinTokens = op.JoinTokens
	}
	op.Bootstrap = bootstrap.NewDefaultProvider(config, op.Catalog)
}

// learnBKE learns what the environment leaves out, where that is allowed. What could not be learned is said by the
// NodeClasses that need it and looked for again.
func (op *Operator) learnBKE(ctx context.Context) {
	if _, err := op.BKE.Values(ctx); err != nil {
		log.FromContext(ctx).Error(err, "not all BKE values are known yet")
	}
}

// olderKinds are the custom resources of the older provider, and olderLease is the Lease that it takes.
var olderKinds = []schema.GroupKind{
	{Group: "karpenter.bizflycloud.com", Kind: "BizflyCloudNodeClass"},
	{Group: "karpenter.bizflycloud.com", Kind: "ProviderConfig"},
}

const olderLease = "karpenter-leader-election"

// Foreign returns the traces of an older provider of this cloud: its custom resource definitions, which discovery shows without
// a right of its own, and its Lease while another deployment holds it. What cannot be read is not reported.
func Foreign(ctx context.Context, mapper meta.RESTMapper, reader client.Reader, clk clock.Clock, namespace, ourLease string) []string {
	var found []string
	if kinds := lo.Filter(olderKinds, func(kind schema.GroupKind, _ int) bool {
		_, err := mapper.RESTMapping(kind)
		return err == nil
	}); len(kinds) > 0 {
		found = append(found, fmt.Sprintf("The cluster has custom resources of an older Karpenter provider for BizFly Cloud: %v", kinds))
	}
	lease := &coordinationv1.Lease{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: olderLease}, lease); err != nil {
		log.FromContext(ctx).V(1).Info("cannot tell whether an older provider runs", "Lease", olderLease, "reason", err.Error())
		return found
	}
	holder := lo.FromPtr(lease.Spec.HolderIdentity)
	expires := lo.FromPtr(lease.Spec.RenewTime).Add(time.Duration(lo.FromPtr(lease.Spec.LeaseDurationSeconds)) * time.Second)
	hostname, _ := os.Hostname()
	// Where our own Lease has the same name, another replica of this deployment holds it rightly.
	if holder == "" || clk.Now().After(expires) || (ourLease == olderLease && deployment(holder) == deployment(hostname)) {
		return found
	}
	return append(found, fmt.Sprintf("%s holds the Lease %s/%s of an older Karpenter provider%s", holder, namespace, olderLease,
		lo.Ternary(ourLease == olderLease, ", which this controller waits for (LEADER_ELECTION_NAME)", "")))
}

// deployment is the name of the Deployment of a pod, whose name begins the identity of a Lease's holder.
func deployment(identity string) string {
	pod, _, _ := strings.Cut(identity, "_")
	parts := strings.Split(pod, "-")
	return strings.Join(parts[:max(len(parts)-2, 0)], "-")
}

// authority is what the controller itself trusts the API server by; nil where that is not a certificate of its own.
func authority(config *rest.Config) []byte {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData
	}
	content, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil
	}
	return content
}

// Readiness needs no check of ours. Core's say that the caches are filled and the definitions installed, and a process
// whose configuration cannot be parsed ends before it answers the first of them. What the cloud does is a condition and a
// metric, and never a reason to take a replica out of service or to end it: an outage must not block an upgrade.

// watch adds the one liveness check of ours. Every piece of work has a deadline, so that only a defect makes one hang; the
// look at the configuration runs through all parts that others wait for.
func (op *Operator) watch() error {
	if err := op.AddHealthzCheck("configuration", Alive(op.Config.Hung)); err != nil {
		return fmt.Errorf("adding the liveness check: %w", err)
	}
	return nil
}

// Alive fails while the process hangs, and logs why: nobody keeps the reply of the probe that ends a container.
func Alive(hung func() error) healthz.Checker {
	return func(request *http.Request) error {
		err := hung()
		if err != nil {
			log.FromContext(request.Context()).WithName("liveness").Error(err, "only a restart can help")
		}
		return err
	}
}
