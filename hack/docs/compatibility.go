// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// compatibilityPage says which versions belong together, from the files that decide it.
func compatibilityPage() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	read := func(path ...string) string {
		content, readErr := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		if readErr != nil {
			err = readErr
		}
		return string(content)
	}
	module, chart := read("go.mod"), read("charts", "karpenter-provider-bizflycloud", "Chart.yaml")
	newest, oldest := read("test", "controlplane", "go.mod"), read("test", "controlplane", "oldest", "go.mod")
	if err != nil {
		return "", fmt.Errorf("reading what decides versions: %w", err)
	}
	find := func(text, name, pattern string) string {
		found := regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(text)
		if found == nil {
			err = fmt.Errorf("there is no version of %s: nothing matches %s", name, pattern)
			return ""
		}
		return found[1]
	}
	required := func(name string) string { return find(module, name, `^\s+`+regexp.QuoteMeta(name)+` (v\S+)`) }
	tested := func(controlPlane string) string { return find(controlPlane, "Kubernetes", `^\s+k8s\.io/kubernetes (v\d+\.\d+\.\d+)$`) }
	rows := [][2]string{
		{"This version", find(chart, "the chart", `^appVersion: "(\S+)"`)},
		{"Karpenter", required("sigs.k8s.io/karpenter")},
		{"Kubernetes", fmt.Sprintf("%s or newer; tested with %s and %s",
			find(chart, "the oldest Kubernetes", `^kubeVersion: ">=(\d+\.\d+)`), tested(oldest), tested(newest))},
		{"Dynamic resource allocation (`IGNORE_DRA_REQUESTS=false`)", "Kubernetes 1.34 or newer"},
		{"Kubernetes modules", required("k8s.io/client-go")},
		{"controller-runtime", required("sigs.k8s.io/controller-runtime")},
		{"gobizfly", required("github.com/bizflycloud/gobizfly")},
		{"Go, to build it", find(module, "Go", `^go (\S+)`) + " or newer; an older Go fetches it (`GOTOOLCHAIN=auto`)"},
	}
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Compatibility\n\n<!-- Written by make generate from go.mod, the modules below test/controlplane and the chart. -->\n\n" +
		"See here which versions of Karpenter, Kubernetes and Go this version works with. What a version number means is in [releases](../contribute/release.md), " +
		"faults of these versions are in [known issues](known-issues.md).\n\n| | |\n| --- | --- |\n")
	for _, row := range rows {
		fmt.Fprintf(&page, "| %s | %s |\n", row[0], row[1])
	}
	return page.String(), nil
}
