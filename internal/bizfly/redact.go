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

package bizfly

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
)

const (
	redacted = "[REDACTED]"
	// minSecret is the shortest value that is searched for literally: shorter ones would shred every text.
	minSecret = 4
	// rememberedTokens is how many tokens are kept for redaction: the current one and those that requests under way
	// may still carry.
	rememberedTokens = 4
)

const secretKey = `(?:pass(?:word|wd)?|secret|token|credential(?:_id|_secret)?|user_?data|api_?key|authorization|private_?key)`

var (
	// The three ways in which a key and its value are echoed: JSON, JSON inside a JSON string, and plain text.
	quotedSecret  = regexp.MustCompile(`(?is)([\w.-]*` + secretKey + `[\w.-]*"\s*:\s*")(?:[^"\\]|\\.)*("|$)`)
	escapedSecret = regexp.MustCompile(`(?is)([\w.-]*` + secretKey + `[\w.-]*\\+"\s*:\s*\\+")(?:[^"\\]|\\[^"])*(\\+"|$)`)
	plainSecret   = regexp.MustCompile(`(?i)([\w.-]*` + secretKey + `[\w.-]*['"]?\s*[=:]\s*['"]?(?:basic |bearer )?)[^\s"'\\,;&}\[]+`)

	// secretMetadata are the metadata keys whose values are secrets.
	secretMetadata = regexp.MustCompile(`(?i)(token|secret|password)`)
)

// redactor removes what must never be read by a person from texts that the cloud sent back.
type redactor struct {
	fixed []string

	mu     sync.RWMutex
	tokens []string
}

func newRedactor(secrets ...string) *redactor {
	return &redactor{fixed: secrets}
}

// remember adds a token that was just issued.
func (r *redactor) remember(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = append(r.tokens, token)
	if len(r.tokens) > rememberedTokens {
		r.tokens = slices.Clone(r.tokens[len(r.tokens)-rememberedTokens:])
	}
}

// clean replaces every known secret, in each form in which it may be echoed, and every value behind a key that names
// a secret. It is applied before a text is shortened: half a secret is one too.
func (r *redactor) clean(text string, extra ...string) string {
	if text == "" {
		return ""
	}
	r.mu.RLock()
	secrets := slices.Concat(r.fixed, r.tokens, extra)
	r.mu.RUnlock()

	forms := lo.Uniq(lo.FlatMap(secrets, func(secret string, _ int) []string { return secretForms(secret) }))
	// The longest first, so that a secret which contains another one goes as a whole.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, redacted)
	}
	text = escapedSecret.ReplaceAllString(text, "${1}"+redacted+"${2}")
	text = quotedSecret.ReplaceAllString(text, "${1}"+redacted+"${2}")
	return plainSecret.ReplaceAllString(text, "${1}"+redacted)
}

// cause wraps an error so that its text is clean and bounded while its identity stays.
func (r *redactor) cause(err error, extra ...string) error {
	if err == nil {
		return nil
	}
	return &cleanError{text: shorten(r.clean(err.Error(), extra...), maxMessage), cause: err}
}

// secretForms are the spellings of one secret: as it is, in JSON, in JSON inside JSON, in a URL and in base64.
func secretForms(secret string) []string {
	if len(secret) < minSecret {
		return nil
	}
	once := jsonEscape(secret)
	return []string{
		secret, once, jsonEscape(once), url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)),
	}
}

func jsonEscape(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return text
	}
	return strings.Trim(string(quoted), `"`)
}

// requestSecrets are what a create request carries that no error may repeat: the user data, whole and line by line
// because an error may quote a part of it, and metadata such as the BKE join token.
func requestSecrets(request *gobizfly.ServerCreateRequest) []string {
	var secrets []string
	if request.UserData != "" {
		secrets = append(secrets, request.UserData)
		for _, line := range strings.Split(request.UserData, "\n") {
			// Short lines such as "fi" say nothing and would shred the text.
			if line = strings.TrimSpace(line); len(line) >= 16 {
				secrets = append(secrets, line)
			}
		}
	}
	for key, value := range request.Metadata {
		if secretMetadata.MatchString(key) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}
