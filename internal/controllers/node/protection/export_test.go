// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

// Changed decides after which updates of the ProviderConfig the nodes are reconciled.
var Changed = changed
