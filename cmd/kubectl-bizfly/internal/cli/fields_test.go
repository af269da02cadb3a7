// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/explain"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/suggest"
)

// fieldsOf are the names of the JSON fields of a type of the plugin, and of those in it.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.Contains(t.PkgPath(), "/kubectl-bizfly/") {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
		if field.IsExported() && field.Type != reflect.TypeFor[[]suggest.NodePoolManifest]() {
			names = append(names, fieldsOf(field.Type)...)
		}
	}
	return names
}

var _ = Describe("The JSON of plan", func() {
	It("should have each of its fields on the page", func() {
		page, err := os.ReadFile(examplesPage)
		Expect(err).ToNot(HaveOccurred())
		names := append(fieldsOf(reflect.TypeFor[explain.Explanation]()), fieldsOf(reflect.TypeFor[suggest.Suggestion]())...)
		Expect(len(names)).To(BeNumerically(">", 40))
		for _, name := range names {
			Expect(string(page)).To(ContainSubstring("`"+name+"`"), name)
		}
	})
})
