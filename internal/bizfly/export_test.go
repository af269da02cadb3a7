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
	"slices"
	"time"
)

// RuleNames are the rows of the classification table in their order.
func RuleNames() []string {
	var names []string
	for _, r := range slices.Concat(statusRules, messageRules, fallbackRules) {
		names = append(names, r.name)
	}
	return names
}

// Classify returns the row that decides and its class.
func Classify(kind string, status int, json bool, retryAfter time.Duration, message string, extra ...ErrorPattern) (string, Class) {
	c, err := newClassifier(extra)
	if err != nil {
		panic(err)
	}
	f := failure{kind: kindOf(kind), status: status, json: json, retryAfter: retryAfter, message: message}
	for i := range c.rules {
		if c.rules[i].matches(f, withoutMarks(message)) {
			return c.rules[i].name, c.rules[i].class
		}
	}
	return "", ClassUnknown
}

func kindOf(name string) kind {
	return kind(name)
}

// Redact cleans a text of the given secrets.
func Redact(text string, secrets ...string) string {
	return newRedactor(secrets...).clean(text)
}

// Backoff is the wait after so many failures.
func Backoff(failures int) time.Duration {
	return backoff(firstBackoff, failures)
}
