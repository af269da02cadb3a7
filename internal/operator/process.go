// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/utils/env"
)

// Name is the binary's name.
const Name = "karpenter-provider-bizflycloud"

// commit is set by the linker where the sources are built without their repository, as in an image.
var commit string

func init() {
	buildInfo := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "karpenter_bizfly_build_info",
		Help: "Always 1. By the version, commit and Go version of this provider's binary.",
	}, []string{"version", "commit", "goversion"})
	crmetrics.Registry.MustRegister(buildInfo)
	buildInfo.WithLabelValues(coreoperator.Version, Commit(), runtime.Version()).Set(1)
}

// Commit is the commit that the binary was built from, with "-dirty" behind it where the sources were changed, or "unknown".
func Commit() string { return lo.CoalesceOrEmpty(commit, env.GetRevision()) }

// Version describes this binary in one line.
func Version() string {
	return fmt.Sprintf("%s %s (commit %s, %s)", Name, coreoperator.Version, Commit(), runtime.Version())
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
		log.FromContext(ctx).V(1).Info("it is not known whether an older provider runs", "Lease", olderLease, "reason", err.Error())
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
