// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startLimit is what a busy machine may need to start an API server.
const startLimit = 5 * time.Minute

// apiServer is the API server that one worker runs its mutants with, one after the other, since its start takes longer than most of them.
// Every spec of a suite leaves it as it was.
type apiServer struct {
	running *envtest.Environment
	folder  string
}

// variables start the API server unless it runs, and return what makes envtest use it; fresh reports whether it has just been started.
func (s *apiServer) variables() (variables []string, fresh bool, err error) {
	if s.running == nil {
		if s.folder, err = os.MkdirTemp("", "mutants"); err != nil {
			return nil, true, fmt.Errorf("starting an API server: %w", err)
		}
		s.running, fresh = &envtest.Environment{ControlPlaneStartTimeout: startLimit, ControlPlaneStopTimeout: startLimit}, true
		if _, err := s.running.Start(); err != nil {
			return nil, true, fmt.Errorf("starting an API server: %w", err)
		}
		if err := os.WriteFile(s.kubeconfig(), s.running.KubeConfig, 0o600); err != nil {
			return nil, true, fmt.Errorf("starting an API server: %w", err)
		}
	}
	return []string{"USE_EXISTING_CLUSTER=true", "KUBECONFIG=" + s.kubeconfig()}, fresh, nil
}

func (s *apiServer) kubeconfig() string { return filepath.Join(s.folder, "kubeconfig") }

// stop stops the API server.
func (s *apiServer) stop() {
	if s.running != nil {
		_ = s.running.Stop() // the next one has ports of its own
		_ = os.RemoveAll(s.folder)
		s.running = nil
	}
}

var (
	ended    = regexp.MustCompile(`Ran \d+ of \d+ Specs`)
	betweens = regexp.MustCompile(`\[(Before|After|Deferred|DeferCleanup|TIMEDOUT|INTERRUPTED)`)
)

// leftClean reports whether a run that failed has left its API server as it was: it came to its end, and failed in no cleanup.
func leftClean(output string) bool { return ended.MatchString(output) && !betweens.MatchString(output) }
