// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart generates from the Helm chart what must not differ from it, the manifests in config/ for kubectl, and compares what
// both install.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// timeout is for one command: a few renderings, each of which takes a second.
const timeout = 2 * time.Minute

// commands are what can be asked for.
var commands = map[string]func(context.Context, *workspace) error{
	"kustomize": writeKustomize,
	"schema":    writeSchema,
	"compare":   compare,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if len(args) == 1 {
		if command, ok := commands[args[0]]; ok {
			w, err := newWorkspace()
			if err != nil {
				return err
			}
			return command(ctx, w)
		}
	}
	return fmt.Errorf("usage: chart <command>, one of %s", strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
}
