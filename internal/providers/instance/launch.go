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

	"github.com/bizflycloud/gobizfly"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// afterwordTimeout bounds what must still be done when the caller's own time is up: writing down what is known of an
// order and beginning to clean up after it.
const afterwordTimeout = 15 * time.Second

// abandonedAfter is how long after the last wait for an order nobody is taken to wait for it any more.
const abandonedAfter = 10 * time.Minute

// ReasonLaunchFailed is why a server is deleted that the cloud could not build.
const ReasonLaunchFailed = "LaunchFailed"

// Launch sends one create request and waits, bounded, for the id of its server.
func (p *DefaultProvider) Launch(ctx context.Context, request *LaunchRequest) (*Instance, Intent, error) {
	if p.config.ClusterUID == "" {
		return nil, Intent{}, errNoClusterUID
	}
	order, intent, err := p.order(ctx, request)
	if err != nil {
		return nil, Intent{}, err
	}
	if err := request.Record(ctx, intent); err != nil {
		return nil, Intent{}, fmt.Errorf("recording the intent to launch %s, so nothing was ordered: %w", intent.Name, err)
	}
	taskID, err := p.api.CreateServer(ctx, order)
	if err != nil && refused(err) {
		intent.Refused = true
		count(outcomeRefused, intent)
		// When this cannot be written, whoever reads the intent later takes the outcome for unknown, which is safe.
		recordAfter(ctx, request, intent)
		if p.names.rejected(request.Flavor, order.FlavorName, err) {
			err = fmt.Errorf("%w (as %s): %w", ErrFlavorNameRejected, order.FlavorName, err)
		}
		return nil, intent, fmt.Errorf("creating server %s (%s in %s): %w", intent.Name, intent.Flavor, intent.Zone, err)
	}
	// The wait for admission, which can be long, does not count: the visibility window begins with the answer.
	intent.TaskID, intent.OrderedAt = taskID, p.config.Clock.Now()
	if err != nil {
		// A server may be on its way; only looking for it can tell.
		log.FromContext(ctx).Error(err, "no readable answer to a create request, looking for its server", "server", intent.Name)
	} else {
		p.names.accepted(request.Flavor)
		// Without the task id the server is still found by its name.
		recordAfter(ctx, request, intent)
	}
	server, err := p.await(ctx, &waiter{nodeClaimUID: request.NodeClaimUID, intent: intent})
	return server, intent, err
}

// Resume finds the server of an earlier order and waits for it like Launch.
func (p *DefaultProvider) Resume(ctx context.Context, nodeClaimUID string, intent Intent) (*Instance, error) {
	switch {
	case p.config.ClusterUID == "":
		return nil, errNoClusterUID
	case intent.Refused:
		return nil, fmt.Errorf("%w: %s", ErrRefused, intent.Name)
	case nodeClaimUID == "" || intent.Name == "":
		return nil, errors.New("an order cannot be found without the claim's UID and the server's name")
	}
	return p.await(ctx, &waiter{nodeClaimUID: nodeClaimUID, intent: intent, mayGiveUp: true})
}

// Fault returns why the server of an order went wrong.
func (p *DefaultProvider) Fault(ctx context.Context, intent Intent) error {
	reason := "the cloud does not say why"
	if intent.TaskID != "" {
		task, err := p.api.GetTask(ctx, intent.TaskID)
		if err == nil {
			err = task.Failure()
			if err != nil {
				return err
			}
		}
		if err != nil {
			// What keeps us from reading the task is not what went wrong with the server: its class is dropped.
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

// await waits for the server of an order and settles what the poller finds.
func (p *DefaultProvider) await(ctx context.Context, w *waiter) (*Instance, error) {
	found, err := p.poller.wait(ctx, w)
	if err != nil {
		// Core may end the claim before anybody asks again, and the order may fail only then.
		p.deletions.expect(w.intent.Name, p.config.Clock.Now().Add(abandonedAfter))
		return nil, err
	}
	switch {
	case found.cause != nil:
		count(outcomeFailed, w.intent)
		p.cleanUp(ctx, w.intent, found.server)
		return nil, &FailedError{Intent: w.intent, Err: found.cause}
	case found.server == nil:
		count(outcomeUnknown, w.intent)
		// A server that comes late is found by its metadata; a disk that comes alone only by the name that we keep here.
		p.deletions.expect(w.intent.Name, time.Time{})
		return nil, fmt.Errorf("%w: %s, ordered at %s", ErrOutcomeUnknown, w.intent.Name, w.intent.OrderedAt.Format(time.RFC3339))
	}
	p.deletions.arrived(w.intent.Name)
	count(outcomeLaunched, w.intent)
	launchSeconds.Observe(p.config.Clock.Since(w.intent.OrderedAt).Seconds(),
		map[string]string{labelFlavor: w.intent.Flavor, labelZone: w.intent.Zone})
	return convert(found.server), nil
}

// cleanUp begins to delete what a failed order left behind. It never keeps the caller from failing over: what does not
// succeed now is carried on by Reap, and a server in ERROR is found by its metadata for ever.
func (p *DefaultProvider) cleanUp(ctx context.Context, intent Intent, server *gobizfly.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwordTimeout)
	defer cancel()
	var err error
	if server != nil {
		err = p.Delete(ctx, DeleteRequest{ID: server.ID, Name: intent.Name, Reason: ReasonLaunchFailed,
			Description: Description{Flavor: intent.Flavor, Zone: intent.Zone}})
	} else {
		p.deletions.expect(intent.Name, time.Time{})
		err = p.sweep(ctx, intent.Name, p.newView(), false)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		log.FromContext(ctx).Error(err, "cleaning up after a failed launch, it is tried again", "server", intent.Name)
	}
}

// refused says that the cloud is known to have built nothing. Whatever the adapter does not vouch for is ambiguous.
func refused(err error) bool {
	var apiError *bizfly.APIError
	return bizfly.IsNotSent(err) || (errors.As(err, &apiError) && !apiError.Ambiguous)
}

// recordAfter writes down what became of an order, also when the caller's own time is up.
func recordAfter(ctx context.Context, request *LaunchRequest, intent Intent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwordTimeout)
	defer cancel()
	if err := request.Record(ctx, intent); err != nil {
		log.FromContext(ctx).Error(err, "recording what became of the order of a server", "server", intent.Name)
	}
}

func count(outcome string, intent Intent) {
	launchesTotal.Inc(map[string]string{labelOutcome: outcome, labelFlavor: intent.Flavor, labelZone: intent.Zone})
}
