// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
)

var hostname = regexp.MustCompile("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")

// FuzzName makes names of any NodeClaim: each is a host name, proves itself to its cluster and to no other, also with what the cloud
// appends for disks, and no other text does.
func FuzzName(f *testing.F) {
	f.Add("general-x7k2p", "0d9f3c52-7a1e-4b52-9a55-6f6f5f0c1b7a", "11111111-2222-4333-8444-555555555555", 1, "_rootdisk")
	f.Add("a", "", "c", 0, "")
	f.Add("da--nang.1", "u", "c", -1, "-")
	f.Fuzz(func(t *testing.T, claim, uid, cluster string, attempt int, suffix string) {
		if len(validation.IsDNS1123Subdomain(claim)) > 0 {
			t.Skip("no NodeClaim is called so")
		}
		name := instance.Name(claim, uid, cluster, attempt)
		if !hostname.MatchString(name) {
			t.Errorf("%q is no host name", name)
		}
		if cluster == "" {
			return
		}
		for _, text := range []string{name, name + "_rootdisk", name + "_datadisk1"} {
			if got := instance.ProvenName(cluster, text); got != name {
				t.Errorf("%q proves %q, not %q", text, got, name)
			}
		}
		if got := instance.ProvenName(cluster+"x", name); got != "" {
			t.Errorf("%q proves itself to another cluster as %q", name, got)
		}
		if got := instance.ProvenName(cluster, claim+suffix); got != "" && got != name {
			t.Errorf("%q, which nobody made, proves %q", claim+suffix, got)
		}
	})
}
