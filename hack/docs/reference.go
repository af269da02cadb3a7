// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	apiSource    = "pkg/apis/v1alpha1"
	statusSource = "internal/controllers/nodeclass/status"
	usageSource  = "internal/controllers/nodeclass/usage"
	bootSource   = "internal/providers/bootstrap"
	configSource = "internal/controllers/providerconfig"
)

const referenceIntroduction = `# Reference

<!-- Written by make generate. -->

Look up a field, condition, label, annotation or metadata key. Karpenter has the fields of [NodePools](https://karpenter.sh/docs/concepts/nodepools/) and
[NodeClaims](https://karpenter.sh/docs/concepts/nodeclaims/).

`

// condition is a condition with the constants of the reasons that it can have beside its own name, which is the reason of
// one that is true, by the folder of the source that has them.
type condition struct {
	constant string
	reasons  map[string][]string
	more     string
}

// unavailable is the reason that every condition of a NodeClass may have.
const unavailable = "reasonCloudUnavailable"

func found(reasons ...string) map[string][]string {
	return map[string][]string{statusSource: reasons}
}

var nodeClassConditions = []condition{
	{constant: "ConditionTypeZonesReady", reasons: found("reasonZoneNotFound", "reasonNoZones", "reasonAwaitingNetworks")},
	{constant: "ConditionTypeImagesReady", reasons: found("reasonImageNotFound", "reasonImageUnsuitable")},
	{constant: "ConditionTypeNetworksReady", reasons: found("reasonNetworkNotFound")},
	{constant: "ConditionTypeFirewallsReady", reasons: found("reasonFirewallNotFound")},
	{constant: "ConditionTypeSSHKeyReady", reasons: found("reasonSSHKeyNotFound")},
	{constant: "ConditionTypeBootstrapReady", reasons: map[string][]string{
		bootSource: {"ReasonNotConfigured", "ReasonInvalidUserData", "ReasonUserDataSecret", "ReasonJoinTokensDisabled"},
	}},
	{constant: "ConditionTypeDisksReady", reasons: found("reasonRootDiskTooSmall", "reasonDiskNotSold", "reasonDisksNotTogether", "reasonAwaitingZones")},
	{constant: "ConditionTypeFlavorsReady", reasons: found("reasonFlavorNotFound", "reasonNoFlavors", "reasonNothingLaunchable", "reasonAwaitingZones",
		"reasonAwaitingDisks")},
}

var nodeClassAdvice = []condition{
	{constant: "ConditionTypeEgressAvailable", reasons: found("reasonNoEgress", "reasonAwaitingNetworks")},
	{constant: "ConditionTypeBillingPlanSuitable", reasons: map[string][]string{usageSource: {"reasonStaticNodePools", "reasonSavingPlanDynamicNodePool"},
		apiSource: {"ReasonNotApplicable"}}},
	{constant: "ConditionTypeLaunchesSucceeding", reasons: map[string][]string{usageSource: {"reasonNotPaused"}},
		more: "False has the reason of the last launch that failed"},
}

var providerConfigConditions = []condition{
	{constant: "ConditionTypeCredentialsReady", reasons: map[string][]string{configSource: {"ReasonSecretForbidden", "ReasonCredentialsInvalid",
		"ReasonScopeChanged", "ReasonNotAsked"}}},
	{constant: "ConditionTypeEndpointReachable", reasons: map[string][]string{configSource: {"ReasonEndpointUnreachable", "ReasonScopeChanged", "ReasonNotAsked"}}},
	{constant: "ConditionTypeScopePinned", reasons: map[string][]string{configSource: {"ReasonScopeChanged", "ReasonNotAsked"}}},
	{constant: "ConditionTypeTuningReady", reasons: map[string][]string{configSource: {
		"ReasonConfigMapUnusable", "ReasonKeysIgnored"}}},
}

var providerConfigAdvice = []condition{
	{constant: "ConditionTypeControlPlaneRecognized", reasons: map[string][]string{configSource: {"ReasonControlPlaneChanged", "ReasonControlPlaneUnknown"}}},
	{constant: "ConditionTypeWithinSpendingLimits", reasons: map[string][]string{},
		more: "False is `MaxServersReached`, `MaxVNDPerHourReached`, or `SpendingUnknown` while the servers or the price of one cannot be found out"},
}

