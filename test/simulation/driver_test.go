// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

const (
	steps     = 110
	maxClaims = 5
)

// run runs the simulation and returns the violated invariants.
func (sim *simulation) run(ctx context.Context) []string {
	sim.begin(ctx)
	for range 2 {
		sim.newClaim()
	}
	sim.changeFaults()
	for range steps {
		sim.act()
		// Every goroutine blocks again before the next action.
		synctest.Wait()
		sim.observe()
	}
	sim.calm()
	for _, p := range sim.processes {
		p.cancel()
	}
	// Every request that is still unanswered has its deadline within this time.
	time.Sleep(5 * time.Minute)
	return sim.violations
}

// leader returns the process that reconciles now.
func (sim *simulation) leader() *process {
	last := sim.processes[len(sim.processes)-1]
	if last.gone() && len(sim.processes) < maxProcesses {
		return sim.newProcess()
	}
	return last
}

// act performs one action, chosen by the seed.
func (sim *simulation) act() {
	actions := []struct {
		weight int
		do     func()
	}{
		{36, func() { sim.reconcileClaim("lifecycle") }},
		{23, func() { sim.reconcileClaim("server") }},
		{5, func() { sim.reconcileSingleton("collector") }},
		{2, func() { sim.reconcileSingleton("core collector") }},
		{9, sim.provision},
		{3, sim.disrupt},
		{8, func() { time.Sleep(between(sim.rng, 5*time.Second, 95*time.Second)) }},
		{6, sim.changeFaults},
		{6, sim.disturb},
		{3, func() { sim.leader().dieAfter(sim.rng.IntN(15), sim.rng.IntN(2) == 0) }},
		{2, sim.changeLeader},
	}
	choice := sim.rng.IntN(lo.SumBy(actions, func(a struct {
		weight int
		do     func()
	}) int {
		return a.weight
	}))
	for _, a := range actions {
		if choice -= a.weight; choice < 0 {
			a.do()
			return
		}
	}
}

func (sim *simulation) provision() {
	if len(sim.liveClaims()) < maxClaims {
		sim.newClaim()
	}
}

// disrupt deletes a claim, as consolidation or a user does.
func (sim *simulation) disrupt() {
	if claims := sim.liveClaims(); len(claims) > 0 {
		claim := pick(sim.rng, claims...)
		sim.trace("claim %s is deleted", claim.Name)
		sim.deleteClaim(&claim)
	}
}

func (sim *simulation) deleteClaim(claim *karpv1.NodeClaim) {
	sim.api.Lock()
	defer sim.api.Unlock()
	lo.Must0(client.IgnoreNotFound(sim.kube.Delete(sim.ctx, claim.DeepCopy())))
}

// changeFaults begins another phase: most phases have few faults, some have one kind of fault, few have all.
func (sim *simulation) changeFaults() {
	next := faultRates{create: 0.3 * sim.rng.Float64()}
	switch sim.rng.IntN(9) {
	case 0:
		next.create = 0
	case 1:
		next.transport = 0.1 + 0.6*sim.rng.Float64()
	case 2, 3:
		next.build = 0.3 + 0.6*sim.rng.Float64()
	case 4:
		next.kube = 0.3 * sim.rng.Float64()
	case 5:
		next.slow, next.stale = 0.3*sim.rng.Float64(), 0.8*sim.rng.Float64()
	case 6, 7:
		next.create = 0.7
	default:
		next = faultRates{transport: 0.15, create: 0.3, build: 0.3, kube: 0.1, slow: 0.1, stale: 0.3}
	}
	sim.mu.Lock()
	sim.faults = next
	sim.mu.Unlock()
	sim.trace("faults: %+v", next)
}

// changeLeader freezes the leader, starts another one, and lets the old one finish a few calls late.
func (sim *simulation) changeLeader() {
	if len(sim.processes) == maxProcesses {
		return
	}
	old := sim.leader()
	old.freeze(between(sim.rng, 5*time.Second, 255*time.Second))
	old.dieAfter(sim.rng.IntN(6), sim.rng.IntN(2) == 0)
	sim.trace("%d: is frozen", old.number)
	if len(sim.processes) < maxProcesses {
		sim.newProcess()
	}
}

