// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/patrickmn/go-cache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// launches is the step that follows a server until its node has registered. A NodeClaim whose server failed or vanished
// is replaced within seconds, instead of after core's registration timeout of 15 minutes.
type launches struct {
	kubeClient client.Client
	instances  Instances
	launcher   *launch.Launcher
	tokens     jointoken.Provider
	recorder   karpevents.Recorder
	clock      clock.Clock

	// followed is since when a NodeClaim was seen between launch and registration, by UID: only of those is it known
	// that they have just registered. An entry whose NodeClaim ends unseen expires.
	followed *cache.Cache
}

// reconcile checks the server of a NodeClaim that was launched and has not registered.
func (l *launches) reconcile(ctx context.Context, s *subject) (time.Duration, error) {
	if s.registered || !controllers.IsTrue(s.claim, karpv1.ConditionTypeLaunched) {
		return 0, nil
	}
	if s.server == nil || s.server.Failed() {
		return l.replace(ctx, s)
	}
	age := l.clock.Since(s.claim.CreationTimestamp.Time)
	if s.server.Status == instance.StatusBuild && age > ttl.SlowBuild {
		l.recorder.Publish(events.LaunchSlow(s.claim, s.server.Name, age))
	}
	return ttl.LaunchPoll, nil
}

// followLaunch remembers a NodeClaim whose node has not registered.
func (l *launches) followLaunch(claim *karpv1.NodeClaim) {
	_ = l.followed.Add(string(claim.UID), l.clock.Now(), cache.DefaultExpiration) // one that is there stays
}

// endLaunch revokes the join token, which is a way into the cluster, once the node has registered or the NodeClaim is
// deleted, and reports a launch that was followed until then. Where a restart of this controller came between,
// Kubernetes' garbage collector deletes the token with the NodeClaim, and its expiration ends it.
func (l *launches) endLaunch(ctx context.Context, claim *karpv1.NodeClaim) error {
	if since, followed := l.followed.Get(string(claim.UID)); followed {
		l.followed.Delete(string(claim.UID))
		l.followed.DeleteExpired()
		l.reportEnd(ctx, claim, since.(time.Time))
	}
	l.launcher.LaunchEnded(ctx, claim) // also of one that was deleted before it was followed
	if l.tokens == nil {
		return nil
	}
	return l.tokens.Revoke(ctx, claim.UID)
}

// reportEnd reports how a launch ended that was followed since this time: the node has registered, core has waited for
// it in vain, or the NodeClaim was deleted for another reason. A NodeClaim that was seen at its end alone accuses
// nothing: while the API server was away, no node could register.
func (l *launches) reportEnd(ctx context.Context, claim *karpv1.NodeClaim, since time.Time) {
	intent, err := launch.ReadIntent(claim)
	if err != nil || intent == nil {
		return
	}
	registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
	switch {
	case registered.IsTrue():
		l.launcher.NodeRegistered(ctx, claim, *intent, registered.LastTransitionTime.Sub(intent.RequestedAt))
	case l.clock.Since(registered.LastTransitionTime.Time) >= ttl.Registration &&
		l.clock.Since(since) >= ttl.Registration/3:
		l.launcher.LaunchFailed(ctx, claim, *intent, launch.ErrNotRegistered)
	}
}

// replace finds out why the server failed and deletes the NodeClaim, whose deletion deletes the server. A server that
// does not exist any more counts as a failed launch: BizFly Cloud also removes servers that it failed to build, and the
// next launch would meet the same offering.
func (l *launches) replace(ctx context.Context, s *subject) (time.Duration, error) {
	intent := instance.Intent{Name: s.claim.Name, Flavor: s.claim.Labels[corev1.LabelInstanceTypeStable],
		Zone: s.claim.Labels[corev1.LabelTopologyZone]}
	if written, err := launch.ReadIntent(s.claim); err == nil && written != nil {
		intent = *written
	}
	cause := l.instances.FailureReason(ctx, intent)
	if s.server == nil {
		cause = fmt.Errorf("the server does not exist any more: %w", cause)
	}
	// If the NodeClaim has changed since, for example because its node has registered after all, it is checked again.
	err := l.kubeClient.Delete(ctx, s.claim.DeepCopy(),
		client.Preconditions{UID: &s.claim.UID, ResourceVersion: &s.claim.ResourceVersion})
	if result, err := controllers.AfterLocked(err); err != nil || result.RequeueAfter != 0 {
		return result.RequeueAfter, err
	}
	reason := l.launcher.LaunchFailed(ctx, s.claim, intent, cause)
	log.FromContext(ctx).Info("replaced a NodeClaim whose server failed", "server", s.claim.Status.ProviderID,
		"reason", reason, "cause", cause.Error())
	return 0, nil
}
