// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

// texts are further forms in which files, logs and objects of a cluster write secrets, beside those that BizFly Cloud
// answers with.
var texts = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// The name of a data source of Go's SQL drivers.
	{regexp.MustCompile(`[^\s"'<>=:/@]+:[^\s"'<>]*@((?:tcp|udp|unix)\()`), redact.Removed + "@${1}"},
	// What Docker's configuration holds is user and password in base64.
	{regexp.MustCompile(`(?i)("_?auth\\*"\s*:\s*\\*"|\b_auth[ \t]*=[ \t]*)[\w+/=-]+`), "${1}" + redact.Removed},
	// Command lines and XML.
	{regexp.MustCompile(`(?i)(-[\w.-]*` + redact.Key + `[ \t]+)(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`), "${1}" + redact.Removed},
	{regexp.MustCompile(`(?i)(<[\w.:-]*` + redact.Key + `>)[^<]*`), "${1}" + redact.Removed},
	{regexp.MustCompile(`(?i)(` + redact.Key + `%3[Dd])[^\s"'&]+`), "${1}" + redact.Removed},
}

// secretKey reports whether a field of this name holds a secret.
func secretKey(name string) bool { return wholeKey.MatchString(name) }

var wholeKey = regexp.MustCompile(`(?i)^[\w.-]*` + redact.Key + `$`)

// Redact removes secrets from a text: those that are known and what looks like one, then the forms of texts, objects of
// JSON and blocks of YAML behind a key that names one.
func Redact(known *redact.Redactor, text string) string {
	text = withoutBlocks(withoutNested(known.Text(text)))
	for _, t := range texts {
		text = t.pattern.ReplaceAllString(text, t.with)
	}
	return text
}

// nestedKey is a key of JSON whose value is a list or an object, as far as the bracket.
var nestedKey = regexp.MustCompile(`(?i)` + redact.Key + `\\*["']\s*:\s*[\[{]`)

// withoutNested replaces lists and objects behind a key that names a secret.
func withoutNested(text string) string {
	for from := 0; ; {
		at := nestedKey.FindStringIndex(text[from:])
		if at == nil {
			return text
		}
		begin := from + at[1] - 1
		end := begin + nestedLength(text[begin:])
		quote := strings.Repeat(`\`, strings.Count(text[from+at[0]:begin], `\`)) + `"`
		text = text[:begin] + quote + redact.Removed + quote + text[end:]
		from = begin + len(quote) + len(redact.Removed)
	}
}

// nestedLength is how long a list or an object is that the text begins with; it is the rest of a text that is cut off.
// The quotes of its strings may be escaped, each as often as the first one.
func nestedLength(text string) int {
	depth, level, slashes, inString := 0, -1, 0, false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\':
			slashes++
			continue
		case c == '"':
			if level < 0 {
				level = slashes
			}
			if slashes == level {
				inString = !inString
			}
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		slashes = 0
	}
	return len(text)
}

var (
	// lineEnd ends a line, also where the text is in a string of JSON.
	lineEnd = regexp.MustCompile(`\n|\\+n`)
	// blockKey is a line of YAML whose value are the lines after it that are indented further.
	blockKey = regexp.MustCompile(`(?i)^(?:.*")?[ \t]*(?:- +)*["']?[\w.-]*` + redact.Key + `["']?[ \t]*:[ \t]*[|>][\d+-]*[ \t]*(?:#.*)?\r?$`)
)

// withoutBlocks replaces the blocks of YAML behind a key that names a secret.
func withoutBlocks(text string) string {
	if !strings.ContainsAny(text, "|>") {
		return text
	}
	var kept strings.Builder
	within, removed := -1, false // the indent of the key whose block this is
	for text != "" {
		line, end := text, ""
		if at := lineEnd.FindStringIndex(text); at != nil {
			line, end = text[:at[0]], text[at[0]:at[1]]
		}
		text = text[len(line)+len(end):]
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if within >= 0 && (strings.TrimSpace(line) == "" || indent > within) {
			if !removed {
				kept.WriteString(strings.Repeat(" ", within+2) + redact.Removed + end)
			}
			removed = true
			continue
		}
		within, removed = -1, false
		if blockKey.MatchString(line) {
			within = indent
		}
		kept.WriteString(line + end)
	}
	return kept.String()
}

// shownAnnotations are the domains whose annotations are shown. Others may hold anything, such as the whole object as
// it was applied, compressed, in which no redactor finds a secret.
var shownAnnotations = regexp.MustCompile(`^((karpenter|bke)\.bizflycloud\.vn|karpenter\.sh|meta\.helm\.sh|` +
	`(deployment|node\.alpha)\.kubernetes\.io)/`)

func removeAnnotations(value any) {
	annotations, _ := value.(map[string]any)
	for name := range annotations {
		if !shownAnnotations.MatchString(name) {
			annotations[name] = redact.Removed
		}
	}
}

// references are the fields by which an object names a Secret.
var references = []string{"name", "namespace", "key", "kind", "ttl"}

// removeTexts removes the texts in a list or an object whose name says that it is secret. What it refers to stays.
func removeTexts(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if _, isText := child.(string); isText && !slices.Contains(references, key) {
				v[key] = redact.Removed
			} else {
				removeTexts(child)
			}
		}
	case []any:
		for i, child := range v {
			if _, isText := child.(string); isText {
				v[i] = redact.Removed
			} else {
				removeTexts(child)
			}
		}
	}
}

// scrub removes what is secret from each field, where it is known by the field's name: user data, of which the hash
// stays, the values of environment variables, of which the names stay, and what redact knows of names and texts.
func (b *Bundle) scrub(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			text, isText := child.(string)
			switch variables, _ := child.([]any); {
			case isText && key == "userData":
				v[key] = fmt.Sprintf("%s sha256 %x", redact.Removed, sha256.Sum256([]byte(text)))
				continue
			case isText && secretKey(key):
				v[key] = redact.Removed
				continue
			case key == "annotations":
				removeAnnotations(child)
			case secretKey(key):
				removeTexts(child)
			case key == "env":
				for _, variable := range variables {
					if fields, ok := variable.(map[string]any); ok {
						delete(fields, "value")
					}
				}
			}
			v[key] = b.scrub(child)
		}
	case []any:
		for i := range v {
			v[i] = b.scrub(v[i])
		}
	case string:
		return Redact(b.redactor, v)
	}
	return value
}
