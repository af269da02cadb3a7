// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from texts that others wrote: answers of the cloud, logs, events and objects of a
// cluster. It knows the secrets that it was told, in every spelling, and what looks like one. The controller and the
// support bundle of the kubectl plugin share it, so that neither shows what the other removes.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/samber/lo"
)

// Removed stands where a secret was.
const Removed = "[REDACTED]"

const (
	// minSecret is the shortest value that is searched for literally: shorter ones would shred every text.
	minSecret = 6
	// rememberedCredentials outlive a few rotations, since calls under way finish with the old ones.
	rememberedCredentials = 16 << 10
	// rememberedTokens are the current token of the API and those that requests under way may still carry.
	rememberedTokens = 64 << 10
	// rememberedRequests are the secrets of requests: a task may quote those of its create request minutes later. It is
	// enough for the largest user data of some twenty launches, and each is kept in a handful of spellings.
	rememberedRequests = 1 << 20
)

// keywords are the words of which Key is made: a text without any of them has no such field.
var keywords = []string{"pass", "pwd", "secret", "token", "credential", "data", "key", "auth", "cookie"}

// Key matches the end of the names under which secrets are sent; what stands before it does not matter.
const Key = `(?:pass(?:word|wd|phrase)?|pwd|secret|token|credential(?:_id|_secret)?|user_?data|` +
	`(?:api|access|private)[_-]?key|authorization|cookie)[\w.-]*`

// rule replaces what it matches.
type rule struct {
	// need is a text without which it matches nothing: looking for that first makes the rest cheap.
	need    string
	pattern *regexp.Regexp
	with    string
}

// shapes are secrets that look alike wherever they are.
var shapes = []rule{
	{"PRIVATE KEY-----", regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?` +
		`(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), Removed},
	// The password of a URL may hold a slash and an @ that its writer did not escape: it ends at the last @ of the
	// word.
	{"://", regexp.MustCompile(`(\b[a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s"'<>@/?#:]*:[^\s"'<>]*|[^\s"'<>@/?#]+)@`),
		"${1}" + Removed + "@"},
	{"eyJ", regexp.MustCompile(`\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)*`), Removed}, // JSON Web Tokens
	{"K10", k3sToken, Removed},
	{".", bootstrapToken, Removed},
}

var (
	// k3sToken is the token of a K3s server: the hash of its authority, a user and the password.
	k3sToken = regexp.MustCompile(`\bK10\w*::[\w.-]*:[^\s"',;}\\]+`)
	// bootstrapToken is the id and the secret of a bootstrap token, as kubeadm writes it.
	bootstrapToken = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
)

// fields are the ways in which a key and its secret are written, each up to the end of the value or of the text.
var fields = []rule{
	// JSON inside a JSON string, whose own quotes are escaped once more.
	{`\"`, regexp.MustCompile(`(?is)(` + Key + `\\+"\s*:\s*\\+")(?:[^"\\]|\\\\(?:\\["\\]|[^"\\])|\\[^"\\])*(\\+"|$)`),
		"${1}" + Removed + "${2}"},
	// JSON, and quoted values of YAML and shells.
	{`"`, regexp.MustCompile(`(?is)(` + Key + `(?:"\s*:\s*|[ \t]*=[ \t]*|:[ \t]+)")(?:[^"\\]|\\.)*("|$)`),
		"${1}" + Removed + "${2}"},
	{`'`, regexp.MustCompile(`(?i)(` + Key + `['"]?[ \t]*[:=][ \t]*')(?:[^'\\\n]|\\.)*('|$)`), "${1}" + Removed + "${2}"},
	// A bare value of JSON is a number; behind an equals sign the value is one word; behind a colon the rest of the
	// line.
	{`:`, regexp.MustCompile(`(?i)(` + Key + `['"][ \t]*:[ \t]*)-?\d[\d.e+-]*`), "${1}" + Removed},
	{`=`, regexp.MustCompile(`(?i)(` + Key + `['"]?[ \t]*=[ \t]*)(?:[^\s"'&\\{\[]|\\[^"'\s])(?:[^\s"'&\\]|\\[^"'\s])*`),
		"${1}" + Removed},
	{`:`, regexp.MustCompile(`(?i)(` + Key + `[ \t]*:[ \t]*)(?:[^\s"'\\{\[|>]|\\[^"n])(?:[^"\\\n]|\\[^"n])*`),
		"${1}" + Removed},
}

