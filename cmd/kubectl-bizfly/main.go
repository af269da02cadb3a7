// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-bizfly is a kubectl plugin that answers what Karpenter on BizFly Cloud would cost, what is wrong with it and
// why a pod is pending. Only pool pin --yes changes something, a worker pool of BKE, and repack --yes creates NodeClaims, Jobs and pods.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/defect"
)

func main() {
	// A command ends in seconds: memory is cheaper than the third of a plan's time that collecting it takes.
	debug.SetGCPercent(400)
	defect.Exit(cli.ExitFailure)
	os.Exit(cli.NewApp().Run(context.Background(), os.Args[1:]...))
}
