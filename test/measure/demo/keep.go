// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// keepRunning brings everything up, prints how to use it and what happens until it is interrupted.
func (f flags) keepRunning(ctx context.Context) (err error) {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return fmt.Errorf("finding the folder: %w", err)
	}
	if err := claim(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := newTimeline(os.Stdout)
	started := options(func(what string) { t.print("cluster", "%s", what) })
	started.Dir = dir
	env, err := environment.Start(ctx, started)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	if err := writeEnv(filepath.Join(dir, "env"), env); err != nil {
		return err
	}
	t.env = env
	if err := applyPool(ctx, env.Client()); err != nil {
		return err
	}
	if err := t.await(ctx, "the NodeClass is ready", t.nodeClassReady); err != nil {
		t.diagnose(env)
		return err
	}
	fmt.Printf(usage, filepath.Join(f.dir, "env"), filepath.Join(f.dir, "logs"))
	return t.await(ctx, "it is interrupted", func(snapshot) bool { return false })
}

const usage = `
A cluster with Karpenter and a BizFly Cloud of its own is up. In another terminal:

  source %[1]s
  kubectl get nodepools,bizflynodeclasses
  kubectl create deployment web --image=nginx --replicas=3
  kubectl set resources deployment web --requests=cpu=1,memory=2Gi
  kubectl get pods,nodeclaims,nodes -o wide --watch
  curl -s $SANDBOX_URL/_sandbox/state                     # what the cloud really holds
  curl -s "$SANDBOX_URL/_sandbox/requests?summary=1"      # what it was asked
  kubectl scale deployment web --replicas=0               # and the servers go again

Logs are in %[2]s. Ctrl-C stops and removes everything. Events:

`

// claim makes the folder ours: a second sandbox in it would pull the first one's files away.
func claim(dir string) error {
	file := filepath.Join(dir, "pid")
	if content, err := os.ReadFile(file); err == nil { //nolint:gosec // a file of ours
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("a sandbox already runs in %s (pid %d): stop it, or choose another folder with --dir", dir, pid)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing what an earlier sandbox left: %w", err)
		}
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty and no sandbox made it: remove it, or choose another folder with --dir", dir)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	return os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
}

// writeEnv writes a file to source: kubectl, its kubeconfig and what a controller of one's own needs.
func writeEnv(path string, env *environment.Environment) error {
	values := env.Sandbox().Env()
	values["KUBECONFIG"] = env.Kubeconfig()
	values["SANDBOX_URL"] = env.Sandbox().URL()
	values["BIZFLY_CLOUD_ALLOW_HTTP"] = "true"
	var content strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&content, "export %s='%s'\n", name, values[name])
	}
	fmt.Fprintf(&content, "export PATH='%s':\"$PATH\"\n", env.AssetDir())
	if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