// disturb changes the cloud or the cluster behind the controller's back.
func (sim *simulation) disturb() {
	servers := lo.Filter(sim.cloud.Servers(), func(s cloud.Server, _ int) bool { return ours(s) && s.Status == cloud.StatusActive })
	server := cloud.Server{}
	if len(servers) > 0 {
		server = pick(sim.rng, servers...)
	}
	choice := sim.rng.IntN(11)
	sim.trace("disturbance: %d, server %q", choice, server.Name)
	switch {
	case choice == 0:
		sim.cloud.ExpireTokens()
	case choice == 1:
		sim.cloud.SetStock("*", pick(sim.rng, "*", "HN1", "HN2"), "*", sim.rng.IntN(2))
	case choice == 2:
		sim.cloud.SetStock("*", "*", "*", -1)
	case choice == 3:
		sim.cloud.SetQuota(cloud.Quota{Instances: lo.ToPtr(foreignServers + sim.rng.IntN(4))})
	case choice == 4:
		sim.cloud.SetQuota(cloud.Quota{})
	case choice == 10:
		sim.moveServers("", ourServers(sim)...)
	case server.ID == "":
	case choice == 5:
		lo.Must0(sim.cloud.SetServerStatus(server.ID, pick(sim.rng, cloud.StatusError, cloud.StatusShutoff)))
	case choice == 6:
		lo.Must0(sim.cloud.RemoveServer(server.ID))
	case choice == 9:
		sim.moveServers("another", server)
	case choice == 7 && sim.rng.IntN(3) == 0:
		sim.adoptRootDisk(server)
	default:
		sim.attachVolume(server)
	}
}

// moveServers moves servers to another project, or back to the account's where it is empty.
func (sim *simulation) moveServers(project string, servers ...cloud.Server) {
	project = cmp.Or(project, sim.cloud.Options().Project)
	for _, server := range servers {
		lo.Must0(sim.cloud.ApplyServerEdit(server.ID, cloud.ServerEdit{Project: &project}))
	}
}

// adoptRootDisk creates a PersistentVolume of the disk that the server boots from, as users do who want to keep the disk.
func (sim *simulation) adoptRootDisk(server cloud.Server) {
	volume, found := lo.Find(sim.cloud.State().Volumes, func(v cloud.Volume) bool {
		return v.Name == server.Name+"_rootdisk" && !sim.checker.ForeignVolume(v.ID) &&
			lo.SomeBy(v.Attachments, func(a cloud.VolumeAttachment) bool { return a.ServerID == server.ID })
	})
	if !found || server.Truth.Deleting || !sim.runsPods(server) {
		return
	}
	sim.newVolume(fmt.Sprintf("pvc-%d", sim.volumes), volume.ID)
	sim.trace("the root disk of %s is a PersistentVolume", server.Name)
}

// runsPods reports whether the server's node is registered and is not being deleted.
func (sim *simulation) runsPods(server cloud.Server) bool {
	return lo.ContainsBy(sim.liveClaims(), func(claim karpv1.NodeClaim) bool {
		return serverID(claim.Status.ProviderID) == server.ID && claim.DeletionTimestamp.IsZero() &&
			claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
	})
}

func (sim *simulation) newVolume(name, handle string) {
	lo.Must0(sim.kube.Create(sim.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "volume.csi.bizflycloud.vn", VolumeHandle: handle},
		}},
	}))
	sim.checker.AddForeignVolume(handle, name, time.Now())
	sim.volumes++
}

// attachVolume attaches a PersistentVolume to the server's node, under any name.
func (sim *simulation) attachVolume(server cloud.Server) {
	if !sim.runsPods(server) {
		return
	}
	name := fmt.Sprintf("pvc-%d", sim.volumes)
	volume := sim.cloud.AddVolume(cloud.VolumeSpec{
		Name:        pick(sim.rng, name, server.Name+"_rootdisk", server.Name+"_datadisk"),
		Description: pick(sim.rng, "default/data by csi-bizflycloud", ""), Zone: server.ZoneName, Bootable: sim.rng.IntN(3) == 0,
	})
	sim.newVolume(name, volume.ID)
	lo.Must0(sim.cloud.AttachVolume(volume.ID, server.ID))
	sim.trace("volume %s (%s) on %s", name, volume.Name, server.Name)
}

// reconcileClaim passes a NodeClaim to a controller as an informer does: sometimes an old version.
func (sim *simulation) reconcileClaim(controller string) {
	claims := sim.liveClaims()
	if len(claims) == 0 {
		return
	}
	chosen := pick(sim.rng, claims...)
	claim := chosen.DeepCopy()
	if old := sim.snapshots[string(claim.UID)]; old != nil && sim.rng.IntN(5) == 0 {
		claim = old.DeepCopy()
	}
	sim.snapshots[string(claim.UID)] = claim.DeepCopy()
	sim.reconcile(controller, claim)
	sim.wait(sim.leader(), controller+chosen.Name, between(sim.rng, 0, 20*time.Second))
}

