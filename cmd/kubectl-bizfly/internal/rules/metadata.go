// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"

	opstatus "github.com/awslabs/operatorpkg/status"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const metadataAddress = "169.254.169.254"

// clusterPolicies are the kinds of policies that hold for the pods of all namespaces.
var clusterPolicies = []schema.GroupVersionKind{
	{Group: "cilium.io", Version: "v2", Kind: "CiliumClusterwideNetworkPolicy"},
	{Group: "projectcalico.org", Version: "v3", Kind: "GlobalNetworkPolicy"},
	{Group: "crd.projectcalico.org", Version: "v1", Kind: "GlobalNetworkPolicy"},
}

// metadataRules look for what keeps pods from the metadata service, from which every pod could otherwise read the user
// data of its node and the join token of BKE. A NodeClass has no effect on the nodes of BKE's pools, whose servers have
// the same token. Whether a policy works is not tried.
var metadataRules = []rule{
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod can read the user data and the join token of its node there, and join a node of its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there), or set " +
			"metadataOptions.podAccess of the NodeClass to Blocked",
		given: given2(factNodeClasses, factMetadataPolicy, func(all *v1alpha1.BizflyNodeClassList, guarded bool) outcome {
			open := lo.FilterMap(all.Items, func(n v1alpha1.BizflyNodeClass, _ int) (string, bool) {
				return n.Name, !podAccessEnforced(&n)
			})
			return failsIf(!guarded && len(open) > 0, "nothing is found that keeps pods from the metadata service: BizflyNodeClass %s "+
				"does not block it by a %s that is True, and no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy "+
				"denies %s", list(open), v1alpha1.ConditionTypePodAccessEnforced, metadataAddress)
		})},
	{code: "MetadataServiceOpen", about: "metadata service", severity: Warning,
		why: "any pod there can read the join token, which is the same for all nodes of the BKE cluster, and join a node of " +
			"its own",
		fix: "kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there; with kube-router, let only " +
			"trusted pods run on these nodes)",
		given: given2(factPoolNodes, factMetadataPolicy, func(nodes *corev1.NodeList, guarded bool) outcome {
			return failsIf(!guarded && len(nodes.Items) > 0, "nothing is found that keeps pods on BKE's pool nodes %s from the "+
				"metadata service: no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy denies %s, and a "+
				"BizflyNodeClass does not apply there",
				list(namesOf(nodes, func(*corev1.Node) bool { return true })), metadataAddress)
		})},
}

// podAccessEnforced reports whether the metadataOptions of a NodeClass keep pods from the metadata service.
func podAccessEnforced(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return nodeClass.Spec.EffectivePodAccess() == v1alpha1.PodAccessBlocked &&
		nodeClass.StatusConditions(opstatus.WithObservedOnly()).Get(v1alpha1.ConditionTypePodAccessEnforced).IsTrue()
}

// denies reports whether a policy names the metadata service in what it denies, or leaves out of what it allows.
func denies(part any, denied bool) bool {
	switch v := part.(type) {
	case string:
		return denied && strings.Contains(v, metadataAddress)
	case []any:
		return lo.ContainsBy(v, func(each any) bool { return denies(each, denied) })
	case map[string]any:
		denied = denied || v["action"] == "Deny"
		return lo.ContainsBy(lo.Entries(v), func(e lo.Entry[string, any]) bool {
			return denies(e.Value, denied || slices.Contains([]string{"egressDeny", "except", "notNets"}, e.Key))
		})
	}
	return false
}

// sortedKeys are the keys of a map by name.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
