// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Mutant is one change of the source.
type Mutant struct {
	// Name identifies it across changes elsewhere in the file: the function, the change, and a number where that is not unique.
	Name string
	// Position is its file and line.
	Position string
}

// instrumenter inserts the mutants of one file into its text. Each is a call with its number, so that one compiled test binary has them all.
type instrumenter struct {
	fset   *token.FileSet
	info   *types.Info
	source []byte
	skip   map[int]bool

	mutants []Mutant
	edits   []edit
	// function is the declaration that is visited, and results are what the function of a return statement returns.
	function string
	results  []*types.Signature
	// inTable is true within a variable of the package.
	inTable bool
}

type edit struct {
	offset, remove int
	text           string
	closes         bool
	order          int
}

// mutate adds a mutant that wraps a node. Mutants that do not compile are numbered and left out.
func (in *instrumenter) mutate(node ast.Node, before, after, change string, args ...any) (ok bool) {
	position := in.fset.Position(node.Pos())
	in.mutants = append(in.mutants, Mutant{
		Name:     in.function + ": " + fmt.Sprintf(change, args...),
		Position: fmt.Sprintf("%s:%d", position.Filename, position.Line),
	})
	id := len(in.mutants)
	if in.skip[id] {
		return false
	}
	in.insert(node.Pos(), 0, fmt.Sprintf(before, id), false)
	in.insert(node.End(), 0, after, true)
	return true
}

func (in *instrumenter) insert(at token.Pos, remove int, text string, closes bool) {
	in.edits = append(in.edits, edit{offset: in.fset.Position(at).Offset, remove: remove, text: text, closes: closes, order: len(in.edits)})
}

// text is the source of a node on one line.
func (in *instrumenter) text(node ast.Node) string {
	text := []rune(strings.Join(strings.Fields(string(in.source[in.fset.Position(node.Pos()).Offset:in.fset.Position(node.End()).Offset])), " "))
	if len(text) > 100 {
		text = append(text[:99], '…')
	}
	return string(text)
}

// file visits the declarations of a file and returns its text with the mutants.
func (in *instrumenter) file(file *ast.File) string {
	in.edits = nil
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			in.function, in.inTable = d.Name.Name, false
			if d.Recv != nil && len(d.Recv.List) == 1 {
				in.function = strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + in.function
			}
			if d.Body != nil {
				in.body(in.info.Defs[d.Name].Type(), d.Body)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					in.function, in.inTable = values.Names[0].Name, true
					in.visitAll(values.Values)
				}
			}
		}
	}
	return in.apply()
}

func (in *instrumenter) apply() string {
	slices.SortFunc(in.edits, func(a, b edit) int {
		if a.offset != b.offset || a.closes != b.closes {
			return cmp.Or(cmp.Compare(a.offset, b.offset), map[bool]int{true: -1, false: 1}[a.closes])
		}
		if a.closes {
			return b.order - a.order
		}
		return a.order - b.order
	})
	var out strings.Builder
	at := 0
	for _, e := range in.edits {
		out.Write(in.source[at:e.offset])
		out.WriteString(e.text)
		at = e.offset + e.remove
	}
	out.Write(in.source[at:])
	return out.String()
}

func (in *instrumenter) body(signature types.Type, body *ast.BlockStmt) {
	in.results = append(in.results, signature.(*types.Signature))
	in.visit(body)
	in.results = in.results[:len(in.results)-1]
}

func (in *instrumenter) visitAll(nodes []ast.Expr) {
	for _, node := range nodes {
		in.visit(node)
	}
}

// visit mutates a node and all below it.
func (in *instrumenter) visit(root ast.Node) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncLit:
			in.body(in.info.TypeOf(n), n.Body)
			return false
		case *ast.BlockStmt:
			in.statements(n.List)
			return false
		case *ast.CaseClause:
			in.visitAll(n.List)
			in.statements(n.Body)
			return false
		case *ast.AssignStmt:
			// What is assigned to is no value.
			for _, left := range n.Lhs {
				if index, ok := left.(*ast.IndexExpr); ok {
					in.visit(index.Index)
				}
			}
			in.visitAll(n.Rhs)
			return false
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				_, literal := n.X.(*ast.CompositeLit)
				return literal
			}
		case *ast.SelectorExpr:
			in.expression(n)
			in.visit(n.X)
			return false
		case *ast.KeyValueExpr:
			in.visit(n.Value)
			return false
		case *ast.DeclStmt, *ast.IncDecStmt, *ast.RangeStmt:
			if loop, ok := n.(*ast.RangeStmt); ok {
				in.visit(loop.X)
				in.visit(loop.Body)
			}
			return false
		case ast.Expr:
			in.expression(n)
		}
		return true
	})
}

