// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// module is the path of the Go module whose commands are built.
const module = "github.com/bizflycloud/karpenter-provider-bizflycloud"

// moduleRoot returns the nearest folder above the working directory that holds a go.work-less Go module: ours.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above: run this inside the repository")
		}
		dir = parent
	}
}

// asset returns the path of a binary of the control plane: the user's own (KUBEBUILDER_ASSETS, which need not hold all
// of them) before ours.
func (e *Environment) asset(name string) (string, error) {
	ours := filepath.Join(e.root, ".cache", "controlplane", "bin")
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), ours} {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%s is neither in KUBEBUILDER_ASSETS (%q) nor in %s: build it with `make controlplane`",
		name, os.Getenv("KUBEBUILDER_ASSETS"), ours)
}

// binary returns the path of one of our own commands: the one that the variable names, or else one built now.
func (e *Environment) binary(ctx context.Context, variable, pkg string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.root, path) // make runs at the root, go test in the package's folder
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("the binary that %s names: %w", variable, err)
		}
		return path, nil
	}
	path := filepath.Join(e.dir, "bin", filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, module+"/"+pkg) //nolint:gosec // our own packages
	build.Dir = e.root
	if output, err := build.CombinedOutput(); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return path, nil
}

// AssetDir is the folder of kubectl and, unless the user brought some of them, of the control plane's other binaries.
func (e *Environment) AssetDir() string {
	path, err := e.asset("kubectl")
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}

// stages is the file with KWOK's rules for Nodes and pods.
func (e *Environment) stages() string {
	if path := os.Getenv("KWOK_STAGES"); path != "" {
		return path
	}
	return filepath.Join(e.root, "test", "support", "controlplane", "kwok", "stages.yaml")
}
