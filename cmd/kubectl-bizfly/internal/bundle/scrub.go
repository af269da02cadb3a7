// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"fmt"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/redact"
)

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
			case isText && redact.SecretKey(key):
				v[key] = redact.Removed
				continue
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
		return b.redactor.Text(v)
	}
	return value
}
