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
		Namespace: "karpenter", Subsystem: "bizfly", Name: "build_info",
		Help: "Always 1. By the version, commit and Go version of this provider's binary.",
	}, []string{"version", "commit", "goversion"})
	crmetrics.Registry.MustRegister(buildInfo)
	buildInfo.WithLabelValues(coreoperator.Version, Commit(), runtime.Version()).Set(1)
}

// Commit is the commit that the binary was built from, "-dirty" behind it where the sources were changed; "unknown" where
// nobody said.
func Commit() string { return lo.CoalesceOrEmpty(commit, env.GetRevision()) }

// Version says in one line what this binary is.
func Version() string {
	return fmt.Sprintf("%s %s (commit %s, %s)", Name, coreoperator.Version, Commit(), runtime.Version())
}
