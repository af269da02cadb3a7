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

package bundle

import (
	"crypto/sha256"
	"fmt"
)

// cleanUserData replaces user data, which often holds tokens, by its hash, wherever it is in an object.
func cleanUserData(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if text, ok := child.(string); ok && key == "userData" {
				v[key] = fmt.Sprintf("%s sha256 %x", removed, sha256.Sum256([]byte(text)))
				continue
			}
			v[key] = cleanUserData(child)
		}
	case []any:
		for i := range v {
			v[i] = cleanUserData(v[i])
		}
	}
	return value
}
