// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trust_test checks what others read to decide whether to trust a release: security-insights.yml, what Artifact Hub shows of the
// charts, what Dependabot keeps new, and who may sign. `make release-rehearsal` checks the signatures themselves.
package trust_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestTrust(t *testing.T) { suite.Run(t, "Trust") }

const (
	root       = "../.."
	repository = "https://github.com/bizflycloud/karpenter-provider-bizflycloud"
)

// text returns a file of the repository.
func text(path ...string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root, filepath.Join(path...)))
	Expect(err).ToNot(HaveOccurred())
	return string(content)
}

// decoded returns YAML in which each field is one of T.
func decoded[T any](content string) T {
	GinkgoHelper()
	var value T
	Expect(yaml.UnmarshalStrict([]byte(content), &value)).To(Succeed())
	return value
}

// files returns those of the repository that match a pattern, relative to it.
func files(pattern string) []string {
	GinkgoHelper()
	matches, err := filepath.Glob(filepath.Join(root, pattern))
	Expect(err).ToNot(HaveOccurred())
	Expect(matches).ToNot(BeEmpty(), pattern)
	for i, match := range matches {
		matches[i], err = filepath.Rel(root, match)
		Expect(err).ToNot(HaveOccurred())
	}
	return matches
}

var (
	link    = regexp.MustCompile(regexp.QuoteMeta(repository) + `/blob/main/([^\s"#]+)(?:#(\S+))?`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// expectLinks checks that what a text links to in this repository exists.
func expectLinks(content string) {
	GinkgoHelper()
	for _, match := range link.FindAllStringSubmatch(content, -1) {
		page := text(match[1])
		if match[2] == "" {
			continue
		}
		var anchors []string
		for _, found := range heading.FindAllStringSubmatch(page, -1) {
			anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
		}
		Expect(anchors).To(ContainElement(match[2]), match[1])
	}
}
