//go:build !linux

// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
)

var errLinux = errors.New("servers are real machines on Linux only: their machines are namespaces of its kernel")

// Machines are real on Linux only.
type Machines struct{}

// New returns why there are no machines here.
func New(Options) (*Machines, error) { return nil, errLinux }

// PowerOn is never called.
func (*Machines) PowerOn(context.Context, Spec) error { return errLinux }

// PowerOff is never called.
func (*Machines) PowerOff(string) error { return errLinux }

// Delete is never called.
func (*Machines) Delete(string) error { return errLinux }

// Close is never called.
func (*Machines) Close() error { return nil }

// Inside is never called.
func Inside() error { return errLinux }
