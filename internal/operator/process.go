// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
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

// Commit is the commit that the binary was built from, with "-dirty" behind it where the sources were changed, or
// "unknown".
func Commit() string { return lo.CoalesceOrEmpty(commit, env.GetRevision()) }

// Version describes this binary in one line.
func Version() string {
	return fmt.Sprintf("%s %s (commit %s, %s)", Name, coreoperator.Version, Commit(), runtime.Version())
}
