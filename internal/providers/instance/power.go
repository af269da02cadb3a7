// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// liveServer reads a server of this cluster that is not being deleted.
func (p *DefaultProvider) liveServer(ctx context.Context, id string) (*Instance, error) {
	server, err := p.getServer(ctx, id)
	if err == nil && (server.Deleting() || !p.ours(server)) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, err
}

// ErrRebootRejected means that BizFly Cloud rejects the reboot of a server for a reason that no retry changes.
var ErrRebootRejected = errors.New("BizFly Cloud rejects the reboot")

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

// Reboot resets a server of this cluster, once per operation: core repeats the call where it could not record the answer. One whose answer
// was lost is not repeated while the server shows it. After a restart of the controller, a server is reset once more only in the seconds
// between its reset and core's record of it.
func (p *DefaultProvider) Reboot(ctx context.Context, id, operationID string) error {
	server, err := p.liveServer(ctx, id)
	if err != nil {
		return err
	}
	if _, accepted := p.reboots.Get(operationID); accepted || server.Status == StatusReboot || server.Status == StatusHardReboot {
		return nil
	}
	err = p.api.RebootServer(ctx, id)
	switch {
	case err == nil:
		p.reboots.DeleteExpired()
		p.reboots.SetDefault(operationID, nil)
		return nil
	case bizfly.IsNotFound(err):
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	case bizfly.IsPermission(err), bizfly.IsInvalid(err), bizfly.IsConflict(err) && server.NotRunning() != "":
		return fmt.Errorf("%w of server %s (%s, %s): %w", ErrRebootRejected, server.Name, id, server.Status, err)
	}
	return fmt.Errorf("rebooting server %s (%s, %s): %w", server.Name, id, server.Status, err)
}
