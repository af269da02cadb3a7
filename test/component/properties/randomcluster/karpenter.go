// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	nodeclaimdisruption "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/podevents"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	coremetrics "sigs.k8s.io/karpenter/pkg/metrics"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/node/protection"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

const (
	// batch is how long core waits for more pods.
	batch = time.Second
	// poll is how often core looks for something to disrupt, again after how long it looks at what has not changed.
	poll, again = 10 * time.Second, 5 * time.Minute
	// nominated is how long core leaves alone a node that it has planned a pod for, with a second's margin.
	nominated = 21 * time.Second
	// tick is how often core looks whether the replacements of a command are ready.
	tick = time.Second
)

// karpenter is core over this provider.
type karpenter struct {
	*Live
	conditions *nodeclaimdisruption.Controller
	podEvents  *podevents.Controller
	protection *protection.Controller
	// consolidateAfter is the shortest of the NodePools.
	consolidateAfter time.Duration
	provisioning     bool
	looking          bool
	ticking          bool
	looks            map[int64]bool
	looked           time.Time
	byClaim          map[string]*machine
	ending           map[string]bool
}

// NewKarpenter makes an empty cluster with Karpenter and the NodePools, whose time passes in Settle and RunDay. CloseCloud ends it.
func NewKarpenter(ctx context.Context, pools ...*karpv1.NodePool) *Live {
	l := newLive(ctx)
	clk := &liveClock{FakeClock: l.Environment.Clock, ctx: ctx, live: l}
	l.begin(ctx, clk, func(c *cloudprovider.CloudProvider) corecloudprovider.CloudProvider { return c })
	k := &karpenter{
		Live: l, protection: protection.NewController(l.Client, clk, nil, nil, nil), conditions: nodeclaimdisruption.NewController(clk, l.Client, l.provider),
		podEvents:        podevents.NewController(clk, l.Client, l.provider),
		consolidateAfter: time.Hour, looks: map[int64]bool{}, byClaim: map[string]*machine{}, ending: map[string]bool{},
	}
	l.scaler = k
	for _, pool := range pools {
		for _, condition := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(condition)
		}
		status := pool.Status
		lo.Must0(l.Client.Create(ctx, pool))
		pool.Status = status
		lo.Must0(l.Client.Status().Update(ctx, pool))
		l.Pools = append(l.Pools, pool)
		if after := pool.Spec.Disruption.ConsolidateAfter.Duration; after != nil {
			k.consolidateAfter = min(k.consolidateAfter, *after)
		}
	}
	return l
}

// Tune activates keys of a tuning ConfigMap for the nodes that are launched from now on.
func (l *Live) Tune(ctx context.Context, tuning map[string]string) {
	config := &v1alpha1.ProviderConfig{}
	config.Name = v1alpha1.ProviderConfigName
	lo.Must0(l.Client.Create(ctx, config))
	config.Status.Tuning = tuning
	config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady)
	lo.Must0(l.Client.Status().Update(ctx, config))
}

// Restart lets a new process protect the nodes, whose clock is ahead of the cloud's.
func (l *Live) Restart(ctx context.Context, ahead time.Duration) {
	k := l.scaler.(*karpenter)
	k.protection = protection.NewController(l.Client, skewedClock{l.Environment.Clock, ahead}, nil, nil, nil)
	for _, m := range k.byClaim {
		k.protect(ctx, m)
	}
}

// skewedClock is ahead of another.
type skewedClock struct {
	clock.PassiveClock
	ahead time.Duration
}

// Now implements clock.PassiveClock.
func (c skewedClock) Now() time.Time { return c.PassiveClock.Now().Add(c.ahead) }

// protect lets the node of a machine be protected or not any more, until it is gone.
func (k *karpenter) protect(ctx context.Context, m *machine) {
	node := &corev1.Node{}
	if k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node) != nil {
		return // it is gone
	}
	before := node.ResourceVersion
	result := lo.Must(k.protection.Reconcile(ctx, node))
	lo.Must0(k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node))
	lo.Must0(k.Cluster.UpdateNode(ctx, node))
	if node.ResourceVersion != before {
		k.wake(0)
	}
	if result.RequeueAfter > 0 {
		k.after(result.RequeueAfter, func(ctx context.Context) { k.protect(ctx, m) })
	}
}

