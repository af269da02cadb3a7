// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"github.com/spf13/pflag"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
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
		if field.IsExported() && field.Type != reflect.TypeFor[*suggest.NodePoolManifest]() {
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

// flagTable is the reference of the flags of a command, its own or those of all commands.
func flagTable(command string, flags *pflag.FlagSet) string {
	table := "| flag of `" + command + "` | |\n|---|---|\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			table += fmt.Sprintf("| `--%s`%s | %s |\n", f.Name, lo.Ternary(f.Shorthand != "", ", `-"+f.Shorthand+"`", ""), strings.ReplaceAll(f.Usage, "|", `\|`))
		}
	})
	return table
}

var _ = Describe("The flags of each command", func() {
	It("should be on the page, as UPDATE_DOCS=true writes them", func() {
		page, err := os.ReadFile(examplesPage)
		Expect(err).ToNot(HaveOccurred())
		root := (&cli.App{}).Command()
		tables := []string{}
		for _, words := range leaves(root) {
			command, _, err := root.Find(strings.Fields(words))
			Expect(err).ToNot(HaveOccurred())
			flags := pflag.NewFlagSet(words, pflag.ContinueOnError)
			flags.AddFlagSet(command.LocalNonPersistentFlags())
			flags.AddFlagSet(command.PersistentFlags())
			if flags.HasFlags() {
				tables = append(tables, flagTable(words, flags))
			}
		}
		for _, name := range []string{"controller-namespace", "credential-id-file", "credential-secret-file", "output", "region"} {
			Expect(root.PersistentFlags().Lookup(name)).ToNot(BeNil())
			Expect(string(page)).To(ContainSubstring("--" + name))
		}
		const begin, end = "<!-- flags, written by UPDATE_DOCS -->\n", "<!-- end of flags -->"
		before, rest, found := strings.Cut(string(page), begin)
		Expect(found).To(BeTrue())
		written, after, found := strings.Cut(rest, end)
		Expect(found).To(BeTrue())
		want := "\n" + strings.Join(tables, "\n") + "\n"
		if os.Getenv("UPDATE_DOCS") != "" {
			Expect(os.WriteFile(examplesPage, []byte(before+begin+want+end+after), 0o600)).To(Succeed())
			return
		}
		Expect(written).To(Equal(want), "run the suite with UPDATE_DOCS=true")
	})
})
