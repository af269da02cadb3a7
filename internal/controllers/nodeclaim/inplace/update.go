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

package inplace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// errNoDefault says that a server cannot be left with no firewall: its interfaces would let nothing through at all.
var errNoDefault = errors.New("spec.firewallSelectorTerms is empty, and the project has no firewall called default to attach instead: select one")

// update is one server's way to what its NodeClass says.
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

// attached are the ids of the firewalls that we have attached, and false where that was never written down.
func (u *update) attached() (firewalls []string, known bool) {
	if u.begun() {
		return lo.Compact(strings.Split(u.claim.Annotations[v1alpha1.AnnotationAttachedFirewalls], ",")), true
	}
	if u.intent != nil && u.intent.Firewalls != nil {
		return u.intent.Firewalls, true
	}
	return nil, false
}

// begun says that firewalls were changed since the order, or may have been: then only the interfaces tell what they have.
func (u *update) begun() bool {
	_, begun := u.claim.Annotations[v1alpha1.AnnotationAttachedFirewalls]
	return begun
}

// planChanges says that the server's network plan is known to be another one.
func (u *update) planChanges() bool {
	return u.server.NetworkPlan != "" && u.server.NetworkPlan != bizfly.PlanWord(u.nodeClass.EffectiveNetworkPlan())
}

// firewallsChange says that the server may have other firewalls than are wanted.
func (u *update) firewallsChange() bool {
	attached, known := u.attached()
	if !known {
		return len(u.wanted()) > 0
	}
	return u.begun() || !lo.ElementsMatch(attached, u.wanted())
}

// run changes what differs. That it has begun is on record before, so that a change that was interrupted is taken up again
// even if the NodeClass is changed back meanwhile; and which firewalls are ours, since no other is ever taken off.
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
// is selected or none was ordered, that is the cloud's default one.
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

// succeeded writes down that the server has what the NodeClass says.
func (u *update) succeeded(ctx context.Context, firewalls []string) (bool, error) {
	annotations := map[string]string{v1alpha1.AnnotationInPlaceHash: u.nodeClass.InPlaceHash()}
	if firewalls != nil {
		annotations[v1alpha1.AnnotationAttachedFirewalls] = strings.Join(firewalls, ",")
	}
	return u.annotate(ctx, u.claim, annotations)
}

// claimsOf returns the claims of a NodeClass.
func (c *Controller) claimsOf(ctx context.Context, o client.Object) []reconcile.Request {
	claims := &karpv1.NodeClaimList{}
	if err := c.kubeClient.List(ctx, claims, nodeclaimutils.ForNodeClass(o.(*v1alpha1.BizflyNodeClass))); err != nil {
		// Each claim is looked at by itself before long.
		log.FromContext(ctx).Error(err, "listing the NodeClaims of a BizflyNodeClass", "BizflyNodeClass", o.GetName())
		return nil
	}
	return lo.Map(claims.Items, func(claim karpv1.NodeClaim, _ int) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claim)}
	})
}

// changed lets through the updates after which something may be due.
func changed() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.BizflyNodeClass), e.ObjectNew.(*v1alpha1.BizflyNodeClass)
			return resolved(after) && (!resolved(before) || before.InPlaceHash() != after.InPlaceHash())
		},
	}
}