// harmless are values that are no secret, and that JSON cannot do without.
var harmless = regexp.MustCompile(`(?i)[:=]\s*(?:null|true|false)$`)

// Redactor removes secrets from texts. The zero value knows none by heart.
type Redactor struct {
	mu sync.RWMutex
	// Each has a limit of its own, so that the user data of a thousand servers does not push a password out.
	credentials, tokens, requests []known
}

// known is a secret in every spelling.
type known struct {
	secret string
	forms  []string
}

// LearnCredentials adds what a login sends.
func (r *Redactor) LearnCredentials(secrets ...string) {
	r.learn(&r.credentials, rememberedCredentials, secrets)
}

// LearnToken adds a token of the API that was just issued.
func (r *Redactor) LearnToken(token string) { r.learn(&r.tokens, rememberedTokens, []string{token}) }

// LearnRequest adds the secrets of a request, such as its user data, and the join tokens in them.
func (r *Redactor) LearnRequest(secrets ...string) {
	for _, secret := range secrets {
		r.learn(&r.requests, rememberedRequests, append(slices.Concat(k3sToken.FindAllString(secret, -1),
			bootstrapToken.FindAllString(secret, -1)), secret))
	}
}

// learn keeps the newest secrets up to a number of bytes, and the last one in any case. A secret that is learned again
// is new.
func (r *Redactor) learn(secrets *[]known, limit int, learned []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range learned {
		if len(strings.TrimSpace(secret)) < minSecret {
			continue
		}
		kept, forms := lo.FilterReject(*secrets, func(k known, _ int) bool { return k.secret != secret })
		if len(forms) == 0 {
			forms = []known{{secret, spellings(secret)}}
		}
		*secrets = append(kept, forms...)
	}
	size := 0
	for i, k := range slices.Backward(*secrets) {
		if size += len(k.secret); size > limit && i < len(*secrets)-1 {
			*secrets = slices.Clone((*secrets)[i+1:])
			return
		}
	}
}

// Text replaces every known secret, in each spelling, what looks like a secret, and every value behind a key that names
// one. It is applied before a text is shortened: half a secret is one too.
func (r *Redactor) Text(text string) string {
	r.mu.RLock()
	all := slices.Concat(r.credentials, r.tokens, r.requests)
	r.mu.RUnlock()

	forms := lo.Uniq(lo.FlatMap(all, func(k known, _ int) []string { return k.forms }))
	// The longest first, so that a secret which contains another one is replaced completely.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, Removed)
	}
	for _, r := range shapes {
		if strings.Contains(text, r.need) {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
	}
	lower := strings.ToLower(text)
	if !lo.SomeBy(keywords, func(word string) bool { return strings.Contains(lower, word) }) {
		return text
	}
	for _, r := range fields {
		if !strings.Contains(text, r.need) {
			continue
		}
		text = r.pattern.ReplaceAllStringFunc(text, func(match string) string {
			if harmless.MatchString(match) {
				return match
			}
			return r.pattern.ReplaceAllString(match, r.with)
		})
	}
	return text
}

// spellings are those of one secret: as it is, in JSON, in JSON inside JSON, in a URL and in base64. The blank space
// around user data is not always repeated.
func spellings(secret string) []string {
	plain := strings.TrimSpace(secret)
	all := []string{
		plain, url.QueryEscape(plain), url.PathEscape(plain),
		base64.StdEncoding.EncodeToString([]byte(plain)), base64.StdEncoding.EncodeToString([]byte(secret)),
	}
	for _, escape := range []func(string) string{goJSON, plainJSON, asciiJSON} {
		all = append(all, escape(plain), escape(escape(plain)))
	}
	return lo.Uniq(all)
}

// goJSON is a text within JSON as Go writes it, which escapes <, > and &.
func goJSON(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be encoded
	return strings.TrimSuffix(strings.TrimPrefix(string(quoted), `"`), `"`)
}

// plainJSON is that of most other writers, and of logs.
func plainJSON(text string) string {
	out := &strings.Builder{}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return strings.TrimSuffix(strings.TrimPrefix(out.String(), `"`), "\"\n")
}

// asciiJSON is that of Python, which escapes letters with accents.
func asciiJSON(text string) string {
	out := &strings.Builder{}
	for _, unit := range utf16.Encode([]rune(plainJSON(text))) {
		if unit < utf8.RuneSelf {
			out.WriteRune(rune(unit))
			continue
		}
		fmt.Fprintf(out, `\u%04x`, unit)
	}
	return out.String()
}
