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
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// maxIndent bounds indent: user data is text, and a template must not be able to ask for gigabytes of blanks.
const maxIndent = 256

// functions are what a template can call beside those of text/template. Their names and the order of their arguments are
// sprig's, which Helm has made known:
//
//	toYaml v             v as YAML, without a trailing newline
//	toJson v             v as JSON
//	b64enc s             s in base64
//	indent n s           each line of s behind n blanks
//	nindent n s          a newline, then indent n s
//	quote s, squote s    s in double quotes (escaped) or single quotes (as one word for a shell)
//	join sep list        the elements with the separator between them
//	splitList sep s      the parts of s between the separators, as a list
//	sha256sum s          the SHA-256 of s in hexadecimal
//	default d v          v, or d where v is empty
//	lower s, upper s, trim s, replace old new s
//	contains sub s, hasPrefix prefix s, hasSuffix suffix s
//
// Every function that makes text refuses to make more than user data can hold, those of text/template that are replaced
// here included: templates run in the controller, and a few lines that double a variable would otherwise eat its memory.
var functions = template.FuncMap{
	"toYaml":    toYAML,
	"toJson":    toJSON,
	"b64enc":    func(s string) (string, error) { return bounded(base64.StdEncoding.EncodeToString([]byte(s))) },
	"indent":    indent,
	"nindent":   func(n int, s string) (string, error) { out, err := indent(n, s); return "\n" + out, err },
	"quote":     func(v any) (string, error) { return bounded(strconv.Quote(fmt.Sprint(v))) },
	"squote":    func(v any) (string, error) { return bounded(shellQuote(fmt.Sprint(v))) },
	"join":      join,
	"splitList": splitList,
	"sha256sum": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
	"default":   defaultTo,
	"lower":     strings.ToLower,
	"upper":     strings.ToUpper,
	"trim":      strings.TrimSpace,
	"replace":   replace,
	"contains":  func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"print":     func(v ...any) (string, error) { return bounded(fmt.Sprint(v...)) },
	"printf":    func(format string, v ...any) (string, error) { return bounded(fmt.Sprintf(format, v...)) },
	"println":   func(v ...any) (string, error) { return bounded(fmt.Sprintln(v...)) },
	"html":      func(v ...any) (string, error) { return bounded(template.HTMLEscaper(v...)) },
	"js":        func(v ...any) (string, error) { return bounded(template.JSEscaper(v...)) },
	"urlquery":  func(v ...any) (string, error) { return bounded(template.URLQueryEscaper(v...)) },
}

// functionNames is what an error says that there is.
var functionNames = strings.Join(slices.Sorted(maps.Keys(functions)), ", ")

func toYAML(v any) (string, error) {
	out, err := yaml.Marshal(v)
	if err != nil {
		return "", err
	}
	return bounded(strings.TrimSuffix(string(out), "\n"))
}

func toJSON(v any) (string, error) {
	out, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return bounded(string(out))
}

func indent(n int, s string) (string, error) {
	if n < 0 || n > maxIndent {
		return "", fmt.Errorf("indent takes 0 to %d blanks", maxIndent)
	}
	blanks := strings.Repeat(" ", n)
	out, err := replace("\n", "\n"+blanks, s)
	return blanks + out, err
}

// replace counts before it makes the text: replacing is what grows text the fastest.
func replace(from, to, s string) (string, error) {
	if strings.Count(s, from)*len(to) > maxUserDataBytes {
		return "", errTooLarge
	}
	return bounded(strings.ReplaceAll(s, from, to))
}

func bounded(s string) (string, error) {
	if len(s) > maxUserDataBytes {
		return "", errTooLarge
	}
	return s, nil
}

func join(separator string, list any) (string, error) {
	v := reflect.ValueOf(list)
	if !v.IsValid() {
		return "", nil
	}
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return "", errors.New("join takes a list")
	}
	parts := make([]string, 0, v.Len())
	for i := range v.Len() {
		parts = append(parts, fmt.Sprint(v.Index(i).Interface()))
	}
	return bounded(strings.Join(parts, separator))
}

// splitList has no part of nothing, so that a list of no labels is an empty list.
func splitList(separator, s string) []string {
	if s == "" {
		return []string{}
	}
	return strings.Split(s, separator)
}

func defaultTo(fallback, v any) any {
	if truth, ok := template.IsTrue(v); !ok || !truth {
		return fallback
	}
	return v
}
