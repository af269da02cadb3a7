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

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// rebootVisibleAfter is how long a reboot whose answer was lost may take to show on the server before it is requested
// again. It is well below the five minutes in which core retries.
const rebootVisibleAfter = time.Minute

// ErrRebootRejected says that BizFly Cloud rejects the reboot of a server for a reason that no retry changes.
var ErrRebootRejected = errors.New("BizFly Cloud rejects the reboot")

// reboot is a reboot that was requested.
type reboot struct {
	at time.Time
	// updated is when the server had last changed before, in the cloud's own words: a reboot changes it.
	updated  string
	accepted bool
}

// notRunning are the states in which a server runs nothing until someone acts. States that end by themselves, like
// HARD_REBOOT or MIGRATING, are not among them.
var notRunning = map[string]string{
	StatusShutoff: v1alpha1.ReasonServerStopped,
	"SUSPENDED":   v1alpha1.ReasonServerSuspended, "PAUSED": v1alpha1.ReasonServerSuspended,
	"SHELVED": v1alpha1.ReasonServerSuspended, "SHELVED_OFFLOADED": v1alpha1.ReasonServerSuspended,
	StatusError:   v1alpha1.ReasonServerFailed,
	StatusDeleted: v1alpha1.ReasonServerMissing, StatusSoftDeleted: v1alpha1.ReasonServerMissing,
}

// NotRunning returns why the server runs nothing, as a reason of the condition ServerRunning; empty where it runs, or is
// on its way to another state.
func (i *Instance) NotRunning() string { return notRunning[i.Status] }

// Start starts a server of this cluster that was stopped.
func (p *DefaultProvider) Start(ctx context.Context, id string) error {
	server, err := p.Get(ctx, id)
	if err != nil {
		return err
	}
	if server.Status != StatusShutoff {
		return nil
	}
	err = p.api.StartServer(ctx, id)
	switch {
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("starting server %s (%s): %w", server.Name, id, err)
	}
	startsTotal.Inc(nil)
	return nil
}

// Reboot resets a server of this cluster, once per operation. What was requested is remembered in memory: a controller
// that restarts between the cloud's answer and core's record of it finds a server in HARD_REBOOT, or a boot id that has
// changed, and only in the seconds between these two is a server that has just been reset reset once more.
func (p *DefaultProvider) Reboot(ctx context.Context, id, operationID string) error {
	server, err := p.Get(ctx, id)
	if err != nil {
		return err
	}
	if server.Deleting() {
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	now := p.config.Clock.Now()
	requested, repeated := p.requestedReboot(operationID)
	switch {
	case server.Status == StatusReboot || server.Status == StatusHardReboot:
		return nil
	case repeated && (requested.accepted || requested.updated != server.UpdatedAt):
		return nil
	case repeated && now.Sub(requested.at) < rebootVisibleAfter:
		return fmt.Errorf("rebooting server %s (%s): BizFly Cloud did not answer and does not show a reboot yet", server.Name, id)
	}
	p.reboots.DeleteExpired()
	p.reboots.SetDefault(operationID, reboot{at: now, updated: server.UpdatedAt})
	err = p.api.RebootServer(ctx, id)
	p.recordReboot(operationID, err)
	switch {
	case err == nil:
		return nil
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsPermission(err), bizfly.IsInvalid(err), bizfly.IsConflict(err) && server.NotRunning() != "":
		return fmt.Errorf("%w of server %s (%s, %s): %w", ErrRebootRejected, server.Name, id, server.Status, err)
	}
	return fmt.Errorf("rebooting server %s (%s, %s): %w", server.Name, id, server.Status, err)
}

// recordReboot remembers and counts what became of a request. One without an answer stays as it was requested.
func (p *DefaultProvider) recordReboot(operationID string, err error) {
	outcome := outcomeAccepted
	switch {
	case err == nil:
		p.reboots.SetDefault(operationID, reboot{accepted: true})
	case bizfly.IsAmbiguous(err):
		outcome = outcomeUnknown
	default:
		outcome = outcomeError
		p.reboots.Delete(operationID)
	}
	rebootsTotal.Inc(map[string]string{labelOutcome: outcome})
}

func (p *DefaultProvider) requestedReboot(operationID string) (reboot, bool) {
	value, ok := p.reboots.Get(operationID)
	if !ok {
		return reboot{}, false
	}
	return value.(reboot), true
}
