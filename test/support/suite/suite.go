// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suite starts every suite of this repository in the same way.
package suite

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Patience is how long a spec waits for something that must happen. It only bounds a spec that hangs: nothing that a spec waits
// for takes a minute on the slowest machine, so no result depends on the machine's speed.
const Patience = time.Minute

// seedVariable names a variable instead of a flag, because flags switch off the cache of go test.
const seedVariable = "GINKGO_SEED"

// Run runs the specs of a package in a random order. Its test function calls it. Ginkgo prints the seed, and
// GINKGO_SEED repeats it.
func Run(t *testing.T, name string, args ...any) {
	t.Helper()
	// The defaults of envtest are 20 seconds, within which a busy machine may not start an API server.
	for _, name := range []string{"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, (5 * Patience).String())
		}
	}
	// Suites make much garbage and need little memory: a tenth of the processor's time is saved.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	log.SetLogger(klog.Logger{})
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	config, reporter := GinkgoConfiguration()
	RunSpecs(t, name, append(args, configure(config), reporter)...)
}

// configure sets what would be a flag otherwise.
func configure(config types.SuiteConfig) types.SuiteConfig {
	config.RandomizeAllSpecs = true
	config.RandomSeed = Number(seedVariable, config.RandomSeed)
	if config.PollProgressAfter == 0 {
		config.PollProgressAfter = 2 * Patience
	}
	return config
}

// Reads tells go test that the result depends on the files of these folders, because it cannot see what subprocesses
// read, such as Helm. They must be in the module of the suite; ReadsRepository is for those outside.
func Reads(folders ...string) {
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}); err != nil {
			panic(err)
		}
	}
}

// RepositoryVariable changes with the files that the plugin's suites read outside of their module; hack/gotest sets it.
const RepositoryVariable = "REPOSITORY_FILES"

// ReadsRepository tells go test that the result depends on files of the repository outside of the suite's module.
func ReadsRepository() { os.Getenv(RepositoryVariable) }

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
