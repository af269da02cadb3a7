// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"cmp"
	"hash/fnv"
	"maps"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/invariants"
)

// seen returns the cloud and the cluster of this moment.
func (sim *simulation) seen() invariants.Observation {
	return invariants.Observation{At: time.Now(), Cloud: sim.cloud.State(), Claims: sim.liveClaims(), Nodes: sim.liveNodes()}
}

// observe checks the invariants and simulates the rest of the cluster.
func (sim *simulation) observe() {
	seen := sim.seen()
	for _, violation := range sim.checker.Violations(seen) {
		sim.violated("%s", violation)
	}
	sim.checkCreates()
	sim.kubelets(seen.Cloud, seen.Nodes)
	sim.endNodes(seen.Nodes)
}

// kubelets registers the nodes of servers that have booted, sets which are ready, and simulates the cloud controller manager,
// which deletes the nodes of deleted servers.
func (sim *simulation) kubelets(state cloud.State, nodes []corev1.Node) {
	servers := lo.KeyBy(state.Servers, func(s cloud.Server) string { return s.ID })
	for _, s := range state.Servers {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.Name))
		boot := cmp.Or(sim.boot, time.Duration(15+h.Sum32()%60)*time.Second)
		if ours(s) && !sim.joined[s.ID] && !s.Truth.NoJoin && s.Status == cloud.StatusActive && time.Since(s.Truth.ActiveAt) > boot {
			sim.joined[s.ID] = true
			sim.join(s)
		}
	}
	for i := range nodes {
		node := &nodes[i]
		server, exists := servers[serverID(node.Spec.ProviderID)]
		if !exists && node.DeletionTimestamp.IsZero() {
			lo.Must0(client.IgnoreNotFound(sim.kube.Delete(sim.ctx, node.DeepCopy())))
		}
		sim.ready(node, exists && server.Status == cloud.StatusActive)
	}
}

func (sim *simulation) join(s cloud.Server) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{corev1.LabelHostname: s.Name}, CreationTimestamp: metav1.Now()},
		Spec:       corev1.NodeSpec{ProviderID: providerid.New(s.ID), Taints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	// A second server of the same name finds the Node of the first.
	lo.Must0(client.IgnoreAlreadyExists(sim.kube.Create(sim.ctx, node)))
	sim.trace("node %s joins", s.Name)
}

// ready sets the condition of a node, and simulates core's node repair: a node that is not ready for ten minutes is replaced.
func (sim *simulation) ready(node *corev1.Node, alive bool) {
	status := lo.Ternary(alive, corev1.ConditionTrue, corev1.ConditionUnknown)
	if node.Status.Conditions[0].Status != status {
		sim.unready[node.Name] = time.Now()
		node.Status.Conditions[0].Status = status
		sim.written(sim.kube.Status().Update(sim.ctx, node))
	}
	if alive || time.Since(sim.unready[node.Name]) < 10*time.Minute {
		return
	}
	for _, claim := range sim.liveClaims() {
		if claim.Status.ProviderID == node.Spec.ProviderID && claim.DeletionTimestamp.IsZero() &&
			claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
			sim.trace("claim %s is repaired", claim.Name)
			sim.deleteClaim(&claim)
		}
	}
}

// written checks a write of the rest of the cluster. Conflicts and deleted objects are handled in the next round.
func (sim *simulation) written(err error) {
	if !apierrors.IsConflict(err) {
		lo.Must0(client.IgnoreNotFound(err))
	}
}

// endNodes simulates core's node termination: the node is deleted with its NodeClaim.
func (sim *simulation) endNodes(nodes []corev1.Node) {
	for i := range nodes {
		node := &nodes[i]
		if node.DeletionTimestamp.IsZero() {
			continue
		}
		for _, claim := range sim.liveClaims() {
			if claim.Status.ProviderID == node.Spec.ProviderID && claim.DeletionTimestamp.IsZero() {
				sim.deleteClaim(&claim)
			}
		}
		if controllerutil.RemoveFinalizer(node, karpv1.TerminationFinalizer) {
			sim.written(sim.kube.Update(sim.ctx, node))
		}
	}
}

func ourServers(sim *simulation) []cloud.Server {
	return lo.Filter(sim.cloud.Servers(), func(s cloud.Server, _ int) bool { return ours(s) })
}

// checkCreates checks the bound of create requests for each NodeClaim.
func (sim *simulation) checkCreates() {
	sim.mu.Lock()
	creates := maps.Clone(sim.creates)
	sim.mu.Unlock()
	for uid, n := range creates {
		if n > maxCreates {
			sim.violated("%d create requests were sent for NodeClaim %s", n, uid)
		}
	}
}

// mayDelete checks that a server may be deleted: not while its NodeClaim exists and has this server or waits for one, unless the
// server is in ERROR.
func (sim *simulation) mayDelete(path string) {
	server, found := lo.Find(sim.cloud.Servers(), func(s cloud.Server) bool { return strings.HasSuffix(path, "/servers/"+s.ID) })
	if !found || server.Status == cloud.StatusError || server.Truth.Deleting {
		return
	}
	for _, claim := range sim.liveClaims() {
		id := serverID(claim.Status.ProviderID)
		if claim.UID == invariants.ClaimUID(server) && claim.DeletionTimestamp.IsZero() && (id == "" || id == server.ID) {
			sim.violated("server %s (%s) is deleted although NodeClaim %s exists and has server %q", server.Name, server.Status, claim.Name, id)
		}
	}
}

// maxCreates bounds the create requests for one NodeClaim, rejected ones included: it has no server for three minutes at most,
// and a call of Create sends three.
const maxCreates = 40
