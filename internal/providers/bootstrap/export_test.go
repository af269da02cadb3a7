// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// Functions are what a template can call.
var Functions = functions
