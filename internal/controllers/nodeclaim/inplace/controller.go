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

// Package inplace changes running servers to what their NodeClass specifies where that needs no new server: firewalls and the
// network plan.
package inplace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

const (
	// perSecond and burst bound how many servers are changed: a NodeClass of a thousand nodes must not take the calls from
	// launches.
	perSecond   = 1
	burst       = 5
	concurrency = 5
)

// Controller is nodeclaim.inplace.
type Controller struct {
	kubeClient client.Client
	instances  instance.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock
	limiter    *rate.Limiter
}

// NewController returns a Controller.
func NewController(kubeClient client.Client, instances instance.Provider, recorder karpevents.Recorder, clk clock.Clock) *Controller {
	return &Controller{kubeClient: kubeClient, instances: instances, recorder: recorder, clock: clk, limiter: rate.NewLimiter(perSecond, burst)}
}

// Name is the controller's name.
func (c *Controller) Name() string { return "nodeclaim.inplace" }

// Reconcile brings the server of a NodeClaim to what its NodeClass specifies.
func (c *Controller) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	again := reconcile.Result{RequeueAfter: ttl.InPlace}
	id, ok := providerid.Parse(claim.Status.ProviderID)
	if !ok || !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	servers, err := c.instances.Snapshot(ctx, ttl.PeriodicServers)
	if err != nil {
		return reconcile.Result{}, err
	}
	server := servers.Get(id)
	if server == nil || server.NodeClaimUID != string(claim.UID) || server.Status != instance.StatusActive {
		// A server that is missing, still being built or stopped is not changed for now.
		return again, nil
	}
	due, err := c.due(ctx, claim, server)
	if err != nil || due == nil {
		return again, err
	}
	if !c.limiter.AllowN(c.clock.Now(), 1) {
		return reconcile.Result{RequeueAfter: time.Second / perSecond}, nil
	}
	switch conflict, err := due.run(ctx); {
	case conflict:
		return reconcile.Result{RequeueAfter: ttl.Conflict}, nil
	case errors.Is(err, instance.ErrNotFound):
		return again, nil
	case err != nil:
		c.recorder.Publish(events.ServerUpdateFailed(claim, err))
		return reconcile.Result{}, err
	}
	return again, nil
}

// due returns what is to be done to the server; nil where that is nothing.
func (c *Controller) due(ctx context.Context, claim *karpv1.NodeClaim, server *instance.Instance) (*update, error) {
	intent, err := cloudprovider.IntentOf(claim)
	if err != nil {
		intent = nil // Without it, the firewalls of the launch are not known.
	}
	nodeClass := &v1alpha1.BizflyNodeClass{}
	if err := c.kubeClient.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !resolved(nodeClass) || claim.Annotations[v1alpha1.AnnotationInPlaceHash] == nodeClass.InPlaceHash() {
		return nil, nil
	}
	u := &update{Controller: c, claim: claim, server: server, nodeClass: nodeClass, intent: intent}
	if !u.planChanges() && !u.firewallsChange() {
		// The server was launched with what is wanted, so nothing is sent and no turn is needed.
		_, err := u.succeeded(ctx, nil)
		return nil, err
	}
	return u, nil
}

// resolved reports whether the status of a NodeClass follows from its present spec.
func resolved(nodeClass *v1alpha1.BizflyNodeClass) bool {
	ready := nodeClass.StatusConditions().Root()
	return nodeClass.DeletionTimestamp.IsZero() && ready.IsTrue() && ready.ObservedGeneration == nodeClass.Generation
}

// annotate writes annotations of the NodeClaim, which is then the written one.
func (c *Controller) annotate(ctx context.Context, claim *karpv1.NodeClaim, annotations map[string]string) (conflict bool, err error) {
	stored := claim.DeepCopy()
	claim.Annotations = lo.Assign(claim.Annotations, annotations)
	result, err := controllers.Patched(c.kubeClient.Patch(ctx, claim, controllers.Locked(stored)))
	return result.RequeueAfter > 0, err
}

