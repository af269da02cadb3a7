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
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

// bound is a row of the table of bounds in docs/contribute/architecture.md.
type bound struct{ step, bound, setBy, event, metric, next, spec string }

func bounds() []bound {
	page, err := os.ReadFile("../../docs/contribute/architecture.md")
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(page), "\n## Bounds\n")
	Expect(found).To(BeTrue())
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []bound
	for line := range strings.Lines(section) {
		cells := lo.Map(strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"), func(c string, _ int) string { return strings.TrimSpace(c) })
		if len(cells) == 7 && cells[0] != "step" && !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, bound{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]})
		}
	}
	return rows
}

var quoted = regexp.MustCompile("`([^`]+)`")

func inCode(text string) []string {
	return lo.Map(quoted.FindAllStringSubmatch(text, -1), func(m []string, _ int) string { return m[1] })
}

// durationOf reads a duration such as internal/ttl.Hung from the source of its package.
func durationOf(name string) time.Duration {
	dot := strings.LastIndex(name, ".")
	files, err := filepath.Glob(filepath.Join("../..", name[:dot], "*.go"))
	Expect(err).NotTo(HaveOccurred())
	pattern := regexp.MustCompile(`(?m)^\s*(?:const )?` + name[dot+1:] + `\s+= (?:(\d+) \* )?time\.(Second|Minute|Hour)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		if match := pattern.FindStringSubmatch(string(source)); match != nil {
			count, _ := strconv.Atoi(lo.CoalesceOrEmpty(match[1], "1"))
			return time.Duration(count) * map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[match[2]]
		}
	}
	return 0
}

var _ = Describe("The table of bounds", func() {
	It("should list the bounds of the code", func() {
		durations := regexp.MustCompile(`^[0-9]+[smh]`)
		checked := 0
		for _, row := range bounds() {
			names := inCode(row.setBy)
			if len(names) == 0 {
				Expect(row.setBy).To(Equal("Karpenter"), row.step)
				continue
			}
			stated, err := time.ParseDuration(durations.FindString(row.bound))
			Expect(err).NotTo(HaveOccurred(), row.step)
			name := names[0]
			if strings.Contains(name, "/") {
				Expect(durationOf(name)).To(Equal(stated), "%s: %s", row.step, name)
			} else {
				setting, found := lo.Find(options.Table(), func(s *options.Setting) bool { return s.Variable == name || s.Key == name })
				Expect(found).To(BeTrue(), "%s: no option %s", row.step, name)
				Expect(time.ParseDuration(setting.Default)).To(Equal(stated), "%s: %s", row.step, name)
			}
			checked++
		}
		Expect(checked).To(BeNumerically(">=", 20))
	})
	It("should name events that exist, a metric that is served, and what happens next", func() {
		reasons := lo.FlatMap(eventDocs, func(d eventDoc, _ int) []string { return strings.Split(d.Reason, ", ") })
		served, err := registered()
		Expect(err).NotTo(HaveOccurred())
		// Those of the conditions of our objects are operatorpkg's.
		conditions := regexp.MustCompile(`^operator_(bizflynodeclass|providerconfig)_status_condition_count$`)
		metrics := lo.Map(served, func(m metric, _ int) string { return m.name })
		for _, row := range bounds() {
			Expect(row.event).NotTo(BeEmpty(), row.step)
			if !strings.HasPrefix(row.event, "condition ") {
				Expect(reasons).To(ContainElements(lo.ToAnySlice(inCode(row.event))...), row.step)
			}
			Expect(len(inCode(row.metric)) > 0 || strings.HasPrefix(row.metric, "none: ")).To(BeTrue(), row.step)
			for _, name := range inCode(row.metric) {
				if conditions.MatchString(name) {
					continue
				}
				Expect(metrics).To(ContainElement(prefix+name), row.step)
			}
			Expect(row.next).NotTo(BeEmpty(), row.step)
		}
	})
	It("should name a specification for each step", func() {
		specs := &strings.Builder{}
		for _, root := range []string{"../../internal", "../../test", "../../hack"} {
			Expect(filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "bounds_test.go") {
					return err
				}
				source, err := os.ReadFile(path)
				specs.Write(source)
				return err
			})).To(Succeed())
		}
		for _, row := range bounds() {
			Expect(strings.Contains(specs.String(), `("`+row.spec+`"`)).To(BeTrue(), "%s: no specification %q", row.step, row.spec)
		}
	})
})
