// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suite starts every suite of this repository in the same way.
package suite

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Patience is how long a spec waits for something that must happen. It only bounds a spec that hangs: nothing that a spec waits
// for takes a minute on the slowest machine, so no result depends on the machine's speed.
const Patience = time.Minute

// Run runs the specs of a package. Its test function calls it.
func Run(t *testing.T, name string, args ...any) {
	t.Helper()
	// The defaults of envtest are 20 seconds, within which a busy machine may not start an API server.
	for _, name := range []string{"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, (5 * Patience).String())
		}
	}
	log.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	RunSpecs(t, name, args...)
}

// Number reads a number from the environment, such as the seed of a simulation.
func Number(name string, fallback int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%q is not a number", name, text))
	}
	return value
}
