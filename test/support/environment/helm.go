// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Script runs the commands of a document with kubectl and Helm against the environment's API server, in the repository's folder,
// and returns what they printed. The first that fails ends it.
func (e *Environment) Script(ctx context.Context, commands string, variables ...string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", commands) //nolint:gosec // documents of ours
	command.Dir = e.root
	command.Env = append(e.helmEnv(), "PATH="+filepath.Dir(e.helm())+":"+e.AssetDir()+":"+os.Getenv("PATH"))
	command.Env = append(command.Env, variables...)
	output, err := command.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%w\n%s", err, output)
	}
	return string(output), nil
}

// Block returns the commands of a document below the line <!-- e2e: name -->.
func Block(document, name string) (string, error) {
	_, block, found := strings.Cut(document, "<!-- e2e: "+name+" -->\n```sh\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		return "", fmt.Errorf("no commands below <!-- e2e: %s -->", name)
	}
	return block, nil
}

// Helm runs Helm against the environment's API server and returns what it printed. HELM names the binary; without it, it
// is the one that `make .cache/tools/helm` builds.
func (e *Environment) Helm(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, e.helm(), args...) //nolint:gosec // a binary of ours
	command.Dir = e.root
	command.Env = e.helmEnv()
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("helm %v: %w\n%s", args, err, output.String())
	}
	return output.String(), nil
}

func (e *Environment) helm() string {
	if path := os.Getenv("HELM"); path != "" {
		return path
	}
	return filepath.Join(e.root, ".cache", "tools", "helm")
}

// helmEnv has nothing of the user's own Helm, nor anything left of the last run.
func (e *Environment) helmEnv() []string {
	return append(baseEnv(), "KUBECONFIG="+e.kubeconfig, "HELM_CACHE_HOME="+filepath.Join(e.dir, "helm", "cache"),
		"HELM_CONFIG_HOME="+filepath.Join(e.dir, "helm", "config"), "HELM_DATA_HOME="+filepath.Join(e.dir, "helm", "data"))
}

// Root is the folder of the repository.
func (e *Environment) Root() string { return e.root }
