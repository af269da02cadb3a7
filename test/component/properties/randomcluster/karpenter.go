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
func NewKarpenter(ctx context.Context, pools ...*karpv1.NodePool) (*Live, error) {
	l := newLive(ctx)
	clk := &liveClock{FakeClock: l.Environment.Clock, ctx: ctx, live: l}
	if err := l.begin(ctx, clk, func(c *cloudprovider.CloudProvider) corecloudprovider.CloudProvider { return c }); err != nil {
		return nil, err
	}
	k := &karpenter{
		Live: l, protection: protection.NewController(l.Client, clk), conditions: nodeclaimdisruption.NewController(clk, l.Client, l.provider), podEvents: podevents.NewController(clk, l.Client, l.provider),
		consolidateAfter: time.Hour, looks: map[int64]bool{}, byClaim: map[string]*machine{}, ending: map[string]bool{},
	}
	l.scaler = k
	for _, pool := range pools {
		for _, condition := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(condition)
		}
		status := pool.Status
		if err := l.Client.Create(ctx, pool); err != nil {
			return nil, err
		}
		pool.Status = status
		if err := l.Client.Status().Update(ctx, pool); err != nil {
			return nil, err
		}
		l.Pools = append(l.Pools, pool)
		if after := pool.Spec.Disruption.ConsolidateAfter.Duration; after != nil {
			k.consolidateAfter = min(k.consolidateAfter, *after)
		}
	}
	return l, nil
}

// Tune activates keys of a tuning ConfigMap for the nodes that are launched from now on.
func (l *Live) Tune(ctx context.Context, tuning map[string]string) error {
	config := &v1alpha1.ProviderConfig{}
	config.Name = v1alpha1.ProviderConfigName
	if err := l.Client.Create(ctx, config); err != nil {
		return err
	}
	config.Status.Tuning = tuning
	config.StatusConditions().SetTrue(v1alpha1.ConditionTypeTuningReady)
	return l.Client.Status().Update(ctx, config)
}

// protect lets the node of a machine be protected or not any more, until it is gone.
func (k *karpenter) protect(ctx context.Context, m *machine) error {
	node := &corev1.Node{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := node.ResourceVersion
	result, err := k.protection.Reconcile(ctx, node)
	if err != nil {
		return fmt.Errorf("protecting node %s: %w", m.name, err)
	}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := k.Cluster.UpdateNode(ctx, node); err != nil {
		return err
	}
	if node.ResourceVersion != before {
		k.wake(0)
	}
	if result.RequeueAfter > 0 {
		k.after(result.RequeueAfter, func(ctx context.Context) error { return k.protect(ctx, m) })
	}
	return nil
}

// pending implements scaler.
func (k *karpenter) pending(ctx context.Context, p *pod) error {
	object := coretest.UnschedulablePod(coretest.PodOptions{
		ObjectMeta: metav1.ObjectMeta{Name: p.object(), Labels: p.labels(), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.App, UID: types.UID(p.App), Controller: lo.ToPtr(true),
		}}},
		ResourceRequirements: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(p.MilliCPU, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(p.bytes(), resource.BinarySI),
		}},
	})
	if err := k.Client.Create(ctx, object); err != nil {
		return err
	}
	return k.Cluster.UpdatePod(ctx, object)
}

func (k *karpenter) get(ctx context.Context, p *pod) (*corev1.Pod, error) {
	object := &corev1.Pod{}
	return object, k.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: p.object()}, object)
}

// bound implements scaler.
func (k *karpenter) bound(ctx context.Context, p *pod) error {
	object, err := k.get(ctx, p)
	if err != nil {
		return err
	}
	if err := k.bind(ctx, p.on.name, []*corev1.Pod{object}); err != nil {
		return err
	}
	return k.happened(ctx, p)
}

