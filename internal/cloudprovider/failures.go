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

package cloudprovider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/metrics"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// How often launches with one NodeClass may fail for reasons other than capacity before they pause.
const (
	maxFailures   = 3
	failureWindow = 10 * time.Minute
)

// launchFailuresTotal counts orders that the cloud refused or failed to build.
var launchFailuresTotal = metrics.Counter("launch_failures_total",
	"Orders of servers that the cloud refused or failed to build, by reason.",
	metrics.Label("reason"))

// A counter that first appears with its first count hides that count from every rate.
func init() {
	launchFailuresTotal.Add(0, map[string]string{"reason": ReasonLaunchFailed})
	for _, m := range meanings {
		launchFailuresTotal.Add(0, map[string]string{"reason": m.reason})
	}
}

// LaunchFailed draws the conclusions from a server that the cloud accepted and then failed to build: it marks the
// offering or pauses the account when there is no room, and otherwise counts against the NodeClass. It returns the
// reason, and whether it was a lack of room, so that another plan may succeed at once.
func (c *CloudProvider) LaunchFailed(ctx context.Context, claim *karpv1.NodeClaim, intent instance.Intent, err error) (reason string, noRoomLeft bool) {
	m := meaningOf(err)
	launchFailuresTotal.Inc(map[string]string{"reason": m.reason})
	c.recorder.Publish(events.LaunchFailed(claim, intent.Name, intent.Flavor, intent.Zone, err))
	c.Replacing(claim, m.reason)
	if m.scope != 0 {
		c.takeOut(ctx, claim, capacity.Offering{Flavor: intent.Flavor, Zone: intent.Zone, BillingPlan: intent.BillingPlan}, m, err)
		return m.reason, true
	}
	nodeClass, getErr := c.nodeClass(ctx, claim.Spec.NodeClassRef)
	if getErr != nil {
		log.FromContext(ctx).Error(getErr, "reading the NodeClass of a failed launch")
		return m.reason, false
	}
	c.countFailure(nodeClass, err)
	return m.reason, false
}

// countFailure counts a failure that is not for want of capacity against the NodeClass.
func (c *CloudProvider) countFailure(nodeClass *v1alpha1.BizflyNodeClass, err error) {
	if c.failures.add(nodeClass, err) {
		c.recorder.Publish(events.LaunchesKeepFailing(nodeClass, maxFailures, failureWindow, err))
	}
}

// pauseAccount stops all launches for a while: every further order would be refused too.
func (c *CloudProvider) pauseAccount(ctx context.Context, claim *karpv1.NodeClaim, reason string, err error) {
	pause := c.settings.Load().AccountPause
	c.capacity.MarkUnavailable(ctx, capacity.Offering{}, reason, pause)
	c.recorder.Publish(events.AccountLimitReached(claim, reason, pause, err))
}

// giveUp deletes the claim, and only this one, and returns what Create returns. Core then plans a new one, whose server
// is another by its UID; what is left of this one's server is garbage collected.
func (c *CloudProvider) giveUp(ctx context.Context, claim *karpv1.NodeClaim, reason string, err error) error {
	deleteErr := c.kubeClient.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID})
	if deleteErr != nil && !apierrors.IsNotFound(deleteErr) && !apierrors.IsConflict(deleteErr) {
		return fmt.Errorf("giving the NodeClaim up (%s: %w): %w", reason, err, deleteErr)
	}
	c.records.giveUp(claim.UID)
	return createError(reason, err)
}

// LaunchesBlocked returns the reason and the cause of the pause of launches with the NodeClass, until when it lasts, and
// a nil cause while there is none.
func (c *CloudProvider) LaunchesBlocked(nodeClass *v1alpha1.BizflyNodeClass) (reason string, until time.Time, cause error) {
	cause = c.failures.blocked(nodeClass)
	if cause == nil {
		return "", time.Time{}, nil
	}
	return meaningOf(cause).reason, c.failures.until(nodeClass), cause
}

// launchFailures counts by NodeClass. A changed spec or image starts from zero.
type launchFailures struct {
	clock clock.Clock
	mu    sync.Mutex
	cache *cache.Cache
}

// failureLog is the last failures with one state of a NodeClass. It is replaced, never edited.
type failureLog struct {
	generation int64
	image      string
	at         []time.Time
	last       error
}

// add counts a failure and says whether launches pause from now on.
func (f *launchFailures) add(nodeClass *v1alpha1.BizflyNodeClass, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := failureLog{generation: nodeClass.Generation, image: imageID(nodeClass), last: err}
	if known, ok := f.cache.Get(string(nodeClass.UID)); ok {
		if known := known.(failureLog); known.generation == entry.generation && known.image == entry.image {
			entry.at = append(entry.at, known.at...)
		}
	}
	entry.at = append(entry.at, f.clock.Now())
	entry.at = entry.at[max(0, len(entry.at)-maxFailures):]
	f.cache.SetDefault(string(nodeClass.UID), entry)
	return f.paused(entry)
}

// blocked returns the last failure while launches with the NodeClass pause, and nil otherwise.
func (f *launchFailures) blocked(nodeClass *v1alpha1.BizflyNodeClass) error {
	known, ok := f.cache.Get(string(nodeClass.UID))
	if !ok {
		return nil
	}
	entry := known.(failureLog)
	if entry.generation != nodeClass.Generation || entry.image != imageID(nodeClass) || !f.paused(entry) {
		return nil
	}
	return entry.last
}

// pausing says whether launches with the NodeClass pause.
func (f *launchFailures) pausing(nodeClass *v1alpha1.BizflyNodeClass) bool {
	return f.blocked(nodeClass) != nil
}

// paused is true until the oldest of the last failures has left the window: then one launch may try again.
func (f *launchFailures) paused(entry failureLog) bool {
	return len(entry.at) == maxFailures && f.clock.Since(entry.at[0]) < failureWindow
}

func imageID(nodeClass *v1alpha1.BizflyNodeClass) string {
	if nodeClass.Status.Image == nil {
		return ""
	}
	return nodeClass.Status.Image.ID
}

// until is when the pause of the NodeClass ends.
func (f *launchFailures) until(nodeClass *v1alpha1.BizflyNodeClass) time.Time {
	known, ok := f.cache.Get(string(nodeClass.UID))
	if !ok || len(known.(failureLog).at) == 0 {
		return time.Time{}
	}
	return known.(failureLog).at[0].Add(failureWindow)
}
