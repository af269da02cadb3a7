// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/auth/rbac/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

// minimumVersion is the oldest Kubernetes that the provider supports.
const minimumVersion = "1.30.0"

// clusterRules are about the API server.
var clusterRules = []rule{
	{code: "ClusterUnreachable", about: "cluster", severity: Error, why: "nothing in the cluster can be checked",
		fix:   "kubectl cluster-info",
		given: given1(factConnection, func(err error) outcome { return failsIf(err != nil, "%s", err) })},
	{code: "APIServerTooOld", about: "API server version", severity: Error,
		why: "the validation rules of the custom resources are rejected by an older API server",
		fix: "upgrade the cluster's Kubernetes version in the BizFly Cloud console",
		given: given1(factVersion, func(version *utilversion.Version) outcome {
			return failsIf(version.LessThan(utilversion.MustParseGeneric(minimumVersion)),
				"the API server is version v%s, and %s or newer is needed", version, minimumVersion)
		})},
}

// installedRules are about the controller and what it is installed with.
var installedRules = []rule{
	{code: "DefinitionsMissing", about: "custom resource definitions", severity: Error,
		why: "NodePools, NodeClaims and BizflyNodeClasses cannot be created",
		given: given2(factDefinitions, factSetup, func(installed *apiextensionsv1.CustomResourceDefinitionList,
			s setup) outcome {
			missing := lo.FilterMap(neededDefinitions(s), func(wanted *apiextensionsv1.CustomResourceDefinition, _ int) (string,
				bool) {
				return wanted.Name, definitionOf(installed, wanted.Name) == nil
			})
			if len(missing) == 0 {
				return positive()
			}
			return found(Finding{Severity: lo.Ternary(s.installed(), Error, Info), What: "the cluster has no " +
				strings.Join(missing, ", "),
				Fix: s.upgrade(operator.Name + "-crd")})
		})},
	{code: "DefinitionsOutdated", about: "custom resource definitions", severity: Error,
		why: "the API server drops fields that it does not know, so settings are silently lost",
		given: given2(factDefinitions, factSetup, func(installed *apiextensionsv1.CustomResourceDefinitionList,
			s setup) outcome {
			var old []string
			for _, wanted := range neededDefinitions(s) {
				if live := definitionOf(installed, wanted.Name); live != nil {
					if lacks := lackingFields(wanted, live); len(lacks) > 0 {
						old = append(old, fmt.Sprintf("%s lacks %s", wanted.Name, strings.Join(lacks[:min(3, len(lacks))], ", ")))
					}
				}
			}
			if len(old) == 0 {
				return positive()
			}
			return found(Finding{What: strings.Join(old, "; "), Fix: s.upgrade(operator.Name + "-crd")})
		})},
	{code: "ControllerNotInstalled", about: "controller", severity: Info,
		why: "this is a preflight: what depends on the controller is not checked",
		given: given3(factController, factLaunched, factSetup, func(controller *appsv1.Deployment, launched []string,
			s setup) outcome {
			if controller != nil || len(launched) > 0 {
				return positive()
			}
			return found(Finding{What: "no controller is installed", Fix: s.upgrade(operator.Name)})
		})},
	{code: "ControllerGone", about: "controller", severity: Error,
		why: "no controller drains, repairs or replaces these nodes, their servers are paid for, and their deletion never ends",
		given: given3(factController, factLaunched, factSetup, func(controller *appsv1.Deployment, launched []string,
			s setup) outcome {
			if controller != nil || len(launched) == 0 {
				return positive()
			}
			return found(Finding{What: "no controller is installed, and what it has launched is still there: " + list(launched),
				Fix: s.upgrade(operator.Name) + " (then, to uninstall, first kubectl delete nodepools --all, " +
					"and wait until kubectl get nodeclaims shows none)"})
		})},
	{code: "ControllerNotReady", about: "controller", severity: Error, why: "no node is launched, and none is deleted",
		given: given1(factController, func(controller *appsv1.Deployment) outcome {
			if controller == nil {
				return inapplicable("no controller is installed")
			}
			if controller.Status.ReadyReplicas > 0 {
				return positive()
			}
			return found(Finding{What: fmt.Sprintf("no replica of the Deployment %s/%s is ready", controller.Namespace,
				controller.Name),
				Fix: fmt.Sprintf("kubectl -n %s logs deployment/%s --all-pods --tail=20", controller.Namespace, controller.Name)})
		})},
	{code: "VersionSkew", about: "controller", severity: Warning,
		why: "the plugin computes with the code of its own version",
		fix: "make plugin (of the controller's version)",
		given: given2(factController, factSetup, func(controller *appsv1.Deployment, s setup) outcome {
			if controller == nil {
				return inapplicable("no controller is installed")
			}
			return failsIf(s.Skew().Message != "", "%s", s.Skew().Message)
		})},
	{code: "RightsMissing", about: "controller's rights", severity: Error,
		why:   "the controller cannot launch, follow or delete nodes",
		given: given2(factGrants, factSetup, missingRights)},
	{code: "RightsTooWide", about: "controller's rights", severity: Warning,
		why:   "an attacker who takes over the controller's pod gets these rights; the controller needs none of them",
		given: given1(factGrants, wideRights)},
}

