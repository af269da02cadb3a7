// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"regexp"
	"slices"

	opstatus "github.com/awslabs/operatorpkg/status"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const metadataAddress = "169.254.169.254"

// dropsMetadata matches a line of user data that keeps traffic from the metadata service.
var dropsMetadata = regexp.MustCompile(`(?im)^[^#\n]*(?:169\.254\.169\.254.*\bdrop\b|\bdrop\b.*169\.254\.169\.254)`)

// clusterPolicies are the kinds of policies that hold for the pods of all namespaces.
var clusterPolicies = []schema.GroupVersionKind{
	{Group: "cilium.io", Version: "v2", Kind: "CiliumClusterwideNetworkPolicy"},
	{Group: "projectcalico.org", Version: "v3", Kind: "GlobalNetworkPolicy"},
	{Group: "crd.projectcalico.org", Version: "v1", Kind: "GlobalNetworkPolicy"},
}

// metadataRules look for what keeps pods from the metadata service, from which every pod could otherwise read the user
// data of its node and the join token of BKE. User data of a NodeClass does not hold on the nodes of BKE's pools, whose
// servers have the same token. They look at texts alone: whether what these say works is not tried, so its absence is
// certain and its effect is not.
var metadataRules = []rule{
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod can read the user data and the join token of its node there, and join a node of its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there), or set " +
			"metadataOptions.podAccess of the NodeClass to Blocked",
		given: given2(factUserData, factMetadataPolicy, func(texts map[string]string, guarded bool) outcome {
			open := lo.Filter(sortedKeys(texts), func(name string, _ int) bool { return !dropsMetadata.MatchString(texts[name]) })
			return failsIf(!guarded && len(open) > 0, "nothing is found that keeps pods from the metadata service: the condition "+
				"%s of BizflyNodeClass %s is not True, no rule in the user data drops traffic to %s, and no "+
				"CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy names it", v1alpha1.ConditionTypePodAccessEnforced,
				list(open), metadataAddress)
		})},
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod there can read the join token, which is the same for all nodes of the BKE cluster, and join a node of " +
			"its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there; with kube-router, let only " +
			"trusted pods run on these nodes)",
		given: given2(factPoolNodes, factMetadataPolicy, func(nodes *corev1.NodeList, guarded bool) outcome {
			return failsIf(!guarded && len(nodes.Items) > 0, "nothing is found that keeps pods on BKE's pool nodes %s from the "+
				"metadata service: no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy names %s, and user data of a "+
				"BizflyNodeClass does not apply there",
				list(namesOf(nodes, func(*corev1.Node) bool { return true })), metadataAddress)
		})},
}

// podAccessEnforced reports whether the metadataOptions of a NodeClass keep pods from the metadata service.
func podAccessEnforced(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessBlocked &&
		nodeClass.StatusConditions(opstatus.WithObservedOnly()).Get(v1alpha1.ConditionTypePodAccessEnforced).IsTrue()
}

// sortedKeys are the keys of a map by name.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
