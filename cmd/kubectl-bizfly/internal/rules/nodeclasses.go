// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/memory"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/price"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/sim"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/preflight"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// ofDefaults is how reports call the NodeClass that there is before an installation.
const ofDefaults = "of defaults"

var (
	// factClassesOrDefaults are the BizflyNodeClasses that are not being deleted, or one of defaults where there is none
	// at all.
	factClassesOrDefaults = newFact("BizflyNodeClasses or defaults", func(ctx context.Context,
		r *reading) ([]v1alpha1.BizflyNodeClass, error) {
		all := &v1alpha1.BizflyNodeClassList{}
		if r.Cluster != nil {
			var err error
			if all, err = factNodeClasses.in(ctx, r); err != nil {
				return nil, err
			}
		}
		if len(all.Items) > 0 {
			return lo.Filter(all.Items, func(n v1alpha1.BizflyNodeClass, _ int) bool { return n.DeletionTimestamp == nil }), nil
		}
		standard := price.StandardNodeClass(nil)
		standard.Name = ofDefaults
		return []v1alpha1.BizflyNodeClass{*standard}, nil
	})

	// factResolved are the conditions of BizflyNodeClasses that the controller's own code finds not to be True now: what
	// the controller found last may be older than the fault.
	factResolved = newFact("what BizflyNodeClasses select", func(ctx context.Context, r *reading) ([]sim.Assumption,
		error) {
		cloud, err := r.Cloud(ctx)
		if err != nil {
			return nil, err
		}
		nodeClasses, err := factClassesOrDefaults.in(ctx, r)
		if err != nil {
			return nil, err
		}
		simulation, err := sim.New(ctx, cloud, unresolved(nodeClasses))
		if err != nil {
			return nil, err
		}
		return simulation.Assumptions, nil
	})
)

// unresolved are the NodeClasses without what the controller found last.
func unresolved(nodeClasses []v1alpha1.BizflyNodeClass) memory.Objects {
	return lo.Map(nodeClasses, func(n v1alpha1.BizflyNodeClass, _ int) client.Object {
		n.Status.Conditions = nil
		return &n
	})
}

// notReady returns why an object is not ready at its present generation, as its controllers have stored it; empty if it
// is ready.
func notReady(object status.Object) string {
	ready, causes := preflight.Ready(object)
	if ready {
		return ""
	}
	return lo.CoalesceOrEmpty(strings.Join(lo.Map(causes, func(c status.Condition, _ int) string {
		return fmt.Sprintf("%s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}), "; "), "the controller has not checked it yet")
}

// nodeClassRules are one for each condition that a BizflyNodeClass needs, and one for its deletion.
var nodeClassRules = append(lo.Map(nodeClassConditions(), func(condition string, _ int) rule {
	of := rule{code: nodeClassCode(condition), about: "NodeClasses", severity: Error, why: "no server is launched with it"}
	if condition == v1alpha1.ConditionTypeEgressAvailable {
		of.severity, of.why = Warning, "servers cannot pull images, and perhaps cannot reach the API server"
	}
	of.given = given1(factResolved, func(assumptions []sim.Assumption) outcome {
		return found(lo.FilterMap(assumptions, func(a sim.Assumption, _ int) (Finding, bool) {
			return Finding{
				What: fmt.Sprintf("BizflyNodeClass %s: %s: %s", a.NodeClass, a.Condition.Reason, a.Condition.Message),
				Fix: lo.Ternary(a.NodeClass == ofDefaults, "kubectl bizfly doctor --preflight (again, once there is a "+
					"BizflyNodeClass that sets what this names)",
					"kubectl edit bizflynodeclass "+a.NodeClass),
			}, a.Condition.Type == condition
		})...)
	})
	return of
}), rule{
	code: "NodeClassDeleting", about: "NodeClasses", severity: Warning, why: "nothing is launched with it any more; it " +
		"is gone when its NodeClaims are",
	given: given2(factNodeClasses, factNodeClaims, func(nodeClasses *v1alpha1.BizflyNodeClassList,
		claims *karpv1.NodeClaimList) outcome {
		return found(lo.FilterMap(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass, _ int) (Finding, bool) {
			waitsFor := lo.FilterMap(claims.Items, func(c karpv1.NodeClaim, _ int) (string, bool) {
				return c.Name, lo.FromPtr(c.Spec.NodeClassRef).Name == n.Name
			})
			return Finding{
				What: fmt.Sprintf("BizflyNodeClass %s is being deleted, and waits for its NodeClaims: %s", n.Name,
					lo.CoalesceOrEmpty(list(waitsFor), "none is left")),
				Fix: strings.TrimSpace("kubectl delete nodeclaim --wait=false " + strings.Join(waitsFor, " ")),
			}, n.DeletionTimestamp != nil && len(waitsFor) > 0
		})...)
	}),
})

// nodeClassConditions are those that the controller's code resolves, without Ready.
func nodeClassConditions() []string {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	types := lo.FilterMap(nodeClass.StatusConditions().List(), func(c status.Condition, _ int) (string, bool) {
		return c.Type, c.Type != status.ConditionReady
	})
	slices.Sort(types)
	return lo.Uniq(append(types, v1alpha1.ConditionTypeEgressAvailable))
}

func nodeClassCode(condition string) string {
	return "NodeClass" + strings.TrimSuffix(strings.TrimSuffix(condition, "Ready"), "Available")
}

// effects are what it means that a condition is False on which Ready does not depend, and which only the controller can
// find out.
var effects = map[string]string{
	v1alpha1.ConditionTypeWithinSpendingLimits: "launches that would exceed the limit do not happen, and their pods stay " +
		"pending",
	v1alpha1.ConditionTypeControlPlaneRecognized: "no server is launched, deleted or rebooted, and garbage " +
		"collection only reports, until a user confirms the control plane",
	v1alpha1.ConditionTypeAccountAccepted:    "launches are rejected, and servers of an account that is unpaid may be stopped",
	v1alpha1.ConditionTypeLaunchesSucceeding: "no server is launched with it while launches pause",
}

// reported are these conditions of an object, as the controller has stored them.
func reported(kind string, object status.Object) []Finding {
	return lo.FilterMap(object.GetConditions(), func(c status.Condition, _ int) (Finding, bool) {
		return Finding{
			What: fmt.Sprintf("%s %s: %s is False: %s: %s", kind, object.GetName(), c.Type, c.Reason, c.Message),
			Why:  effects[c.Type], Fix: fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), object.GetName()),
		}, c.IsFalse() && effects[c.Type] != ""
	})
}

// storedRules are about conditions that the controller has stored and that need no cloud.
var storedRules = []rule{
	{code: "ConditionFalse", about: "project", severity: Warning, given: given1(factProviderConfig,
		func(config *v1alpha1.ProviderConfig) outcome {
			if config == nil {
				return inapplicable("there is no ProviderConfig")
			}
			return found(reported("ProviderConfig", config)...)
		})},
	{code: "ConditionFalse", about: "NodeClasses", severity: Warning, given: given1(factNodeClasses,
		func(nodeClasses *v1alpha1.BizflyNodeClassList) outcome {
			return found(lo.FlatMap(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass, _ int) []Finding {
				return reported("BizflyNodeClass", &n)
			})...)
		})},
}