// factLaunched names the NodeClaims and the nodes that Karpenter has launched.
var factLaunched = newFact("what Karpenter has launched", func(ctx context.Context, r *reading) ([]string, error) {
	claims, err := factNodeClaims.in(ctx, r)
	if err != nil {
		return nil, err
	}
	nodes, err := factNodes.in(ctx, r)
	if err != nil {
		return nil, err
	}
	launched := lo.Map(claims.Items, func(c karpv1.NodeClaim, _ int) string { return "NodeClaim " + c.Name })
	return append(launched, lo.FilterMap(nodes.Items, func(n corev1.Node, _ int) (string, bool) {
		return "node " + n.Name, n.Labels[karpv1.NodePoolLabelKey] != "" && ours(&n)
	})...), nil
})

// neededDefinitions are those of this release. That of CapacityBuffers may be left to another chart, and without its
// feature gate the controller does not use it.
func neededDefinitions(s setup) []*apiextensionsv1.CustomResourceDefinition {
	return lo.Filter(apis.CRDs, func(wanted *apiextensionsv1.CustomResourceDefinition, _ int) bool {
		return wanted.Spec.Names.Kind != "CapacityBuffer" || s.Core.FeatureGates.CapacityBuffer
	})
}

func definitionOf(installed *apiextensionsv1.CustomResourceDefinitionList,
	name string) *apiextensionsv1.CustomResourceDefinition {
	definition, _ := lo.Find(lo.ToSlicePtr(installed.Items),
		func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
	return definition
}

// lackingFields returns the paths that the definition of this release has and the live one lacks.
func lackingFields(wanted, live *apiextensionsv1.CustomResourceDefinition) []string {
	schemaOf := func(crd *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
		v, ok := lo.Find(crd.Spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
		if !ok || v.Schema == nil {
			return &apiextensionsv1.JSONSchemaProps{}
		}
		return v.Schema.OpenAPIV3Schema
	}
	var lacks []string
	var compare func(path string, a, b *apiextensionsv1.JSONSchemaProps)
	compare = func(path string, a, b *apiextensionsv1.JSONSchemaProps) {
		for name := range a.Properties {
			property := a.Properties[name]
			other, ok := b.Properties[name]
			if !ok {
				lacks = append(lacks, strings.TrimPrefix(path+"."+name, "."))
				continue
			}
			compare(path+"."+name, &property, &other)
		}
		if a.Items != nil && a.Items.Schema != nil && b.Items != nil && b.Items.Schema != nil {
			compare(path+"[]", a.Items.Schema, b.Items.Schema)
		}
	}
	for _, version := range wanted.Spec.Versions {
		compare("", version.Schema.OpenAPIV3Schema, schemaOf(live, version.Name))
	}
	slices.Sort(lacks)
	return lacks
}

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