// gone implements scaler.
func (k *karpenter) gone(ctx context.Context, p *pod, from *machine) error {
	object, err := k.get(ctx, p)
	if err != nil {
		return err
	}
	if from != nil {
		if err := k.happened(ctx, p); err != nil {
			return err
		}
	}
	if err := k.Client.Delete(ctx, object, client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	k.Cluster.DeletePod(client.ObjectKeyFromObject(object))
	k.wake(0)
	return nil
}

// happened lets core remember when a pod came to a node or went.
func (k *karpenter) happened(ctx context.Context, p *pod) error {
	object, err := k.get(ctx, p)
	if err != nil {
		return err
	}
	if _, err := k.podEvents.Reconcile(ctx, object); err != nil {
		return err
	}
	for _, after := range []time.Duration{0, nominated, k.consolidateAfter} {
		k.wake(after)
	}
	return nil
}

// wake lets core look for something to disrupt at its next poll after so long. It polls every 10 s; what it would see without a change is
// what it saw.
func (k *karpenter) wake(after time.Duration) {
	next := int64((k.now().Add(after).Sub(k.start) + poll - 1) / poll)
	if k.looks[next] {
		return
	}
	k.looks[next] = true
	k.agenda.add(k.start.Add(time.Duration(next)*poll), func(ctx context.Context) error {
		delete(k.looks, next)
		return k.look(ctx)
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

func (k *karpenter) provision(ctx context.Context) error {
	k.provisioning = false
	if len(k.waiting) == 0 {
		return nil
	}
	results, err := k.provisioner.Schedule(ctx)
	if err != nil {
		return fmt.Errorf("scheduling: %w", err)
	}
	if _, err := k.provisioner.CreateNodeClaims(ctx, results.NewNodeClaims, provisioning.WithReason(coremetrics.ProvisionedReason)); err != nil {
		return fmt.Errorf("creating NodeClaims: %w", err)
	}
	return k.launchAll(ctx)
}

func (k *karpenter) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	err := k.Client.List(ctx, list)
	return list.Items, err
}

// launchAll launches every NodeClaim that has no server.
func (k *karpenter) launchAll(ctx context.Context) error {
	claims, err := k.claims(ctx)
	if err != nil {
		return err
	}
	for i := range claims {
		name := claims[i].Name
		if claims[i].Status.ProviderID != "" || !claims[i].DeletionTimestamp.IsZero() {
			continue
		}
		if _, err := k.create(ctx, name); err != nil {
			return err
		}
		k.launches, k.changed = k.launches+1, k.now()
		k.after(build+boot, func(ctx context.Context) error { return k.joined(ctx, name) })
	}
	return nil
}

// joined makes the node of a NodeClaim, unless it was deleted meanwhile.
func (k *karpenter) joined(ctx context.Context, name string) error {
	claim := &karpv1.NodeClaim{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	node, err := k.join(ctx, claim, 0)
	if err != nil {
		return err
	}
	m := newMachine(node.Name, node.Status.Allocatable)
	k.byClaim[name], k.machines, k.changed = m, append(k.machines, m), k.now()
	k.wake(k.consolidateAfter)
	if err := k.protect(ctx, m); err != nil {
		return err
	}
	if err := k.observe(ctx); err != nil {
		return err
	}
	return k.schedule(ctx)
}

// look lets core look for something to disrupt.
func (k *karpenter) look(ctx context.Context) error {
	if k.looking {
		k.wake(poll)
		return nil
	}
	k.looking = true
	defer func() { k.looking = false }()
	claims, err := k.claims(ctx)
	if err != nil {
		return err
	}
	for i := range claims {
		if _, err := k.conditions.Reconcile(ctx, &claims[i]); err != nil {
			return fmt.Errorf("setting conditions of NodeClaim %s: %w", claims[i].Name, err)
		}
		k.Cluster.UpdateNodeClaim(&claims[i])
	}
	before := k.now()
	result, err := k.disruption.Reconcile(ctx)
	if err != nil {
		return fmt.Errorf("looking for something to disrupt: %w", err)
	}
	k.looked = k.now()
	if result.RequeueAfter < poll || k.now().After(before) {
		// After a command at once, and after a wait, because something may have changed meanwhile.
		k.wake(0)
	} else {
		k.after(again, func(context.Context) error {
			if k.now().Sub(k.looked) >= again {
				k.wake(0)
			}
			return nil
		})
	}
	if err := k.launchAll(ctx); err != nil {
		return err
	}
	return k.watch(ctx)
}

// watch shows core what it has written, and plans what follows from its commands.
func (k *karpenter) watch(ctx context.Context) error {
	claims, err := k.claims(ctx)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		k.Cluster.UpdateNodeClaim(claim)
		if m := k.byClaim[claim.Name]; m != nil {
			node := &corev1.Node{}
			if err := k.Client.Get(ctx, client.ObjectKey{Name: m.name}, node); err != nil {
				return err
			}
			if err := k.Cluster.UpdateNode(ctx, node); err != nil {
				return err
			}
			m.blocked = !claim.DeletionTimestamp.IsZero() ||
				lo.ContainsBy(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule })
		}
		if !claim.DeletionTimestamp.IsZero() && !k.ending[claim.Name] {
			k.ending[claim.Name] = true
			if err := k.end(ctx, claim.Name); err != nil {
				return err
			}
		}
	}
	if len(k.queue.GetCommands()) > 0 && !k.ticking {
		k.ticking = true
		k.after(tick, k.tick)
	}
	return nil
}

// tick lets core go on with its commands.
func (k *karpenter) tick(ctx context.Context) error {
	k.ticking = false
	commands := k.queue.GetCommands()
	for _, command := range commands {
		ready := lo.EveryBy(command.Replacements, func(r *disruption.Replacement) bool { return k.byClaim[r.Name] != nil })
		if !ready {
			continue // nothing has changed for it
		}
		if _, err := k.queue.Reconcile(ctx, command.Candidates[0].NodeClaim); err != nil {
			return fmt.Errorf("going on with %s: %w", command, err)
		}
		if err := k.watch(ctx); err != nil {
			return err
		}
	}
	if len(commands) > 0 && !k.ticking {
		k.ticking = true
		k.after(tick, k.tick)
	}
	return nil
}

// end drains the node of a NodeClaim and deletes its server.
func (k *karpenter) end(ctx context.Context, name string) error {
	if m := k.byClaim[name]; m != nil {
		if err := k.evict(ctx, m); err != nil {
			return err
		}
	}
	k.after(drain, func(ctx context.Context) error { return k.terminate(ctx, name) })
	return nil
}

// terminate deletes the server of a NodeClaim until it is gone, and then its node.
func (k *karpenter) terminate(ctx context.Context, name string) error {
	claim := &karpv1.NodeClaim{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return err
	}
	err := k.provider.Delete(ctx, claim)
	if err == nil {
		k.after(tick, func(ctx context.Context) error { return k.terminate(ctx, name) })
		return nil
	}
	if notFound := (&corecloudprovider.NodeClaimNotFoundError{}); !errors.As(err, &notFound) {
		return fmt.Errorf("deleting the server of NodeClaim %s: %w", name, err)
	}
	node := &corev1.Node{}
	node.Name = "node-" + name
	if err := k.remove(ctx, name, node); err != nil {
		return err
	}
	if m := k.byClaim[name]; m != nil {
		for _, g := range slices.Clone(m.guests) {
			if err := k.leaves(ctx, g); err != nil {
				return err
			}
		}
		k.removeMachine(m)
		delete(k.byClaim, name)
	}
	delete(k.ending, name)
	k.wake(0)
	return k.schedule(ctx)
}
