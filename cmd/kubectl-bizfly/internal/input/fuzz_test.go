// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package input_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
)

// FuzzRead reads any text as manifests and as a table of pods: it is an error, or each object has a kind that plan knows and a name.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"name,count,cpu,memory\napi,12,500m,1Gi\n", "name,cpu,memory\na,-1,x\n", "kind: List\nitems: [{}]",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n", "---\n---",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 99999999999}", "\x00", "{", "apiVersion: v1\nkind: Pod",
		"name,count,cpu,memory\na,1000000000,1,1Gi\n",
	} {
		f.Add(seed)
	}
	table := filepath.Join(f.TempDir(), "pods.csv")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"-", table} {
			set, err := input.Read(strings.NewReader(text), path)
			if err != nil {
				continue
			}
			for _, object := range set.Objects {
				if object == nil || object.GetName() == "" && object.GetGenerateName() == "" {
					t.Errorf("%s: an object without a name: %#v", path, object)
				}
			}
		}
	})
}
