// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"sync"

	"github.com/samber/lo"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

// neededRules are those of the ClusterRole that the manifests grant.
var neededRules = sync.OnceValue(func() []rbacv1.PolicyRule {
	role := &rbacv1.ClusterRole{}
	lo.Must0(yaml.Unmarshal(config.ClusterRole, role), "no build that passed its tests has another")
	return role.Rules
})

// missingRights is what the controller may not do and needs to.
func missingRights(granted grants, s setup) outcome {
	ok, missing := validation.Covers(granted.rules, neededRules())
	if ok {
		return positive()
	}
	return found(Finding{What: fmt.Sprintf("the service account %s may not %s", granted.account, list(lo.Map(missing,
		describeRule))),
		Fix: s.upgrade(operator.Name)})
}

// wideRights is what the controller may do and never needs.
func wideRights(granted grants) outcome {
	wide := lo.Filter(granted.rules, func(r rbacv1.PolicyRule, _ int) bool { return tooWide(r) })
	if len(wide) == 0 {
		return positive()
	}
	_, account, _ := strings.Cut(granted.account, "/")
	return found(Finding{What: fmt.Sprintf("the service account %s may %s in all namespaces", granted.account,
		list(lo.Map(wide, describeRule))),
		Fix: "kubectl get clusterrolebindings -o wide | grep " + account})
}

// tooWide reports whether a rule grants what the controller never needs: everything, secrets, or making rights.
func tooWide(r rbacv1.PolicyRule) bool {
	return lo.Contains(r.Verbs, "*") || lo.Contains(r.Resources, "*") && len(r.APIGroups) > 0 ||
		lo.Contains(r.Resources, "secrets") && lo.Contains(r.APIGroups, "") ||
		lo.Some(r.Verbs, []string{"escalate", "bind", "impersonate"})
}

func describeRule(r rbacv1.PolicyRule, _ int) string {
	group := strings.Join(lo.Compact(r.APIGroups), ",")
	return strings.TrimSuffix(fmt.Sprintf("%s %s.%s", strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","), group),
		".")
}
