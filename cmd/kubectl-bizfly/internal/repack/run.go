// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"context"
	"fmt"
	"time"

	"github.com/samber/lo"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
)

const (
	// NodeLabel is on a new node and its NodeClaim; its value is unique, so that the Job of a node finds it before it has a name.
	NodeLabel = "repack.bizflycloud.vn/node"
	// HoldLabel is on the pods of Jobs that hold nodes; its value is the run.
	HoldLabel = "repack.bizflycloud.vn/hold"
	// HoldImage does nothing. A pod whose image cannot be pulled holds its node just as well.
	HoldImage = "registry.k8s.io/pause:3.10.1"
	// kept is for how long a Job stays after it has ended.
	kept = time.Minute
)

// Runner carries a proposal out.
type Runner struct {
	// Client creates NodeClaims and Jobs, and reads NodePools, NodeClaims and pods.
	Client client.Client
	// Namespace and Image are those of the Jobs.
	Namespace string
	Image     string
	// Hold is for how long nodes are held; 0 takes the proposal's.
	Hold  time.Duration
	Clock clock.PassiveClock
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
	// Removed are the NodeClaims of replaced nodes that are gone, and Left those that are not.
	Removed []string `json:"removed"`
	Left    []string `json:"left,omitempty"`
	// VNDPerHour is what the nodes of the NodePool cost now, as far as the repack has changed them.
	VNDPerHour float64 `json:"vndPerHour"`
}

// Done reports whether there is nothing to wait for any more.
func (o Outcome) Done(p *Proposal) bool {
	return len(o.Left) == 0 && len(o.Launched)+len(o.Failed) == len(p.claims)
}

// Run adds the nodes, holds them and those that stay, and waits until core has removed the others or the time of the holds is over. It
// changes nothing else, and takes nothing back: to end it at any point is safe.
func (r *Runner) Run(ctx context.Context, p *Proposal) (Outcome, error) {
	hold := r.HoldOf(p)
	if err := r.check(ctx, p, hold); err != nil {
		return Outcome{}, err
	}
	for i, node := range p.held {
		if err := r.create(ctx, r.job(p, fmt.Sprintf("kept-%d", i+1), hold, map[string]string{corev1.LabelHostname: node.Labels[corev1.LabelHostname]},
			node.Spec.Taints)); err != nil {
			return Outcome{}, err
		}
	}
	began := r.Clock.Now()
	var created []string
	for i, claim := range p.claims {
		claim = claim.DeepCopy()
		if err := r.create(ctx, claim); err != nil {
			return Outcome{}, err
		}
		created = append(created, claim.Name)
		if err := r.create(ctx, r.newJob(p, i, hold)); err != nil {
			return Outcome{}, err
		}
	}
	for {
		outcome, err := r.look(ctx, p, created)
		if err != nil {
			return outcome, err
		}
		if r.OnProgress != nil {
			r.OnProgress(outcome)
		}
		if outcome.Done(p) || r.Clock.Since(began) >= hold {
			return outcome, nil
		}
		if err := r.Wait(ctx); err != nil {
			return outcome, err
		}
	}
}

// HoldOf is for how long the nodes of a proposal are held.
func (r *Runner) HoldOf(p *Proposal) time.Duration { return lo.CoalesceOrEmpty(r.Hold, p.Hold()) }

// check finds out what would fail before anything is created: what has changed since the proposal, rights, and admission.
func (r *Runner) check(ctx context.Context, p *Proposal, hold time.Duration) error {
	if len(p.claims) == 0 && len(p.Replaced) == 0 {
		return fmt.Errorf("there is nothing to do: %s", p.Reason)
	}
	pool, claims, pods := &karpv1.NodePool{}, &karpv1.NodeClaimList{}, &corev1.PodList{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(p.pool), pool); err != nil {
		return session.Explain(err, "get", pool)
	}
	for _, list := range []client.ObjectList{claims, pods} {
		if err := r.Client.List(ctx, list); err != nil {
			return session.Explain(err, "list", list)
		}
	}
	if pool.UID != p.pool.UID || pool.Hash() != p.pool.Hash() {
		return fmt.Errorf("NodePool %s has changed since the proposal; run the command again", pool.Name)
	}
	live := lo.ToSlicePtr(claims.Items)
	if err := Eligible(pool, live, lo.ToSlicePtr(pods.Items)); err != nil {
		return err
	}
	if err := exceeds(pool, live, p.capacity); err != nil {
		return fmt.Errorf("the new nodes would exceed the limits of NodePool %s: %w", pool.Name, err)
	}
	tried := []client.Object{r.job(p, "check", hold, nil, nil)}
	if len(p.claims) > 0 {
		tried = append(tried, p.claims[0].DeepCopy())
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
		return fmt.Errorf("creating %s: %w", session.Resource(object), session.Explain(err, "create", object))
	}
	return nil
}

// look reads how far it is.
func (r *Runner) look(ctx context.Context, p *Proposal, created []string) (Outcome, error) {
	outcome := Outcome{Launched: []string{}, Removed: []string{}, VNDPerHour: p.VNDPerHour}
	claims := &karpv1.NodeClaimList{}
	if err := r.Client.List(ctx, claims); err != nil {
		return outcome, session.Explain(err, "list", claims)
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

// newJob holds the new node of a NodeClaim.
func (r *Runner) newJob(p *Proposal, i int, hold time.Duration) *batchv1.Job {
	claim := p.claims[i]
	return r.job(p, fmt.Sprintf("new-%d", i+1), hold, map[string]string{NodeLabel: claim.Labels[NodeLabel]}, append(claim.Spec.Taints, claim.Spec.StartupTaints...))
}

// job holds one node: its pod requests nothing, and core takes no node whose pod has the annotation, for as long as it says. The pod tolerates what the
// node has, and core's own taint, so that it never delays the removal of a node. Its priority is the namespace's usual one: a pod without requests
// takes nothing from others but one place on the node.
func (r *Runner) job(p *Proposal, name string, hold time.Duration, selector map[string]string, taints []corev1.Taint) *batchv1.Job {
	labels := map[string]string{HoldLabel: p.run, "app.kubernetes.io/managed-by": "kubectl-bizfly"}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: fmt.Sprintf("repack-%s-%s", p.run, name), Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32), TTLSecondsAfterFinished: lo.ToPtr(int32(kept.Seconds())), ActiveDeadlineSeconds: lo.ToPtr(int64(hold.Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{karpv1.DoNotDisruptAnnotationKey: hold.String()}},
				Spec: corev1.PodSpec{
					NodeSelector: selector, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
					AutomountServiceAccountToken: new(bool), EnableServiceLinks: new(bool),
					Tolerations: append(lo.Map(taints, func(taint corev1.Taint, _ int) corev1.Toleration {
						return corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect}
					}), corev1.Toleration{Key: karpv1.DisruptedTaintKey, Operator: corev1.TolerationOpExists}),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: lo.ToPtr(true), RunAsUser: lo.ToPtr(int64(65535)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "hold", Image: lo.CoalesceOrEmpty(r.Image, HoldImage),
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: lo.ToPtr(true),
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}
