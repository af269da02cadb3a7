//go:build linux

// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import "syscall"

// processGroup gives a child its own process group, so that a Ctrl-C in the terminal reaches only us and we end the
// children in order; and lets the kernel end it should we be killed.
func processGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
