// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause is the container that holds a pod's namespaces on the real nodes of the tests, and the workload of their pods: it
// waits until it is asked to end.
package main

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	grace := flag.Duration("grace", 0, "How long it takes to end once it was asked to.")
	flag.Parse()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	// As process 1 it inherits the orphans of the pod's shared process namespace; nobody else waits for them.
	signal.Ignore(syscall.SIGCHLD)
	<-ended
	time.Sleep(*grace)
}
