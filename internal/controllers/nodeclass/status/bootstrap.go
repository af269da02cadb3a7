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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// bootstrapConcern says whether user data can be made that lets a server join.
type bootstrapConcern struct {
	bootstraps bootstrap.Provider
}

func (*bootstrapConcern) conditionType() string { return v1alpha1.ConditionTypeBootstrapReady }

func (c *bootstrapConcern) resolve(_ context.Context, nodeClass *v1alpha1.BizflyNodeClass) finding {
	err := c.bootstraps.Validate(nodeClass)
	if err == nil {
		return fine()
	}
	var invalid *bootstrap.ValidationError
	if errors.As(err, &invalid) {
		return missing(invalid.Reason, invalid.Message)
	}
	return unavailable(err)
}
