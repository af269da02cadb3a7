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

package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// ReasonLaunchFailed is why a server is deleted that the cloud could not build.
const ReasonLaunchFailed = "LaunchFailed"

// launcher sends create requests and finds their servers.
type launcher struct {
	*inventory
	deleter   *deleter
	bootstrap bootstrap.Provider
	catalog   catalog.Provider
	names     flavorNames
	poller    *poller
}

// Launch sends one create request and waits, bounded, for the id of its server.
func (l *launcher) Launch(ctx context.Context, request *LaunchRequest) (*Instance, Intent, error) {
	if l.uid == "" {
		return nil, Intent{}, errNoClusterUID
	}
	create, intent, err := l.createRequest(ctx, request)
	if err != nil {
		return nil, Intent{}, err
	}
	if err := request.Record(ctx, intent); err != nil {
		return nil, Intent{}, fmt.Errorf("recording the intent to launch %s, so no create request was sent: %w", intent.Name, err)
	}
	taskID, err := l.api.CreateServer(ctx, create)
	if err != nil && rejected(err) {
		intent.Rejected = true
		count(outcomeRejected, intent)
		// When this cannot be recorded, a later reader takes the outcome for unknown, which is safe.
		recordOutcome(ctx, request, intent)
		if l.names.rejected(request.Flavor, create.FlavorName, err) {
			err = fmt.Errorf("%w (as %s): %w", ErrFlavorNameRejected, create.FlavorName, err)
		}
		return nil, intent, fmt.Errorf("creating server %s (%s in %s): %w", intent.Name, intent.Flavor, intent.Zone, err)
	}
	// The wait for admission, which can be long, does not count: the visibility window begins with the answer.
	intent.TaskID, intent.RequestedAt = taskID, l.clock.Now()
	if err != nil {
		// A server may be on its way; only looking for it shows whether it is.
		log.FromContext(ctx).Error(err, "no readable answer to a create request, looking for its server", "server", intent.Name)
	} else {
		l.names.accepted(request.Flavor)
		// Without the task id the server is still found by its name.
		recordOutcome(ctx, request, intent)
	}
	server, err := l.await(ctx, &waiter{nodeClaimUID: request.NodeClaimUID, intent: intent})
	return server, intent, err
}

// Resume finds the server of an earlier create request and waits for it like Launch.
func (l *launcher) Resume(ctx context.Context, nodeClaimUID string, intent Intent) (*Instance, error) {
	switch {
	case l.uid == "":
		return nil, errNoClusterUID
	case intent.Rejected:
		return nil, fmt.Errorf("%w: %s", ErrRejected, intent.Name)
	case nodeClaimUID == "" || intent.Name == "":
		return nil, errors.New("a server cannot be found without the NodeClaim's UID and the server's name")
	}
	return l.await(ctx, &waiter{nodeClaimUID: nodeClaimUID, intent: intent, allowUnknown: true})
}

// FailureReason returns why the server of a create request failed.
func (l *launcher) FailureReason(ctx context.Context, intent Intent) error {
	reason := "the cloud does not say why"
	if intent.TaskID != "" {
		task, err := l.api.GetTask(ctx, intent.TaskID)
		if err == nil {
			err = task.Failure()
			if err != nil {
				return err
			}
		}
		if err != nil {
			// Why the task cannot be read is not why the server failed: its class is dropped.
			reason = fmt.Sprintf("its task cannot be read: %s", err)
		}
	}
	return unexplained(intent, reason)
}

// unexplained is the failure of a server for which the cloud gives no reason. It has no class, so it marks nothing.
func unexplained(intent Intent, reason string) error {
	return &bizfly.APIError{Operation: "CreateServer", Class: bizfly.ClassUnknown,
		Message: fmt.Sprintf("server %s failed: %s", intent.Name, reason)}
}

// await waits for the server of a create request and acts on what the poller finds.
func (l *launcher) await(ctx context.Context, w *waiter) (*Instance, error) {
	found, err := l.poller.wait(ctx, w)
	if err != nil {
		// Core may end the NodeClaim before the next call, and the request may fail only then.
		l.deleter.tracker.expect(w.intent.Name, l.clock.Now().Add(ttl.AbandonedLaunch))
		return nil, err
	}
	switch {
	case found.cause != nil:
		count(outcomeFailed, w.intent)
		l.cleanUp(ctx, w.intent, found.server)
		return nil, &FailedError{Intent: w.intent, Err: found.cause}
	case found.server == nil:
		count(outcomeUnknown, w.intent)
		// A server that comes late is found by its metadata; a disk that comes alone only by the name that is kept here.
		l.deleter.tracker.expect(w.intent.Name, time.Time{})
		return nil, fmt.Errorf("%w: %s, requested at %s", ErrOutcomeUnknown, w.intent.Name, w.intent.RequestedAt.Format(time.RFC3339))
	}
	l.deleter.tracker.arrived(w.intent.Name)
	count(outcomeLaunched, w.intent)
	launchSeconds.Observe(l.clock.Since(w.intent.RequestedAt).Seconds(),
		map[string]string{labelFlavor: w.intent.Flavor, labelZone: w.intent.Zone})
	return found.server, nil
}

// cleanUp begins to delete what a failed create request left behind. It never keeps the caller from trying the next
// offering: what does not succeed now is continued by ReconcileDeletions, and a server in ERROR is found by its metadata.
func (l *launcher) cleanUp(ctx context.Context, intent Intent, server *Instance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl.LaunchCleanup)
	defer cancel()
	var err error
	if server != nil {
		err = l.deleter.Delete(ctx, DeleteRequest{ID: server.ID, Name: intent.Name, Reason: ReasonLaunchFailed,
			Description: Description{Flavor: intent.Flavor, Zone: intent.Zone}})
	} else {
		l.deleter.tracker.expect(intent.Name, time.Time{})
		err = l.deleter.deleteLeftovers(ctx, intent.Name)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		log.FromContext(ctx).Error(err, "cleaning up after a failed launch, it is tried again", "server", intent.Name)
	}
}

// rejected reports whether the cloud is known to have built nothing. Whatever the adapter does not vouch for is ambiguous.
func rejected(err error) bool {
	var apiError *bizfly.APIError
	return bizfly.IsNotSent(err) || (errors.As(err, &apiError) && !apiError.Ambiguous)
}

// recordOutcome records the answer to a create request, also when the caller's own time is up.
func recordOutcome(ctx context.Context, request *LaunchRequest, intent Intent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl.LaunchCleanup)
	defer cancel()
	if err := request.Record(ctx, intent); err != nil {
		log.FromContext(ctx).Error(err, "recording the outcome of a create request", "server", intent.Name)
	}
}

func count(outcome string, intent Intent) {
	launchesTotal.Inc(map[string]string{labelOutcome: outcome, labelFlavor: intent.Flavor, labelZone: intent.Zone})
}
