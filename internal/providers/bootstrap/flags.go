// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// cadvisorFlags are flags of cAdvisor's that the kubelet of Kubernetes 1.36 still takes, and that of 1.37 does not know.
const cadvisorFlags = "application-metrics-count-limit|boot-id-file|container-hints|containerd-namespace|containerd|enable-load-reader|" +
	"event-storage-age-limit|event-storage-event-limit|global-housekeeping-interval|log-cadvisor-usage|machine-id-file|" +
	"storage-driver-(?:user|password|host|db|table|secure|buffer-duration)"

var (
	onLine = regexp.MustCompile(`--(` + cadvisorFlags + `)(?:[=\s"']|$)`)
	// inList finds an argument in the lists and maps of kubeadm and k3s.
	inList = regexp.MustCompile(`(?m)^\s*-?\s*["']?(?:name:\s*["']?(` + cadvisorFlags + `)\b|(` + cadvisorFlags + `)(?:=|["']?:\s*\S))`)
)

// removedFlags returns the arguments of the kubelet in user data with which that of Kubernetes 1.37 does not start, sorted.
func removedFlags(userData string) []string {
	var found [][]string
	for line := range strings.Lines(userData) {
		// The container runtimes have flags of the same names.
		if strings.Contains(strings.ToLower(line), "kubelet") {
			found = append(found, onLine.FindAllStringSubmatch(line, -1)...)
		}
	}
	if strings.Contains(userData, "kubelet-arg") || strings.Contains(userData, "kubeletExtraArgs") {
		found = append(found, inList.FindAllStringSubmatch(userData, -1)...)
	}
	var flags []string
	for _, match := range found {
		flags = append(flags, "--"+strings.Join(match[1:], ""))
	}
	slices.Sort(flags)
	return slices.Compact(flags)
}

// noteOnFlags tells of removedFlags; it is empty where there are none.
func noteOnFlags(userData string) string {
	flags := removedFlags(userData)
	if len(flags) == 0 {
		return ""
	}
	return fmt.Sprintf("risk: the user data gives the kubelet %s: that of Kubernetes 1.37 and newer does not know it and does not start; leave it out",
		strings.Join(flags, ", "))
}
