// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	"github.com/samber/lo"
)

const (
	// maxNameLength is the length of a DNS label: the server's name is its host name and its node's name.
	maxNameLength = 63
	// nonceLength is the number of characters that tell the servers of one NodeClaim name apart: 40 bits.
	nonceLength = 8
	// macLength is the number of characters that prove a name to be of this cluster: 50 bits.
	macLength = 10
	// RootDiskSuffix is what the cloud appends to a server's name to name its root disk.
	RootDiskSuffix = "_rootdisk"
)

// nameEncoding is base32 in lower case, without the letters that are taken for digits.
var nameEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// cluster is the identity by which this cluster knows its servers. UIDs decide; a name alone proves nothing, since two
// clusters may have the same.
type cluster struct{ uid, name string }

// ours reports whether the server is this cluster's.
func (c cluster) ours(server *Instance) bool { return c.uid != "" && server.ClusterUID == c.uid }

// builtFor reports whether the server is the one of exactly this create request. The cloud may have changed its name.
func (c cluster) builtFor(server *Instance, nodeClaimUID string, intent Intent) bool {
	return c.ours(server) && server.NodeClaimUID == nodeClaimUID && server.Attempt == intent.Attempt
}

// Name returns the name of the server of one attempt to launch a NodeClaim: the NodeClaim's name, a nonce made of its
// UID and the attempt, and a MAC of both under the cluster's UID. The cloud controller manager finds servers by name,
// and neither the cloud nor two clusters in one project keep names unique; the nonce does. The MAC makes the name prove
// itself: the cloud names disks and interfaces after their server, so one that is detached still shows whose it was,
// although the NodeClaim, the server and every process that knew them are gone.
func Name(nodeClaimName, nodeClaimUID, clusterUID string, attempt int) string {
	nonce := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", nodeClaimUID, attempt))
	body := namePrefix(nodeClaimName, nonceLength+macLength) + "-" + nameEncoding.EncodeToString(nonce[:])[:nonceLength]
	return body + nameMAC(body, clusterUID)
}

func nameMAC(body, clusterUID string) string {
	mac := hmac.New(sha256.New, []byte(clusterUID))
	mac.Write([]byte("server name\x00" + body))
	return nameEncoding.EncodeToString(mac.Sum(nil))[:macLength]
}

// proven reports whether Name made the name for this cluster.
func (c cluster) proven(name string) bool {
	cut := len(name) - macLength
	return c.uid != "" && cut > nonceLength && hmac.Equal([]byte(nameMAC(name[:cut], c.uid)), []byte(name[cut:]))
}

// provenIn returns the name made by Name for this cluster that the text begins with; "" where it begins with none. The
// cloud names disks and interfaces after their server, and a node is named like its server, in lower case.
func (c cluster) provenIn(text string) string {
	for name := text; name != ""; name = name[:max(strings.LastIndexAny(name, "-_"), 0)] {
		if c.proven(name) {
			return name
		}
	}
	return ""
}

// ProvenName returns the name of a server of the cluster with this UID that the text begins with; "" where it begins
// with none.
func ProvenName(clusterUID, text string) string { return cluster{uid: clusterUID}.provenIn(text) }

// appendedCode are what all codes have that BizFly Cloud was seen to append to the name of a server, such as
// "multi-server-TNnUw4Im": eight letters and digits, a digit, a small letter, and a capital one that does not begin a
// word. What a user appends to the name of a copy, such as a date or "-Backup01", must not be taken for one: the copy
// would be deleted.
var appendedCode = []*regexp.Regexp{
	regexp.MustCompile("^-[0-9A-Za-z]{8}$"), regexp.MustCompile("[0-9]"), regexp.MustCompile("[a-z]"),
	regexp.MustCompile("[0-9a-z][A-Z]"),
}

func isAppendedCode(text string) bool {
	return lo.EveryBy(appendedCode, func(form *regexp.Regexp) bool { return form.MatchString(text) })
}

// launchedAs returns the name under which a server was launched that is called so: the same one, or the same without
// the code that the cloud has appended. It is "" for any other name.
func (c cluster) launchedAs(name string) string {
	proven := c.provenIn(name)
	if code := strings.TrimPrefix(name, proven); code == "" || isAppendedCode(code) {
		return proven
	}
	return ""
}

// namePrefix is as much of a NodeClaim's name as fits before a dash and a suffix, with dashes in place of its dots.
func namePrefix(nodeClaimName string, suffixLength int) string {
	prefix := strings.ReplaceAll(nodeClaimName, ".", "-")
	return strings.TrimRight(prefix[:min(len(prefix), maxNameLength-suffixLength-1)], "-")
}

// launchName returns the name under which a server was launched, which is what its disks and interfaces are named
// after, also where a user has renamed it since.
func (c cluster) launchName(server *Instance, inMetadata string) string {
	return lo.CoalesceOrEmpty(c.launchedAs(inMetadata), c.launchedAs(server.Name), server.Name)
}
