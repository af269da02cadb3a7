// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/samber/lo"
)

// installationRules are what doctor checks, in the order of its report.
var installationRules = slices.Concat(
	clusterRules, installedRules, credentialRules, accountRules, scopeRules, bkeRules, workerPoolRules, autoscalerRules,
	bufferRules, ccmRules, nodeClassRules, storedRules, nodePoolRules, flavorRules, overlayRules, volumeRules,
	firewallRules, metadataRules, launchRules, serverRules, leftoverRules,
)

// preflightRules are those that need no installation.
var preflightRules = slices.Concat(
	clusterRules, credentialRules, accountRules, serviceRules, volumeTypeRules, bkeRules, joinRules, workerPoolRules,
	autoscalerRules, ccmRules, poolServerRules, nodeClassRules, flavorRules, volumeRules,
)

// Described is a rule as the page of the plugin lists it.
type Described struct {
	Code, About string
	Severity    Severity
	Why         string
}

// PodCodes are the rules by which why decides about a NodePool.
func PodCodes() []string { return lo.Map(podRules, func(r rule, _ int) string { return r.code }) }

// Codes are the rules of doctor and its preflight, once each.
func Codes() []Described {
	all := lo.Filter(slices.Concat(installationRules, preflightRules), func(r rule, _ int) bool { return r.code != "" })
	return lo.Map(lo.UniqBy(all, func(r rule) string { return r.code }), func(r rule, _ int) Described {
		return Described{r.code, r.about, r.severity, r.why}
	})
}
