// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"fmt"
	"time"

	"github.com/samber/lo"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// newJob holds the new node of a NodeClaim, which it waits for, until all new nodes are ready.
func (r *Runner) newJob(p *Proposal, i int, a added) *batchv1.Job {
	return r.job(p, fmt.Sprintf("new-%d", i+1), launching+margin, corev1.PodSpec{
		NodeSelector: map[string]string{NodeLabel: a.claim.Labels[NodeLabel]},
	})
}

// keptJob holds a node that stays. Its pod is bound at once: the kube-scheduler would not run it beside replicas of what it rejects.
func (r *Runner) keptJob(p *Proposal, i int, k kept) *batchv1.Job {
	return r.job(p, fmt.Sprintf("kept-%d", i+1), p.Hold(), corev1.PodSpec{NodeName: k.node.Name, Affinity: rejecting(k.rejects)})
}

// holdJob holds all new nodes with one pod on each.
func (r *Runner) holdJob(p *Proposal) *batchv1.Job {
	job := r.job(p, "hold", p.Hold(), corev1.PodSpec{NodeSelector: map[string]string{RunLabel: p.run}})
	nodes := int32(len(p.added)) //nolint:gosec // a NodePool has fewer nodes
	job.Spec.Parallelism, job.Spec.Completions = &nodes, &nodes
	one := map[string]string{RunLabel: p.run}
	job.Spec.Template.Labels = lo.Assign(job.Spec.Template.Labels, one)
	job.Spec.Template.Spec.Affinity = rejecting([]corev1.PodAffinityTerm{
		{LabelSelector: &metav1.LabelSelector{MatchLabels: one}, TopologyKey: corev1.LabelHostname},
	})
	return job
}

// job holds one node: core takes no node whose pod has the annotation, for as long as it says. The pod tolerates every taint: it holds
// a node that evicts others, and core's own taint does not let it delay the removal of a node.
func (r *Runner) job(p *Proposal, name string, hold time.Duration, where corev1.PodSpec) *batchv1.Job {
	meta := r.meta(p, name)
	where.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return &batchv1.Job{
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32), TTLSecondsAfterFinished: lo.ToPtr(int32(ended.Seconds())), ActiveDeadlineSeconds: lo.ToPtr(int64(hold.Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: map[string]string{karpv1.DoNotDisruptAnnotationKey: hold.String()}},
				Spec:       r.pod(where),
			},
		},
	}
}

// gate keeps pods away from a node. It is no pod of a Job: core would have to find another place for that before it removes the node, and no node with
// one is empty.
func (r *Runner) gate(p *Proposal, name string, node *corev1.Node, rejects []corev1.PodAffinityTerm) *corev1.Pod {
	gate := &corev1.Pod{ObjectMeta: r.meta(p, name), Spec: r.pod(corev1.PodSpec{
		NodeName: node.Name, Affinity: rejecting(rejects), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		ActiveDeadlineSeconds: lo.ToPtr(int64(p.Hold().Seconds())),
	})}
	gate.OwnerReferences = []metav1.OwnerReference{ownedBy(node)}
	return gate
}

// replacedGate keeps all pods away from a node that is replaced, and lets core leave it alone for a pause.
func (r *Runner) replacedGate(p *Proposal, i int) *corev1.Pod {
	gate := r.gate(p, fmt.Sprintf("replaced-%d", i+1), p.leaving[i], everything(p.namespaces))
	gate.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: p.pause().String()}
	return gate
}

func (r *Runner) meta(p *Proposal, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: r.Namespace, Name: fmt.Sprintf("repack-%s-%s", p.run, name),
		Labels: map[string]string{HoldLabel: p.run, "app.kubernetes.io/managed-by": "kubectl-bizfly"},
	}
}

// pod is the spec of a pod that does nothing, anywhere. It requests nothing, so that it takes nothing from others but one place on the node. Its priority is
// the namespace's usual one, because it needs none.
func (r *Runner) pod(where corev1.PodSpec) corev1.PodSpec {
	where.RestartPolicy, where.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, new(int64)
	where.AutomountServiceAccountToken, where.EnableServiceLinks = new(bool), new(bool)
	where.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: lo.ToPtr(true), RunAsUser: lo.ToPtr(int64(65535)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	where.Containers = []corev1.Container{{
		Name: "hold", Image: lo.CoalesceOrEmpty(r.Image, HoldImage),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: lo.ToPtr(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}}
	return where
}
