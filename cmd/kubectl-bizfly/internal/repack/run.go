// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
)

const (
	// NodeLabel is on a new node and its NodeClaim; its value is unique, so that the Job of a node finds it before it has a name.
	NodeLabel = "repack.bizflycloud.vn/node"
	// RunLabel is on all new nodes, with the run.
	RunLabel = "repack.bizflycloud.vn/run"
	// HoldLabel is on the pods that a run adds; its value is the run.
	HoldLabel = "repack.bizflycloud.vn/hold"
	// HoldImage does nothing. A pod whose image cannot be pulled holds its node just as well.
	HoldImage = "registry.k8s.io/pause:3.10.1@sha256:278fb9dbcca9518083ad1e11276933a2e96f23de604a3a08cc3c80002767d24c"
	// ended is for how long a Job stays after it has ended.
	ended = time.Minute
	// launching is how long all new nodes may take until they are ready, and margin what is added where a moment counts.
	launching, margin = 10 * time.Minute, time.Minute
)

// Runner carries a proposal out.
type Runner struct {
	// Client creates NodeClaims, Jobs and pods, and reads NodePools, NodeClaims and pods.
	Client client.Client
	// Namespace and Image are those of the pods that it runs.
	Namespace string
	Image     string
	Clock     clock.PassiveClock
	// Wait returns when it is time to look again, or the context's error.
	Wait func(ctx context.Context) error
	// OnProgress is called after each look; it may be nil.
	OnProgress func(Outcome)
}

// Outcome is how far a repack is.
type Outcome struct {
	// Launched are the new NodeClaims whose nodes are initialized, and Failed those that are gone: BizFly Cloud had no capacity.
	Launched []string `json:"launched"`
	Failed   []string `json:"failed,omitempty"`
	// Committed is true once all new nodes are ready and held: Karpenter replaces the others by them, whether this process goes on or not.
	Committed bool `json:"committed"`
	// Removed are the NodeClaims of replaced nodes that are gone, and Left those that are not.
	Removed []string `json:"removed"`
	Left    []string `json:"left,omitempty"`
	// VNDPerHour is what the nodes of the NodePool cost now, as far as the repack has changed them.
	VNDPerHour float64 `json:"vndPerHour"`
}

// Run creates the new nodes, and lets core replace the others by them once all are ready. It changes nothing else and takes nothing back, and to end it
// at any point is safe:
//
//   - At first, core leaves the replaced nodes alone for a pause. When not all new nodes become ready, or this process ends, their holds end before the pause
//     does: core removes them, because they are empty.
//   - One Job is the point of no return: it holds all new nodes for as long as moving the pods may take. Nothing has to be done after it.
func (r *Runner) Run(ctx context.Context, p *Proposal) (Outcome, error) {
	if err := r.check(ctx, p); err != nil {
		return Outcome{}, err
	}
	began := r.Clock.Now()
	created, err := r.prepare(ctx, p)
	if err != nil {
		return Outcome{}, err
	}
	outcome, err := r.until(ctx, p, created, began.Add(launching), func(o Outcome) bool { return len(o.Launched) == len(created) || len(o.Failed) > 0 })
	if err != nil || len(outcome.Launched) < len(created) {
		return outcome, err
	}
	if err := r.commit(ctx, p, created); err != nil {
		return outcome, err
	}
	outcome, err = r.until(ctx, p, created, began.Add(p.Hold()), func(o Outcome) bool { return len(o.Left) == 0 })
	outcome.Committed = true
	return outcome, err
}

// prepare creates the new nodes, with what holds them, those that stay, and those that are replaced. It returns the names of the NodeClaims.
func (r *Runner) prepare(ctx context.Context, p *Proposal) ([]string, error) {
	for i := range p.leaving {
		if err := r.create(ctx, r.replacedGate(p, i)); err != nil {
			return nil, err
		}
	}
	for i, k := range p.held {
		if err := r.create(ctx, r.keptJob(p, i, k)); err != nil {
			return nil, err
		}
	}
	var created []string
	for i, a := range p.added {
		claim := a.claim.DeepCopy()
		if err := r.create(ctx, claim); err != nil {
			return nil, err
		}
		created = append(created, claim.Name)
		if err := r.create(ctx, r.newJob(p, i, a)); err != nil {
			return nil, err
		}
	}
	return created, nil
}

