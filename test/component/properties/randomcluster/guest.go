// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package randomcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guest is a pod that another program runs on a node, by itself or by a Job. It ends by its deadline or with its node.
type guest struct {
	pod *corev1.Pod
	job *batchv1.Job
	on  *machine
	// rejects are the pods that its required anti-affinity keeps away.
	rejects []labels.Selector
}

// labels are those that its Deployment gives a pod.
func (p *pod) labels() map[string]string {
	return map[string]string{"app": p.App, appsv1.DefaultDeploymentUniqueLabelKey: p.App}
}

// rejects reports whether a guest keeps a pod away.
func (m *machine) rejects(p *pod) bool {
	return lo.ContainsBy(m.guests, func(g *guest) bool {
		return lo.ContainsBy(g.rejects, func(s labels.Selector) bool { return s.Matches(labels.Set(p.labels())) })
	})
}

// observe implements scaler: it launches the NodeClaims and runs the pods and Jobs that it did not know.
func (k *karpenter) observe(ctx context.Context) {
	k.launchAll(ctx)
	pods, jobs := &corev1.PodList{}, &batchv1.JobList{}
	for _, list := range []client.ObjectList{pods, jobs} {
		lo.Must0(k.Client.List(ctx, list))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime != nil {
			continue
		}
		pod.Status.StartTime = &metav1.Time{Time: k.now()}
		lo.Must0(k.Client.Status().Update(ctx, pod))
		k.arrives(ctx, &guest{pod: pod}, *pod.Spec.ActiveDeadlineSeconds)
	}
	for i := range jobs.Items {
		if jobs.Items[i].Status.StartTime == nil {
			k.startJob(ctx, &jobs.Items[i])
		}
	}
}

// startJob runs the pods of a Job, once there are nodes for it.
func (k *karpenter) startJob(ctx context.Context, job *batchv1.Job) {
	template := job.Spec.Template
	nodes := &corev1.NodeList{}
	lo.Must0(k.Client.List(ctx, nodes))
	on := lo.Filter(nodes.Items, func(n corev1.Node, _ int) bool {
		return lo.CoalesceOrEmpty(template.Spec.NodeName, n.Name) == n.Name && labels.SelectorFromSet(template.Spec.NodeSelector).Matches(labels.Set(n.Labels))
	})
	if len(on) == 0 {
		return
	}
	job.Status.StartTime = &metav1.Time{Time: k.now()}
	lo.Must0(k.Client.Status().Update(ctx, job))
	for i := range on {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.StartTime = job.Namespace, fmt.Sprintf("%s-%d", job.Name, i), on[i].Name, job.Status.StartTime
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: lo.ToPtr(true)}}
		lo.Must0(k.Client.Create(ctx, pod))
		k.arrives(ctx, &guest{pod: pod, job: job}, *job.Spec.ActiveDeadlineSeconds)
	}
}

// arrives runs a guest on its node until its deadline.
func (k *karpenter) arrives(ctx context.Context, g *guest, seconds int64) {
	if affinity := g.pod.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			selector := lo.Must(metav1.LabelSelectorAsSelector(term.LabelSelector))
			if slices.Contains(term.Namespaces, metav1.NamespaceDefault) {
				g.rejects = append(g.rejects, selector)
			}
		}
	}
	for _, m := range k.machines {
		if m.name == g.pod.Spec.NodeName {
			g.on, m.guests = m, append(m.guests, g)
		}
	}
	k.guests++
	lo.Must(k.podEvents.Reconcile(ctx, g.pod))
	k.after(time.Duration(seconds)*time.Second, func(ctx context.Context) { k.leaves(ctx, g) })
	lo.Must0(k.Cluster.UpdatePod(ctx, g.pod))
}

// leaves ends a guest, unless it has ended before.
func (k *karpenter) leaves(ctx context.Context, g *guest) {
	if g.on == nil {
		return
	}
	g.on.guests = slices.DeleteFunc(g.on.guests, func(other *guest) bool { return other == g })
	g.on = nil
	k.guests--
	lo.Must(k.podEvents.Reconcile(ctx, g.pod))
	lo.Must0(k.Client.Delete(ctx, g.pod, client.GracePeriodSeconds(0)))
	k.Cluster.DeletePod(client.ObjectKeyFromObject(g.pod))
	k.wake(k.consolidateAfter)
	if g.job == nil {
		return
	}
	lo.Must0(client.IgnoreNotFound(k.Client.Delete(ctx, g.job)))
}
