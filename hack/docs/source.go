// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// constant is a constant that is a text.
type constant struct{ name, value, doc string }

// sentence is the doc comment without the name that it begins with and in one line.
func (c constant) sentence() string {
	text := strings.Join(strings.Fields(c.doc), " ")
	for _, opening := range []string{c.name + " ", "says that ", "says whether ", "reports whether ", "is "} {
		text = strings.TrimPrefix(text, opening)
	}
	if word, _, _ := strings.Cut(text, " "); strings.Contains(strings.TrimRight(word, ".,"), ".") {
		return text // the path of a field
	}
	return capital(text)
}

// capital is a text with a capital at its beginning.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// source is the constants of a package in the order in which they are written.
type source []constant

func (s source) find(name string) (constant, bool) {
	return lo.Find(s, func(c constant) bool { return c.name == name })
}

func (s source) withPrefix(prefix string) []constant {
	return lo.Filter(s, func(c constant, _ int) bool { return strings.HasPrefix(c.name, prefix) })
}

// readSources reads the packages by their folders within the repository.
func readSources(dirs ...string) (map[string]source, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	sources := map[string]source{}
	for _, dir := range dirs {
		if sources[dir], err = readSource(filepath.Join(root, dir)); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// repository is the folder of the go.mod, wherever in it this runs.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return "", errors.New("no go.mod in this folder or above it")
	}
}

func readSource(dir string) (source, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no sources in %s: %w", dir, err)
	}
	slices.Sort(files)
	var constants source
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok && group.Tok == token.CONST {
				constants = append(constants, constantsOf(group)...)
			}
		}
	}
	return constants, nil
}

func constantsOf(group *ast.GenDecl) []constant {
	return lo.FilterMap(group.Specs, func(spec ast.Spec, _ int) (constant, bool) {
		values, ok := spec.(*ast.ValueSpec)
		if !ok || len(values.Values) != 1 {
			return constant{}, false
		}
		text, ok := textOf(values.Values[0])
		doc := values.Doc
		if doc == nil && len(group.Specs) == 1 {
			doc = group.Doc
		}
		return constant{name: values.Names[0].Name, value: text, doc: doc.Text()}, ok
	})
}

// textOf is a literal, or the sum of literals and the API's group.
func textOf(expression ast.Expr) (string, bool) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(expression.Value)
		return text, expression.Kind == token.STRING && err == nil
	case *ast.Ident:
		return v1alpha1.Group, expression.Name == "Group"
	case *ast.BinaryExpr:
		left, isText := textOf(expression.X)
		right, areTexts := textOf(expression.Y)
		return left + right, isText && areTexts && expression.Op == token.ADD
	}
	return "", false
}
