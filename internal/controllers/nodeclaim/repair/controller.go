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

// Package repair reports servers that do not run by a condition of their Node, on which core's node repair acts, and starts
// stopped servers where the NodeClass asks for it. It deletes nothing.
package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const concurrency = 10

// Controller reports the state of servers.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, instances instance.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.repair" }

// Reconcile compares the server of a NodeClaim with the condition of its Node. A kubelet that is Ready runs, whatever the
// cloud's record is, so that an API which is wrong about all servers at once marks no node.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok || !claim.DeletionTimestamp.IsZero() || claim.Status.NodeName == "" {
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		// Without its Node the NodeClaim is core's to end.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ready := nodeutils.GetCondition(node, corev1.NodeReady).Status == corev1.ConditionTrue
	state, err := c.state(ctx, id, lo.Ternary(ready, ttl.PeriodicServers, 0))
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case state == v1alpha1.ReasonServerRunning:
		return reconcile.Result{RequeueAfter: ttl.RunningServer}, c.running(ctx, claim, node)
	case state == "" || ready:
		return reconcile.Result{RequeueAfter: ttl.StoppedServer}, nil
	}
	return reconcile.Result{RequeueAfter: ttl.StoppedServer}, c.notRunning(ctx, claim, node, id, state)
}

// state returns the reason that the server gives the condition; empty while it is on its way from one state to another.
func (c *Controller) state(ctx context.Context, id string, maxAge time.Duration) (string, error) {
	servers, err := c.instances.Snapshot(ctx, maxAge)
	if err != nil {
		return "", err
	}
	server := servers.Get(id)
	if server == nil {
		// The list may be older than the server.
		server, err = c.instances.Get(ctx, id)
		if errors.Is(err, instance.ErrNotFound) {
			return v1alpha1.ReasonServerMissing, nil
		}
		if err != nil {
			return "", fmt.Errorf("getting server %s: %w", id, err)
		}
	}
	return lo.Ternary(server.Status == instance.StatusActive, v1alpha1.ReasonServerRunning, server.NotRunning()), nil
}

// ignorable are the states that a user may want.
var ignorable = []string{v1alpha1.ReasonServerStopped, v1alpha1.ReasonServerSuspended}

// notRunning reports the state, and starts the server where the NodeClass asks for it.
func (c *Controller) notRunning(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, id, reason string) error {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the NodeClass of NodeClaim %s: %w", claim.Name, err)
	}
	before := nodeutils.GetCondition(node, v1alpha1.ConditionTypeServerRunning)
	known := before.Status == corev1.ConditionFalse
	policy := nodeClass.Spec.StoppedServerPolicy
	if policy == v1alpha1.StoppedServerPolicyIgnore && slices.Contains(ignorable, reason) {
		if !known {
			return nil
		}
		return c.patch(ctx, node, corev1.ConditionUnknown, v1alpha1.ReasonServerIgnored, "stoppedServerPolicy of the NodeClass is Ignore")
	}
	message, failed := "node repair replaces the node where the feature gate NodeRepair is on", false
	if reason == v1alpha1.ReasonServerStopped && policy == v1alpha1.StoppedServerPolicyStart {
		message, failed = c.start(ctx, id, known && c.clock.Since(before.LastTransitionTime.Time) >= ttl.Start)
	}
	if known && before.Reason == reason && before.Message == message {
		return nil
	}
	if err := c.patch(ctx, node, corev1.ConditionFalse, reason, message); err != nil {
		return err
	}
	if !known || before.Reason != reason {
		notRunningTotal.Inc(map[string]string{"reason": reason})
		c.recorder.Publish(events.ServerNotRunning(claim, reason, message))
	}
	if failed {
		c.recorder.Publish(events.ServerStartFailed(claim, message))
	}
	return nil
}

// start starts the server, unless it is too late for that, and returns what to report: of an error only its class, because its
// text may differ at each attempt and the same failure is to be reported once.
func (c *Controller) start(ctx context.Context, id string, tooLate bool) (message string, failed bool) {
	if tooLate {
		return fmt.Sprintf("it was not running %s after the first attempt to start it, and is not started again", ttl.Start), true
	}
	err := c.instances.Start(ctx, id)
	if err == nil || errors.Is(err, instance.ErrNotFound) {
		return fmt.Sprintf("it is started again, for up to %s", ttl.Start), false
	}
	return fmt.Sprintf("BizFly Cloud rejected the request to start it (%s); it is repeated for up to %s", bizfly.ClassOf(err), ttl.Start), true
}

// running reports that a server which did not run runs again.
func (c *Controller) running(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) error {
	before := nodeutils.GetCondition(node, v1alpha1.ConditionTypeServerRunning)
	if before.Status == "" || before.Status == corev1.ConditionTrue {
		return nil
	}
	after := c.clock.Since(before.LastTransitionTime.Time)
	if err := c.patch(ctx, node, corev1.ConditionTrue, v1alpha1.ReasonServerRunning, "the server runs again"); err != nil {
		return err
	}
	c.recorder.Publish(events.ServerRunning(claim, after))
	return nil
}

// patch writes this one condition. Conditions are merged by their type, so that nothing of the kubelet's is touched.
func (c *Controller) patch(ctx context.Context, node *corev1.Node, status corev1.ConditionStatus, reason, message string) error {
	updated := node.DeepCopy()
	now := metav1.NewTime(c.clock.Now())
	condition := corev1.NodeCondition{Type: v1alpha1.ConditionTypeServerRunning, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now}
	if before := nodeutils.GetCondition(node, v1alpha1.ConditionTypeServerRunning); before.Status == status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	updated.Status.Conditions = append(lo.Reject(updated.Status.Conditions, func(other corev1.NodeCondition, _ int) bool {
		return other.Type == condition.Type
	}), condition)
	return client.IgnoreNotFound(c.kubeClient.Status().Patch(ctx, updated, client.StrategicMergeFrom(node)))
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllers.NodeClaims(m, c.Name(), concurrency, func(claim *karpv1.NodeClaim) string {
		return claim.Status.NodeName
	}).Complete(reconcile.AsReconciler(m.GetClient(), c))
}

var notRunningTotal = metrics.Counter("servers_not_running_total",
	"Nodes whose server was found not to run, by reason: Stopped, Suspended, Failed or Missing.",
	metrics.Enum("reason", v1alpha1.ReasonServerStopped, v1alpha1.ReasonServerSuspended, v1alpha1.ReasonServerFailed, v1alpha1.ReasonServerMissing))
