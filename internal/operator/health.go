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

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/liveness"
)

// Readiness needs no check of ours. Core's say that the caches are filled and the definitions installed, and a process
// whose configuration cannot be parsed ends before it answers the first of them. What the cloud does is a condition and a
// metric, and never a reason to take a replica out of service or to end it: an outage must not block an upgrade.

// watchParts adds a liveness check for everything that was built here and that others wait for.
func (op *Operator) watchParts() error {
	for name, part := range map[string]liveness.Checker{
		"client": op.API, "configuration": op.Config, "lists": op.Instances,
	} {
		if err := op.watch(name, part); err != nil {
			return err
		}
	}
	return nil
}

// WatchControllers adds those controllers to the liveness check that can tell that they hang.
func (op *Operator) WatchControllers(controllers ...controller.Controller) error {
	type named interface {
		Name() string
		liveness.Checker
	}
	for _, c := range controllers {
		if part, ok := c.(named); ok {
			if err := op.watch(part.Name(), part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *Operator) watch(name string, part liveness.Checker) error {
	if err := op.AddHealthzCheck(name, Alive(op.Clock, name, part)); err != nil {
		return fmt.Errorf("adding the liveness check %s: %w", name, err)
	}
	return nil
}

// Alive fails while the part is stuck, and logs why: the reply of the probe that ends a container is kept by nobody.
func Alive(clk clock.PassiveClock, name string, part liveness.Checker) healthz.Checker {
	return func(request *http.Request) error {
		err := part.Stuck(clk.Now())
		if err != nil {
			log.FromContext(request.Context()).WithName("liveness").Error(err, "only a restart can help", "part", name)
		}
		return err
	}
}
