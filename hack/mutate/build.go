// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
)

// Target is a package with files to mutate.
type Target struct {
	// Package is its folder, and Files are the files in it; none means all.
	Package string   `json:"package"`
	Files   []string `json:"files,omitempty"`
	// Skip is a regular expression of specs that are not run: slow ones that decide nothing of these files.
	Skip string `json:"skip,omitempty"`
	// APIServer lets mutants share an API server, where the suite starts one.
	APIServer bool `json:"apiServer,omitempty"`
	// Survivors are the mutants that no spec kills, and why none can or should.
	Survivors []Survivor `json:"survivors,omitempty"`
}

// Survivor is a mutant that may live.
type Survivor struct {
	Mutant string `json:"mutant"`
	Reason string `json:"reason"`
}

// listing is what `go list` says of a package.
type listing struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
}

// build compiles the test binary of a target with all its mutants, and returns them with the hash of the binary.
func (t *Target) build(ctx context.Context, folder, binary string) ([]Mutant, string, error) {
	pkg, exports, err := t.list(ctx)
	if err != nil {
		return nil, "", err
	}
	sources, mutants, err := t.instrument(pkg, exports)
	if err != nil {
		return nil, "", err
	}
	sources["mutants.go"] = fmt.Sprintf(runtimeSource, pkg.Name, len(mutants)+1)
	// Its BeforeEach must be the first one: variables of a package are initialised by the order of files.
	sources["aaa_mutants_test.go"] = fmt.Sprintf(specsSource, pkg.Name, pkg.ImportPath)
	overlay := map[string]string{}
	for name, text := range sources {
		path := filepath.Join(folder, name+".txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, "", fmt.Errorf("writing the mutants: %w", err)
		}
		overlay[filepath.Join(pkg.Dir, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, "", fmt.Errorf("writing the overlay: %w", err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, "", fmt.Errorf("writing the overlay: %w", err)
	}
	if _, err := goCommand(ctx, "test", "-c", "-vet=off", "-overlay="+path, "-o", binary, "./"+t.Package); err != nil {
		return nil, "", err
	}
	content, err := os.ReadFile(binary) //nolint:gosec // what was built above
	if err != nil {
		return nil, "", fmt.Errorf("reading the test binary: %w", err)
	}
	return mutants, fmt.Sprintf("%x", sha256.Sum256(content)), nil
}

// list returns the package and where the compiled packages are that it imports.
func (t *Target) list(ctx context.Context) (pkg listing, exports map[string]string, err error) {
	args := append([]string{"list", "-deps", "-export", "-json=Dir,ImportPath,Name,Export,GoFiles", "./" + t.Package}, runtimeImports...)
	output, err := goCommand(ctx, args...)
	if err != nil {
		return pkg, nil, err
	}
	folder, err := filepath.Abs(t.Package)
	if err != nil {
		return pkg, nil, fmt.Errorf("finding %s: %w", t.Package, err)
	}
	exports = map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var next listing
		if err := decoder.Decode(&next); err != nil {
			return pkg, nil, fmt.Errorf("reading what go list prints: %w", err)
		}
		exports[next.ImportPath] = next.Export
		if next.Dir == folder {
			pkg = next
		}
	}
	return pkg, exports, nil
}

// instrument returns the files with mutants, without those mutants that do not compile.
func (t *Target) instrument(pkg listing, exports map[string]string) (map[string]string, []Mutant, error) {
	if gone, _ := lo.Difference(t.Files, pkg.GoFiles); len(gone) > 0 {
		return nil, nil, fmt.Errorf("package %s has no files %q", t.Package, gone)
	}
	original := map[string]string{}
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(pkg.Dir, name)) //nolint:gosec // a file of the package
		if err != nil {
			return nil, nil, fmt.Errorf("reading the package: %w", err)
		}
		original[name] = string(text)
	}
	skip := map[int]bool{}
	checker := checker{path: pkg.ImportPath, exports: exports}
	for {
		fset, files, info, wrong := checker.check(original)
		if len(wrong) > 0 {
			return nil, nil, fmt.Errorf("package %s does not compile: %w", t.Package, wrong[0])
		}
		in := &instrumenter{fset: fset, info: info, skip: skip}
		mutated := map[string]string{}
		for _, name := range pkg.GoFiles {
			if len(t.Files) == 0 || slices.Contains(t.Files, name) {
				in.source = []byte(original[name])
				mutated[name] = in.file(files[name])
			}
		}
		complete := map[string]string{"mutants.go": fmt.Sprintf(runtimeSource, pkg.Name, len(in.mutants)+1)}
		maps.Copy(complete, original)
		maps.Copy(complete, mutated)
		_, _, _, wrong = checker.check(complete)
		before := len(skip)
		for _, err := range wrong {
			for _, id := range numbersAt(complete, err) {
				skip[id] = true
			}
		}
		switch {
		case len(wrong) == 0:
			return mutated, named(in.mutants, skip), nil
		case len(skip) == before:
			return nil, nil, fmt.Errorf("the mutants of %s do not compile: %w", t.Package, wrong[0])
		}
	}
}

var calls = regexp.MustCompile(`\bmutant[A-Za-z]*\((\d+)`)

// numbersAt returns the mutants on the line of an error.
func numbersAt(files map[string]string, err types.Error) (ids []int) {
	position := err.Fset.Position(err.Pos)
	line := strings.Split(files[position.Filename], "\n")[position.Line-1]
	for _, match := range calls.FindAllStringSubmatch(line, -1) {
		id, _ := strconv.Atoi(match[1]) // digits only
		ids = append(ids, id)
	}
	return ids
}

// named numbers the mutants of the same name and empties the names of those that do not compile.
func named(mutants []Mutant, skip map[int]bool) []Mutant {
	count := map[string]int{}
	for i := range mutants {
		name := mutants[i].Name
		if count[name]++; count[name] > 1 {
			mutants[i].Name = fmt.Sprintf("%s #%d", name, count[name])
		}
		if skip[i+1] {
			mutants[i].Name = ""
		}
	}
	return mutants
}

// checker parses and type-checks the files of a package.
type checker struct {
	path    string
	exports map[string]string
}

func (c checker) check(sources map[string]string) (*token.FileSet, map[string]*ast.File, *types.Info, []types.Error) {
	fset, files, wrong := token.NewFileSet(), map[string]*ast.File{}, []types.Error{}
	var list []*ast.File
	for name, text := range sources {
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			wrong = append(wrong, types.Error{Fset: fset, Pos: file.Pos(), Msg: err.Error()})
		}
		files[name], list = file, append(list, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) }),
		Error: func(err error) {
			if found, ok := err.(types.Error); ok { //nolint:errorlint // go/types passes exactly this
				wrong = append(wrong, found)
			}
		},
	}
	_, _ = config.Check(c.path, fset, list, info) // the errors come one by one
	return fset, files, info, wrong
}

// goCommand runs go with the flags of all our builds, so that they share a cache.
func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own commands
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, errors.String())
	}
	return output, nil
}
