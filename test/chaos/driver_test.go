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

// run lives through one world and returns what went wrong in it.
func (w *world) run(ctx context.Context) []string {
	w.begin(ctx)
	for range 2 {
		w.newClaim()
	}
	w.changeWeather()
	for range steps {
		w.act()
		// Whatever a death or an answer has set going comes to where it waits before the next thing happens.
		synctest.Wait()
		w.observe()
	}
	w.calm()
	for _, p := range w.processes {
		p.cancel()
	}
	// Whatever still waits for an answer has its deadline within this time.
	time.Sleep(5 * time.Minute)
	return w.violations
}

// leader is the process that reconciles now.
func (w *world) leader() *process {
	last := w.processes[len(w.processes)-1]
	if last.gone() && len(w.processes) < maxProcesses {
		return w.newProcess()
	}
	return last
}

// act does one thing, chosen by the seed.
func (w *world) act() {
	actions := []struct {
		weight int
		do     func()
	}{
		{36, func() { w.reconcileClaim("lifecycle") }},
		{9, func() { w.reconcileClaim("launch") }},
		{9, func() { w.reconcileClaim("volumes") }},
		{5, func() { w.reconcileClaim("repair") }},
		{5, func() { w.reconcileSingleton("collector") }},
		{2, func() { w.reconcileSingleton("core collector") }},
		{9, w.provision},
		{3, w.disrupt},
		{8, func() { time.Sleep(between(w.rng, 5*time.Second, 95*time.Second)) }},
		{6, w.changeWeather},
		{6, w.happen},
		{3, func() { w.leader().dieAfter(w.rng.IntN(15), w.rng.IntN(2) == 0) }},
		{2, w.changeLeader},
	}
	choice := w.rng.IntN(lo.SumBy(actions, func(a struct {
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

func (w *world) provision() {
	if len(w.liveClaims()) < maxClaims {
		w.newClaim()
	}
}

// disrupt deletes a claim, as consolidation or a user does.
func (w *world) disrupt() {
	if claims := w.liveClaims(); len(claims) > 0 {
		claim := pick(w.rng, claims...)
		w.trace("claim %s is deleted", claim.Name)
		w.deleteClaim(&claim)
	}
}

func (w *world) deleteClaim(claim *karpv1.NodeClaim) {
	w.api.Lock()
	defer w.api.Unlock()
	lo.Must0(client.IgnoreNotFound(w.kube.Delete(w.ctx, claim.DeepCopy())))
}

// changeWeather begins another phase: most are fine, some are bad in one way, few in all.
func (w *world) changeWeather() {
	next := weather{order: 0.3 * w.rng.Float64()}
	switch w.rng.IntN(9) {
	case 0:
		next.order = 0
	case 1:
		next.transport = 0.1 + 0.6*w.rng.Float64()
	case 2, 3:
		next.build = 0.3 + 0.6*w.rng.Float64()
	case 4:
		next.kube = 0.3 * w.rng.Float64()
	case 5:
		next.slow, next.stale = 0.3*w.rng.Float64(), 0.8*w.rng.Float64()
	case 6, 7:
		next.order = 0.7
	default:
		next = weather{transport: 0.15, order: 0.3, build: 0.3, kube: 0.1, slow: 0.1, stale: 0.3}
	}
	w.mu.Lock()
	w.weather = next
	w.mu.Unlock()
	w.trace("weather: %+v", next)
}

// changeLeader lets the leader stand still, makes another one, and lets the old one finish a few calls late.
func (w *world) changeLeader() {
	if len(w.processes) == maxProcesses {
		return
	}
	old := w.leader()
	old.freeze(between(w.rng, 5*time.Second, 255*time.Second))
	old.dieAfter(w.rng.IntN(6), w.rng.IntN(2) == 0)
	w.trace("%d: stands still", old.number)
	if len(w.processes) < maxProcesses {
		w.newProcess()
	}
}

// happen lets something happen in the cloud or in the cluster that nobody asked for.
func (w *world) happen() {
	servers := lo.Filter(w.cloud.Servers(), func(s cloud.Server, _ int) bool { return ours(s) && s.Status == cloud.StatusActive })
	server := cloud.Server{}
	if len(servers) > 0 {
		server = pick(w.rng, servers...)
	}
	choice := w.rng.IntN(9)
	w.trace("happens: %d, server %q", choice, server.Name)
	switch {
	case choice == 0:
		w.cloud.ExpireTokens()
	case choice == 1:
		w.cloud.SetStock("*", pick(w.rng, "*", "HN1", "HN2"), "*", w.rng.IntN(2))
	case choice == 2:
		w.cloud.SetStock("*", "*", "*", -1)
	case choice == 3:
		w.cloud.SetQuota(cloud.Quota{Instances: lo.ToPtr(len(w.strangers) + w.rng.IntN(4))})
	case choice == 4:
		w.cloud.SetQuota(cloud.Quota{})
	case server.ID == "":
	case choice == 5:
		lo.Must0(w.cloud.SetServerStatus(server.ID, pick(w.rng, cloud.StatusError, cloud.StatusShutoff)))
	case choice == 6:
		lo.Must0(w.cloud.RemoveServer(server.ID))
	case choice == 7 && w.rng.IntN(3) == 0:
		w.adoptRootDisk(server)
	default:
		w.attachVolume(server)
	}
}

// adoptRootDisk makes a PersistentVolume of the disk that the server boots from: whoever does that means to keep it.
func (w *world) adoptRootDisk(server cloud.Server) {
	volume, found := lo.Find(w.cloud.State().Volumes, func(v cloud.Volume) bool {
		return v.Name == server.Name+"_rootdisk" && !slices.Contains(w.volumes, v.ID) &&
			lo.SomeBy(v.Attachments, func(a cloud.VolumeAttachment) bool { return a.ServerID == server.ID })
	})
	if !found || server.Truth.Deleting || !w.runsPods(server) {
		return
	}
	w.newVolume(fmt.Sprintf("pvc-%d", len(w.volumes)), volume.ID)
	w.trace("the root disk of %s is a PersistentVolume", server.Name)
}

// runsPods says that the node of the server has registered and stays.
func (w *world) runsPods(server cloud.Server) bool {
	return lo.ContainsBy(w.liveClaims(), func(claim karpv1.NodeClaim) bool {
		return serverID(claim.Status.ProviderID) == server.ID && claim.DeletionTimestamp.IsZero() &&
			claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
	})
}

func (w *world) newVolume(name, handle string) {
	lo.Must0(w.kube.Create(w.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "volume.csi.bizflycloud.vn", VolumeHandle: handle},
		}},
	}))
	w.volumes = append(w.volumes, handle)
}

// attachVolume gives a pod on the server's node a PersistentVolume, whatever that is called.
func (w *world) attachVolume(server cloud.Server) {
	if !w.runsPods(server) {
		return
	}
	name := fmt.Sprintf("pvc-%d", len(w.volumes))
	volume := w.cloud.AddVolume(cloud.VolumeSpec{
		Name:        pick(w.rng, name, server.Name+"_rootdisk", server.Name+"_datadisk"),
		Description: pick(w.rng, "default/data by csi-bizflycloud", ""), Zone: server.ZoneName, Bootable: w.rng.IntN(3) == 0,
	})
	w.newVolume(name, volume.ID)
	lo.Must0(w.cloud.AttachVolume(volume.ID, server.ID))
	w.trace("volume %s (%s) on %s", name, volume.Name, server.Name)
}

// reconcileClaim shows a claim to a controller, as an informer does: sometimes as it was a while ago.
func (w *world) reconcileClaim(controller string) {
	claims := w.liveClaims()
	if len(claims) == 0 {
		return
	}
	chosen := pick(w.rng, claims...)
	claim := chosen.DeepCopy()
	if old := w.snapshots[string(claim.UID)]; old != nil && w.rng.IntN(5) == 0 {
		claim = old.DeepCopy()
	}
	w.snapshots[string(claim.UID)] = claim.DeepCopy()
	w.reconcile(controller, claim)
	w.wait(w.leader(), controller+chosen.Name, between(w.rng, 0, 20*time.Second))
}

func (w *world) reconcile(controller string, claim *karpv1.NodeClaim) {
	p := w.leader()
	w.start(p, controller+claim.Name, func() error {
		var err error
		switch controller {
		case "lifecycle":
			_, err = p.core.lifecycle.Reconcile(p.ctx, claim)
		case "launch":
			_, err = p.launch.Reconcile(p.ctx, claim)
		case "volumes":
			_, err = p.volumes.Reconcile(p.ctx, claim)
		case "repair":
			_, err = p.repair.Reconcile(p.ctx, claim)
		}
		return err
	})
}

func (w *world) reconcileSingleton(controller string) {
	p := w.leader()
	w.start(p, controller, func() error {
		var err error
		if controller == "collector" {
			_, err = p.collector.Reconcile(p.ctx)
		} else {
			_, err = p.coreCollector.Reconcile(p.ctx)
		}
		return err
	})
	w.wait(p, controller, between(w.rng, 0, 10*time.Second))
}

// start begins what a controller does for one object, unless the same is still under way.
func (w *world) start(p *process, key string, do func() error) {
	key = fmt.Sprint(p.number, " ", key)
	if running, ok := w.ops[key]; ok {
		select {
		case <-running:
		default:
			return
		}
	}
	done := make(chan struct{})
	w.ops[key] = done
	w.trace("%s begins", key)
	go func() {
		defer close(done)
		err := do()
		w.trace("%s ends: %v", key, err)
	}()
}

// wait waits for what was started, no longer than this: other things happen meanwhile.
func (w *world) wait(p *process, key string, most time.Duration) {
	done, ok := w.ops[fmt.Sprint(p.number, " ", key)]
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

// calm lets all faults end and the controllers do their work until nothing changes any more.
func (w *world) calm() {
	w.mu.Lock()
	w.weather = weather{}
	w.mu.Unlock()
	w.cloud.SetStock("*", "*", "*", -1)
	w.cloud.SetStock("*", "HN1", "*", -1)
	w.cloud.SetStock("*", "HN2", "*", -1)
	w.cloud.SetQuota(cloud.Quota{})
	w.trace("calm")
	// What was under way when the faults ended has its end before this: late requests, builds, machines that stood still.
	began := time.Now()
	for time.Since(began) < time.Hour {
		w.calmRound(began)
		if settled := w.unsettled(); time.Since(began) > 10*time.Minute && len(settled) == 0 {
			return
		}
	}
	for _, text := range w.unsettled() {
		w.violated("an hour after the last fault: %s", text)
	}
}

func (w *world) calmRound(began time.Time) {
	p := w.leader()
	p.dieAfter(-1, false)
	for _, claim := range w.liveClaims() {
		for _, controller := range []string{"lifecycle", "launch", "volumes", "repair"} {
			w.reconcile(controller, claim.DeepCopy())
			w.wait(p, controller+claim.Name, 40*time.Second)
		}
	}
	if time.Since(began) > 6*time.Minute {
		w.strictCollection()
	} else {
		w.reconcileSingleton("collector")
	}
	w.reconcileSingleton("core collector")
	w.observe()
	time.Sleep(25 * time.Second)
	w.observe()
}

// strictCollection makes one pass of the garbage collector, after which no server without a claim may be left alone.
func (w *world) strictCollection() {
	uids := lo.SliceToMap(w.liveClaims(), func(c karpv1.NodeClaim) (string, bool) { return string(c.UID), true })
	orphans := lo.Filter(w.cloud.Servers(), func(s cloud.Server, _ int) bool {
		visible := s.Status != cloud.StatusBuild || (!w.options.HideBuilding && !w.options.ConflictOnBuild)
		return ours(s) && visible && !s.Truth.Deleting && !uids[claimUIDOf(s)] && time.Since(s.Truth.CreatedAt) > w.grace+2*time.Second
	})
	p := w.leader()
	w.start(p, "collector", func() error { _, err := p.collector.Reconcile(p.ctx); return err })
	w.wait(p, "collector", 5*time.Minute)
	after := w.cloud.Servers()
	for _, orphan := range orphans {
		i := slices.IndexFunc(after, func(s cloud.Server) bool { return s.ID == orphan.ID })
		if i >= 0 && !after[i].Truth.Deleting {
			w.violated("server %s (%s) of no claim outlived a pass of the garbage collector", orphan.Name, after[i].Status)
		}
	}
}
