// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"context"
	"errors"
	"time"

	"github.com/awslabs/operatorpkg/status"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// Reasons of the condition ControlPlaneRecognized.
const (
	// ReasonControlPlaneChanged says that none of the API servers that are recorded runs any more.
	ReasonControlPlaneChanged = "ControlPlaneChanged"
	// ReasonControlPlaneUnknown says that the addresses of the API servers could not be read.
	ReasonControlPlaneUnknown = "ControlPlaneUnknown"
)

// checkControlPlane records the API servers with the scope, and reports whether they are still those. They may be
// replaced one by one: one that has run beside a recorded one for a while is recorded too.
func (c *Controller) checkControlPlane(ctx context.Context, object *v1alpha1.ProviderConfig,
	conditions status.ConditionSet) {
	found, err := c.config.APIServers(ctx)
	recorded := object.RecordedAPIServers()
	if err == nil && len(recorded) > 0 {
		err = config.CompareAPIServers(recorded, found)
	}
	joining := errors.Is(err, config.ErrAPIServersChanging)
	switch {
	case !joining:
		c.joiningSince = time.Time{}
	case c.joiningSince.IsZero():
		c.joiningSince = c.clock.Now()
	}
	changed, isChanged := errors.AsType[*config.ControlPlaneChangedError](err)
	switch {
	case isChanged:
		conditions.SetFalse(v1alpha1.ConditionTypeControlPlaneRecognized, ReasonControlPlaneChanged, changed.Error())
	case err != nil && len(recorded) == 0:
		// Some API servers publish no address: nothing is wrong there, and garbage collection goes on.
		conditions.SetTrueWithReason(v1alpha1.ConditionTypeControlPlaneRecognized, ReasonControlPlaneUnknown,
			err.Error()+": a clone of this cluster would not be noticed")
	case err != nil && !joining:
		conditions.SetUnknownWithReason(v1alpha1.ConditionTypeControlPlaneRecognized, ReasonControlPlaneUnknown,
			err.Error()+": garbage collection only reports until the addresses are read")
	case joining && c.clock.Since(c.joiningSince) < ttl.APIServerJoined, object.RecordedScope() == nil:
	default:
		if joining || len(recorded) == 0 {
			object.RecordAPIServers(found)
			c.joiningSince = time.Time{}
		}
		conditions.SetTrue(v1alpha1.ConditionTypeControlPlaneRecognized)
	}
}