// statements mutates the statements of a block, and leaves out each call, assignment and jump.
func (in *instrumenter) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if text := in.text(s); !strings.HasPrefix(text, "log.FromContext(") && !strings.HasPrefix(text, "panic(") {
				in.mutate(s, "if !mutant(%d) { ", " }", "without %s", text)
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && in.text(s.Lhs[0]) != "_" {
				in.mutate(s, "if !mutant(%d) { ", " }", "without %s", in.text(s))
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
			in.mutate(s, "if !mutant(%d) { ", " }", "without %s", in.text(s))
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
				in.mutate(s, "if !mutant(%d) { ", " }", "without %s", in.text(s))
			}
		case *ast.ReturnStmt:
			in.returned(s)
		}
		in.statement(statement)
	}
}

// statement mutates what is in a statement, but not the result of a call that nothing uses.
func (in *instrumenter) statement(s ast.Stmt) {
	if unused, ok := s.(*ast.ExprStmt); ok {
		if call, ok := unused.X.(*ast.CallExpr); ok {
			in.visit(call.Fun)
			in.visitAll(call.Args)
			return
		}
	}
	in.visit(s)
}

// returned mutates the errors that a statement returns.
func (in *instrumenter) returned(s *ast.ReturnStmt) {
	results := in.results[len(in.results)-1].Results()
	if results.Len() != len(s.Results) {
		return
	}
	for i, result := range s.Results {
		if types.Identical(results.At(i).Type(), types.Universe.Lookup("error").Type()) && in.text(result) != "nil" {
			in.mutate(result, "mutantNil(%d, ", ")", "nil for the error in %s", in.text(s))
		}
	}
}

// expression mutates one expression, without those in it.
func (in *instrumenter) expression(n ast.Expr) {
	value := in.info.Types[n]
	if !value.IsValue() {
		return
	}
	switch e := n.(type) {
	case *ast.CompositeLit:
		in.fields(e)
		return
	case *ast.CallExpr:
		in.patterns(e)
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			in.operator(e)
			return
		}
	case *ast.UnaryExpr, *ast.ParenExpr:
		return
	}
	if basic, ok := value.Type.(*types.Basic); !ok || basic.Info()&types.IsBoolean == 0 {
		return
	}
	in.mutate(n, "mutantNot(%d, ", ")", "not %s", in.text(n))
	if comparison, ok := n.(*ast.BinaryExpr); ok {
		in.boundary(comparison)
	}
}

func (in *instrumenter) operator(e *ast.BinaryExpr) {
	name, other := "mutantAnd", "||"
	if e.Op == token.LOR {
		name, other = "mutantOr", "&&"
	}
	if ok := in.mutate(e, name+"(%d, ", ") })", "%s for %s in %s", other, e.Op, in.text(e)); ok {
		in.insert(e.OpPos, len(e.Op.String()), ", func() bool { return (", false)
	}
}

// boundary mutates what a comparison says of equal values. That of a greater value is a negated one of a less.
func (in *instrumenter) boundary(e *ast.BinaryExpr) {
	var (
		form  string
		other token.Token
	)
	switch e.Op {
	case token.LSS:
		form, other = "mutantLess(%d, false, ", token.LEQ
	case token.LEQ:
		form, other = "mutantLess(%d, true, ", token.LSS
	case token.GTR:
		form, other = "!mutantLess(%d, true, ", token.GEQ
	case token.GEQ:
		form, other = "!mutantLess(%d, false, ", token.GTR
	default:
		return
	}
	if ok := in.mutate(e, form, ")", "%s for %s in %s", other, e.Op, in.text(e)); ok {
		in.insert(e.OpPos, len(e.Op.String()), ", ", false)
	}
}

// fields leaves out each field of a literal. A boolean is negated instead.
func (in *instrumenter) fields(literal *ast.CompositeLit) {
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		value := in.info.Types[field.Value]
		basic, isBasic := value.Type.(*types.Basic)
		isZero := value.Value != nil && constant.Compare(value.Value, token.EQL, zeroOf(value.Value))
		if isZero || isBasic && (basic.Info()&types.IsBoolean != 0 || basic.Kind() == types.UntypedNil) {
			continue
		}
		in.mutate(field.Value, "mutantZero(%d, ", ")", "without %s", in.text(field))
	}
}

func zeroOf(value constant.Value) constant.Value {
	switch value.Kind() {
	case constant.String:
		return constant.MakeString("")
	case constant.Bool:
		return constant.MakeBool(false)
	default:
		return constant.MakeInt64(0)
	}
}

// patterns leaves out each text that a table passes to a function for any number of them.
func (in *instrumenter) patterns(call *ast.CallExpr) {
	signature, ok := in.info.TypeOf(call.Fun).(*types.Signature)
	if !ok || !in.inTable || !signature.Variadic() || call.Ellipsis.IsValid() {
		return
	}
	for _, arg := range call.Args[min(len(call.Args), signature.Params().Len()-1):] {
		if basic, ok := in.info.TypeOf(arg).(*types.Basic); ok && basic.Info()&types.IsString != 0 {
			in.mutate(arg, "mutantText(%d, ", ")", "without %s", in.text(arg))
		}
	}
}
