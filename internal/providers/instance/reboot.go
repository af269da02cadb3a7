// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// liveServer reads a server of this cluster that is not being deleted.
func (p *DefaultProvider) liveServer(ctx context.Context, id string) (*Instance, error) {
	server, err := p.getServer(ctx, id)
	if err == nil && (server.Deleting() || !p.cluster.ours(server)) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return server, err
}

// ErrRebootRejected means that BizFly Cloud rejects the reboot of a server for a reason that no retry changes.
var ErrRebootRejected = errors.New("BizFly Cloud rejects the reboot")

// notRunning are the states in which a server runs nothing until it is acted upon. States that end by themselves, like
// HARD_REBOOT or MIGRATING, are not among them.
var notRunning = sets.New(StatusShutoff, "SUSPENDED", "PAUSED", "SHELVED", "SHELVED_OFFLOADED", StatusError)

// Reboot resets a server of this cluster, or starts it where it is stopped, once per operation: core repeats the call
// where it could not record the answer. One whose answer was lost is not repeated while the server shows it. After a
// restart of the controller, a server is reset once more only in the seconds between its reset and core's record of it.
func (p *DefaultProvider) Reboot(ctx context.Context, id, operationID string) error {
	server, err := p.liveServer(ctx, id)
	if err != nil {
		return err
	}
	if _, accepted := p.reboots.Get(operationID); accepted || server.Status == StatusReboot ||
		server.Status == StatusHardReboot {
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
	case bizfly.IsPermission(err), bizfly.IsInvalid(err), bizfly.IsConflict(err) && notRunning.Has(server.Status):
		return fmt.Errorf("%w of server %s (%s, %s): %w", ErrRebootRejected, server.Name, id, server.Status, err)
	}
	return fmt.Errorf("rebooting server %s (%s, %s): %w", server.Name, id, server.Status, err)
}
