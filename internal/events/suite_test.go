// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

func TestEvents(t *testing.T) { suite.Run(t, "Events") }

// files are the parsed sources of a folder, without its tests.
func files(dir string) []*ast.File {
	GinkgoHelper()
	names := lo.Must(filepath.Glob(filepath.Join(dir, "*.go")))
	return lo.FilterMap(names, func(name string, _ int) (*ast.File, bool) {
		if strings.HasSuffix(name, "_test.go") {
			return nil, false
		}
		file := lo.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))
		return file, true
	})
}

var _ = Describe("Events", func() {
	It("should each be checked here", func() {
		var made []string
		for _, file := range files(".") {
			for _, declaration := range file.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok || !function.Name.IsExported() || function.Type.Results == nil {
					continue
				}
				if result, ok := function.Type.Results.List[0].Type.(*ast.SelectorExpr); ok && result.Sel.Name == "Event" {
					made = append(made, function.Name.Name)
				}
			}
		}
		Expect(lo.Keys(unit.Events(""))).To(ConsistOf(made))
	})
	It("should fit the API server's limit whatever the cloud says", func() {
		for name, event := range unit.Events(strings.Repeat("máy chủ ", 1000)) {
			Expect(len(event.Message)).To(BeNumerically("<", 1024), name)
		}
	})
	It("should name the first servers in alphabetical order and count the others", func() {
		names := lo.Times(12, func(i int) string { return fmt.Sprintf("node-%02d", 11-i) })
		event := events.GarbageCollectionSuspended(&v1alpha1.ProviderConfig{}, 12, names)
		Expect(event.Message).To(HaveSuffix(": node-00, node-01, node-02, node-03, node-04 and 7 more"))
	})
	It("should be created here and nowhere else", func() {
		for _, folder := range []string{"..", "../../cmd", "../../pkg"} {
			Expect(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return lo.Ternary(entry != nil && entry.IsDir() && entry.Name() == "events", fs.SkipDir, err)
				}
				content, err := os.ReadFile(path)
				Expect(string(content)).ToNot(MatchRegexp(`(karpevents|events)\.Event\{`), path)
				return err
			})).To(Succeed())
		}
	})
})
