// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
)

// cloneCheck is the last answer to whether this cluster may be a clone.
type cloneCheck struct{ last atomic.Pointer[cloneAnswer] }

type cloneAnswer struct {
	at  time.Time
	err error
}

// checkClone keeps a clone of a cluster from touching its servers until a user confirms that the original is gone. In a
// clone kubelets are silent, so that nodes seem empty or broken. Where the API servers cannot be compared, nothing is
// known, and all goes on. Core calls again after an error.
func (c *CloudProvider) checkClone(ctx context.Context, claim *karpv1.NodeClaim) error {
	if c.config.Recognized == nil {
		return nil
	}
	now, last := c.config.Clock.Now(), c.clone.last.Load()
	if last == nil || now.Sub(last.at) >= ttl.ProviderConfigInterval {
		last = &cloneAnswer{at: now, err: c.config.Recognized(ctx)}
		c.clone.last.Store(last)
	}
	if _, changed := errors.AsType[*config.ControlPlaneChangedError](last.err); !changed {
		return nil
	}
	c.config.Recorder.Publish(events.ControlPlaneUnconfirmed(claim, last.err))
	return fmt.Errorf("waiting until the control plane is confirmed: %w", last.err)
}
