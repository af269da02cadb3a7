// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
)

// disruption says what marks the node for its end, and why it is still there, which is the reason of top --idle.
func disruption(ctx context.Context, s *connect.Session, claim *karpv1.NodeClaim, node *corev1.Node) string {
	r := newReading(s)
	cluster, facts, err := factsOf(ctx, r)
	if err != nil {
		return "not known: " + err.Error()
	}
	row, _ := lo.Find(cluster.Nodes, func(n top.Node) bool { return n.Object != nil && n.Name == lo.FromPtr(node).Name })
	row.Object, row.Claim = node, claim
	row.NodePool = lo.CoalesceOrEmpty(row.NodePool, lo.FromPtr(claim).Labels[karpv1.NodePoolLabelKey])
	f := facts(row)
	var parts []string
	lives := lo.FromPtr(claim).Spec.ExpireAfter.Duration
	if lives != nil && f.Since(claim.CreationTimestamp.Time) >= *lives {
		parts = append(parts, fmt.Sprintf("it has expired at %s (expireAfter): Karpenter deletes it, which no budget of the "+
			"NodePool and no %s annotation prevents", claim.CreationTimestamp.Add(*lives).Local().Format(time.DateTime),
			karpv1.DoNotDisruptAnnotationKey))
		if !f.deleting() {
			return parts[0]
		}
	}
	rule, why := reasonFor(ctx, r, f)
	if drifted := f.drifted(); drifted != "" && rule.code != "Drifted" {
		parts = append(parts, "it has drifted and is to be replaced: "+drifted)
	}
	return strings.Join(append(parts, rule.what+": "+why.detail), "; ")
}
