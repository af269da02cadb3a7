// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	claimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
)

// consolidate returns false where core still finds something after many times.
func (s *Simulation) consolidate(ctx context.Context) (done bool, err error) {
	var passedOver []string
	for times, quiet := 0, 0; quiet < 2; times++ {
		if times == maxConsolidations || ctx.Err() != nil {
			return false, nil //nolint:nilerr // the caller's time is over, which its caller sees
		}
		// No time passes after a look that found nothing: core then looks again only at what it did not get to the end of.
		changed, err := s.ConsolidateOnce(ctx, lo.Ternary(quiet == 0, consolidateAgain, 0))
		if err != nil {
			return false, err
		}
		inVain := s.record.takeInVain()
		switch {
		case changed:
			quiet, passedOver = 0, append(passedOver, inVain...)
			err = s.setConsolidatable(ctx, inVain, false)
		case len(passedOver) > 0:
			quiet = 0
			err = s.setConsolidatable(ctx, passedOver, true)
			passedOver = nil
		default:
			quiet++
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// setConsolidatable says which nodes core looks at. After each command it would look first at all that it has just
// looked at in vain: these are passed over until it finds nothing else, and are then looked at again.
func (s *Simulation) setConsolidatable(ctx context.Context, names []string, consolidatable bool) error {
	for _, name := range names {
		claim, exists := memory.Find[*karpv1.NodeClaim](s.Objects, client.ObjectKey{Name: name})
		if !exists {
			continue
		}
		if conditions := claim.StatusConditions(); consolidatable {
			conditions.SetTrue(karpv1.ConditionTypeConsolidatable)
		} else {
			conditions.SetFalse(karpv1.ConditionTypeConsolidatable, "PassedOver", "core has looked at it in vain")
		}
		if err := s.put(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

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
