// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// Difference is one thing that two clouds do not answer alike.
type Difference struct {
	// Where is the answer, with the path in it, or the finding.
	Where string `json:"where"`
	// What is how they differ.
	What string `json:"what"`
}

// String returns it in one line.
func (d Difference) String() string { return d.Where + ": " + d.What }

// words are the fields whose values decide what we do: a word that the sandbox never uses is a case that it never tests.
var words = []string{"status", "OS-EXT-STS:vm_state", "action", "attached_type", "success", "ready", "code", "billing_type"}

// Compare returns where the responses of the sandbox differ from those of the real cloud. What the real cloud was not asked is not missed.
func Compare(actual, sandbox *Document) []Difference {
	var differences []Difference
	report := func(where, format string, args ...any) {
		differences = append(differences, Difference{Where: where, What: fmt.Sprintf(format, args...)})
	}
	for _, key := range keys(actual.Findings, sandbox.Findings) {
		theirs, asked := actual.Findings[key]
		ours, known := sandbox.Findings[key]
		switch {
		case !asked || !theirs.Behaviour:
		case !known:
			report(key, "the sandbox was not asked: %s", theirs.Question)
		case !same(theirs.Answer, ours.Answer):
			report(key, "%s: the cloud has %v, the sandbox %v", theirs.Question, theirs.Answer, ours.Answer)
		}
	}
	for _, key := range keys(actual.Answers, sandbox.Answers) {
		theirs, ours := actual.Answers[key], sandbox.Answers[key]
		switch {
		case theirs == nil:
			report(key, "only the sandbox answers so")
		case ours == nil:
			report(key, "only the cloud answers so")
		default:
			compareAnswers(key, theirs, ours, report)
		}
	}
	return differences
}

func compareAnswers(key string, theirs, ours *Answer, report func(where, format string, args ...any)) {
	if !slices.Equal(theirs.ContentTypes, ours.ContentTypes) {
		report(key, "the cloud's content type is %v, the sandbox's %v", theirs.ContentTypes, ours.ContentTypes)
	}
	for _, path := range keys(theirs.Shape, ours.Shape) {
		where := strings.TrimSuffix(key+" "+path, " ")
		cloud, sandbox := theirs.Shape[path], ours.Shape[path]
		switch {
		case !reachable(path, theirs) || !reachable(path, ours):
			// What would hold it was empty or null on one side: it cannot be compared.
		case len(sandbox) == 0:
			report(where, "only the cloud has it (%s)", strings.Join(cloud, " or "))
		case len(cloud) == 0:
			report(where, "only the sandbox has it (%s)", strings.Join(sandbox, " or "))
		// What can be null is a matter of data: one side may just not have had one.
		case !slices.Equal(lo.Without(cloud, "null"), lo.Without(sandbox, "null")) && len(lo.Without(cloud, "null")) > 0 && len(lo.Without(sandbox, "null")) > 0:
			report(where, "the cloud has %s, the sandbox %s", strings.Join(cloud, " or "), strings.Join(sandbox, " or "))
		}
	}
	for _, path := range keys(theirs.Values, nil) {
		name := path[strings.LastIndexAny(path, ".]")+1:]
		if missing, _ := lo.Difference(theirs.Values[path], ours.Values[path]); slices.Contains(words, name) && len(missing) > 0 {
			report(key+" "+path, "the sandbox never has %s", strings.Join(missing, ", "))
		}
	}
}

// reachable reports whether an answer had what could have held the path.
func reachable(path string, answer *Answer) bool {
	for above := path; above != ""; {
		cut := strings.LastIndexAny(above, ".[")
		if cut < 0 {
			break
		}
		above = above[:cut]
		if _, ok := answer.Shape[above]; !ok {
			return false
		}
		if _, filled := answer.Shape[above+"[]"]; strings.HasPrefix(path[len(above):], "[]") && !filled {
			return false
		}
	}
	if strings.HasPrefix(path, "[]") {
		_, filled := answer.Shape["[]"]
		return filled
	}
	return true
}

// same compares what was just learned with what was read from a file.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprint(a) == fmt.Sprint(b)
}

func keys[V any](a, b map[string]V) []string {
	all := lo.Union(lo.Keys(a), lo.Keys(b))
	slices.Sort(all)
	return all
}
