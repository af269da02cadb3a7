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

var _ = Describe("The page of versions", func() {
	It("should agree with the modules and the chart", func() {
		page, err := compatibilityPage()
		Expect(err).NotTo(HaveOccurred())
		Expect(page).To(MatchRegexp(`\| Karpenter \| v1\.\d+\.\d+ \|`))
		Expect(page).To(MatchRegexp(`\| Kubernetes \| 1\.\d+ or newer; tested with v1\.\d+\.\d+ \|`))
		Expect(page).To(MatchRegexp(`\| Go, to build it \| 1\.\d+\.\d+ or newer`))
	})
})
