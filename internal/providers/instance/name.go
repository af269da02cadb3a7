/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	// maxNameLength is the length of a DNS label: the server's name is its host name and its node's name.
	maxNameLength = 63
	// hashLength is the number of hex digits that make a name unique.
	hashLength = 8
	// rootDiskSuffix is what the cloud appends to a server's name to name its root disk.
	rootDiskSuffix = "_rootdisk"
)

// Name returns the name of the server of one attempt to launch a claim. The cloud controller manager finds servers by
// name, and neither the cloud nor two clusters in one project keep names unique, so the name carries a hash over the
// claim's and the cluster's UID and the attempt: it never comes back, not even for a claim made anew under its old name.
func Name(nodeClaimName, nodeClaimUID, clusterUID string, attempt int) string {
	prefix := sanitise(nodeClaimName)
	if limit := maxNameLength - hashLength - 1; len(prefix) > limit {
		prefix = strings.TrimRight(prefix[:limit], "-")
	}
	if prefix == "" {
		prefix = "node"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", nodeClaimUID, clusterUID, attempt))
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// rootDiskName is the name that the cloud gives the root disk of a server.
func rootDiskName(serverName string) string { return serverName + rootDiskSuffix }

// sanitise keeps lower case letters and digits and turns every run of anything else into one dash.
func sanitise(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			b.WriteRune(r)
			continue
		}
		if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-")
}
