// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

const (
	// maxSteps bounds how many actions and functions a template runs, whichever branches it takes.
	maxSteps = 4096
	// maxRanges is how deep one range may be within another.
	maxRanges = 2
)

// problem is what a template may not do. It is wrapped with the place in the template, as text/template does.
type problem string

func (p problem) Error() string { return string(p) }

// checker walks the parse tree of a template before it is rendered. text/template can loop, recurse and double its
// variables, and nothing interrupts it. A template that passes does none of that: it runs at most maxSteps steps, each
// with a bounded result.
type checker struct {
	text      string
	variables *Variables
	steps     int
}

// scope is what surrounds a node of the tree.
type scope struct {
	// repeated is how often the node runs, and ranges the number of ranges that it is in.
	repeated, ranges int
	// isRoot says that the dot is that of the template, which has the variables.
	isRoot bool
}

// checkTemplate rejects what a template of user data may not do: nothing but variables, constants, if, with, range over
// what is given, and functions of the list.
func checkTemplate(parsed *template.Template, text string, variables *Variables) error {
	c := &checker{text: text, variables: variables}
	if parsed.Tree == nil || parsed.Root == nil {
		return nil
	}
	if err := c.list(parsed.Root, scope{repeated: 1, isRoot: true}); err != nil {
		return err
	}
	for _, part := range parsed.Templates() {
		if part.Name() != parsed.Name() && part.Tree != nil && part.Root != nil {
			return c.reject(part.Root, "define is not allowed; write the text where it is used")
		}
	}
	return nil
}

// reject returns an error with the place of a node. It never quotes the template, which may hold a join token.
func (c *checker) reject(node parse.Node, format string, args ...any) error {
	before := c.text[:min(len(c.text), int(node.Position()))]
	line, column := strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")
	return fmt.Errorf("template: userData:%d:%d: %w", line, column, problem(fmt.Sprintf(format, args...)))
}

func (c *checker) count(node parse.Node, s scope) error {
	if c.steps += s.repeated; c.steps > maxSteps {
		return c.reject(node, "the template runs more than %d actions and functions, since a range counts once for each "+
			"element; let it repeat less", maxSteps)
	}
	return nil
}

func (c *checker) list(list *parse.ListNode, s scope) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		if err := c.count(node, s); err != nil {
			return err
		}
		if err := c.node(node, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) node(node parse.Node, s scope) error {
	switch node := node.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		return c.pipe(node.Pipe, s)
	case *parse.IfNode:
		return c.branch(&node.BranchNode, s, s)
	case *parse.WithNode:
		within := s
		within.isRoot = false
		return c.branch(&node.BranchNode, within, s)
	case *parse.RangeNode:
		return c.loop(node, s)
	case *parse.TemplateNode:
		return c.reject(node, "template and block are not allowed; write the text where it is used")
	case *parse.BreakNode, *parse.ContinueNode:
		return c.reject(node, "break and continue are not allowed; use if")
	}
	return c.reject(node, "only variables, functions, if, with and range are allowed")
}

func (c *checker) branch(node *parse.BranchNode, within, otherwise scope) error {
	if err := c.pipe(node.Pipe, otherwise); err != nil {
		return err
	}
	if err := c.list(node.List, within); err != nil {
		return err
	}
	return c.list(node.ElseList, otherwise)
}

// loop is a range over one of the variables that are lists or maps, so that it is known how often it repeats.
func (c *checker) loop(node *parse.RangeNode, s scope) error {
	if s.ranges == maxRanges {
		return c.reject(node, "a range may be in one other range, not in more")
	}
	within := s
	within.ranges, within.isRoot = s.ranges+1, false
	name := ""
	if cmds := node.Pipe.Cmds; len(cmds) == 1 && len(cmds[0].Args) == 1 && !node.Pipe.IsAssign {
		name = variableOf(cmds[0].Args[0], s)
	}
	length, isList, err := c.lengthOf(name)
	if err != nil {
		return err
	}
	if !isList {
		return c.reject(node, "range takes a variable that is a list or a map, such as $.Labels, and no number, function or "+
			"part of a variable")
	}
	within.repeated *= length
	if err := c.list(node.List, within); err != nil {
		return err
	}
	return c.list(node.ElseList, s)
}

