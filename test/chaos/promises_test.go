/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package chaos_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func claimUIDOf(s cloud.Server) string { return s.Metadata[v1alpha1.MetadataNodeClaimUID] }

// observe plays the rest of the cluster, and looks at what must hold at any time.
func (w *world) observe() {
	state, nodes := w.cloud.State(), w.liveNodes()
	w.never(state, nodes)
	w.kubelets(state, nodes)
	w.endNodes(nodes)
}

// kubelets registers the nodes of servers that have booted, tells which are ready, and plays the cloud controller
// manager, which deletes the nodes of servers that are gone.
func (w *world) kubelets(state cloud.State, nodes []corev1.Node) {
	servers := lo.KeyBy(state.Servers, func(s cloud.Server) string { return s.ID })
	for _, s := range state.Servers {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.Name))
		boot := time.Duration(15+h.Sum32()%60) * time.Second
		if ours(s) && !w.joined[s.ID] && !s.Truth.NoJoin && s.Status == cloud.StatusActive && time.Since(s.Truth.ActiveAt) > boot {
			w.joined[s.ID] = true
			w.join(s)
		}
	}
	for i := range nodes {
		node := &nodes[i]
		server, exists := servers[serverID(node.Spec.ProviderID)]
		if !exists && node.DeletionTimestamp.IsZero() {
			lo.Must0(client.IgnoreNotFound(w.kube.Delete(w.ctx, node.DeepCopy())))
		}
		w.ready(node, exists && server.Status == cloud.StatusActive)
	}
}

func (w *world) join(s cloud.Server) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{corev1.LabelHostname: s.Name}, CreationTimestamp: metav1.Now()},
		Spec:       corev1.NodeSpec{ProviderID: providerid.New(s.ID), Taints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	lo.Must0(w.kube.Create(w.ctx, node))
	w.trace("node %s joins", s.Name)
}

// ready keeps the condition of a node, and plays core's node repair: a node that has been silent for ten minutes is
// replaced.
func (w *world) ready(node *corev1.Node, alive bool) {
	status := lo.Ternary(alive, corev1.ConditionTrue, corev1.ConditionUnknown)
	if node.Status.Conditions[0].Status != status {
		w.unready[node.Name] = time.Now()
		node.Status.Conditions[0].Status = status
		w.written(w.kube.Status().Update(w.ctx, node))
	}
	if alive || time.Since(w.unready[node.Name]) < 10*time.Minute {
		return
	}
	for _, claim := range w.liveClaims() {
		if claim.Status.ProviderID == node.Spec.ProviderID && claim.DeletionTimestamp.IsZero() &&
			claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
			w.trace("claim %s is repaired", claim.Name)
			w.deleteClaim(&claim)
		}
	}
}

// written looks at a write of the rest of the cluster: what has changed or gone since is looked at again the next time.
func (w *world) written(err error) {
	if !apierrors.IsConflict(err) {
		lo.Must0(client.IgnoreNotFound(err))
	}
}

// endNodes plays core's node termination: pods go, volumes are detached or, where nobody answers, are not, and the node
// goes with its claim.
func (w *world) endNodes(nodes []corev1.Node) {
	for i := range nodes {
		node := &nodes[i]
		if node.DeletionTimestamp.IsZero() {
			continue
		}
		for _, claim := range w.liveClaims() {
			if claim.Status.ProviderID == node.Spec.ProviderID && claim.DeletionTimestamp.IsZero() {
				w.deleteClaim(&claim)
			}
		}
		if controllerutil.RemoveFinalizer(node, karpv1.TerminationFinalizer) {
			w.written(w.kube.Update(w.ctx, node))
		}
	}
}

