// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// cadvisorFlags are arguments that the kubelet of Kubernetes 1.36 still takes, and that of 1.37 does not know.
const cadvisorFlags = "(application-metrics-count-limit|boot-id-file|container-hints|containerd-namespace|containerd|" +
	"enable-load-reader|event-storage-age-limit|event-storage-event-limit|global-housekeeping-interval|" +
	"log-cadvisor-usage|machine-id-file|storage-driver-(?:user|password|host|db|table|secure|buffer-duration))"

var (
	asFlag = regexp.MustCompile(`--` + cadvisorFlags + `(?:[=\s"']|$)`)
	// asItem is in the lists and maps of kubeadm and k3s.
	asItem = regexp.MustCompile(`(?m)^\s*-?\s*["']?(?:name:\s*["']?` + cadvisorFlags + `\b|` + cadvisorFlags +
		`(?:=|["']?:\s*\S))`)
)

// noteOnFlags names the arguments in user data with which the kubelet of Kubernetes 1.37 does not start; it is empty
// without any.
func noteOnFlags(userData string) string {
	var found [][]string
	for line := range strings.Lines(userData) {
		// Container runtimes have flags of the same names.
		if strings.Contains(strings.ToLower(line), "kubelet") {
			found = append(found, asFlag.FindAllStringSubmatch(line, -1)...)
		}
	}
	if strings.Contains(userData, "kubelet-arg") || strings.Contains(userData, "kubeletExtraArgs") {
		found = append(found, asItem.FindAllStringSubmatch(userData, -1)...)
	}
	var flags []string
	for _, match := range found {
		flags = append(flags, "--"+strings.Join(match[1:], ""))
	}
	if len(flags) == 0 {
		return ""
	}
	slices.Sort(flags)
	return fmt.Sprintf("risk: the user data gives the kubelet %s: that of Kubernetes 1.37 and newer does not know it and "+
		"does not start; leave it out", strings.Join(slices.Compact(flags), ", "))
}
