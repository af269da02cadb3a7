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

package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The page of bootstrapping", func() {
	It("should have every variable and function that a template can use, with its type and meaning", func() {
		page, err := bootstrapPage()
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{
			"| `.NodeName` `string` | The name that the node must register with",
			"| `.Taints` `[]corev1.Taint` |", "| `.KubeletArgs` `map[string]string` |",
			"| `.JoinToken` `string` | A bootstrap token made for this server",
			"| `.CACertHashes` `[]string` |", "| `sha256sum s` | the SHA-256 of s in hexadecimal |", "| `toYaml v` |",
		} {
			Expect(page).To(ContainSubstring(text))
		}
	})
})
