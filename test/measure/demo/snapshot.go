// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// snapshot is what the cluster and the cloud hold at one moment.
type snapshot struct {
	pods    []corev1.Pod
	nodes   []corev1.Node
	claims  []karpv1.NodeClaim
	classes []v1alpha1.BizflyNodeClass
	servers []cloud.Server
	volumes sets.Set[string]
	ports   sets.Set[string]
}

// look reads the cluster and the sandbox's ground truth.
func look(ctx context.Context, env *environment.Environment) (snapshot, error) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	var classes v1alpha1.BizflyNodeClassList
	var errs []error
	for _, list := range []client.ObjectList{&pods, &nodes, &claims, &classes} {
		errs = append(errs, env.Client().List(ctx, list))
	}
	// Last, so that it is never older than the state of the cluster.
	state, err := env.Sandbox().State(ctx)
	if err := errors.Join(append(errs, err)...); err != nil {
		return snapshot{}, fmt.Errorf("looking at the cluster: %w", err)
	}
	s := snapshot{pods: pods.Items, nodes: nodes.Items, claims: claims.Items, classes: classes.Items, servers: state.Servers}
	s.volumes = sets.New(lo.Map(state.Volumes, func(v cloud.Volume, _ int) string { return v.ID })...)
	s.ports = sets.New(lo.Map(state.NetworkInterfaces, func(n cloud.NetworkInterface, _ int) string { return n.ID })...)
	s.ports.Insert(lo.Map(state.WanIPs, func(ip cloud.WanIP, _ int) string { return ip.ID })...)
	return s, nil
}

// running counts the pods that are bound to a node and run there.
func (s snapshot) running() int {
	return lo.CountBy(s.pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	})
}

// empty reports whether nothing is left, here or there.
func (s snapshot) empty() bool {
	return len(s.pods)+len(s.nodes)+len(s.claims)+len(s.servers)+len(s.volumes)+len(s.ports) == 0
}
