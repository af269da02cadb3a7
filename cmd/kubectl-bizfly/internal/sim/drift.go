// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	claimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// Drift returns why core would replace each NodeClaim of the copy, by its own controller and this provider. Those that
// stay are left out.
func (s *Simulation) Drift(ctx context.Context) (map[string]string, error) {
	reasons := map[string]string{}
	controller := claimdisruption.NewController(s.clock, s.Objects, s.Provider)
	for _, claim := range memory.All[*karpv1.NodeClaim](s.Objects) {
		if _, err := controller.Reconcile(ctx, claim); err != nil {
			return nil, fmt.Errorf("comparing NodeClaim %s: %w", claim.Name, err)
		}
		drifted := claim.StatusConditions().Get(karpv1.ConditionTypeDrifted)
		if drifted.IsTrue() && claim.DeletionTimestamp.IsZero() {
			reasons[claim.Name] = drifted.Reason
		}
	}
	return reasons, nil
}
