// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
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

// checkMetadata looks for what keeps pods from the metadata service, from which every pod could otherwise read the user data of its node
// and the join token of BKE. User data of a NodeClass does not hold on the nodes of BKE's pools, whose servers have the same token.
// It looks at texts alone: whether a rule holds is not tried, so its absence is certain and its effect is not.
func checkMetadata(ctx context.Context, d *examination) ([]Finding, error) {
	nodeClasses := &v1alpha1.BizflyNodeClassList{}
	if err := d.List(ctx, nodeClasses); err != nil {
		return nil, err
	}
	open := lo.FilterMap(nodeClasses.Items, func(n v1alpha1.BizflyNodeClass, _ int) (string, bool) {
		return n.Name, !dropsMetadata.MatchString(d.userData(ctx, &n))
	})
	nodes := &corev1.NodeList{}
	unlisted := d.List(ctx, nodes, bke.SelectPoolNodes)
	if len(open) == 0 && len(nodes.Items) == 0 {
		return nil, unlisted
	}
	for _, kind := range clusterPolicies {
		policies := &unstructured.UnstructuredList{}
		policies.SetGroupVersionKind(kind)
		if err := d.List(ctx, policies); err != nil && !connect.IsMissing(err) {
			return nil, err
		}
		if lo.ContainsBy(policies.Items, func(p unstructured.Unstructured) bool {
			text, err := p.MarshalJSON()
			return err == nil && strings.Contains(string(text), metadataAddress)
		}) {
			return nil, nil
		}
	}
	var found []Finding
	if len(open) > 0 {
		found = one("MetadataServiceOpen", Warning, fmt.Sprintf("nothing is found that keeps pods from the metadata service: no rule in the user data of "+
			"BizflyNodeClass %s drops traffic to %s, and no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy names it", list(open), metadataAddress),
			"any pod can read the user data and the join token of its node there, and join a node of its own",
			"kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there, or the user data of nodeclass.yaml)")
	}
	if len(nodes.Items) > 0 {
		names := lo.Map(nodes.Items, func(n corev1.Node, _ int) string { return n.Name })
		found = append(found, one("MetadataServiceOpen", Warning, fmt.Sprintf("nothing is found that keeps pods on BKE's pool nodes %s from the metadata "+
			"service: no CiliumClusterwideNetworkPolicy or Calico GlobalNetworkPolicy names %s, and user data of a BizflyNodeClass does not apply there",
			list(names), metadataAddress),
			"any pod there can read the join token, which is the same for all nodes of the BKE cluster, and join a node of its own",
			"kubectl apply -f config/samples/metadata-block/cilium.yaml (or calico.yaml there; with kube-router, let only trusted pods run on these nodes)")...)
	}
	return found, unlisted
}

// userData returns that of a NodeClass, empty where there is none or it may not be read.
func (d *examination) userData(ctx context.Context, nodeClass *v1alpha1.BizflyNodeClass) string {
	from := nodeClass.Spec.UserDataFrom
	if from == nil {
		return lo.FromPtr(nodeClass.Spec.UserData)
	}
	secret := &corev1.Secret{}
	if err := d.Get(ctx, types.NamespacedName{Namespace: d.namespace(), Name: from.Name}, secret); err != nil {
		d.Note("the user data of BizflyNodeClass %s was not read: %s", nodeClass.Name, err)
	}
	return string(secret.Data[from.Key])
}
