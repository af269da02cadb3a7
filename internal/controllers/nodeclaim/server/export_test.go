// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RateLimiter is what decides when a reconciliation is repeated that has failed.
func (c *Controller) RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] { return retries }
