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

package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// requeueSecret is how late a change of the Secret with user data is noticed: nodes are compared with what was noticed.
const requeueSecret = time.Minute

// bootstrapReconciler checks whether user data can be created with which a server joins.
type bootstrapReconciler struct {
	bootstraps bootstrap.Provider
	recorder   karpevents.Recorder
}

func (*bootstrapReconciler) conditionType() string { return v1alpha1.ConditionTypeBootstrapReady }

func (c *bootstrapReconciler) resolve(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) result {
	resolution, err := c.bootstraps.Resolve(ctx, nodeClass)
	if err != nil {
		var invalid *bootstrap.ValidationError
		if errors.As(err, &invalid) {
			return missing(invalid.Reason, invalid.Message)
		}
		return unavailable(err)
	}
	nodeClass.Status.UserDataHash = resolution.UserDataHash
	found := fine(resolution.Notes...)
	if resolution.InsecureHost != "" {
		found = fine(append(resolution.Notes, insecureJoin(resolution.InsecureHost))...)
		c.warnOnce(nodeClass, found.message)
	}
	if nodeClass.Spec.UserDataFrom != nil {
		found.retryAfter = requeueSecret
	}
	return found
}

// insecureJoin names the risk. It is not refused: BKE's own pools join so.
func insecureJoin(host string) string {
	return fmt.Sprintf("risk: servers join at http://%s, so that the cluster's token passes in the clear and nothing proves who answers; "+
		"set BKE_JOIN_ENDPOINT to an https URL where BKE has one, or keep the servers on a private network that you trust", host)
}

// warnOnce publishes the risk when it is not yet what the NodeClass says.
func (c *bootstrapReconciler) warnOnce(nodeClass *v1alpha1.BizflyNodeClass, message string) {
	said := nodeClass.StatusConditions(opstatus.WithObservedOnly()).Get(v1alpha1.ConditionTypeBootstrapReady)
	if said == nil || said.Message != shorten(message) {
		c.recorder.Publish(events.InsecureJoinEndpoint(nodeClass, message))
	}
}
