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
	// rememberedCredentials outlive a few rotations, since calls under way finish with the old ones.
	rememberedCredentials = 8
	// rememberedRequests is how many secrets of requests are kept: a task may quote those of its create request minutes later.
	rememberedRequests = 256
)

// secretKey matches the names under which secrets are sent.
const secretKey = `(?:pass(?:word|wd)?|secret|token|credential(?:_id|_secret)?|user_?data|` +
	`api_?key|authorization|private_?key)`

var (
	// The three ways in which a key and its value are echoed: JSON, JSON inside a JSON string, and plain text.
	quotedSecret  = regexp.MustCompile(`(?is)([\w.-]*` + secretKey + `[\w.-]*"\s*:\s*")(?:[^"\\]|\\.)*("|$)`)
	escapedSecret = regexp.MustCompile(`(?is)([\w.-]*` + secretKey + `[\w.-]*\\+"\s*:\s*\\+")(?:[^"\\]|\\[^"])*(\\+"|$)`)
	plainSecret   = regexp.MustCompile(`(?i)([\w.-]*` + secretKey + `[\w.-]*['"]?\s*[=:]\s*['"]?(?:basic |bearer )?)[^\s"'\\,;&}\[]+`)

	// secretMetadata are the metadata keys whose values are secrets.
	secretMetadata = regexp.MustCompile(`(?i)(token|secret|password)`)
)

// redactor removes what must never be shown from texts that the cloud sent back.
type redactor struct {
	mu sync.RWMutex
	// Each has a limit of its own, so that the lines of a thousand user data do not push a password out.
	credentials, tokens, requests memory
}

// memory is the newest of some secrets, in every spelling.
type memory []knownSecret

type knownSecret struct {
	secret string
	forms  []string
}

func (m memory) with(limit int, secrets ...string) memory {
	for _, secret := range secrets {
		if !slices.ContainsFunc(m, func(known knownSecret) bool { return known.secret == secret }) {
			m = append(m, knownSecret{secret, secretForms(secret)})
		}
	}
	if len(m) > limit {
		m = slices.Clone(m[len(m)-limit:])
	}
	return m
}

// learnCredentials adds what a login sends.
func (r *redactor) learnCredentials(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credentials = r.credentials.with(rememberedCredentials, secrets...)
}

// learnToken adds a token that was just issued.
func (r *redactor) learnToken(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = r.tokens.with(rememberedTokens, token)
}

// learnRequest adds the secrets of a request. The join token and most user data are alike from one to the next.
func (r *redactor) learnRequest(secrets []string) {
	if len(secrets) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = r.requests.with(rememberedRequests, secrets...)
}

// clean replaces every known secret, in each form in which it may be echoed, and every value behind a key that names
// a secret. It is applied before a text is shortened: half a secret is one too.
func (r *redactor) clean(text string) string {
	if text == "" {
		return ""
	}
	r.mu.RLock()
	known := slices.Concat(r.credentials, r.tokens, r.requests)
	r.mu.RUnlock()

	forms := lo.Uniq(lo.FlatMap(known, func(secret knownSecret, _ int) []string { return secret.forms }))
	// The longest first, so that a secret which contains another one is replaced completely.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, redacted)
	}
	text = escapedSecret.ReplaceAllString(text, "${1}"+redacted+"${2}")
	text = quotedSecret.ReplaceAllString(text, "${1}"+redacted+"${2}")
	return plainSecret.ReplaceAllString(text, "${1}"+redacted)
}

// cause wraps an error so that its text is clean and bounded while its identity stays.
func (r *redactor) cause(err error) error {
	if err == nil {
		return nil
	}
	return &cleanError{text: shorten(r.clean(err.Error()), maxMessage), cause: err}
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

// requestSecrets are what a create request carries that no error may repeat: the user data, complete and line by line
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
