// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	// chartName is the name of the chart, of its folder below charts/, and of what it makes for a release named releaseName.
	chartName   = "karpenter-provider-bizflycloud"
	releaseName = "karpenter"
	namespace   = "karpenter"
	// defaultValues are the least that a user must give.
	defaultValues = "ci/default-values.yaml"
)

// workspace is the repository, with the tools that it has built.
type workspace struct {
	// root is the repository's folder; config is where the manifests for kubectl are, config/ but for tests.
	root, config string
}

func newWorkspace() (*workspace, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("looking for the repository: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "charts", chartName)); err == nil {
			return &workspace{root: dir, config: filepath.Join(dir, "config")}, nil
		}
	}
	return nil, errors.New("no charts/ here or above: run this inside the repository")
}

func (w *workspace) chart(elements ...string) string {
	return filepath.Join(append([]string{w.root, "charts", chartName}, elements...)...)
}

// tool returns the path of a tool: your own before ours.
func (w *workspace) tool(variable, own, built, target string) (string, error) {
	path := built
	if dir := os.Getenv(variable); dir != "" && own != "" {
		path = filepath.Join(dir, own)
	} else if dir != "" {
		path = dir
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.root, path)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s (%s=%q) is not there: build it with `make %s`", path, variable, os.Getenv(variable), target)
	}
	return path, nil
}

// helm runs Helm and returns its output; its error has what Helm said.
func (w *workspace) helm(ctx context.Context, args ...string) (string, error) {
	path, err := w.tool("HELM", "", filepath.Join(".cache", "tools", "helm"), "helm")
	if err != nil {
		return "", err
	}
	// No plugin, repository or setting of the machine's user.
	home := filepath.Join(w.root, ".cache", "helm")
	return w.run(ctx, path, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home, "HOME=" + home}, args...)
}

// kustomize returns what kubectl would apply of a folder.
func (w *workspace) kustomize(ctx context.Context, dir string) (string, error) {
	path, err := w.tool("KUBEBUILDER_ASSETS", "kubectl", filepath.Join(".cache", "controlplane", "bin", "kubectl"), "controlplane")
	if err != nil {
		return "", err
	}
	return w.run(ctx, path, nil, "kustomize", dir)
}

func (w *workspace) run(ctx context.Context, path string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // tools that we have built
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.root, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(path), strings.Join(args, " "), err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// render returns what the chart makes of the values of a file of its own and of more arguments.
func (w *workspace) render(ctx context.Context, values string, args ...string) (string, error) {
	return w.helm(ctx, append([]string{"template", releaseName, w.chart(), "--namespace", namespace, "--values", w.chart(values)}, args...)...)
}

// split returns the documents of a rendering, without Helm's notes of where they come from.
func split(text string) []string {
	var documents []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var lines []string
		for line := range strings.Lines(document) {
			if !strings.HasPrefix(line, "# Source: ") {
				lines = append(lines, line)
			}
		}
		if document = strings.Trim(strings.Join(lines, ""), "\n"); document != "" {
			documents = append(documents, document+"\n")
		}
	}
	return documents
}

// parse returns the objects of a rendering.
func parse(text string) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	for _, document := range split(text) {
		object := unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// id is how people name an object: what is not in the release's namespace has its own in front.
func id(object unstructured.Unstructured) string {
	name := object.GetKind() + "/" + object.GetName()
	if other := object.GetNamespace(); other != "" && other != namespace {
		name = other + "/" + name
	}
	return name
}
