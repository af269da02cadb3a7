// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package repack

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	// NodeLabel is on a new node and its NodeClaim, with a unique value.
	NodeLabel = "repack.bizflycloud.vn/node"
	// RunLabel is on all new nodes, with the run, and on the pods that hold one of them each, with the name of their Job.
	RunLabel = "repack.bizflycloud.vn/run"
	// HoldLabel is on the pods that a run adds; its value is the run.
	HoldLabel = "repack.bizflycloud.vn/hold"
	// HoldImage does nothing. A pod whose image cannot be pulled holds its node just as well.
	HoldImage = "registry.k8s.io/pause:3.10.1@sha256:278fb9dbcca9518083ad1e11276933a2e96f23de604a3a08cc3c80002767d24c"
)

// identities are the labels that distinguish pods: each pod of a StatefulSet, all replicas of a Deployment, all pods of a Job.
var identities = []string{appsv1.StatefulSetPodNameLabel, appsv1.DefaultDeploymentUniqueLabelKey, batchv1.JobNameLabel}

// identity is the label that distinguishes pods, the same for all replicas. A pod without one runs wherever the
// kube-scheduler binds it.
type identity struct{ key, value string }

func identityOf(pod *corev1.Pod) identity {
	key, _ := lo.Find(identities, func(key string) bool { return pod.Labels[key] != "" })
	return identity{key, pod.Labels[key]}
}

func (i identity) known() bool { return i.key != "" }

// rejecting is the required anti-affinity with which a pod on a node keeps the moving pods away that are planned for other nodes. The kube-scheduler and
// core's scheduler both observe the anti-affinity of pods that run. So evicted pods come to the planned nodes, and the kube-scheduler is asked for no more
// than that: it still decides by everything else that it knows.
//
// Each identity is a term of its own: core takes two lists of values for the same whose names differ alike, such as those of web-0 and web-1 and of
// web-2 and web-3, and would keep the pods of one from the nodes of the other.
func (p *Proposal) rejecting(planned []*corev1.Pod) *corev1.Affinity {
	identitiesOf := func(pods []*corev1.Pod) []identity {
		return lo.Uniq(lo.FilterMap(pods, func(pod *corev1.Pod, _ int) (identity, bool) {
			id := identityOf(pod)
			return id, id.known()
		}))
	}
	others, _ := lo.Difference(identitiesOf(p.moving()), identitiesOf(planned))
	slices.SortFunc(others, func(a, b identity) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.value, b.value)) })
	return p.antiAffinity(lo.Map(others, func(other identity, _ int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{other.key: other.value}}
	}))
}

// rejectingAll keeps all pods away that have an identity, in the namespaces of the pods that move. Those of DaemonSets have none.
func (p *Proposal) rejectingAll() *corev1.Affinity {
	return p.antiAffinity(lo.Map(identities, func(key string, _ int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}
	}))
}

func (p *Proposal) antiAffinity(rejected []metav1.LabelSelector) *corev1.Affinity {
	if len(rejected) == 0 {
		return nil
	}
	namespaces := lo.Uniq(lo.Map(p.moving(), func(pod *corev1.Pod, _ int) string { return pod.Namespace }))
	slices.Sort(namespaces)
	return apart(lo.Map(rejected, func(selector metav1.LabelSelector, _ int) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &selector, Namespaces: namespaces}
	})...)
}

// apart is required anti-affinity on a node.
func apart(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
	for i := range terms {
		terms[i].TopologyKey = corev1.LabelHostname
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

// ownedBy makes a pod one of its node. Core then neither evicts it nor moves it nor waits for it, as with the pods that a kubelet runs by itself,
// and it is deleted with the Node. As a controller, the Node lets kubectl drain evict it without --force.
func ownedBy(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: lo.ToPtr(true)}
}

// keptJob holds a node that stays. Its pod is bound at once: the kube-scheduler would not run it beside replicas of what it rejects.
func (r *Runner) keptJob(p *Proposal, i int) *batchv1.Job {
	kept := p.held[i]
	return r.job(p, fmt.Sprintf("kept-%d", i+1), p.Hold(), corev1.PodSpec{NodeName: kept.Name, Affinity: p.rejecting(kept.pods)})
}

// newJob holds all new nodes with one pod on each, which waits for its node.
func (r *Runner) newJob(p *Proposal, name string, hold time.Duration) *batchv1.Job {
	job := r.job(p, name, hold, corev1.PodSpec{NodeSelector: map[string]string{RunLabel: p.run}})
	nodes, own := int32(len(p.New)), map[string]string{RunLabel: job.Name} //nolint:gosec // a NodePool has fewer nodes
	job.Spec.Parallelism, job.Spec.Completions = &nodes, &nodes
	job.Spec.Template.Labels = lo.Assign(job.Spec.Template.Labels, own)
	job.Spec.Template.Spec.Affinity = apart(corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: own}})
	return job
}

// job holds nodes: core takes no node whose pod has the annotation, for as long as it says. The pod tolerates every taint: it holds
// a node that evicts others, and core's own taint does not let it delay the removal of a node.
func (r *Runner) job(p *Proposal, name string, hold time.Duration, where corev1.PodSpec) *batchv1.Job {
	meta := r.meta(p, name)
	return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
		BackoffLimit: new(int32), TTLSecondsAfterFinished: lo.ToPtr(int32(60)), ActiveDeadlineSeconds: lo.ToPtr(int64(hold.Seconds())),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: map[string]string{karpv1.DoNotDisruptAnnotationKey: hold.String()}},
			Spec:       r.pod(where),
		},
	}}
}

// gate keeps pods away from a node. It is no pod of a Job: core would have to find another place for that before it removes the node, and no node with
// one is empty.
func (r *Runner) gate(p *Proposal, name string, node *corev1.Node, rejecting *corev1.Affinity) *corev1.Pod {
	gate := &corev1.Pod{ObjectMeta: r.meta(p, name), Spec: r.pod(corev1.PodSpec{
		NodeName: node.Name, Affinity: rejecting, ActiveDeadlineSeconds: lo.ToPtr(int64(p.Hold().Seconds())),
	})}
	gate.OwnerReferences = []metav1.OwnerReference{ownedBy(node)}
	return gate
}

// replacedGate keeps all pods away from a node that is replaced, and lets core leave it alone for a pause.
func (r *Runner) replacedGate(p *Proposal, i int) *corev1.Pod {
	gate := r.gate(p, fmt.Sprintf("replaced-%d", i+1), p.Replaced[i].node, p.rejectingAll())
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
	where.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
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
