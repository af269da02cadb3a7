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

// Package repair replaces, or starts again, servers that somebody stopped behind Kubernetes' back. A stopped server costs
// money and its node never comes back by itself; core repairs nodes only where its NodeRepair gate is on, and never
// starts anything.
package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// ReplaceAfter is how long a server may be stopped: a maintenance of the cloud, or a person at its console, may need
	// it for a moment.
	ReplaceAfter = 5 * time.Minute
	// lookInterval is how often a running server is looked at; all claims share one list of the servers.
	lookInterval = time.Minute
	// stoppedInterval is how often one that is stopped is, and how long the cloud has to start it before it is told again.
	stoppedInterval = 30 * time.Second
	concurrency     = 10
)

// Controller looks after stopped servers.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock
}

// NewController makes a Controller.
func NewController(kubeClient client.Client, instances instance.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, recorder: recorder, clock: clk}
}

// Name is the controller's name, which core's controllers must not share.
func (c *Controller) Name() string { return "nodeclaim.repair.bizflycloud" }

// Reconcile looks at the server of a claim.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	servers, err := c.instances.List(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing servers: %w", err)
	}
	server, found := lo.Find(servers, func(s *instance.Instance) bool { return s.ID == id })
	switch {
	case found && server.Stopped():
		return c.stopped(ctx, claim, id)
	case found && server.Status == instance.StatusActive:
		return reconcile.Result{RequeueAfter: lookInterval}, c.running(ctx, claim)
	}
	// What is neither stopped nor running, or not there, is somebody else's: the launch controller's, or core's.
	return reconcile.Result{RequeueAfter: lookInterval}, nil
}

// stopped starts the server or waits, and replaces it after a while. Since when it is stopped is written on the claim,
// where a restart finds it.
func (c *Controller) stopped(ctx context.Context, claim *karpv1.NodeClaim, id string) (reconcile.Result, error) {
	start, err := c.mayStart(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	consequence := lo.Ternary(start,
		fmt.Sprintf("it is started again, and replaced when it does not run %s later", ReplaceAfter),
		fmt.Sprintf("it is replaced when it is still stopped %s later", ReplaceAfter))
	conditions := claim.StatusConditions(status.WithClock(c.clock))
	if conditions.Get(v1alpha1.ConditionTypeServerRunning).IsFalse() {
		since := c.clock.Since(conditions.Get(v1alpha1.ConditionTypeServerRunning).LastTransitionTime.Time)
		if since >= ReplaceAfter {
			return c.replace(ctx, claim, id, since)
		}
	} else {
		if conflict, err := c.note(ctx, claim, func(set status.ConditionSet) {
			set.SetFalse(v1alpha1.ConditionTypeServerRunning, events.ReasonServerStopped, consequence)
		}); conflict || err != nil {
			return reconcile.Result{RequeueAfter: lo.Ternary(conflict, time.Second, 0)}, err
		}
		c.recorder.Publish(events.ServerStopped(claim, consequence))
	}
	if start {
		err = c.instances.Start(ctx, id)
	}
	if errors.Is(err, instance.ErrNotFound) {
		err = nil
	}
	return reconcile.Result{RequeueAfter: stoppedInterval}, err
}

// mayStart says whether the claim's NodeClass wants stopped servers to be started.
func (c *Controller) mayStart(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	nodeClass := &v1alpha1.BizflyNodeClass{}
	err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the NodeClass of NodeClaim %s: %w", claim.Name, err)
	}
	return err == nil && nodeClass.Spec.StoppedServers == v1alpha1.StoppedServersStart, nil
}

// running notes that a server which was stopped runs again.
func (c *Controller) running(ctx context.Context, claim *karpv1.NodeClaim) error {
	condition := claim.StatusConditions().Get(v1alpha1.ConditionTypeServerRunning)
	if !condition.IsFalse() {
		return nil
	}
	after := c.clock.Since(condition.LastTransitionTime.Time)
	conflict, err := c.note(ctx, claim, func(set status.ConditionSet) {
		set.SetTrueWithReason(v1alpha1.ConditionTypeServerRunning, events.ReasonServerStarted, fmt.Sprintf("it was stopped for %s", after.Round(time.Second)))
	})
	if err == nil && !conflict {
		c.recorder.Publish(events.ServerStarted(claim, after))
	}
	return err
}

// note writes a condition. Core writes the same list, hence the lock.
func (c *Controller) note(ctx context.Context, claim *karpv1.NodeClaim, change func(status.ConditionSet)) (conflict bool, err error) {
	updated := claim.DeepCopy()
	change(updated.StatusConditions(status.WithClock(c.clock)))
	err = c.kubeClient.Status().Patch(ctx, updated, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
	return apierrors.IsConflict(err), client.IgnoreNotFound(ignoreConflict(err))
}

// replace deletes the claim, once the cloud has said of this very server that it is stopped: a list may be old. Its
// kubelet is silent and can end no pod, so nothing is gained by waiting for a drain.
func (c *Controller) replace(ctx context.Context, claim *karpv1.NodeClaim, id string, since time.Duration) (reconcile.Result, error) {
	server, err := c.instances.Get(ctx, id)
	switch {
	case errors.Is(err, instance.ErrNotFound):
		return reconcile.Result{RequeueAfter: stoppedInterval}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("getting server %s: %w", id, err)
	case !server.Stopped():
		return reconcile.Result{RequeueAfter: stoppedInterval}, nil
	}
	updated := claim.DeepCopy()
	updated.Annotations = lo.Assign(updated.Annotations, map[string]string{
		karpv1.NodeClaimTerminationTimestampAnnotationKey: c.clock.Now().Format(time.RFC3339),
	})
	err = c.kubeClient.Patch(ctx, updated, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		err = c.kubeClient.Delete(ctx, updated, client.Preconditions{UID: &updated.UID, ResourceVersion: &updated.ResourceVersion})
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("replacing NodeClaim %s: %w", claim.Name, err)
	}
	log.FromContext(ctx).Info("replacing a node whose server was stopped outside", "server", id, "stopped-for", since)
	c.recorder.Publish(events.ServerReplaced(claim, since))
	replacedTotal.Inc(nil)
	return reconcile.Result{}, nil
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Register adds the controller to the manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return cloudprovider.IsManaged(o.(*karpv1.NodeClaim))
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