// pending implements scaler.
func (k *karpenter) pending(ctx context.Context, p *pod) {
	object := coretest.UnschedulablePod(coretest.PodOptions{
		ObjectMeta: metav1.ObjectMeta{Name: p.object(), Labels: p.labels(), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.App, UID: types.UID(p.App), Controller: lo.ToPtr(true),
		}}},
		ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(p.MilliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(p.bytes(), resource.BinarySI),
		}},
	})
	lo.Must0(k.Client.Create(ctx, object))
	lo.Must0(k.Cluster.UpdatePod(ctx, object))
}

func (k *karpenter) get(ctx context.Context, p *pod) *corev1.Pod {
	object := &corev1.Pod{}
	lo.Must0(k.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: p.object()}, object))
	return object
}

// bound implements scaler.
func (k *karpenter) bound(ctx context.Context, p *pod) {
	object := k.get(ctx, p)
	k.bind(ctx, p.on.name, []*corev1.Pod{object})
	k.happened(ctx, p)
}

// gone implements scaler.
func (k *karpenter) gone(ctx context.Context, p *pod, from *machine) {
	object := k.get(ctx, p)
	if from != nil {
		k.happened(ctx, p)
	}
	lo.Must0(k.Client.Delete(ctx, object, client.GracePeriodSeconds(0)))
	k.Cluster.DeletePod(client.ObjectKeyFromObject(object))
	k.wake(0)
}

// happened lets core remember when a pod came to a node or went.
func (k *karpenter) happened(ctx context.Context, p *pod) {
	object := k.get(ctx, p)
	lo.Must(k.podEvents.Reconcile(ctx, object))
	for _, after := range []time.Duration{0, nominated, k.consolidateAfter} {
		k.wake(after)
	}
}

// wake lets core look for something to disrupt at its next poll after so long. It polls every 10 s; what it would see without a change is
// what it saw.
func (k *karpenter) wake(after time.Duration) {
	next := int64((k.now().Add(after).Sub(k.start) + poll - 1) / poll)
	if k.looks[next] {
		return
	}
	k.looks[next] = true
	k.agenda.add(k.start.Add(time.Duration(next)*poll), func(ctx context.Context) {
		delete(k.looks, next)
		k.look(ctx)
	})
}

// wanted implements scaler.
func (k *karpenter) wanted() {
	if k.provisioning {
		return
	}
	k.provisioning = true
	k.after(batch, k.provision)
}

func (k *karpenter) provision(ctx context.Context) {
	k.provisioning = false
	if len(k.waiting) == 0 {
		return
	}
	results := lo.Must(k.provisioner.Schedule(ctx))
	lo.Must(k.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims, provisioning.WithReason(coremetrics.ProvisionedReason)))
	k.launchAll(ctx)
}

func (k *karpenter) claims(ctx context.Context) []karpv1.NodeClaim {
	list := &karpv1.NodeClaimList{}
	lo.Must0(k.Client.List(ctx, list))
	return list.Items
}

// launchAll launches every NodeClaim that has no server.
func (k *karpenter) launchAll(ctx context.Context) {
	claims := k.claims(ctx)
	for i := range claims {
		name := claims[i].Name
		if claims[i].Status.ProviderID != "" || !claims[i].DeletionTimestamp.IsZero() {
			continue
		}
		k.create(ctx, name)
		k.launches, k.changed = k.launches+1, k.now()
		k.after(build+boot, func(ctx context.Context) { k.joined(ctx, name) })
	}
}

// joined makes the node of a NodeClaim, unless it was deleted meanwhile.
func (k *karpenter) joined(ctx context.Context, name string) {
	claim := &karpv1.NodeClaim{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		lo.Must0(client.IgnoreNotFound(err))
		return
	}
	if !claim.DeletionTimestamp.IsZero() {
		return
	}
	node := k.join(ctx, claim, 0)
	m := newMachine(node.Name, node.Status.Allocatable)
	k.byClaim[name], k.machines, k.changed = m, append(k.machines, m), k.now()
	k.wake(k.consolidateAfter)
	k.protect(ctx, m)
	k.observe(ctx)
	k.schedule(ctx)
}

