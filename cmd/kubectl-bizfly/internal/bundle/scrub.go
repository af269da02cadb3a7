// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

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

// scrub removes what is secret from each field, where it is known by the field's name: user data, of which the hash stays, the values
// of environment variables, of which the names stay, and what redact knows of names and texts.
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
