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
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// card is something that happens; do returns false where there is nobody that it could happen to.
type card struct {
	name string
	do   func() bool
}

// deck is what happens in the run, in an order that follows from the seed. What takes long to be put right is in the
// first half.
func (w *world) deck() []card {
	first := []card{
		{"kill the leader", w.killLeader},
		{"freeze the leader", w.freezeLeader},
		{"break a server", func() bool { return w.die(cloud.StatusError) }},
		{"stop a server", func() bool { return w.die(cloud.StatusShutoff) }},
		{"take the quota", w.takeQuota},
		{"attach a volume of a pod", func() bool { return w.volume(true, false) }},
		{"attach a volume of a pod that is called like a root disk", func() bool { return w.volume(true, true) }},
		{"attach a volume of a person", func() bool { return w.volume(false, false) }},
		{"get a second server", w.extra},
		{"scale", w.scale},
	}
	second := []card{
		{"kill the leader", w.killLeader},
		{"kill a replica", w.killAny},
		{"upgrade the leader", w.upgradeLeader},
		{"crash the API server", func() bool { return w.apiServer(true) }},
		{"upgrade the API server", func() bool { return w.apiServer(false) }},
		{"expire the tokens", w.expireTokens},
		{"delete a server", w.removeServer},
		{"take the stock", w.takeStock},
		{"delete a claim", w.deleteClaim},
		{"delete a node", w.deleteNode},
		{"scale", w.scale},
	}
	for _, half := range [][]card{first, second} {
		w.random.Shuffle(len(half), func(i, j int) { half[i], half[j] = half[j], half[i] })
	}
	return append(first, second...)
}

// leads is the leader, waited for a while: where none leads, killing one is no loss.
func (w *world) leads() *replica {
	var found *replica
	deadline := time.Now().Add(5 * time.Second)
	for found = leader(); found == nil && time.Now().Before(deadline); found = leader() {
		w.rest(500 * time.Millisecond)
	}
	return found
}

func (w *world) killLeader() bool {
	r := w.leads()
	if r == nil {
		return false
	}
	happened("replica %s, which leads, is killed", r.name)
	r.kill()
	return true
}

func (w *world) killAny() bool {
	r := replicas[w.random.IntN(len(replicas))]
	happened("replica %s is killed", r.name)
	r.kill()
	return true
}

func (w *world) upgradeLeader() bool {
	r := w.leads()
	if r == nil {
		return false
	}
	happened("replica %s, which leads, is upgraded", r.name)
	r.upgrade()
	return true
}

// freezeLeader lets the leader stand still until another leads: it then finishes late what it was doing.
func (w *world) freezeLeader() bool {
	r := w.leads()
	if r == nil {
		return false
	}
	happened("replica %s, which leads, stands still", r.name)
	r.freeze()
	frozen := time.Now()
	w.in(5, func() {
		// The lease lasts fifteen seconds.
		if missing := 17*time.Second - time.Since(frozen); missing > 0 {
			w.rest(missing)
		}
		happened("replica %s goes on", r.name)
		r.thaw()
	})
	return true
}

// apiServer takes the API server away for some seconds.
func (w *world) apiServer(crash bool) bool {
	GinkgoHelper()
	excused()
	happened("the API server %s", lo.Ternary(crash, "crashes", "is upgraded"))
	Expect(env.StopAPIServer(crash)).To(Succeed())
	w.rest(time.Duration(w.random.IntN(6000)) * time.Millisecond)
	Expect(env.StartAPIServer(ctx)).To(Succeed())
	happened("the API server is back")
	excused()
	return true
}

func (w *world) expireTokens() bool {
	GinkgoHelper()
	happened("all tokens expire")
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "tokens/expire", nil, nil)).To(Succeed())
	return true
}

// member is a registered claim with its server.
type member struct {
	claim  karpv1.NodeClaim
	server cloud.Server
}

// choose chooses a registered claim.
func (w *world) choose() (member, bool) {
	members := w.registered()
	if len(members) == 0 {
		return member{}, false
	}
	return members[w.random.IntN(len(members))], true
}

