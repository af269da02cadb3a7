// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

// row is the cells of one row of a table.
type row []string

// rows are those of the tables below a heading of a page, without their heads.
func rows(page, heading string) []row {
	GinkgoHelper()
	text := lo.Must(os.ReadFile(filepath.Join(root, page)))
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	Expect(found).To(BeTrue(), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var all []row
	for _, line := range strings.Split(section, "\n") {
		if strings.HasPrefix(line, "|") {
			all = append(all, lo.Map(strings.Split(strings.Trim(line, "|"), "|"), func(cell string, _ int) string { return strings.TrimSpace(cell) }))
		}
	}
	return lo.Drop(all, 2)
}

var (
	quoted  = regexp.MustCompile("`([^`]+)`")
	finding = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	written = regexp.MustCompile(`"([a-z0-9]+(?:-[a-z0-9]+)*)"`)
)

// codes are the words of a cell that are written as code.
func codes(cell string) []string {
	return lo.Map(quoted.FindAllStringSubmatch(cell, -1), func(match []string, _ int) string { return match[1] })
}

var _ = Describe("The questions to the real cloud", func() {
	const page = "docs/contribute/first-contact.md"
	asked := func() map[string]bool {
		GinkgoHelper()
		files := lo.Must(filepath.Glob(filepath.Join(root, "test/realcloud/*_test.go")))
		found := map[string]bool{}
		for _, file := range files {
			text := lo.Must(os.ReadFile(file))
			for _, match := range written.FindAllStringSubmatch(string(text), -1) {
				found[match[1]] = true
			}
		}
		return found
	}
	It("should be asked by the code, where the page names a finding", func() {
		known := asked()
		cells := lo.Map(rows(page, "What it writes down"), func(r row, _ int) string { return r[1] })
		cells = append(cells, lo.Map(rows(page, "Hedges"), func(r row, _ int) string { return r[2] })...)
		for _, cell := range cells {
			Expect(cell).NotTo(BeEmpty(), "each row has a finding, or says why it is not asked")
			for _, code := range codes(cell) {
				if finding.MatchString(code) {
					Expect(known).To(HaveKey(code), cell)
				}
			}
		}
	})
	It("should each name the code that exists only for the guess", func() {
		hedges := rows(page, "Hedges")
		Expect(hedges).NotTo(BeEmpty())
		for _, hedge := range hedges {
			Expect(hedge).To(HaveLen(5), hedge[0])
			for _, code := range codes(hedge[4]) {
				if strings.Contains(code, "/") {
					Expect(filepath.Join(root, code)).To(Or(BeAnExistingFile(), BeADirectory()), hedge[0])
				}
			}
		}
	})
})

var _ = Describe("The shapes of the cloud without a mode", func() {
	cited := regexp.MustCompile(`^"(.+)" in $`)
	It("should each name a spec that exists", func() {
		shapes := rows("docs/contribute/sandbox.md", "Shapes without a mode")
		Expect(shapes).NotTo(BeEmpty())
		for _, shape := range shapes {
			Expect(shape).To(HaveLen(3), shape[0])
			text, file, _ := strings.Cut(shape[2], "`")
			Expect(text).To(MatchRegexp(cited.String()), shape[0])
			specs := lo.Must(os.ReadFile(filepath.Join(root, strings.TrimSuffix(file, "`"))))
			Expect(string(specs)).To(ContainSubstring(cited.FindStringSubmatch(text)[1]), shape[0])
		}
	})
})
