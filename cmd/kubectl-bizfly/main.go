// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-bizfly is a kubectl plugin that answers what Karpenter on BizFly Cloud would cost, what is wrong with it and
// why a pod is pending. Only pool pin --yes changes something, a worker pool of BKE, and repack --yes creates NodeClaims, Jobs and pods.
package main

import (
	"context"
	"os"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/defect"
)

func main() {
	defect.Exit(cli.ExitFailure)
	os.Exit(cli.NewApp().Run(context.Background(), os.Args[1:]...))
}
