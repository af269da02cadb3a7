// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

var _ = DescribeTable("A description of the plugin should name every command that changes something", func(read func() string) {
	Expect(read()).To(And(ContainSubstring("pool pin"), ContainSubstring("repack --yes")))
},
	Entry("its help", func() string {
		f.run("--help")
		return f.out
	}),
	Entry("its documentation in Go", func() string { return string(lo.Must(os.ReadFile("../../main.go"))) }),
	Entry("its manifest for Krew", func() string {
		return string(lo.Must(os.ReadFile("../../../../hack/release/plugin.sh")))
	}),
)
