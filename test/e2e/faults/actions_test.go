// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package faults_test

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

// action is one disturbance; do returns false where nothing exists that it could disturb.
type action struct {
	name string
	do   func() bool
	// must is set where each run has what it disturbs.
	must bool
}

// actions returns the disturbances of the run, in an order that follows from the seed. Those that take long to recover from are
// in the first half.
func (run *chaosRun) actions() []action {
	first := []action{
		{name: "kill the leader", do: run.killLeader, must: true},
		{name: "freeze the leader", do: run.freezeLeader, must: true},
		{name: "break a server", do: func() bool { return run.setStatus(cloud.StatusError) }},
		{name: "stop a server", do: func() bool { return run.setStatus(cloud.StatusShutoff) }},
		{name: "exhaust the quota", do: run.exhaustQuota},
		{name: "attach a volume of a pod", do: func() bool { return run.volume(true, false) }},
		{name: "attach a volume of a pod with the name of a root disk", do: func() bool { return run.volume(true, true) }},
		{name: "attach a volume of a user", do: func() bool { return run.volume(false, false) }},
		{name: "create a second server", do: run.extra},
		{name: "scale", do: run.scale},
	}
	second := []action{
		{name: "kill the leader", do: run.killLeader, must: true},
		{name: "kill a replica", do: run.killAny},
		{name: "upgrade the leader", do: run.upgradeLeader, must: true},
		{name: "crash the API server", do: func() bool { return run.apiServer(true) }},
		{name: "upgrade the API server", do: func() bool { return run.apiServer(false) }},
		{name: "expire the tokens", do: run.expireTokens},
		{name: "delete a server", do: run.removeServer},
		{name: "exhaust a zone", do: run.exhaustZone},
		{name: "delete a NodeClaim", do: run.deleteClaim},
		{name: "delete a node", do: run.deleteNode},
		{name: "scale", do: run.scale},
	}
	for _, half := range [][]action{first, second} {
		run.random.Shuffle(len(half), func(i, j int) { half[i], half[j] = half[j], half[i] })
	}
	return append(first, second...)
}

// leads returns the leader, or nil where none leads within a few seconds.
func (run *chaosRun) leads() *replica {
	var found *replica
	deadline := time.Now().Add(5 * time.Second)
	for found = leader(); found == nil && time.Now().Before(deadline); found = leader() {
		run.rest(500 * time.Millisecond)
	}
	return found
}

func (run *chaosRun) killLeader() bool {
	r := run.leads()
	if r == nil {
		return false
	}
	event("replica %s, which leads, is killed", r.name)
	r.kill()
	return true
}

func (run *chaosRun) killAny() bool {
	r := replicas[run.random.IntN(len(replicas))]
	event("replica %s is killed", r.name)
	r.kill()
	return true
}

func (run *chaosRun) upgradeLeader() bool {
	r := run.leads()
	if r == nil {
		return false
	}
	event("replica %s, which leads, is upgraded", r.name)
	r.upgrade()
	return true
}

// freezeLeader freezes the leader until another leads: it then finishes late what it was doing.
func (run *chaosRun) freezeLeader() bool {
	r := run.leads()
	if r == nil {
		return false
	}
	event("replica %s, which leads, is frozen", r.name)
	r.freeze()
	frozen := time.Now()
	run.in(5, func() {
		// The lease lasts fifteen seconds.
		if missing := 17*time.Second - time.Since(frozen); missing > 0 {
			run.rest(missing)
		}
		event("replica %s continues", r.name)
		r.thaw()
	})
	return true
}

// apiServer stops the API server for some seconds.
func (run *chaosRun) apiServer(crash bool) bool {
	GinkgoHelper()
	excused()
	event("the API server %s", lo.Ternary(crash, "crashes", "is upgraded"))
	Expect(env.StopAPIServer(crash)).To(Succeed())
	run.rest(time.Duration(run.random.IntN(6000)) * time.Millisecond)
	Expect(env.StartAPIServer(ctx)).To(Succeed())
	event("the API server is back")
	excused()
	return true
}

func (run *chaosRun) expireTokens() bool {
	GinkgoHelper()
	event("all tokens expire")
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "tokens/expire", nil, nil)).To(Succeed())
	return true
}

// member is a registered NodeClaim with its server.
type member struct {
	claim  karpv1.NodeClaim
	server cloud.Server
}

// choose chooses a registered NodeClaim.
func (run *chaosRun) choose() (member, bool) {
	members := run.registered()
	if len(members) == 0 {
		return member{}, false
	}
	return members[run.random.IntN(len(members))], true
}

