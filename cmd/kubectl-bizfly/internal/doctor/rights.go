// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
)

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// neededRules are what the controller needs in every configuration; its chart adds what feature gates need.
var neededRules = []rbacv1.PolicyRule{
	rule("karpenter.sh", []string{"nodepools"}, "get", "list", "watch", "patch"),
	rule("karpenter.sh", []string{"nodeclaims"}, "get", "list", "watch", "create", "patch", "delete"),
	rule("karpenter.sh", []string{"nodepools/status", "nodeclaims/status"}, "patch"),
	rule("karpenter.sh", []string{"nodepools/finalizers", "nodeclaims/finalizers"}, "update"),
	rule("karpenter.bizflycloud.vn", []string{"bizflynodeclasses"}, "get", "list", "watch", "patch"),
	rule("karpenter.bizflycloud.vn", []string{"providerconfigs"}, "get", "list", "watch", "patch"),
	rule("karpenter.bizflycloud.vn", []string{"bizflynodeclasses/status", "providerconfigs/status"}, "patch"),
	rule("", []string{"nodes"}, "get", "list", "watch", "patch", "delete"),
	rule("", []string{"pods"}, "get", "list", "watch", "delete"),
	rule("", []string{"pods/eviction"}, "create"),
	rule("policy", []string{"poddisruptionbudgets"}, "get", "list", "watch"),
	rule("apps", []string{"daemonsets"}, "get", "list", "watch"),
	rule("", []string{"namespaces", "persistentvolumes", "persistentvolumeclaims"}, "get", "list", "watch"),
	rule("storage.k8s.io", []string{"storageclasses", "csinodes", "volumeattachments"}, "get", "list", "watch"),
	rule("", []string{"events"}, "create", "patch"),
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, ResourceNames: []string{"kubernetes"}, Verbs: []string{"get"}},
}

// NeededRules are what the controller needs in every configuration.
func NeededRules() []rbacv1.PolicyRule { return slices.Clone(neededRules) }

// checkRights reads the roles that are bound to the controller's service account.
func checkRights(ctx context.Context, d *examination) ([]Finding, error) {
	if d.Deployment == nil {
		return nil, cmp.Or(d.DeploymentErr, error(nothingToCheckError("no controller is installed")))
	}
	account := lo.CoalesceOrEmpty(d.Deployment.Spec.Template.Spec.ServiceAccountName, "default")
	bindings, roles := &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}
	if err := d.List(ctx, bindings); err != nil {
		return nil, err
	}
	if err := d.List(ctx, roles); err != nil {
		return nil, err
	}
	byName := lo.KeyBy(roles.Items, func(role rbacv1.ClusterRole) string { return role.Name })
	var granted []rbacv1.PolicyRule
	for _, binding := range bindings.Items {
		if lo.ContainsBy(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && s.Namespace == d.Deployment.Namespace
		}) {
			granted = append(granted, byName[binding.RoleRef.Name].Rules...)
		}
	}
	var found []Finding
	if ok, missing := validation.Covers(granted, neededRules); !ok {
		found = append(found, one("RightsMissing", Error, fmt.Sprintf(
			"the service account %s/%s may not %s", d.Deployment.Namespace, account, list(lo.Map(missing, describeRule))),
			"the controller cannot launch, follow or delete nodes", d.upgrade(operator.Name))...)
	}
	if wide := lo.Filter(granted, func(r rbacv1.PolicyRule, _ int) bool { return tooWide(r) }); len(wide) > 0 {
		found = append(found, one("RightsTooWide", Warning, fmt.Sprintf(
			"the service account %s/%s may %s in all namespaces", d.Deployment.Namespace, account, list(lo.Map(wide, describeRule))),
			"an attacker who takes over the controller's pod gets these rights; the controller needs none of them",
			"kubectl get clusterrolebindings -o wide | grep "+account)...)
	}
	return found, nil
}

// tooWide reports whether a rule grants what the controller never needs: everything, secrets, or making rights.
func tooWide(r rbacv1.PolicyRule) bool {
	return lo.Contains(r.Verbs, "*") || lo.Contains(r.Resources, "*") && len(r.APIGroups) > 0 ||
		lo.Contains(r.Resources, "secrets") && lo.Contains(r.APIGroups, "") ||
		lo.Some(r.Verbs, []string{"escalate", "bind", "impersonate"})
}

func describeRule(r rbacv1.PolicyRule, _ int) string {
	group := strings.Join(lo.Compact(r.APIGroups), ",")
	return strings.TrimSuffix(fmt.Sprintf("%s %s.%s", strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","), group), ".")
}