// never looks for what must not be the case at any time.
func (w *world) never(state cloud.State, nodes []corev1.Node) {
	claims := w.liveClaims()
	owners := map[string]string{}
	for i := range claims {
		claim := &claims[i]
		id := claim.Status.ProviderID
		if before := w.providers[claim.UID]; before != "" && before != id {
			w.violated("claim %s had server %s and now has %q", claim.Name, before, id)
		}
		if id == "" {
			continue
		}
		w.providers[claim.UID] = id
		if other, taken := owners[id]; taken {
			w.violated("claims %s and %s have the same server %s", other, claim.Name, id)
		}
		owners[id] = claim.Name
	}
	byID := lo.KeyBy(state.Servers, func(s cloud.Server) string { return s.ID })
	registered := map[string]string{}
	for _, node := range nodes {
		server := byID[serverID(node.Spec.ProviderID)]
		if node.Labels[karpv1.NodeRegisteredLabelKey] == "" || claimUIDOf(server) == "" {
			continue
		}
		if other, twice := registered[claimUIDOf(server)]; twice {
			w.violated("two servers are registered for one claim: %s and %s", other, node.Name)
		}
		registered[claimUIDOf(server)] = node.Name
	}
	for _, stranger := range w.strangers {
		if now, exists := byID[stranger.ID]; !exists || now.Status != stranger.Status || now.Truth.Deleting {
			w.violated("server %s of somebody else was touched", stranger.Name)
		}
	}
	for _, id := range w.volumes {
		if !slices.ContainsFunc(state.Volumes, func(v cloud.Volume) bool { return v.ID == id }) {
			w.violated("volume %s of a PersistentVolume is lost", id)
		}
	}
	for _, s := range state.Servers {
		if uid := claimUIDOf(s); ours(s) {
			if w.built[uid] == nil {
				w.built[uid] = map[string]bool{}
			}
			w.built[uid][s.ID] = true
		}
	}
	for uid, servers := range w.built {
		if len(servers) > 1 {
			w.violated("%d servers were built for claim %s", len(servers), uid)
		}
	}
	w.mu.Lock()
	orders := maps.Clone(w.orders)
	w.mu.Unlock()
	for uid, orders := range orders {
		if orders > maxOrders {
			w.violated("%d servers were ordered for claim %s", orders, uid)
		}
	}
}

// mayDelete looks whether a server may be deleted: not while its claim lives and has this one or is about to get it, unless it
// is broken.
func (w *world) mayDelete(path string) {
	server, found := lo.Find(w.cloud.Servers(), func(s cloud.Server) bool { return strings.HasSuffix(path, "/servers/"+s.ID) })
	if !found || server.Status == cloud.StatusError || server.Truth.Deleting {
		return
	}
	for _, claim := range w.liveClaims() {
		id := serverID(claim.Status.ProviderID)
		if string(claim.UID) == claimUIDOf(server) && claim.DeletionTimestamp.IsZero() && (id == "" || id == server.ID) {
			w.violated("server %s (%s) is deleted although claim %s lives and has server %q", server.Name, server.Status, claim.Name, id)
		}
	}
}

// maxOrders bounds the orders for one claim, refused ones included: its life without a server is three minutes, and a
// call of Create makes three.
const maxOrders = 40

// unsettled says what is not yet as it must be once all faults have ended.
func (w *world) unsettled() []string {
	var open []string
	say := func(format string, args ...any) { open = append(open, fmt.Sprintf(format, args...)) }
	state := w.cloud.State()
	byProvider := map[string]*karpv1.NodeClaim{}
	claims := w.liveClaims()
	for i := range claims {
		byProvider[claims[i].Status.ProviderID] = &claims[i]
	}
	running := map[string]bool{}
	for _, s := range state.Servers {
		switch {
		case !ours(s):
			running[s.ID] = true
		case byProvider[providerid.New(s.ID)] == nil:
			say("server %s (%s) has no claim", s.Name, s.Status)
		default:
			running[s.ID] = true
		}
	}
	for i := range claims {
		claim := &claims[i]
		s, exists := lo.Find(state.Servers, func(s cloud.Server) bool { return providerid.New(s.ID) == claim.Status.ProviderID })
		switch {
		case !claim.DeletionTimestamp.IsZero():
			say("claim %s is being deleted", claim.Name)
		case !exists:
			say("claim %s has no server: %s", claim.Name, claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).Message)
		case s.Status != cloud.StatusActive:
			say("server %s of claim %s is %s", s.Name, claim.Name, s.Status)
		case !claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue():
			say("claim %s is not registered", claim.Name)
		}
	}
	for _, v := range state.Volumes {
		attached := lo.SomeBy(v.Attachments, func(a cloud.VolumeAttachment) bool { return running[a.ServerID] })
		if !attached && !slices.Contains(w.volumes, v.ID) {
			say("disk %s is left (%s)", v.Name, v.Status)
		}
	}
	for _, nic := range state.NetworkInterfaces {
		if !running[nic.DeviceID] {
			say("network interface %s is left", nic.Name)
		}
	}
	for _, ip := range state.WanIPs {
		if !running[ip.DeviceID] {
			say("address %s is left", ip.IPAddress)
		}
	}
	for _, node := range w.liveNodes() {
		if byProvider[node.Spec.ProviderID] == nil {
			say("node %s has no claim", node.Name)
		}
	}
	slices.SortFunc(open, strings.Compare)
	return open
}
