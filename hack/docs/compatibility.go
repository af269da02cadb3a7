// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The table of versions is between these lines of its page; the rest of the page is written by hand.
const (
	versionsBegin = "<!-- Written by make generate from go.mod, the modules below test/support/controlplane and the chart. -->\n"
	versionsEnd   = "<!-- The end of what make generate writes. -->"
)

// compatibilityPage is the page with the versions that belong together, from the files that decide it.
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
	tested := func(controlPlane string) string {
		return find(controlPlane, "Kubernetes", `^\s+k8s\.io/kubernetes (v\d+\.\d+\.\d+)$`)
	}
	rows := [][2]string{
		{"This version", find(chart, "the chart", `^appVersion: "(\S+)"`)},
		{"Karpenter", required("sigs.k8s.io/karpenter")},
		{"Kubernetes", fmt.Sprintf("%s or newer; tested with %s and %s",
			find(chart, "the oldest Kubernetes", `^kubeVersion: ">=(\d+\.\d+)`), tested(oldest), tested(newest))},
		{"Dynamic resource allocation", "No server is launched for pods that use it, because this provider publishes none. " +
			"`IGNORE_DRA_REQUESTS=false` only counts devices of nodes that exist, and needs Kubernetes 1.34 or newer"},
		{"Kubernetes modules", required("k8s.io/client-go")},
		{"controller-runtime", required("sigs.k8s.io/controller-runtime")},
		{"gobizfly", required("github.com/bizflycloud/gobizfly")},
		{"Go, to build it", find(module, "Go", `^go (\S+)`) + " or newer; an older Go fetches it (`GOTOOLCHAIN=auto`)"},
	}
	if err != nil {
		return "", err
	}
	var table strings.Builder
	table.WriteString("\n| | |\n| --- | --- |\n")
	for _, row := range rows {
		fmt.Fprintf(&table, "| %s | %s |\n", row[0], row[1])
	}
	before, rest, found := strings.Cut(read("docs", "reference", "compatibility.md"), versionsBegin)
	_, after, ends := strings.Cut(rest, versionsEnd)
	if err != nil || !found || !ends {
		return "", errors.Join(err, errors.New("docs/reference/compatibility.md has no place for the table of versions"))
	}
	return before + versionsBegin + table.String() + "\n" + versionsEnd + after, nil
}