// commit keeps the pods away from each new node that it is not for, and then holds all of them.
func (r *Runner) commit(ctx context.Context, p *Proposal, created []string) error {
	for i, name := range created {
		claim, node := &karpv1.NodeClaim{}, &corev1.Node{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
			return connect.Explain(err, "get", claim)
		}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
			return connect.Explain(err, "get", node)
		}
		if len(p.added[i].rejects) == 0 {
			continue
		}
		if err := r.create(ctx, r.gate(p, fmt.Sprintf("new-%d", i+1), node, p.added[i].rejects)); err != nil {
			return err
		}
	}
	return r.create(ctx, r.holdJob(p))
}

// until looks how far it is, again and again, until a function is satisfied or the deadline is over. An error of the API server that may pass,
// such as a timeout, does not end it.
func (r *Runner) until(ctx context.Context, p *Proposal, created []string, deadline time.Time, satisfied func(Outcome) bool) (Outcome, error) {
	var last Outcome
	for {
		outcome, err := r.look(ctx, p, created)
		over := !r.Clock.Now().Before(deadline)
		switch {
		case err == nil:
			last = outcome
			if r.OnProgress != nil {
				r.OnProgress(outcome)
			}
			if over || satisfied(outcome) {
				return outcome, nil
			}
		case over || connect.IsForbidden(err) || ctx.Err() != nil:
			return last, err
		}
		if err := r.Wait(ctx); err != nil {
			return last, err
		}
	}
}

// check finds out what would fail before anything is created: what has changed since the proposal, rights, and admission.
func (r *Runner) check(ctx context.Context, p *Proposal) error {
	if len(p.added) == 0 && len(p.Replaced) == 0 {
		return fmt.Errorf("there is nothing to do: %s", p.Reason)
	}
	pool, claims, pods := &karpv1.NodePool{}, &karpv1.NodeClaimList{}, &corev1.PodList{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(p.pool), pool); err != nil {
		return connect.Explain(err, "get", pool)
	}
	for _, list := range []client.ObjectList{claims, pods} {
		if err := r.Client.List(ctx, list); err != nil {
			return connect.Explain(err, "list", list)
		}
	}
	if pool.UID != p.pool.UID || pool.Hash() != p.pool.Hash() {
		return fmt.Errorf("NodePool %s has changed since the proposal; run the command again", pool.Name)
	}
	live := lo.ToSlicePtr(claims.Items)
	if err := Eligible(pool, live, lo.ToSlicePtr(pods.Items), r.Namespace); err != nil {
		return err
	}
	if err := exceeds(pool, live, p.capacity); err != nil {
		return fmt.Errorf("the new nodes would exceed the limits of NodePool %s: %w", pool.Name, err)
	}
	tried := []client.Object{r.job(p, "check", p.Hold(), corev1.PodSpec{})}
	if len(p.leaving) > 0 {
		tried = append(tried, r.replacedGate(p, 0))
	}
	if len(p.added) > 0 {
		tried = append(tried, p.added[0].claim.DeepCopy())
	}
	for _, object := range tried {
		if err := r.create(ctx, object, client.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if err := r.Client.Create(ctx, object, opts...); err != nil {
		return fmt.Errorf("creating %s: %w", connect.Resource(object), connect.Explain(err, "create", object))
	}
	return nil
}

// look reads how far it is.
func (r *Runner) look(ctx context.Context, p *Proposal, created []string) (Outcome, error) {
	outcome := Outcome{Launched: []string{}, Removed: []string{}, VNDPerHour: p.VNDPerHour}
	claims := &karpv1.NodeClaimList{}
	if err := r.Client.List(ctx, claims); err != nil {
		return outcome, connect.Explain(err, "list", claims)
	}
	live := lo.KeyBy(claims.Items, func(claim karpv1.NodeClaim) string { return claim.Name })
	for i, name := range created {
		claim, exists := live[name]
		if !exists || !claim.DeletionTimestamp.IsZero() {
			outcome.Failed = append(outcome.Failed, name)
			continue
		}
		outcome.VNDPerHour += p.New[i].VNDPerHour
		if claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			outcome.Launched = append(outcome.Launched, name)
		}
	}
	for _, node := range p.Replaced {
		if _, exists := live[node.NodeClaim]; exists {
			outcome.Left = append(outcome.Left, node.NodeClaim)
			continue
		}
		outcome.Removed = append(outcome.Removed, node.NodeClaim)
		outcome.VNDPerHour -= node.VNDPerHour
	}
	return outcome, nil
}