// referencePage is the page of the API.
func referencePage() (string, error) {
	sources, err := readSources(apiSource, statusSource, usageSource, bootSource, configSource)
	if err != nil {
		return "", err
	}
	page := &strings.Builder{}
	page.WriteString(referenceIntroduction)
	for _, kind := range []string{"BizflyNodeClass", "ProviderConfig"} {
		crd, ok := lo.Find(apis.CRDs, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Spec.Names.Kind == kind })
		if !ok {
			return "", fmt.Errorf("there is no definition of %s", kind)
		}
		writeKind(page, crd)
	}
	errs := []error{complete(sources)}
	page.WriteString("## Conditions\n\nA true condition has its own name as its reason unless another is listed. Until it has been checked, it is `Unknown`\n" +
		"with the reason `AwaitingReconciliation`. [Events](events.md) has what the other reasons mean and what to do.\n\n" +
		"All conditions of a BizflyNodeClass may also have this reason:\n\n")
	reason, _ := sources[statusSource].find(unavailable)
	fmt.Fprintf(page, "- `%s`: %s\n\n", reason.value, reason.sentence())
	for _, table := range []struct {
		title string
		of    []condition
	}{
		{"### Of a BizflyNodeClass, with a part in Ready", nodeClassConditions},
		{"### Of a BizflyNodeClass, beside Ready", nodeClassAdvice},
		{"### Of a ProviderConfig, with a part in Ready", providerConfigConditions},
		{"### Of a ProviderConfig, beside Ready", providerConfigAdvice},
	} {
		page.WriteString(table.title + "\n\n| condition | | reasons |\n| --- | --- | --- |\n")
		for _, c := range table.of {
			row, err := conditionRow(sources, c)
			errs = append(errs, err)
			page.WriteString(row)
		}
		page.WriteString("\n")
	}
	for _, keys := range []struct{ title, introduction, prefix string }{
		{"## Labels", "Of instance types and nodes. A NodePool and a pod may ask for those of karpenter.bizflycloud.vn with In, NotIn, Exists and\n" +
			"DoesNotExist. Gt, Gte, Lt and Lte need numbers: vCPUs, memory and the number of GPUs. The zone keys of the storage drivers mean\n" +
			"topology.kubernetes.io/zone. Nodes also have `karpenter.bizflycloud.vn/bizflynodeclass`, the name of their NodeClass, which pods\nmay select.", "Label"},
		{"## Annotations", "Of BizflyNodeClasses, NodeClaims and Nodes, written by the controller.", "Annotation"},
		{"## Finalizers", "", "TerminationFinalizer"},
		{"## Metadata of servers", "What each server carries in BizFly Cloud. `spec.tags` may use none of these prefixes: " +
			strings.Join(lo.Map(v1alpha1.ReservedMetadataPrefixes, func(p string, _ int) string { return "`" + p + "`" }), ", ") + ".", "Metadata"},
	} {
		page.WriteString(keys.title + "\n\n" + lo.Ternary(keys.introduction == "", "", keys.introduction+"\n\n") + "| key | |\n| --- | --- |\n")
		for _, c := range sources[apiSource].withPrefix(keys.prefix) {
			fmt.Fprintf(page, "| `%s` | %s |\n", c.value, cell(c.sentence()))
		}
		page.WriteString("\n")
	}
	return strings.TrimRight(page.String(), "\n") + "\n", errors.Join(errs...)
}

func conditionRow(sources map[string]source, c condition) (string, error) {
	of, ok := sources[apiSource].find(c.constant)
	if !ok {
		return "", fmt.Errorf("there is no %s in %s", c.constant, apiSource)
	}
	var reasons []string
	for _, dir := range slices.Sorted(maps.Keys(c.reasons)) {
		for _, name := range c.reasons[dir] {
			reason, ok := sources[dir].find(name)
			if !ok || reason.doc == "" {
				return "", fmt.Errorf("%s in %s has no description, or is not there: correct it there or in hack/docs/reference.go", name, dir)
			}
			text := "`" + reason.value + "`"
			if !slices.ContainsFunc(eventDocs, func(d eventDoc) bool { return d.Reason == reason.value }) {
				text += ": " + strings.TrimSuffix(reason.sentence(), ".")
			}
			reasons = append(reasons, text)
		}
	}
	if c.more != "" {
		reasons = append(reasons, c.more)
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", of.value, cell(of.sentence()), cell(strings.Join(reasons, "<br>"))), nil
}

// complete says which conditions and reasons of the sources the tables lack, so that none goes undocumented.
func complete(sources map[string]source) error {
	used := map[string]bool{statusSource + unavailable: true}
	for _, c := range slices.Concat(nodeClassConditions, nodeClassAdvice, providerConfigConditions, providerConfigAdvice) {
		used[apiSource+c.constant] = true
		for dir, names := range c.reasons {
			for _, name := range names {
				used[dir+name] = true
			}
		}
	}
	var errs []error
	for dir, of := range sources {
		for _, prefix := range []string{"ConditionType", "reason", "Reason"} {
			for _, c := range of.withPrefix(prefix) {
				if !used[dir+c.name] && (prefix != "ConditionType" || dir == apiSource) {
					errs = append(errs, fmt.Errorf("%s of %s is in no table of hack/docs/reference.go", c.name, dir))
				}
			}
		}
	}
	return errors.Join(errs...)
}