func (run *chaosRun) setStatus(status string) bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	event("server %s changes to %s", m.server.Name, status)
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers/"+m.server.ID+"/status", map[string]string{"status": status}, nil)).To(Succeed())
	return true
}

// removeServer deletes a server as a user in the dashboard does, who keeps its disks.
func (run *chaosRun) removeServer() bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	event("server %s is deleted by hand", m.server.Name)
	Expect(env.Sandbox().Call(ctx, http.MethodDelete, "servers/"+m.server.ID, nil, nil)).To(Succeed())
	return true
}

func (run *chaosRun) exhaustZone() bool {
	GinkgoHelper()
	zone := zones[run.random.IntN(len(zones))]
	event("%s has no capacity", zone)
	Expect(env.Sandbox().Call(ctx, http.MethodPut, "stock", map[string]any{"flavor": "*", "zone": zone, "plan": "*", "available": 0}, nil)).To(Succeed())
	run.in(4, plenty)
	return true
}

func (run *chaosRun) exhaustQuota() bool {
	GinkgoHelper()
	state, err := env.Sandbox().State(ctx)
	Expect(err).NotTo(HaveOccurred())
	event("the quota is used up")
	quota(lo.ToPtr(len(state.Servers)))
	run.in(2, plenty)
	return true
}

// volume attaches a volume to a node's server: that of a PersistentVolume, or that of a user.
func (run *chaosRun) volume(persistent, likeRootDisk bool) bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	name := fmt.Sprintf("pvc-%d-%d", run.seed, run.phase)
	spec := cloud.VolumeSpec{Name: name, Zone: m.server.ZoneName}
	switch {
	case likeRootDisk:
		spec.Name, spec.Bootable = m.server.Name+"_rootdisk", true
	case persistent:
		spec.Description = "default/data by csi-bizflycloud"
	}
	created := addVolume(spec)
	if persistent {
		pv := persistentVolume(name, created)
		insist(func() error { return client.IgnoreAlreadyExists(env.Client().Create(ctx, pv)) })
	}
	event("volume %s of a %s is attached to server %s", created.Name, lo.Ternary(persistent, "pod", "user"), m.server.Name)
	attach(created, m.server)
	return true
}

// extra adds what a lost response may leave behind: a second server of a NodeClaim.
func (run *chaosRun) extra() bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	var created cloud.Server
	// A second server of one create request has the name of the first with a code. Any other name proves nothing, and is kept.
	spec := cloud.ServerSpec{Name: fmt.Sprintf("%s-%08x", m.server.Name, run.random.Uint32()), Zone: m.server.ZoneName, Metadata: m.server.Metadata}
	checker.AddDuplicate(spec.Name)
	Expect(env.Sandbox().Call(ctx, http.MethodPost, "servers", spec, &created)).To(Succeed())
	event("server %s is a second one of NodeClaim %s", created.Name, m.claim.Name)
	return true
}

func (run *chaosRun) scale() bool {
	GinkgoHelper()
	run.wanted = int32(2 + run.random.IntN(mostPods()-1))
	event("%d pods are wanted", run.wanted)
	patched := run.web.DeepCopy()
	patched.Spec.Replicas = lo.ToPtr(run.wanted)
	insist(func() error { return env.Client().Patch(ctx, patched, client.MergeFrom(run.web)) })
	run.web = patched
	return true
}

func (run *chaosRun) deleteClaim() bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	event("NodeClaim %s is deleted", m.claim.Name)
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, &m.claim)) })
	return true
}

func (run *chaosRun) deleteNode() bool {
	GinkgoHelper()
	m, ok := run.choose()
	if !ok {
		return false
	}
	event("node %s is deleted", m.server.Name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.server.Name}}
	insist(func() error { return client.IgnoreNotFound(env.Client().Delete(ctx, node)) })
	return true
}

// registered returns the NodeClaims with a running server and a registered node, oldest first.
func (run *chaosRun) registered() []member {
	seen, err := observe()
	if err != nil {
		return nil
	}
	members := lo.FilterMap(seen.Claims, func(c karpv1.NodeClaim, _ int) (member, bool) {
		server, exists := seen.ServerOf(&c)
		return member{claim: c, server: server}, exists && server.Status == cloud.StatusActive && !server.Truth.Deleting &&
			c.DeletionTimestamp.IsZero() && c.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
	})
	slices.SortFunc(members, func(a, b member) int { return a.claim.CreationTimestamp.Compare(b.claim.CreationTimestamp.Time) })
	return members
}