// Register adds the controller to the manager. A NodeClass whose firewalls or network plan have changed is carried out at
// once.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllers.NodeClaims(m, c.Name(), concurrency, func(*karpv1.NodeClaim) struct{} { return struct{}{} }).
		Watches(&v1alpha1.BizflyNodeClass{}, nodeclaimutils.NodeClassEventHandler(c.kubeClient), builder.WithPredicates(changed)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// errNoDefault means that a server cannot be left without a firewall: its interfaces would pass no traffic at all.
var errNoDefault = errors.New("spec.firewallSelectorTerms is empty, and the project has no firewall called default to attach instead: select one")

// update is one server's way to what its NodeClass specifies.
type update struct {
	*Controller

	claim     *karpv1.NodeClaim
	server    *instance.Instance
	nodeClass *v1alpha1.BizflyNodeClass
	intent    *instance.Intent
}

// wanted are the ids of the firewalls that the NodeClass selects; none means the cloud's default one.
func (u *update) wanted() []string {
	return lo.Map(u.nodeClass.Status.Firewalls, func(f v1alpha1.FirewallStatus, _ int) string { return f.ID })
}

// attached are the ids of the firewalls that we have attached, and false where that was never recorded.
func (u *update) attached() (firewalls []string, known bool) {
	if u.begun() {
		return lo.Compact(strings.Split(u.claim.Annotations[v1alpha1.AnnotationAttachedFirewalls], ",")), true
	}
	if u.intent != nil && u.intent.Firewalls != nil {
		return u.intent.Firewalls, true
	}
	return nil, false
}

// begun reports whether firewalls were changed since the launch, or may have been: then only the interfaces show what they have.
func (u *update) begun() bool {
	_, begun := u.claim.Annotations[v1alpha1.AnnotationAttachedFirewalls]
	return begun
}

// planChanges reports whether the server's network plan is known to be another one.
func (u *update) planChanges() bool {
	return u.server.NetworkPlan != "" && u.server.NetworkPlan != bizfly.PlanWord(u.nodeClass.EffectiveNetworkPlan())
}

// firewallsChange reports whether the server may have other firewalls than are wanted.
func (u *update) firewallsChange() bool {
	attached, known := u.attached()
	if !known {
		return len(u.wanted()) > 0
	}
	return u.begun() || !lo.ElementsMatch(attached, u.wanted())
}

// run changes what differs. That it has begun is recorded before, so that an interrupted change is continued
// even if the NodeClass is changed back meanwhile; and which firewalls are ours, since no other is ever removed.
func (u *update) run(ctx context.Context) (conflict bool, err error) {
	annotations := map[string]string{v1alpha1.AnnotationInPlaceHash: ""}
	var wanted, attached, done []string
	if u.firewallsChange() {
		if wanted, attached, err = u.firewalls(ctx); err != nil {
			return false, err
		}
		annotations[v1alpha1.AnnotationAttachedFirewalls] = strings.Join(lo.Union(attached, wanted), ",")
	}
	if conflict, err := u.annotate(ctx, u.claim, annotations); conflict || err != nil {
		return conflict, err
	}
	if u.planChanges() {
		plan := bizfly.PlanWord(u.nodeClass.EffectiveNetworkPlan())
		if err := u.instances.ChangeNetworkPlan(ctx, u.server.ID, plan); err != nil {
			return false, err
		}
		done = append(done, fmt.Sprintf("network plan %s instead of %s", plan, u.server.NetworkPlan))
	}
	if wanted != nil {
		if err := u.instances.SetFirewalls(ctx, instance.FirewallRequest{
			ServerID: u.server.ID, Wanted: wanted, Attached: attached, RecordedPorts: cloudprovider.OwnedAddresses(u.claim),
		}); err != nil {
			return false, err
		}
		done = append(done, "firewalls "+strings.Join(wanted, ", "))
	}
	if conflict, err := u.succeeded(ctx, wanted); conflict || err != nil {
		return conflict, err
	}
	u.recorder.Publish(events.ServerUpdated(u.claim, strings.Join(done, "; ")))
	return false, nil
}

// firewalls returns which firewalls the server is to have, never none, and which of those that it has are ours. Where none
// is selected or none was set at the launch, that is the cloud's default one.
func (u *update) firewalls(ctx context.Context) (wanted, attached []string, err error) {
	wanted = u.wanted()
	attached, known := u.attached()
	if len(wanted) > 0 && (len(attached) > 0 || !known) {
		return wanted, attached, nil
	}
	fallback, err := u.instances.DefaultFirewall(ctx)
	switch {
	case errors.Is(err, instance.ErrNotFound) && len(wanted) > 0:
		return wanted, attached, nil
	case errors.Is(err, instance.ErrNotFound):
		return nil, nil, errNoDefault
	case err != nil:
		return nil, nil, err
	case len(wanted) == 0:
		return []string{fallback}, attached, nil
	}
	return wanted, []string{fallback}, nil
}

// succeeded records that the server has what the NodeClass specifies.
func (u *update) succeeded(ctx context.Context, firewalls []string) (bool, error) {
	annotations := map[string]string{v1alpha1.AnnotationInPlaceHash: u.nodeClass.InPlaceHash()}
	if firewalls != nil {
		annotations[v1alpha1.AnnotationAttachedFirewalls] = strings.Join(firewalls, ",")
	}
	return u.annotate(ctx, u.claim, annotations)
}

// changed passes those updates of a NodeClass after which its servers may have to be changed.
var changed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.BizflyNodeClass), e.ObjectNew.(*v1alpha1.BizflyNodeClass)
		return resolved(after) && (!resolved(before) || before.InPlaceHash() != after.InPlaceHash())
	},
}
