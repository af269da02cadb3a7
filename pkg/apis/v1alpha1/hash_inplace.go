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

package v1alpha1

import (
	"fmt"
	"slices"

	"github.com/mitchellh/hashstructure/v2"
	"github.com/samber/lo"
)

// InPlaceHash returns the hash of what is changed on running servers instead of replacing them: the firewalls, as they are
// resolved, and the network plan, as it is in effect. A NodeClaim carries the one that its server was last given. Were it
// computed otherwise one day, each server would be looked at again and nothing else would happen.
func (in *BizflyNodeClass) InPlaceHash() string {
	firewalls := lo.Uniq(lo.Map(in.Status.Firewalls, func(f FirewallStatus, _ int) string { return f.ID }))
	slices.Sort(firewalls)
	return fmt.Sprint(lo.Must(hashstructure.Hash(struct {
		Firewalls   []string
		NetworkPlan NetworkPlan
	}{firewalls, in.EffectiveNetworkPlan()}, hashstructure.FormatV2, nil)))
}

// EffectiveNetworkPlan returns the network plan with its default.
func (in *BizflyNodeClass) EffectiveNetworkPlan() NetworkPlan {
	return lo.CoalesceOrEmpty(in.Spec.NetworkPlan, NetworkPlanFreeDataTransfer)
}
