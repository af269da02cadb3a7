// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows the whole life of a node on a real control plane: pods that fit nowhere, the BizFly Cloud servers
// that are launched for them, and their end when the pods are gone. It checks the ground truth of the sandbox and fails
// when anything is left. With --keep it brings the same up without workloads and leaves it running for kubectl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// errInterrupted is the cause of a context that a signal has ended.
var errInterrupted = errors.New("interrupted")

type flags struct {
	keep         bool
	dir, scrapes string
}

func main() {
	var f flags
	flag.BoolVar(&f.keep, "keep", false, "leave everything running for kubectl until it is interrupted")
	flag.StringVar(&f.dir, "dir", ".sandbox", "where --keep puts kubeconfig, env and logs")
	flag.StringVar(&f.scrapes, "scrapes", "", "where to keep the controller's metrics of every few seconds; empty keeps nothing")
	flag.Parse()
	log.SetLogger(klog.Logger{}) // or controller-runtime complains

	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	// Not released before the end: a second Ctrl-C must not cut the clean-up short, which has deadlines of its own.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		fmt.Println("\ninterrupted: stopping everything")
		cancel(errInterrupted)
	}()
	os.Exit(f.run(ctx))
}

// run returns the exit status.
func (f flags) run(ctx context.Context) int {
	run := f.demo
	if f.keep {
		run = f.keepRunning
	}
	err := run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		return 130
	case f.keep:
		fmt.Println("FAILED:", err)
	}
	return 1
}

// options are those of a cloud that is slow enough to be watched.
func options(progress func(string)) environment.Options {
	return environment.Options{Latency: 2 * time.Second, Boot: 3 * time.Second, Seed: 1, Progress: progress}
}
