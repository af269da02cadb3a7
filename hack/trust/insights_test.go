// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The schema of Security Insights 2.2.0, as far as security-insights.yml uses it: https://github.com/ossf/security-insights/blob/main/spec/schema.cue.
// A field without omitempty is required there.
type (
	insights struct {
		Header struct {
			SchemaVersion string `json:"schema-version"`
			LastUpdated   string `json:"last-updated"`
			LastReviewed  string `json:"last-reviewed"`
			URL           string `json:"url"`
		} `json:"header"`
		Project    project        `json:"project"`
		Repository codeRepository `json:"repository"`
	}
	project struct {
		Name           string    `json:"name"`
		Homepage       string    `json:"homepage,omitempty"`
		Administrators []contact `json:"administrators"`
		Repositories   []struct {
			Name    string `json:"name"`
			Comment string `json:"comment"`
			URL     string `json:"url"`
		} `json:"repositories"`
		Reporting struct {
			Accepted bool   `json:"reports-accepted"`
			Bounty   bool   `json:"bug-bounty-available"`
			Policy   string `json:"policy,omitempty"`
			Comment  string `json:"comment,omitempty"`
		} `json:"vulnerability-reporting"`
		Documentation map[string]string `json:"documentation,omitempty"`
	}
	contact struct {
		Name    string `json:"name"`
		Primary bool   `json:"primary"`
		Social  string `json:"social,omitempty"`
	}
	attestation struct {
		Name         string `json:"name"`
		Location     string `json:"location"`
		PredicateURI string `json:"predicate-uri"`
		Comment      string `json:"comment,omitempty"`
	}
	codeRepository struct {
		URL                     string    `json:"url"`
		Status                  string    `json:"status"`
		AcceptsChanges          bool      `json:"accepts-change-request"`
		AcceptsAutomatedChanges bool      `json:"accepts-automated-change-request"`
		BugFixesOnly            bool      `json:"bug-fixes-only,omitempty"`
		CoreTeam                []contact `json:"core-team"`
		License                 struct {
			URL        string `json:"url"`
			Expression string `json:"expression"`
		} `json:"license"`
		Documentation map[string]string `json:"documentation,omitempty"`
		Release       struct {
			AutomatedPipeline  bool   `json:"automated-pipeline"`
			Changelog          string `json:"changelog,omitempty"`
			DistributionPoints []struct {
				URI     string `json:"uri"`
				Comment string `json:"comment"`
			} `json:"distribution-points"`
			Attestations []attestation `json:"attestations,omitempty"`
		} `json:"release"`
		Security struct {
			Assessments struct {
				Self struct {
					Comment  string `json:"comment"`
					Evidence string `json:"evidence,omitempty"`
				} `json:"self"`
			} `json:"assessments"`
			Tools []struct {
				Name        string   `json:"name"`
				Type        string   `json:"type"`
				Comment     string   `json:"comment,omitempty"`
				Rulesets    []string `json:"rulesets"`
				Integration struct {
					Adhoc   bool `json:"adhoc"`
					CI      bool `json:"ci"`
					Release bool `json:"release"`
				} `json:"integration"`
				Results struct{} `json:"results"`
			} `json:"tools,omitempty"`
		} `json:"security"`
	}
)

// missing lists the required fields that are empty.
func missing(path string, value reflect.Value) (found []string) {
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			name, optional, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			field := path + "." + name
			if kind := value.Field(i).Kind(); (kind == reflect.String || kind == reflect.Slice) && optional == "" && value.Field(i).Len() == 0 {
				found = append(found, field)
			}
			found = append(found, missing(field, value.Field(i))...)
		}
	case reflect.Slice:
		for i := range value.Len() {
			found = append(found, missing(fmt.Sprintf("%s[%d]", path, i), value.Index(i))...)
		}
	}
	return found
}

var _ = Describe("security-insights.yml", func() {
	const file = "security-insights.yml"
	It("should have what version 2 of its schema requires, and nothing that it lacks", func() {
		content := decoded[insights](text(file))
		Expect(missing("", reflect.ValueOf(content))).To(BeEmpty())
		Expect(content.Header.SchemaVersion).To(MatchRegexp(`^2\.\d+\.\d+$`))
		for _, date := range []string{content.Header.LastReviewed, content.Header.LastUpdated} {
			Expect(time.Parse(time.DateOnly, date)).Error().ToNot(HaveOccurred())
		}
		Expect(content.Repository.Status).To(BeElementOf("active", "abandoned", "concept", "inactive", "moved", "suspended", "unsupported", "WIP"))
		Expect(content.Project.Administrators[0].Primary && content.Repository.CoreTeam[0].Primary).To(BeTrue())
		for key := range content.Project.Documentation {
			Expect(key).To(BeElementOf("design", "detailed-guide", "code-of-conduct", "quickstart-guide", "release-process", "support-policy", "signature-verification"))
		}
		for key := range content.Repository.Documentation {
			Expect(key).To(BeElementOf("contributing-guide", "dependency-management-policy", "governance", "review-policy", "security-policy"))
		}
		for _, tool := range content.Repository.Security.Tools {
			Expect(tool.Type).To(BeElementOf("fuzzing", "container", "secret", "SCA", "SAST", "other"), tool.Name)
		}
	})
	It("should say what SECURITY.md says, and link to what exists", func() {
		content := decoded[insights](text(file))
		Expect(content.Project.Reporting.Accepted).To(BeTrue())
		Expect(content.Project.Reporting.Bounty).To(BeFalse())
		Expect(text("SECURITY.md")).To(And(ContainSubstring("Report a vulnerability"), ContainSubstring("There is no bounty")))
		Expect(regexp.MustCompile(`\S+@\S+\.\S+`).FindString(text(file))).To(BeEmpty(), "an address that nobody reads")
		expectLinks(text(file))
	})
})
