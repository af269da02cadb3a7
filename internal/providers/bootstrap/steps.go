/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package bootstrap

import (
	"errors"
	"slices"
	"text/template"
	"text/template/parse"
)

const (
	// maxSteps bounds how often a template may go round its loops and call its parts: range also takes a number, and one
	// that writes nothing is not stopped by the size of what it makes.
	maxSteps = 4096
	// stepFunction is called at each of them.
	stepFunction = "_step"
)

var errTooLong = errors.New("the template goes on for too long")

// stepNode is {{ _step }}, which writes nothing.
var stepNode = template.Must(template.New("step").Funcs(template.FuncMap{stepFunction: func() string { return "" }}).
	Parse("{{ " + stepFunction + " }}")).Root.Nodes[0]

// bindSteps makes a template fail once it has taken more steps than any user data needs: text/template itself cannot be
// interrupted, and a controller that renders for ever launches nothing any more.
func bindSteps(parsed *template.Template) {
	steps := 0
	parsed.Funcs(template.FuncMap{stepFunction: func() (string, error) {
		if steps++; steps > maxSteps {
			return "", errTooLong
		}
		return "", nil
	}})
	for _, part := range parsed.Templates() {
		if part.Tree != nil && part.Root != nil {
			countLoops(part.Root)
			countEach(part.Root)
		}
	}
}

// countLoops puts a step into each loop of a list of nodes.
func countLoops(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.RangeNode:
			countLoops(node.List)
			countLoops(node.ElseList)
			countEach(node.List)
		case *parse.IfNode:
			countLoops(node.List)
			countLoops(node.ElseList)
		case *parse.WithNode:
			countLoops(node.List)
			countLoops(node.ElseList)
		}
	}
}

// countEach puts a step before everything else.
func countEach(list *parse.ListNode) { list.Nodes = slices.Insert(list.Nodes, 0, stepNode) }