// look lets core look for something to disrupt.
func (k *karpenter) look(ctx context.Context) {
	if k.looking {
		k.wake(poll)
		return
	}
	k.looking = true
	defer func() { k.looking = false }()
	claims := k.claims(ctx)
	for i := range claims {
		lo.Must(k.conditions.Reconcile(ctx, &claims[i]))
		k.Cluster.UpdateNodeClaim(&claims[i])
	}
	before := k.now()
	result := lo.Must(k.disruption.Reconcile(ctx))
	k.looked = k.now()
	if result.RequeueAfter < poll || k.now().After(before) {
		// After a command at once, and after a wait, because something may have changed meanwhile.
		k.wake(0)
	} else {
		k.after(again, func(context.Context) {
			if k.now().Sub(k.looked) >= again {
				k.wake(0)
			}
		})
	}
	k.launchAll(ctx)
	k.watch(ctx)
}

// watch shows core what it has written, and plans what follows from its commands.
func (k *karpenter) watch(ctx context.Context) {
	claims := k.claims(ctx)
	for i := range claims {
		claim := &claims[i]
		k.Cluster.UpdateNodeClaim(claim)
		if m := k.byClaim[claim.Name]; m != nil {
			node := &corev1.Node{}
			lo.Must0(k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node))
			lo.Must0(k.Cluster.UpdateNode(ctx, node))
			m.blocked = !claim.DeletionTimestamp.IsZero() ||
				lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule })
		}
		if !claim.DeletionTimestamp.IsZero() && !k.ending[claim.Name] {
			k.ending[claim.Name] = true
			k.end(ctx, claim.Name)
		}
	}
	if len(k.queue.GetCommands()) > 0 && !k.ticking {
		k.ticking = true
		k.after(tick, k.tick)
	}
}

// tick lets core go on with its commands.
func (k *karpenter) tick(ctx context.Context) {
	k.ticking = false
	commands := k.queue.GetCommands()
	for _, command := range commands {
		ready := lo.EveryBy(command.Replacements, func(r *disruption.Replacement) bool { return k.byClaim[r.Name] != nil })
		if !ready {
			continue // nothing has changed for it
		}
		lo.Must(k.queue.Reconcile(ctx, command.Candidates[0].NodeClaim))
		k.watch(ctx)
	}
	if len(commands) > 0 && !k.ticking {
		k.ticking = true
		k.after(tick, k.tick)
	}
}

// end drains the node of a NodeClaim and deletes its server.
func (k *karpenter) end(ctx context.Context, name string) {
	if m := k.byClaim[name]; m != nil {
		k.evict(ctx, m)
	}
	k.after(drain, func(ctx context.Context) { k.terminate(ctx, name) })
}

// terminate deletes the server of a NodeClaim until it is gone, and then its node.
func (k *karpenter) terminate(ctx context.Context, name string) {
	claim := &karpv1.NodeClaim{}
	lo.Must0(k.Client.Get(ctx, client.ObjectKey{Name: name}, claim))
	err := k.provider.Delete(ctx, claim)
	if err == nil {
		k.after(tick, func(ctx context.Context) { k.terminate(ctx, name) })
		return
	}
	if notFound := (&corecloudprovider.NodeClaimNotFoundError{}); !errors.As(err, &notFound) {
		panic(fmt.Errorf("deleting the server of NodeClaim %s: %w", name, err))
	}
	node := &corev1.Node{}
	node.Name = "node-" + name
	k.remove(ctx, name, node)
	if m := k.byClaim[name]; m != nil {
		for _, g := range slices.Clone(m.guests) {
			k.leaves(ctx, g)
		}
		k.removeMachine(m)
		delete(k.byClaim, name)
	}
	delete(k.ending, name)
	k.wake(0)
	k.schedule(ctx)
}
