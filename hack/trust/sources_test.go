// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// tracked lists the files of the repository with a name, relative to it.
func tracked(name string) []string {
	GinkgoHelper()
	output, err := exec.Command("git", "-C", root, "ls-files", "-co", "--exclude-standard", "--", name, "**/"+name).Output()
	Expect(err).ToNot(HaveOccurred())
	return strings.Fields(string(output))
}

type updates struct {
	Updates []struct {
		Ecosystem   string   `json:"package-ecosystem"`
		Directory   string   `json:"directory"`
		Directories []string `json:"directories"`
	} `json:"updates"`
}

// updated returns the patterns of the folders that Dependabot looks into.
func updated(ecosystem string) (patterns []string) {
	GinkgoHelper()
	var config updates
	Expect(yaml.Unmarshal([]byte(text(".github/dependabot.yml")), &config)).To(Succeed())
	for _, update := range config.Updates {
		if update.Ecosystem == ecosystem {
			patterns = append(patterns, update.Directories...)
			if update.Directory != "" {
				patterns = append(patterns, update.Directory)
			}
		}
	}
	return patterns
}

var _ = Describe("Dependabot", func() {
	It("should keep every Go module new, but that of the oldest Kubernetes", func() {
		patterns := updated("gomod")
		var without []string
		for _, file := range tracked("go.mod") {
			folder := "/" + strings.TrimSuffix(strings.TrimSuffix(file, "go.mod"), "/")
			if !slices.ContainsFunc(patterns, func(pattern string) bool { matches, _ := filepath.Match(pattern, folder); return matches }) {
				without = append(without, folder)
			}
		}
		Expect(without).To(ConsistOf("/test/support/controlplane/oldest"))
	})
	It("should keep new what the images are built from, which nothing else names", func() {
		Expect(updated("docker")).To(ConsistOf("/hack/release"))
		from := regexp.MustCompile(`(?m)^FROM (.*)$`)
		base := regexp.MustCompile(`^\S+/\S+:\S+@sha256:[0-9a-f]{64} AS (\w+)$`)
		for _, line := range from.FindAllStringSubmatch(text("hack/release/Dockerfile"), -1) {
			Expect(line[1]).To(MatchRegexp(base.String()))
			Expect(text("hack/release/image.sh")).To(ContainSubstring("base " + base.FindStringSubmatch(line[1])[1] + ")"))
		}
		for _, file := range tracked("Dockerfile") {
			if file == "hack/release/Dockerfile" {
				continue
			}
			for _, line := range from.FindAllStringSubmatch(text(file), -1) {
				Expect(line[1]).To(MatchRegexp(`^(--platform=\$BUILDPLATFORM )?\$\{(BUILDER|BASE)_IMAGE\}( AS builder)?$`), file)
			}
			Expect(text(file)).ToNot(MatchRegexp(`(?m)^ARG (BUILDER|BASE)_IMAGE=`), file)
		}
	})
})

type workflow struct {
	// YAML reads "on" as true.
	On          map[string]any `json:"true"`
	Permissions map[string]any `json:"permissions"`
	Env         any            `json:"env"`
	Defaults    any            `json:"defaults"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Uses        string            `json:"uses"`
		Steps       []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

func readWorkflow(file string) workflow {
	GinkgoHelper()
	var read workflow
	Expect(yaml.Unmarshal([]byte(text(file)), &read)).To(Succeed())
	return read
}

var _ = Describe("the workflows", func() {
	It("should pin every action by the digest of a commit, with its version beside it", func() {
		uses := regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.+)$`)
		for _, file := range slices.Concat(files(".github/workflows/*.yaml"), files(".github/actions/*/action.y*ml")) {
			for _, line := range uses.FindAllStringSubmatch(text(file), -1) {
				Expect(line[1]).To(Or(HavePrefix("./.github/"), MatchRegexp(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)), file)
			}
		}
	})
	It("should let only an isolated workflow sign, and nothing there that compiles", func() {
		var signing []string
		for _, file := range files(".github/workflows/*.yaml") {
			for name, job := range readWorkflow(file).Jobs {
				if job.Permissions["id-token"] == "write" || job.Permissions["attestations"] == "write" {
					signing = append(signing, filepath.Base(file)+" "+name+job.Uses)
				}
			}
		}
		// The scorecard signs its own results.
		Expect(signing).To(ConsistOf("publish.yaml sign", "release.yaml publish./.github/workflows/publish.yaml", "trust.yaml scorecard"))
		publish := readWorkflow(".github/workflows/publish.yaml")
		Expect(publish.On).To(HaveLen(1))
		Expect(publish.On).To(HaveKeyWithValue("workflow_call", Not(HaveKey("inputs"))), "SLSA build level 3: who calls it changes nothing in it")
		for _, step := range publish.Jobs["sign"].Steps {
			Expect(step.Uses).ToNot(HavePrefix("./"))
			Expect(step.Run).ToNot(Or(ContainSubstring("make "), ContainSubstring("go ")))
		}
	})
	It("should find in charts and changelog what a tag of this version needs", func(ctx SpecContext) {
		command := exec.CommandContext(ctx, "hack/release/release.sh", "check", "v"+readChart("charts/karpenter-provider-bizflycloud/Chart.yaml").Version)
		command.Dir, command.Env = root, append(os.Environ(), "REHEARSAL=true")
		said, err := command.CombinedOutput()
		Expect(err).ToNot(HaveOccurred(), string(said))
	})
	It("should read what the page on the first contact has, as a variable or as a secret", func() {
		read := regexp.MustCompile(`\b(var|secret)s\.(\w+)`).FindAllStringSubmatch(text(".github/workflows/first-contact.yaml"), -1)
		Expect(read).ToNot(BeEmpty())
		for _, name := range read {
			Expect(text("docs/contribute/first-contact.md")).To(MatchRegexp("(?m)^\\| %s.*`%s`", name[1], name[2]))
		}
	})
	It("should publish the score that the README shows", func() {
		trust := readWorkflow(".github/workflows/trust.yaml")
		// Otherwise the score is not accepted: https://github.com/ossf/scorecard-action#workflow-restrictions
		Expect(trust.Env).To(BeNil())
		Expect(trust.Defaults).To(BeNil())
		steps := trust.Jobs["scorecard"].Steps
		Expect(steps).To(ContainElement(And(HaveField("Uses", HavePrefix("ossf/scorecard-action@")), HaveField("With", HaveKeyWithValue("publish_results", true)))))
		Expect(steps).To(HaveEach(HaveField("Run", BeEmpty())))
		project := strings.TrimPrefix(repository, "https://")
		for _, page := range []string{"README.md", "README.vi.md"} {
			Expect(text(page)).To(ContainSubstring("https://api.scorecard.dev/projects/"+project+"/badge"), page)
		}
	})
	It("should review the dependencies of each pull request", func() {
		trust := readWorkflow(".github/workflows/trust.yaml")
		Expect(trust.On).To(HaveKey("pull_request"))
		Expect(trust.Jobs["dependencies"].Steps).To(ContainElement(And(HaveField("Uses", HavePrefix("actions/dependency-review-action@")),
			HaveField("With", And(HaveKey("fail-on-severity"), HaveKey("deny-licenses"))))))
	})
})
