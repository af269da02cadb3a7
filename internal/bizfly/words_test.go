// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bizfly_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// matching are the functions of strings and the methods of regular expressions that decide by words. Those that only extract, such as the
// line in a template, are not among them.
var matching = []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Count", "CutPrefix", "CutSuffix", "Match", "MatchString"}

// wordsOfErrors returns where a file compares or searches the text of an error.
func wordsOfErrors(name string, source any) (found []string) {
	GinkgoHelper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	Expect(err).ToNot(HaveOccurred())
	isText := func(e ast.Expr) (is bool) {
		ast.Inspect(e, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
				selector, ok := call.Fun.(*ast.SelectorExpr)
				is = is || ok && selector.Sel.Name == "Error"
			}
			return !is
		})
		return is
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var read []ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			if selector, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(matching, selector.Sel.Name) {
				read = n.Args
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				read = []ast.Expr{n.X, n.Y}
			}
		case *ast.SwitchStmt:
			if n.Tag != nil {
				read = []ast.Expr{n.Tag}
			}
		}
		if slices.ContainsFunc(read, isText) {
			found = append(found, files.Position(n.Pos()).String())
		}
		return true
	})
	return found
}

var _ = Describe("The words of an error", func() {
	It("should decide nothing outside of internal/bizfly, which classifies what the cloud says", func() {
		here, err := filepath.Abs(".")
		Expect(err).ToNot(HaveOccurred())
		var found []string
		for _, folder := range []string{"internal", "pkg", "cmd/controller"} {
			Expect(filepath.WalkDir(filepath.Join(here, "../..", folder), func(path string, _ fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case path == here:
					return fs.SkipDir
				case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
					found = append(found, wordsOfErrors(path, nil)...)
				}
				return nil
			})).To(Succeed())
		}
		Expect(found).To(BeEmpty(), "use the Is functions of internal/bizfly, errors.Is or errors.As")
	})
	DescribeTable("should be found where they decide", func(expression string, found bool) {
		Expect(wordsOfErrors("x.go", "package x\nvar _ = "+expression) != nil).To(Equal(found))
	},
		Entry("in a search", `strings.Contains(strings.ToLower(err.Error()), "quota")`, true),
		Entry("in a pattern", `quota.MatchString(err.Error())`, true),
		Entry("in a comparison", `err.Error() == "quota"`, true),
		Entry("in a switch", `func() { switch err.Error() { case "quota": } }`, true),
		Entry("not in a message", `fmt.Sprint("failed: " + err.Error())`, false),
		Entry("not in a replacement", `strings.ReplaceAll(err.Error(), "\n", "; ")`, false),
	)
})