func (sim *simulation) reconcile(controller string, claim *karpv1.NodeClaim) {
	p := sim.leader()
	sim.start(p, controller+claim.Name, func() error {
		var err error
		if controller == "lifecycle" {
			_, err = p.core.lifecycle.Reconcile(p.ctx, claim)
		} else {
			_, err = p.server.Reconcile(p.ctx, claim)
		}
		return err
	})
}

func (sim *simulation) reconcileSingleton(controller string) {
	p := sim.leader()
	sim.start(p, controller, func() error {
		var err error
		if controller == "collector" {
			_, err = p.collector.Reconcile(p.ctx)
		} else {
			_, err = p.coreCollector.Reconcile(p.ctx)
		}
		return err
	})
	sim.wait(p, controller, between(sim.rng, 0, 10*time.Second))
}

// start starts a reconcile of one object, unless one is still running.
func (sim *simulation) start(p *process, key string, do func() error) {
	key = fmt.Sprint(p.number, " ", key)
	if running, ok := sim.ops[key]; ok {
		select {
		case <-running:
		default:
			return
		}
	}
	done := make(chan struct{})
	sim.ops[key] = done
	sim.trace("%s begins", key)
	go func() {
		defer close(done)
		err := do()
		sim.trace("%s ends: %v", key, err)
	}()
}

// wait waits for a reconcile, no longer than this: other actions happen meanwhile.
func (sim *simulation) wait(p *process, key string, most time.Duration) {
	done, ok := sim.ops[fmt.Sprint(p.number, " ", key)]
	if !ok {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// calm ends all faults and reconciles until everything is settled.
func (sim *simulation) calm() {
	sim.mu.Lock()
	sim.faults = faultRates{}
	sim.mu.Unlock()
	sim.cloud.SetStock("*", "*", "*", -1)
	sim.cloud.SetStock("*", "HN1", "*", -1)
	sim.cloud.SetStock("*", "HN2", "*", -1)
	sim.cloud.SetQuota(cloud.Quota{})
	sim.moveServers("", ourServers(sim)...)
	sim.trace("calm")
	// Late requests, builds and frozen machines of the time with faults end before this.
	began := time.Now()
	for time.Since(began) < time.Hour {
		sim.calmRound(began)
		if time.Since(began) > 10*time.Minute && len(sim.checker.Unsettled(sim.seen())) == 0 {
			return
		}
	}
	for _, text := range sim.checker.Unsettled(sim.seen()) {
		sim.violated("an hour after the last fault: %s", text)
	}
}

func (sim *simulation) calmRound(began time.Time) {
	p := sim.leader()
	p.dieAfter(-1, false)
	for _, claim := range sim.liveClaims() {
		for _, controller := range []string{"lifecycle", "server"} {
			sim.reconcile(controller, claim.DeepCopy())
			sim.wait(p, controller+claim.Name, 40*time.Second)
		}
	}
	if time.Since(began) > 6*time.Minute {
		sim.strictCollection()
	} else {
		sim.reconcileSingleton("collector")
	}
	sim.reconcileSingleton("core collector")
	sim.observe()
	time.Sleep(25 * time.Second)
	sim.observe()
}

// strictCollection runs one pass of the garbage collector, after which every orphan must be deleted.
func (sim *simulation) strictCollection() {
	orphans := lo.Filter(sim.checker.Orphans(sim.seen(), sim.grace), func(s cloud.Server, _ int) bool {
		return s.Status != cloud.StatusBuild || (!sim.options.HideBuilding && !sim.options.ConflictOnBuild)
	})
	p := sim.leader()
	sim.start(p, "collector", func() error { _, err := p.collector.Reconcile(p.ctx); return err })
	sim.wait(p, "collector", 5*time.Minute)
	after := sim.cloud.Servers()
	for _, orphan := range orphans {
		i := slices.IndexFunc(after, func(s cloud.Server) bool { return s.ID == orphan.ID })
		if i >= 0 && !after[i].Truth.Deleting {
			sim.violated("server %s (%s), which no NodeClaim accounts for, outlived a pass of the garbage collector", orphan.Name, after[i].Status)
		}
	}
}
