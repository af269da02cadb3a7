// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"golang.org/x/term"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

// progress returns what shows on a terminal how far work is, in one line that is written over, and what clears the line.
func progress(printer *output.Printer) (show func(format string, args ...any), end func()) {
	file := output.File(printer.Err)
	if file == nil || !term.IsTerminal(int(file.Fd())) {
		return func(string, ...any) {}, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(format string, args ...any) { output.Fprintf(file, clearLine+format, args...) }, func() { _, _ = fmt.Fprint(file, clearLine) }
}
