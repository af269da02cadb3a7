// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"crypto/md5" //nolint:gosec // fingerprints, not a protection
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

type keyPairReply struct {
	SSHKey
	UserID string `json:"user_id"`
}

var _ = serverAPI.serve(
	on(http.MethodGet, "/keypairs", (*Cloud).listKeyPairs),
	on(http.MethodPost, "/keypairs", (*Cloud).createKeyPair),
	on(http.MethodGet, "/keypairs/{name}", (*Cloud).getKeyPair),
	on(http.MethodDelete, "/keypairs/{name}", (*Cloud).deleteKeyPair),
)

type keyPairRequest struct {
	Name      string `json:"name"`
	PublicKey string `json:"public_key"`
}

func (c *Cloud) createKeyPair(q *call) reply {
	request, rejection := decode[keyPairRequest](q)
	if rejection != nil {
		return *rejection
	}
	fingerprint, valid := fingerprintOf(request.PublicKey)
	switch {
	case request.Name == "" || request.PublicKey == "":
		return reject(http.StatusBadRequest, "name and public_key are required")
	case slices.ContainsFunc(c.opts.Catalog.SSHKeys, func(k SSHKey) bool { return k.Name == request.Name }):
		return reject(http.StatusConflict, "Key pair '"+request.Name+"' already exists.")
	case !valid:
		return reject(http.StatusBadRequest, "Keypair data is invalid: failed to generate fingerprint")
	}
	made := SSHKey{Name: request.Name, PublicKey: request.PublicKey, Fingerprint: fingerprint}
	c.opts.Catalog.SSHKeys = append(slices.Clone(c.opts.Catalog.SSHKeys), made)
	return ok(keyPairReply{SSHKey: made, UserID: userID(q.project)})
}

// keyKinds are what a public key begins with.
var keyKinds = []string{"ssh-rsa", "ssh-ed25519", "ssh-dss", "ecdsa-sha2-", "sk-ssh-ed25519@", "sk-ecdsa-sha2-"}

// fingerprintOf is the fingerprint of a public key in the one form that the compute service has: MD5, in pairs of digits.
func fingerprintOf(publicKey string) (string, bool) {
	fields := strings.Fields(publicKey)
	if len(fields) < 2 || !slices.ContainsFunc(keyKinds, func(kind string) bool { return strings.HasPrefix(fields[0], kind) }) {
		return "", false
	}
	raw, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil || len(raw) == 0 {
		return "", false
	}
	sum := md5.Sum(raw) //nolint:gosec // a fingerprint, not a protection
	var pairs []string
	for _, octet := range sum {
		pairs = append(pairs, hex.EncodeToString([]byte{octet}))
	}
	return strings.Join(pairs, ":"), true
}

func (c *Cloud) deleteKeyPair(q *call) reply {
	return c.withdraw(q, "Keypair %s not found", ok(apiMessage{Message: "Xóa SSH key thành công"}), func(name string) bool {
		left := slices.DeleteFunc(slices.Clone(c.opts.Catalog.SSHKeys), func(k SSHKey) bool { return k.Name == name })
		found := len(left) < len(c.opts.Catalog.SSHKeys)
		c.opts.Catalog.SSHKeys = left
		return found
	})
}

func (c *Cloud) listKeyPairs(*call) reply {
	pairs := []map[string]SSHKey{}
	for _, key := range c.opts.Catalog.SSHKeys {
		pairs = append(pairs, map[string]SSHKey{"keypair": key})
	}
	return ok(pairs)
}

func (c *Cloud) getKeyPair(q *call) reply {
	for _, key := range c.opts.Catalog.SSHKeys {
		if key.Name == q.vars[0] {
			return ok(key)
		}
	}
	return problem(http.StatusNotFound, "Keypair "+q.vars[0]+" not found")
}