// variableOf returns the name of a variable that is used as a whole: .Labels, or $.Labels within a range or a with.
func variableOf(node parse.Node, s scope) string {
	switch node := node.(type) {
	case *parse.FieldNode:
		if s.isRoot && len(node.Ident) == 1 {
			return node.Ident[0]
		}
	case *parse.VariableNode:
		if len(node.Ident) == 2 && node.Ident[0] == "$" {
			return node.Ident[1]
		}
	}
	return ""
}

// lengthOf returns how many elements a variable has; one that is looked up is looked up now.
func (c *checker) lengthOf(name string) (length int, isList bool, err error) {
	if !slices.Contains(variableList, name) {
		return 0, false, nil
	}
	pointer := reflect.ValueOf(c.variables)
	value := pointer.Elem().FieldByName(name)
	if method := pointer.MethodByName(name); method.IsValid() {
		if kind := method.Type().Out(0).Kind(); kind != reflect.Slice {
			return 0, false, nil
		}
		results := method.Call(nil)
		if err, failed := results[1].Interface().(error); failed {
			return 0, false, err
		}
		value = results[0]
	}
	if value.Kind() != reflect.Slice && value.Kind() != reflect.Map {
		return 0, false, nil
	}
	return value.Len(), true, nil
}

func (c *checker) pipe(pipe *parse.PipeNode, s scope) error {
	if len(pipe.Decl) > 0 {
		return c.reject(pipe, "variables of your own are not allowed, only those of range; write the value where it is used")
	}
	for _, command := range pipe.Cmds {
		if err := c.count(command, s); err != nil {
			return err
		}
		function, isFunction := command.Args[0].(*parse.IdentifierNode)
		switch {
		case isFunction && functions[function.Ident] == nil && !builtins.Has(function.Ident):
			return c.reject(function, "the function %s is not allowed; functions are %s", function.Ident, functionNames)
		case !isFunction && len(command.Args) > 1:
			return c.reject(command, "only a function takes arguments; functions are %s", functionNames)
		}
		for i, argument := range command.Args {
			if i == 0 && isFunction {
				continue
			}
			if err := c.argument(argument, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// argument is a variable or a constant. Nothing in parentheses: many results would be held at the same time.
func (c *checker) argument(node parse.Node, s scope) error {
	var name string
	var keys []string
	switch node := node.(type) {
	case *parse.DotNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.NilNode:
		return nil
	case *parse.FieldNode:
		if !s.isRoot {
			return nil
		}
		name, keys = node.Ident[0], node.Ident[1:]
	case *parse.VariableNode:
		if node.Ident[0] != "$" || len(node.Ident) == 1 {
			return nil // a variable of a range: no other can be declared
		}
		name, keys = node.Ident[1], node.Ident[2:]
	case *parse.PipeNode, *parse.ChainNode:
		return c.reject(node, "parentheses are not allowed; chain functions with |")
	case *parse.IdentifierNode:
		return c.reject(node, "a function is no argument; chain functions with |")
	default:
		return c.reject(node, "an argument is a variable or a constant")
	}
	if !slices.Contains(variableList, name) {
		return c.reject(node, "a variable does not exist; variables are %s; within range and with, write $.NodeName%s",
			variableNames, bracesRemedy)
	}
	if _, given := c.variables.Values[strings.Join(keys, ".")]; name == "Values" && len(keys) > 0 && !given {
		return c.reject(node, "spec.userDataValues has no such key, it has %v; add it",
			slices.Sorted(maps.Keys(c.variables.Values)))
	}
	return nil
}
