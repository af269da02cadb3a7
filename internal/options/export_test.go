// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package options

// Pointer returns a pointer to the value, which no two settings share.
func (s *Setting) Pointer(o *Options) any { return s.field(o) }
