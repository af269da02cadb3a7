// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package providerid translates between server ids and the provider IDs of nodes. The form is the cloud controller
// manager's, byte for byte, because core matches a node to its claim by string equality.
package providerid

import (
	"regexp"
)

// Prefix is what every provider ID of this cloud begins with: two slashes, no region, no zone.
const Prefix = "bizflycloud://"

// ofServer has what we accept as the id of a server: no slash, dot or percent sign can turn it into another API path.
var ofServer = regexp.MustCompile(`^` + Prefix + `([A-Za-z0-9][A-Za-z0-9_-]{0,127})$`)

// New returns the provider ID of a server.
func New(server string) string { return Prefix + server }

// Parse returns the server id of a provider ID, and an empty one and false for anything that is not this cloud's.
func Parse(providerID string) (string, bool) {
	match := ofServer.FindStringSubmatch(providerID)
	if match == nil {
		return "", false
	}
	return match[1], true
}
