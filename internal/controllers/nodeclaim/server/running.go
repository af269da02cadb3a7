// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// running is the step that reports a server which does not run by a condition of its Node, on which core's node repair acts. It starts and
// deletes nothing.
type running struct {
	kubeClient client.Client
	recorder   karpevents.Recorder
	clock      clock.Clock
}

// reconcile compares the server with the condition of its Node. A kubelet that reports runs, Ready or not, whatever the cloud's record is: an
// API which is wrong about all servers at once marks no node, and no pod is killed that could be drained. Without its Node the NodeClaim is
// core's to end.
func (r *running) reconcile(ctx context.Context, s *subject) (time.Duration, error) {
	if s.node == nil {
		return 0, nil
	}
	reason := v1alpha1.ReasonServerMissing
	if s.server != nil {
		reason = s.server.NotRunning()
	}
	switch {
	case s.server != nil && s.server.Status == instance.StatusActive:
		return ttl.RunningServer, r.runs(ctx, s)
	case s.ready() || nodeutils.GetCondition(s.node, corev1.NodeReady).Status == corev1.ConditionFalse:
		return ttl.StoppedServer, r.runs(ctx, s)
	case reason == "":
		return ttl.StoppedServer, nil
	}
	return ttl.StoppedServer, r.notRunning(ctx, s, reason)
}

// notRunning reports the state once.
func (r *running) notRunning(ctx context.Context, s *subject, reason string) error {
	before := nodeutils.GetCondition(s.node, v1alpha1.ConditionTypeServerRunning)
	if before.Status == corev1.ConditionFalse && before.Reason == reason {
		return nil
	}
	message := "node repair replaces the node where the feature gate NodeRepair is on"
	if err := r.patch(ctx, s.node, corev1.ConditionFalse, reason, message); err != nil {
		return err
	}
	notRunningTotal.Inc(map[string]string{"reason": reason})
	r.recorder.Publish(events.ServerNotRunning(s.NodeClaim, reason, message))
	return nil
}

// runs reports that a server which did not run runs again.
func (r *running) runs(ctx context.Context, s *subject) error {
	before := nodeutils.GetCondition(s.node, v1alpha1.ConditionTypeServerRunning)
	if before.Status == "" || before.Status == corev1.ConditionTrue {
		return nil
	}
	after := r.clock.Since(before.LastTransitionTime.Time)
	if err := r.patch(ctx, s.node, corev1.ConditionTrue, v1alpha1.ReasonServerRunning, "the server runs again"); err != nil {
		return err
	}
	r.recorder.Publish(events.ServerRunning(s.NodeClaim, after))
	return nil
}

// patch writes this one condition. Conditions are merged by their type, so that nothing of the kubelet's is touched.
func (r *running) patch(ctx context.Context, node *corev1.Node, status corev1.ConditionStatus, reason, message string) error {
	updated := node.DeepCopy()
	now := metav1.NewTime(r.clock.Now())
	condition := corev1.NodeCondition{Type: v1alpha1.ConditionTypeServerRunning, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now}
	if before := nodeutils.GetCondition(node, v1alpha1.ConditionTypeServerRunning); before.Status == status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	updated.Status.Conditions = append(lo.Reject(updated.Status.Conditions, func(other corev1.NodeCondition, _ int) bool {
		return other.Type == condition.Type
	}), condition)
	return client.IgnoreNotFound(r.kubeClient.Status().Patch(ctx, updated, client.StrategicMergeFrom(node)))
}

var notRunningTotal = metrics.Counter("karpenter_bizfly_servers_not_running_total",
	"Nodes whose server was found not to run, by reason: Stopped, Suspended, Failed or Missing.",
	metrics.Enum("reason", v1alpha1.ReasonServerStopped, v1alpha1.ReasonServerSuspended, v1alpha1.ReasonServerFailed, v1alpha1.ReasonServerMissing))
