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

// Package bke knows with what nodes join and leave a cluster of BizFly Kubernetes Engine: from the environment or, where
// that leaves something out and discovery is allowed, from the metadata of a pool server of this very cluster. What was
// learned is kept in memory only.
package bke

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// Values are what nodes join with. They print without the token.
type Values struct {
	// ClusterID is the uid of the cluster, 16 characters.
	ClusterID string
	// Token is the secret with which nodes join and leave.
	Token string
	// JoinEndpoint is the URL at which nodes join.
	JoinEndpoint string
	// LogEndpoint is the URL to which nodes report their progress; it may be empty.
	LogEndpoint string
	// Learned says in words which of them were learned and from which node; empty when none was.
	Learned string
}

// String leaves the token out, so that no log can hold it.
func (v Values) String() string {
	return fmt.Sprintf("BKE cluster %q, join endpoint %q", v.ClusterID, v.JoinEndpoint)
}

// GoString is String.
func (v Values) GoString() string { return v.String() }

// Complete says whether nodes can join with them.
func (v Values) Complete() bool {
	return strings.TrimSpace(v.ClusterID) != "" && strings.TrimSpace(v.Token) != "" && strings.TrimSpace(v.JoinEndpoint) != ""
}

// InsecureHost is the host of a join endpoint without TLS, through which the token of every node passes in the clear;
// empty when it has TLS.
func (v Values) InsecureHost() string {
	if u, err := url.Parse(v.JoinEndpoint); err == nil && u.Scheme == "http" {
		return u.Host
	}
	return ""
}

// Provider gives the values.
type Provider interface {
	// Known returns what is known now and asks nobody.
	Known() Values
	// Values returns the values, and learns first what is missing where that is allowed. Its error, which holds no
	// secret, says why nothing could be learned; the values that are known are returned with it.
	Values(ctx context.Context) (Values, error)
}

// Known implements Provider: values that were configured are known.
func (v Values) Known() Values { return v }

// Values implements Provider.
func (v Values) Values(context.Context) (Values, error) { return v, nil }
