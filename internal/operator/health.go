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
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

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
