// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package output_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestOutput(t *testing.T) { suite.Run(t, "Output") }

var _ = Describe("the output", func() {
	It("should cut no column where the terminal is narrow, and wrap prose", func() {
		var out bytes.Buffer
		(&output.Printer{Out: &out, Width: 80}).Rows([]string{"Name", ">VND/hour", "What"},
			[][]string{{strings.Repeat("long-name-", 8), "1,575", strings.Repeat("word ", 20)}})
		Expect(out.String()).To(And(ContainSubstring(strings.Repeat("long-name-", 8)), ContainSubstring("1,575")))
		Expect(strings.Count(out.String(), "word")).To(Equal(20))
		Expect(strings.Count(out.String(), "\n")).To(BeNumerically(">", 2))
	})

	It("should be coloured in tables of any width, with bytes that are no text as numbers", func() {
		var out bytes.Buffer
		GinkgoT().Setenv("FORCE_COLOR", "true")
		printer := lo.Must(output.New(&out, io.Discard, output.Table))
		for _, width := range []int{0, 12, 20, 40} {
			out.Reset()
			printer.Width = width
			printer.Rows([]string{"a", "b"}, [][]string{{printer.Bar(0.5, 10), printer.Paint(text.FgRed, "x\x1by\x9b")}})
			Expect(out.String()).ToNot(MatchRegexp(`\\x1b\[`), "width %d: %q", width, out.String())
			Expect(out.String()).To(ContainSubstring("\x1b[32m█"))
		}
		Expect(out.String()).To(ContainSubstring("\x1b[31mx\\x1by\\x9b\x1b[0m"))
	})
})
