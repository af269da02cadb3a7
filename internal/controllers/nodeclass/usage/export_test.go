// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

// Retries is the controller's rate limiter.
var Retries = retries