func (w *world) die(status string) bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	happened("server %s goes to %s", m.server.Name, status)
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers/"+m.server.ID+"/status", map[string]string{"status": status}, nil)).To(Succeed())
	return true
}

// removeServer deletes a server as somebody in the dashboard does, who keeps its disks.
func (w *world) removeServer() bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	happened("server %s is deleted by hand", m.server.Name)
	Expect(env.Sandbox().Call(ctx, http.MethodDelete, "servers/"+m.server.ID, nil, nil)).To(Succeed())
	return true
}

func (w *world) takeStock() bool {
	GinkgoHelper()
	zone := zones[w.random.IntN(len(zones))]
	happened("%s is sold out", zone)
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "stock", map[string]any{"flavor": "*", "zone": zone, "plan": "*", "available": 0}, nil)).To(Succeed())
	w.in(4, plenty)
	return true
}

func (w *world) takeQuota() bool {
	GinkgoHelper()
	state, err := env.Sandbox().State(ctx)
	Expect(err).NotTo(HaveOccurred())
	happened("the quota is used up")
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "quota", map[string]any{"instances": len(state.Servers)}, nil)).To(Succeed())
	w.in(2, plenty)
	return true
}

// volume attaches a volume to a server of ours: one of a pod, which a PersistentVolume names, or one of a person.
func (w *world) volume(persistent, likeRootDisk bool) bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	name := fmt.Sprintf("pvc-%d-%d", w.seed, w.phase)
	spec := cloud.VolumeSpec{Name: name, Zone: m.server.ZoneName}
	switch {
	case likeRootDisk:
		spec.Name, spec.Bootable = m.server.Name+"_rootdisk", true
	case persistent:
		spec.Description = "default/data by csi-bizflycloud"
	}
	made := estate.addVolume(spec, m.server.ID)
	if persistent {
		pv := persistentVolume(name, made)
		insist(func() error { return client.IgnoreAlreadyExists(env.Client().Create(ctx, pv)) })
	}
	happened("volume %s of a %s is attached to server %s", made.Name, lo.Ternary(persistent, "pod", "person"), m.server.Name)
	attach(made, m.server)
	return true
}

// extra adds what a lost answer may leave behind: a second server of a claim that has one.
func (w *world) extra() bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	var made cloud.Server
	spec := cloud.ServerSpec{Name: m.server.Name + "-extra", Zone: m.server.ZoneName, Metadata: m.server.Metadata}
	w.observer.planted(spec.Name)
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &made)).To(Succeed())
	happened("server %s is a second one of claim %s", made.Name, m.claim.Name)
	return true
}

func (w *world) scale() bool {
	GinkgoHelper()
	w.wanted = int32(2 + w.random.IntN(5))
	happened("%d pods are wanted", w.wanted)
	patched := w.web.DeepCopy()
	patched.Spec.Replicas = lo.ToPtr(w.wanted)
	insist(func() error { return env.Client().Patch(ctx, patched, client.MergeFrom(w.web)) })
	w.web = patched
	return true
}

func (w *world) deleteClaim() bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	happened("claim %s is deleted", m.claim.Name)
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, &m.claim)) })
	return true
}

func (w *world) deleteNode() bool {
	GinkgoHelper()
	m, ok := w.choose()
	if !ok {
		return false
	}
	happened("node %s is deleted", m.server.Name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.server.Name}}
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, node)) })
	return true
}

// registered are the claims of the pool that have a running server and a registered node, in the order of their names.
func (w *world) registered() []member {
	seen, err := look()
	if err != nil {
		return nil
	}
	members := lo.FilterMap(seen.claims, func(c karpv1.NodeClaim, _ int) (member, bool) {
		server, exists := seen.serverOf(&c)
		return member{claim: c, server: server}, exists && server.Status == cloud.StatusActive && !server.Truth.Deleting &&
			c.DeletionTimestamp.IsZero() && c.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
	})
	slices.SortFunc(members, func(a, b member) int { return a.claim.CreationTimestamp.Compare(b.claim.CreationTimestamp.Time) })
	return members
}
