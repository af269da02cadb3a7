// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

func policyRule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// neededRules are what the controller needs in every configuration; its chart adds what feature gates need.
var neededRules = []rbacv1.PolicyRule{
	policyRule("karpenter.sh", []string{"nodepools"}, "get", "list", "watch", "patch"),
	policyRule("karpenter.sh", []string{"nodeclaims"}, "get", "list", "watch", "create", "patch", "delete"),
	policyRule("karpenter.sh", []string{"nodepools/status", "nodeclaims/status"}, "patch"),
	policyRule("karpenter.sh", []string{"nodepools/finalizers", "nodeclaims/finalizers"}, "update"),
	policyRule("karpenter.bizflycloud.vn", []string{"bizflynodeclasses"}, "get", "list", "watch", "patch"),
	policyRule("karpenter.bizflycloud.vn", []string{"providerconfigs"}, "get", "list", "watch", "patch"),
	policyRule("karpenter.bizflycloud.vn", []string{"bizflynodeclasses/status", "providerconfigs/status"}, "patch"),
	policyRule("", []string{"nodes"}, "get", "list", "watch", "patch", "delete"),
	policyRule("", []string{"pods"}, "get", "list", "watch", "delete"),
	policyRule("", []string{"pods/eviction"}, "create"),
	policyRule("policy", []string{"poddisruptionbudgets"}, "get", "list", "watch"),
	policyRule("apps", []string{"daemonsets"}, "get", "list", "watch"),
	policyRule("", []string{"namespaces", "persistentvolumes", "persistentvolumeclaims"}, "get", "list", "watch"),
	policyRule("storage.k8s.io", []string{"storageclasses", "csinodes", "volumeattachments"}, "get", "list", "watch"),
	policyRule("", []string{"events"}, "create", "patch"),
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, ResourceNames: []string{"kubernetes"},
		Verbs: []string{"get"}},
}

// NeededRules are what the controller needs in every configuration.
func NeededRules() []rbacv1.PolicyRule { return slices.Clone(neededRules) }

// missingRights is what the controller may not do and needs to.
func missingRights(granted grants, s setup) outcome {
	ok, missing := validation.Covers(granted.rules, neededRules)
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
