// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// position is the line and column in text/template's errors: the only part of them that never quotes the template,
// which may hold a join token.
var position = regexp.MustCompile(`^template: [^:]*:(\d+)(?::(\d+))?:`)

// plausible is an input with which a template is tried. Labels that a NodePool may bring are not known then, so a
// missing key of a map is no error yet.
func plausible(nodeClass *v1alpha1.BizflyNodeClass) Input {
	return Input{
		NodeName:          "nodepool-x7k2p-0a1b2c3d",
		NodeClaim:         &karpv1.NodeClaim{},
		NodeClass:         nodeClass,
		KubernetesVersion: "v1.35.4",
		NetworkIDs:        []string{"00000000-0000-0000-0000-000000000000"},
		CPU:               2,
		MemoryMiB:         4096,
	}
}

func (s source) render(variables *Variables, tried bool) (string, error) {
	missingKey := "missingkey=error"
	if tried {
		missingKey = "missingkey=zero"
	}
	// Parsed each time: a launch takes seconds and a template microseconds, and a cache would have to be bounded.
	parsed, err := template.New("userData").Funcs(functions).Option(missingKey).Parse(s.text)
	if err != nil {
		return "", invalidUserData(s.field, at(err),
			"the template does not parse: a brace or quote is missing, or a function does not exist; functions are "+
				functionNames+bracesRemedy)
	}
	out := &limitedBuffer{}
	if err = checkTemplate(parsed, s.text, variables); err == nil {
		err = parsed.Execute(out, variables)
	}
	var invalid *ValidationError
	var lookup *lookupError
	var said problem
	switch {
	case err == nil:
		return out.written.String(), nil
	case errors.As(err, &invalid):
		return "", invalid
	case errors.As(err, &lookup):
		return "", lookup
	case errors.As(err, &said):
		return "", invalidUserData(s.field, at(err), string(said))
	}
	return "", invalidUserData(s.field, at(err),
		"the template cannot be rendered: a key does not exist, or a function got what it cannot use; functions are "+
			functionNames)
}

// bracesRemedy is for those who wrote braces for another program.
const bracesRemedy = "; braces of another program are a constant, such as docker ps --format '{{ \"{{.Names}}\" }}'"

// at returns the line and column of a template error, and nothing else of it.
func at(err error) string {
	found := position.FindStringSubmatch(err.Error())
	switch {
	case found == nil:
		return ""
	case found[2] == "":
		return ", line " + found[1]
	}
	return fmt.Sprintf(", line %s, column %s", found[1], found[2])
}

var errTooLarge = invalidUserData(fieldUserData, "", fmt.Sprintf(
	"the rendered user data, with all its parts, is larger than the %d bytes that are accepted; let it download the rest",
	maxUserDataBytes))

// limitedBuffer does not grow beyond what BizFly Cloud accepts.
type limitedBuffer struct{ written bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.written.Len()+len(p) > maxUserDataBytes {
		return 0, errTooLarge
	}
	return b.written.Write(p)
}

// functions are what a template can call, beside and, or, not, eq, ne, len and index of text/template. Their names and
// the order of their arguments are sprig's, which Helm has made known:
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
//	printf format v...   with the verb %s alone
//
// No result is larger than user data can be: templates run in the controller.
var functions = template.FuncMap{
	"toYaml":    toYAML,
	"toJson":    func(v any) (string, error) { return marshaled(json.Marshal(v)) },
	"b64enc":    func(s string) (string, error) { return bounded(base64.StdEncoding.EncodeToString([]byte(s))) },
	"indent":    indent,
	"nindent":   func(n int, s string) (string, error) { out, err := indent(n, s); return "\n" + out, err },
	"quote":     func(v any) (string, error) { return bounded(strconv.Quote(fmt.Sprint(v))) },
	"squote":    func(v any) (string, error) { return bounded(shellQuote(fmt.Sprint(v))) },
	"join":      join,
	"splitList": splitList,
	"sha256sum": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
	"default":   defaultTo,
	"lower":     func(s string) (string, error) { return bounded(strings.ToLower(s)) },
	"upper":     func(s string) (string, error) { return bounded(strings.ToUpper(s)) },
	"trim":      func(s string) (string, error) { return bounded(strings.TrimSpace(s)) },
	"replace":   replace,
	"contains":  func(part, s string) bool { return strings.Contains(s, part) },
	"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"printf":    printf,
}

// builtins are those functions of text/template that a template can call.
var builtins = sets.New("and", "or", "not", "eq", "ne", "len", "index")

// functionNames is for errors.
var functionNames = strings.Join(slices.Sorted(maps.Keys(functions)), ", ") + ", " +
	strings.Join(sets.List(builtins), ", ")

// toYAML counts before it writes YAML, which takes a hundred times the memory of JSON.
func toYAML(v any) (string, error) {
	out, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	if len(out) > 4*maxUserDataBytes { // JSON escapes what YAML does not
		return "", errTooLarge
	}
	return marshaled(yaml.JSONToYAML(out))
}

func marshaled(out []byte, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return bounded(strings.TrimSuffix(string(out), "\n"))
}

// shellQuote makes one word of any text: nothing is special between single quotes but the quote itself.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func indent(n int, s string) (string, error) {
	if n < 0 || n > maxUserDataBytes {
		return "", fmt.Errorf("indent takes 0 to %d blanks", maxUserDataBytes)
	}
	blanks := strings.Repeat(" ", n)
	out, err := replace("\n", "\n"+blanks, s)
	if err != nil {
		return "", err
	}
	return bounded(blanks + out)
}

// replace counts before it allocates: nothing else makes text grow as fast.
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

// formats are those of printf: a width is a few bytes of a template and up to a megabyte of its result.
var formats = regexp.MustCompile(`^([^%]|%[s%])*$`)

const errFormat = problem("printf takes the verb %s alone, once for each value, and %% for a percent sign")

func printf(format string, values ...any) (string, error) {
	if !formats.MatchString(format) || strings.Count(strings.ReplaceAll(format, "%%", ""), "%s") != len(values) {
		return "", errFormat
	}
	total := 0
	texts := make([]any, 0, len(values))
	for _, value := range values {
		text := fmt.Sprint(value)
		if total += len(text); total > maxUserDataBytes {
			return "", errTooLarge
		}
		texts = append(texts, text)
	}
	return bounded(fmt.Sprintf(format, texts...))
}

func join(separator string, list []string) (string, error) {
	if len(list)*len(separator) > maxUserDataBytes+len(separator) {
		return "", errTooLarge
	}
	return bounded(strings.Join(list, separator))
}

// splitList returns no part of an empty text, so that a list of no labels is an empty list.
func splitList(separator, s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	if _, err := bounded(s); err != nil {
		return nil, err
	}
	return strings.Split(s, separator), nil
}

func defaultTo(fallback, v any) any {
	if truth, _ := template.IsTrue(v); !truth {
		return fallback
	}
	return v
}
