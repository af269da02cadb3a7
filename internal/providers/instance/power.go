// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// liveServer reads a server of this cluster that is not being deleted.
func (p *DefaultProvider) liveServer(ctx context.Context, id string) (*Instance, error) {
	server, err := p.ownServer(ctx, id)
	if err == nil && server.Deleting() {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, err
}

// ErrRebootRejected means that BizFly Cloud rejects the reboot of a server for a reason that no retry changes.
var ErrRebootRejected = errors.New("BizFly Cloud rejects the reboot")

// reboot is a reboot that was requested.
type reboot struct {
	at time.Time
	// updated is when the server had last changed before, in the cloud's own words: a reboot changes it.
	updated  string
	accepted bool
}

// notRunning are the states in which a server runs nothing until it is acted upon. States that end by themselves, like
// HARD_REBOOT or MIGRATING, are not among them.
var notRunning = map[string]string{
	StatusShutoff: v1alpha1.ReasonServerStopped,
	"SUSPENDED":   v1alpha1.ReasonServerSuspended, "PAUSED": v1alpha1.ReasonServerSuspended,
	"SHELVED": v1alpha1.ReasonServerSuspended, "SHELVED_OFFLOADED": v1alpha1.ReasonServerSuspended,
	StatusError:   v1alpha1.ReasonServerFailed,
	StatusDeleted: v1alpha1.ReasonServerMissing, StatusSoftDeleted: v1alpha1.ReasonServerMissing,
}

// NotRunning returns why the server runs nothing, as a reason of the condition ServerRunning; empty where it runs, or is
// changing to another state.
func (i *Instance) NotRunning() string { return notRunning[i.Status] }

// Reboot resets a server of this cluster, once per operation. What was requested is remembered in memory: a controller
// that restarts between the cloud's answer and core's record of it finds a server in HARD_REBOOT, or a boot id that has
// changed, and only in the seconds between these two is a server that has just been reset reset once more.
func (p *DefaultProvider) Reboot(ctx context.Context, id, operationID string) error {
	server, err := p.liveServer(ctx, id)
	if err != nil {
		return err
	}
	now := p.clock.Now()
	value, repeated := p.reboots.Get(operationID)
	requested, _ := value.(reboot)
	switch {
	case server.Status == StatusReboot || server.Status == StatusHardReboot:
		return nil
	case repeated && (requested.accepted || requested.updated != server.UpdatedAt):
		return nil
	case repeated && now.Sub(requested.at) < ttl.RebootVisible:
		return fmt.Errorf("rebooting server %s (%s): BizFly Cloud did not answer and does not show a reboot yet", server.Name, id)
	}
	p.reboots.DeleteExpired()
	p.reboots.SetDefault(operationID, reboot{at: now, updated: server.UpdatedAt})
	err = p.api.RebootServer(ctx, id)
	rebootsTotal.Inc(map[string]string{labelOutcome: p.recordReboot(operationID, err)})
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

// recordReboot remembers the outcome of a request and returns its name. One without an answer stays as it was requested.
func (p *DefaultProvider) recordReboot(operationID string, err error) string {
	switch {
	case err == nil:
		p.reboots.SetDefault(operationID, reboot{accepted: true})
		return outcomeAccepted
	case bizfly.IsAmbiguous(err):
		return outcomeUnknown
	}
	p.reboots.Delete(operationID)
	return outcomeError
}
