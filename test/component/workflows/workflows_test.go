// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workflows_test checks what a change of a workflow could take from the trust in a release. actionlint
// checks the rest.
package workflows_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestWorkflows(t *testing.T) { suite.Run(t, "Workflows") }

const root = "../../.."

func text(file string) string {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).ToNot(HaveOccurred())
	return string(content)
}

type job struct {
	Uses        string            `json:"uses"`
	Permissions map[string]string `json:"permissions"`
	Environment string            `json:"environment"`
	Needs       any               `json:"needs"`
	Steps       []struct {
		Uses string `json:"uses"`
		Run  string `json:"run"`
	} `json:"steps"`
}

// jobs are those of all workflows, by "file job". A workflow has no right itself, so that each job has only those
// that it asks for.
func jobs() map[string]job {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	Expect(err).ToNot(HaveOccurred())
	Expect(files).ToNot(BeEmpty())
	all := map[string]job{}
	for _, file := range files {
		var workflow struct {
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]job    `json:"jobs"`
		}
		Expect(yaml.Unmarshal([]byte(text(file)), &workflow)).To(Succeed())
		Expect(workflow.Permissions).To(And(Not(BeNil()), BeEmpty()), file)
		for name, job := range workflow.Jobs {
			all[filepath.Base(file)+" "+name] = job
		}
	}
	return all
}

var _ = Describe("The workflows", func() {
	It("should pin each action by the digest of a commit, and each base of an image by its own", func() {
		pinned := regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.+)$`)
		files, err := filepath.Glob(filepath.Join(root, ".github/*/*.yaml"))
		Expect(err).ToNot(HaveOccurred())
		for _, file := range append(files, filepath.Join(root, ".github/actions/setup/action.yaml")) {
			for _, line := range pinned.FindAllStringSubmatch(text(file), -1) {
				Expect(line[1]).To(MatchRegexp(`^(\./\.github/.*|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`), file)
			}
		}
		bases := text(filepath.Join(root, "hack/release/Dockerfile"))
		for _, line := range regexp.MustCompile(`(?m)^FROM (.*)$`).FindAllString(bases, -1) {
			Expect(line).To(MatchRegexp(`@sha256:[0-9a-f]{64} AS \w+$`))
		}
	})
	It("should let a job write only where its work is that", func() {
		writing := map[string][]string{}
		for name, job := range jobs() {
			for right, value := range job.Permissions {
				if value != "read" {
					writing[name] = append(writing[name], right)
				}
			}
		}
		Expect(writing).To(And(HaveLen(7),
			HaveKeyWithValue("publish.yaml sign", ConsistOf("id-token", "attestations")),
			HaveKeyWithValue("release.yaml publish", ConsistOf("id-token", "attestations")),
			HaveKeyWithValue("release.yaml release", ConsistOf("contents")),
			HaveKeyWithValue("docs.yaml publish", ConsistOf("contents")),
			HaveKeyWithValue("nightly.yaml codeql", ConsistOf("security-events")),
			HaveKeyWithValue("nightly.yaml actions", ConsistOf("security-events")),
			HaveKeyWithValue("nightly.yaml scorecard", ConsistOf("security-events", "id-token"))))
	})
	It("should neither compile nor verify where it signs, and verify without a right", func() {
		for _, step := range jobs()["publish.yaml sign"].Steps {
			Expect(step.Uses).ToNot(HavePrefix("./"))
			Expect(step.Run).ToNot(MatchRegexp(`\bmake |\bgo |release\.sh verify`))
		}
		verify := jobs()["publish.yaml verify"]
		Expect(verify.Permissions).To(Equal(map[string]string{"contents": "read"}))
		Expect(verify.Environment).To(BeEmpty())
		Expect(verify.Steps).To(ContainElement(HaveField("Run", ContainSubstring("release.sh verify"))))
	})
	DescribeTable("should compare what a job has handed over before it is", func(name, before string) {
		compared := false
		for _, step := range jobs()[name].Steps {
			compared = compared || regexp.MustCompile(`release\.sh compare`).MatchString(step.Run)
			if regexp.MustCompile(before).MatchString(step.Run) {
				Expect(compared).To(BeTrue())
				return
			}
		}
		Fail("no step of " + name + " has " + before)
	},
		Entry("signed", "publish.yaml sign", `release\.sh sign`),
		Entry("verified", "publish.yaml verify", `release\.sh verify`),
		Entry("published", "release.yaml release", `gh release create`),
	)
	It("should verify by Debian's keys what becomes a root file system", func() {
		scripts, err := filepath.Glob(filepath.Join(root, "test/support/realnode/*.sh"))
		Expect(err).ToNot(HaveOccurred())
		var calls []string
		for _, script := range scripts {
			calls = append(calls, regexp.MustCompile(`(?m)^\s*debootstrap .*$`).FindAllString(text(script), -1)...)
		}
		Expect(calls).To(And(Not(BeEmpty()), HaveEach(MatchRegexp(`--force-check-gpg --keyring="\$\d" `))))
	})
	It("should restore no cache for a tag", func() {
		setup := text(filepath.Join(root, ".github/actions/setup/action.yaml"))
		Expect(regexp.MustCompile(`- if: (.*)\n\s+uses: actions/cache`).FindAllStringSubmatch(setup, -1)).To(HaveEach(
			ContainElement(Or(HavePrefix("github.ref_type != 'tag' &&"), HavePrefix("github.ref == 'refs/heads/main' &&")))))
		Expect(setup).To(ContainSubstring("uses: actions/cache"))
		for _, file := range []string{"publish.yaml", "release.yaml", "ci.yaml"} {
			Expect(text(filepath.Join(root, ".github/workflows", file))).ToNot(ContainSubstring("actions/cache"))
		}
	})
	It("should find in charts and changelog what a tag of this version needs", func(ctx SpecContext) {
		chart := text(filepath.Join(root, "charts/karpenter-provider-bizflycloud/Chart.yaml"))
		version := regexp.MustCompile(`(?m)^version: (.*)$`).FindStringSubmatch(chart)
		// The script reads these, which Go's test cache does not see.
		Expect(text(filepath.Join(root, "hack/release/release.sh"))).To(ContainSubstring("CHANGELOG.md"))
		Expect(text(filepath.Join(root, "CHANGELOG.md"))).To(ContainSubstring("## [Unreleased]"))
		command := exec.CommandContext(ctx, "hack/release/release.sh", "check", "v"+version[1])
		command.Dir, command.Env = root, append(os.Environ(), "REHEARSAL=true")
		said, err := command.CombinedOutput()
		Expect(err).ToNot(HaveOccurred(), string(said))
	})
})
