// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	// chartName is the name of the chart, of its folder below charts/, and of what it makes for a release named releaseName.
	chartName   = "karpenter-provider-bizflycloud"
	releaseName = "karpenter"
	namespace   = "karpenter"
	// defaultValues are the least that a user must give; fullValues switch everything on.
	defaultValues = "ci/default-values.yaml"
	fullValues    = "ci/full-values.yaml"
)

// root is the repository, seen from this package.
var root = filepath.Join("..", "..", "..")

// chartFile is the path of a file of the chart; without elements, that of its folder.
func chartFile(elements ...string) string {
	return filepath.Join(append([]string{root, "charts", chartName}, elements...)...)
}

// tool returns the path of a tool: the one that the variable names before the one that make has built.
func tool(variable, own, built, target string) (string, error) {
	path := filepath.Join(root, built)
	if named := os.Getenv(variable); named != "" {
		if path = filepath.Join(named, own); !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s (%s=%q) is not there: build it with `make %s`", path, variable, os.Getenv(variable), target)
	}
	return filepath.Abs(path)
}

// helm runs Helm and returns its output; its error has what Helm said.
func helm(ctx context.Context, args ...string) (string, error) {
	path, err := tool("HELM", "", ".cache/tools/helm", ".cache/tools/helm")
	if err != nil {
		return "", err
	}
	// No plugin, repository or setting of the machine's user.
	home := filepath.Join(root, ".cache", "helm")
	return run(ctx, path, []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home, "HOME=" + home}, args...)
}

// kustomize returns what kubectl would apply of a folder.
func kustomize(ctx context.Context, dir ...string) (string, error) {
	path, err := tool("KUBEBUILDER_ASSETS", "kubectl", ".cache/controlplane/bin/kubectl", "controlplane")
	if err != nil {
		return "", err
	}
	return run(ctx, path, nil, "kustomize", filepath.Join(append([]string{root, "config"}, dir...)...))
}

func run(ctx context.Context, path string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(path), strings.Join(args, " "), err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// render returns what the chart makes of the values of a file of its own and of more arguments.
func render(ctx context.Context, values string, args ...string) (string, error) {
	return helm(ctx, append([]string{"template", releaseName, chartFile(), "--namespace", namespace, "--values", chartFile(values)}, args...)...)
}

// settings are the arguments that set values.
func settings(values ...string) []string {
	var args []string
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return args
}

// rendered are the objects of a rendering by kind and name.
func rendered(ctx context.Context, values string, args ...string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	text, err := render(ctx, values, args...)
	Expect(err).ToNot(HaveOccurred())
	return byID(text)
}

// split returns the documents of a rendering.
func split(text string) []string {
	var documents []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		if document = strings.Trim(document, "\n"); document != "" {
			documents = append(documents, document+"\n")
		}
	}
	return documents
}

// byID returns the objects of a rendering as people name them: what is not in the release's namespace has its own in front.
func byID(text string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	objects := map[string]unstructured.Unstructured{}
	for _, document := range split(text) {
		object := unstructured.Unstructured{}
		Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed(), document)
		if len(object.Object) == 0 {
			continue
		}
		id := object.GetKind() + "/" + object.GetName()
		if other := object.GetNamespace(); other != "" && other != namespace {
			id = other + "/" + id
		}
		Expect(objects).ToNot(HaveKey(id), "made twice")
		objects[id] = object
	}
	return objects
}

// as converts an object into its type; a field that the type does not have is an error.
func as[T any](object unstructured.Unstructured) T {
	GinkgoHelper()
	var typed T
	Expect(object.Object).ToNot(BeNil())
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true)).To(Succeed())
	return typed
}
