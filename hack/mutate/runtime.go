// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// runtimeImports are the packages that runtimeSource imports.
var runtimeImports = []string{"cmp", "encoding/json", "os", "strconv", "sync/atomic", "time"}

// runtimeSource is what the mutants of a package call. MUTANT is the number of the active one, and MUTANTS_REACHED the file to which the
// baseline run writes which mutants each spec reaches.
const runtimeSource = `package %s

import (
	"cmp"
	"encoding/json"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var (
	mutantActive, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsFile     = os.Getenv("MUTANTS_REACHED")
	mutantsReached  [%d]atomic.Bool
)

func mutant(id int) bool {
	if mutantsFile != "" {
		mutantsReached[id].Store(true)
	}
	return id == mutantActive
}

func mutantNot(id int, value bool) bool { return mutant(id) != value }

func mutantAnd(id int, left bool, right func() bool) bool {
	if mutant(id) {
		return left || right()
	}
	return left && right()
}

func mutantOr(id int, left bool, right func() bool) bool {
	if mutant(id) {
		return left && right()
	}
	return left || right()
}

// mutantLess is the comparison that is true for equal values only where orEqual is.
func mutantLess[T cmp.Ordered](id int, orEqual bool, left, right T) bool {
	return left < right || left == right && mutant(id) != orEqual
}

func mutantNil(id int, err error) error {
	if mutant(id) {
		return nil
	}
	return err
}

func mutantZero[T any](id int, value T) (zero T) {
	if mutant(id) {
		return zero
	}
	return value
}

func mutantText(id int, text string) string {
	if mutant(id) {
		return "\x00"
	}
	return text
}

// MutantsReached writes what was reached since the last call.
func MutantsReached(spec string, took time.Duration) {
	if mutantsFile == "" {
		return
	}
	reached := []int{}
	for id := range mutantsReached {
		if mutantsReached[id].Swap(false) {
			reached = append(reached, id)
		}
	}
	line, _ := json.Marshal(map[string]any{"spec": spec, "seconds": took.Seconds(), "reached": reached})
	file, err := os.OpenFile(mutantsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
	_ = file.Close()
}
`

// specsSource reports to the package which spec runs. What is reached before the first spec concerns all of them.
const specsSource = `package %s_test

import (
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	mutated %q
)

var mutantsStarted bool

var _ = ginkgo.BeforeEach(func() {
	if !mutantsStarted {
		mutantsStarted = true
		mutated.MutantsReached("", 0)
	}
	gomega.SetDefaultEventuallyTimeout(10 * time.Second)
})

var _ = ginkgo.ReportAfterEach(func(report ginkgo.SpecReport) {
	// One that is skipped is reported too, perhaps before the first BeforeEach.
	if mutantsStarted && !report.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
		mutated.MutantsReached(report.FullText(), report.RunTime)
	}
})
`
