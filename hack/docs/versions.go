// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
)

// versionTable has the versions that belong together, from the files that decide them.
func versionTable() (string, error) {
	var failed error
	find := func(pattern string, path ...string) string {
		text, err := read(path...)
		found := regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(text)
		if err == nil && found == nil {
			err = fmt.Errorf("%s has no %s", path, pattern)
		}
		if failed = cmp.Or(failed, err); failed != nil {
			return ""
		}
		return found[1]
	}
	required := func(module string) string { return find(`^\s+`+regexp.QuoteMeta(module)+` (v\S+)`, "go.mod") }
	tested := func(path ...string) string {
		return find(`^\s+k8s\.io/kubernetes (v\d+\.\d+\.\d+)$`, append([]string{"test", "support", "controlplane"}, path...)...)
	}
	chart := func(pattern string) string {
		return find(pattern, "charts", "karpenter-provider-bizflycloud", "Chart.yaml")
	}
	table := row("", "") + row("---", "---") +
		row("This version", chart(`^appVersion: "(\S+)"`)) +
		row("Karpenter", required("sigs.k8s.io/karpenter")) +
		row("Kubernetes", chart(`^kubeVersion: ">=(\d+\.\d+)`)+" or newer; tested with "+
			tested("oldest", "go.mod")+", "+tested("go.mod")+" and "+tested("newest", "go.mod")) +
		row("Dynamic resource allocation", "No server is launched for pods that use it, because this provider publishes none. "+
			"`IGNORE_DRA_REQUESTS=false` only counts devices of nodes that exist, and needs Kubernetes 1.34 or newer") +
		row("Kubernetes modules", required("k8s.io/client-go")) +
		row("controller-runtime", required("sigs.k8s.io/controller-runtime")) +
		row("gobizfly", required("github.com/bizflycloud/gobizfly")) +
		row("Go, to build it", find(`^go (\S+)`, "go.mod")+" or newer; an older Go fetches it (`GOTOOLCHAIN=auto`)")
	return table, failed
}
