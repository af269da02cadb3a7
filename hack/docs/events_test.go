// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

// constants are the texts of the constants of a folder whose names match.
func constants(dir string, names *regexp.Regexp) []string {
	GinkgoHelper()
	var texts []string
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	Expect(err).ToNot(HaveOccurred())
	for _, name := range lo.Reject(sources, func(n string, _ int) bool { return strings.HasSuffix(n, "_test.go") }) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		Expect(err).ToNot(HaveOccurred())
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 && names.MatchString(spec.Names[0].Name) {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					texts = append(texts, lo.Must(strconv.Unquote(literal.Value)))
				}
			}
			return true
		})
	}
	Expect(texts).ToNot(BeEmpty(), "constants in %s", dir)
	return texts
}

var _ = Describe("Events", func() {
	documented := lo.KeyBy(eventDocs, func(d eventDoc) string { return d.Reason })

	It("should have a documented reason of one word, the documented type, an object, and a bound on their repetition", func() {
		for name, event := range unit.Events("cause") {
			Expect(event.Reason).To(MatchRegexp(`^[A-Z][A-Za-z]+$`), name)
			Expect(documented).To(HaveKey(event.Reason), name)
			Expect(event.Type).To(Equal(lo.Ternary(documented[event.Reason].Warning, corev1.EventTypeWarning, corev1.EventTypeNormal)), name)
			Expect(event.InvolvedObject).ToNot(BeNil(), name)
			Expect(strings.Join(event.DedupeValues, "")).ToNot(BeEmpty(), name)
			Expect(event.Message).ToNot(BeEmpty(), name)
		}
	})
	It("should be the same page each time, by object in the order of a node's life", func() {
		first, err := eventsPage()
		Expect(err).ToNot(HaveOccurred())
		for range 5 {
			Expect(eventsPage()).To(Equal(first))
		}
		Expect(strings.Index(first, "## On NodeClaim\n")).To(BeNumerically("<", strings.Index(first, "## On BizflyNodeClass\n")))
	})
	It("should document each reason once, completely", func() {
		Expect(lo.UniqMap(eventDocs, func(d eventDoc, _ int) string { return d.Reason })).To(HaveLen(len(eventDocs)))
		for _, doc := range append(append([]eventDoc{}, eventDocs...), coreEventDocs...) {
			Expect(doc.Meaning).To(HaveSuffix("."), doc.Reason)
			Expect(doc.Remedy).To(HaveSuffix("."), doc.Reason)
			Expect(doc.Object).ToNot(BeEmpty(), doc.Reason)
		}
	})
	It("should document every reason that a condition can be false for", func() {
		reason := regexp.MustCompile(`^[rR]eason[A-Z]`)
		for _, dir := range []string{"../../internal/controllers/nodeclass/status", "../../internal/controllers/providerconfig",
			"../../internal/providers/bootstrap"} {
			for _, text := range constants(dir, reason) {
				// These are never the reason of a false condition, or of one that needs no further report.
				if lo.Contains([]string{"CloudUnavailable", "AwaitingNetworks", "AwaitingZones", "AwaitingDisks", "NotAsked", "KeysIgnored", "ControlPlaneUnknown"}, text) {
					continue
				}
				Expect(documented).To(HaveKey(text), dir)
			}
		}
	})
})
