// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes what must not differ from the chart: the manifests of config/ for kubectl, and the part of values.schema.json that
// checks the specs of NodePools and BizflyNodeClasses. It runs in the repository's folder (make generate).
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const name, chart = "karpenter-provider-bizflycloud", "charts/karpenter-provider-bizflycloud"

func main() {
	if err := cmp.Or(writeSchema(), writeConfig()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// folders are those of config/ that are written, by the kinds in them. All other kinds are in manager.
var folders = map[string]*regexp.Regexp{
	"rbac":      regexp.MustCompile(`Role|^ServiceAccount$`),
	"admission": regexp.MustCompile(`Admission`),
	"manager":   nil,
}

func folderOf(kind string) string {
	for folder, kinds := range folders {
		if kinds != nil && kinds.MatchString(kind) {
			return folder
		}
	}
	return "manager"
}

var (
	// helmOnly are the lines that mean something to Helm alone.
	helmOnly = regexp.MustCompile(`(?m)^# Source: .*\n|^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|` +
		`^ +annotations:\n +helm\.sh/resource-policy: keep\n`)
	separator = regexp.MustCompile(`(?m)^---\n`)
)

// writeConfig writes a file for each object that the chart installs with the least that a user must give.
func writeConfig() error {
	helm := exec.CommandContext(context.Background(), //nolint:gosec // a tool of ours
		cmp.Or(os.Getenv("HELM"), ".cache/tools/helm"), "template", "karpenter", chart, "--namespace", "karpenter",
		"--values", chart+"/ci/default-values.yaml", "--skip-tests")
	helm.Stderr = os.Stderr
	rendered, err := helm.Output()
	if err != nil {
		return fmt.Errorf("rendering the chart: %w", err)
	}
	const header = "# Written by make generate from " + chart + ".\n"
	written := map[string][]string{}
	for folder := range folders {
		if err := os.RemoveAll(filepath.Join("config", folder)); err != nil {
			return err
		}
	}
	for _, document := range separator.Split(helmOnly.ReplaceAllString(string(rendered), ""), -1) {
		object := metav1.PartialObjectMetadata{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		if object.Kind == "" {
			continue
		}
		// What the object's name has beyond the release's tells two of a kind apart.
		folder, file := folderOf(object.Kind), strings.ToLower(object.Kind)
		if suffix, found := strings.CutPrefix(object.Name, name); found {
			file += suffix
		}
		file += ".yaml"
		written[folder] = append(written[folder], file)
		if err := write(folder, file, header+strings.Trim(document, "\n")+"\n"); err != nil {
			return err
		}
	}
	for folder, files := range written {
		kustomization := header + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
		for _, file := range slices.Sorted(slices.Values(files)) {
			kustomization += "  - " + file + "\n"
		}
		if err := write(folder, "kustomization.yaml", kustomization); err != nil {
			return err
		}
	}
	return nil
}

func write(folder, file, text string) error {
	dir := filepath.Join("config", folder)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources that every user may read
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644) //nolint:gosec // the same
}
