// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defect turns panics into one line that a user can report.
package defect

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Error is a panic.
type Error struct {
	Cause any
	// At is the file and line that panicked.
	At string
}

// Error says what to report, and where.
func (e *Error) Error() string {
	return fmt.Sprintf("this is a defect of the plugin: %s at %s. Report this line, the command and the output of kubectl bizfly version at "+
		"https://github.com/bizflycloud/karpenter-provider-bizflycloud/issues", strings.Join(strings.Fields(fmt.Sprint(e.Cause)), " "), e.At)
}

// Recover is deferred. It turns a panic into an error, as every goroutine of the plugin must.
func Recover(err *error) {
	if cause := recover(); cause != nil {
		*err = newError(cause)
	}
}

func newError(cause any) error {
	if known, ok := cause.(*Error); ok {
		return known
	}
	return &Error{Cause: cause, At: origin()}
}

// origin is the frame below the last call of panic.
func origin() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	at, panicked := "an unknown line", false
	for {
		frame, more := frames.Next()
		switch {
		case strings.HasPrefix(frame.Function, "runtime."):
			panicked = panicked || strings.Contains(frame.Function, "panic")
		case panicked:
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return at
		}
	}
}

// Exit makes panics of goroutines that Karpenter core starts end the process with the same line. Those that no handler sees print what
// the runtime does, without stacks.
func Exit(status int) {
	debug.SetTraceback("none")
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, cause any) {
		fmt.Fprintln(os.Stderr, "error:", newError(cause))
		os.Exit(status)
	}}
}
