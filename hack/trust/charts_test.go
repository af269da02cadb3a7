// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package trust_test

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

type chart struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Annotations map[string]string `json:"annotations"`
}

// readChart returns what Artifact Hub reads of a chart. Helm checks the other fields.
func readChart(file string) chart {
	GinkgoHelper()
	var read chart
	Expect(yaml.Unmarshal([]byte(text(file)), &read)).To(Succeed())
	return read
}

type named struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

type definition struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

// https://artifacthub.io/docs/topics/annotations/helm has the annotations.
var _ = Describe("the metadata for Artifact Hub", func() {
	It("should be in both charts, with annotations and values that Artifact Hub knows", func() {
		charts := files("charts/*/Chart.yaml")
		Expect(charts).To(HaveLen(2))
		for _, file := range charts {
			content := readChart(file)
			for key, value := range content.Annotations {
				key, ours := strings.CutPrefix(key, "artifacthub.io/")
				Expect(ours).To(BeTrue(), "%s: %s", file, key)
				switch key {
				case "license":
					Expect(value).To(Equal("Apache-2.0"))
				case "category":
					Expect(value).To(BeElementOf("ai-machine-learning", "database", "integration-delivery", "monitoring-logging", "networking", "security",
						"storage", "streaming-messaging", "skip-prediction"))
				case "prerelease":
					// Before 1.0.0 each version is one.
					Expect(value).To(Equal(map[bool]string{true: "true", false: "false"}[strings.HasPrefix(content.Version, "0.") || strings.Contains(content.Version, "-")]))
				case "alternativeName":
					Expect(content.Name).To(ContainSubstring(value))
				case "operator":
					Expect(value).To(Equal("true"))
				case "operatorCapabilities":
					Expect(value).To(BeElementOf("Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"))
				case "links":
					for _, to := range decoded[[]named](value) {
						Expect(to.Name).ToNot(BeEmpty())
						Expect(to.URL).To(HavePrefix("https://"))
					}
					expectLinks(value)
				case "crds":
					for _, crd := range decoded[[]definition](value) {
						Expect(crd.DisplayName).To(Equal(crd.Kind))
						Expect(crd.Description).ToNot(BeEmpty())
					}
				case "crdsExamples":
					Expect(decoded[[]map[string]any](value)).To(HaveEach(HaveKey("kind")))
				default:
					Fail(file + ": Artifact Hub knows no annotation " + key)
				}
			}
			Expect(content.Annotations).To(And(HaveKey("artifacthub.io/license"), HaveKey("artifacthub.io/category"), HaveKey("artifacthub.io/prerelease"),
				HaveKey("artifacthub.io/links")), file)
		}
	})
	It("should describe each of our definitions", func() {
		described := decoded[[]definition](readChart("charts/karpenter-provider-bizflycloud/Chart.yaml").Annotations["artifacthub.io/crds"])
		crds := files("pkg/apis/crds/*.yaml")
		Expect(described).To(HaveLen(len(crds)))
		for _, file := range crds {
			var crd struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
				Spec struct {
					Names struct {
						Kind string `json:"kind"`
					} `json:"names"`
					Versions []struct {
						Name string `json:"name"`
					} `json:"versions"`
				} `json:"spec"`
			}
			Expect(yaml.Unmarshal([]byte(text(file)), &crd)).To(Succeed())
			Expect(described).To(ContainElement(And(HaveField("Name", crd.Metadata.Name), HaveField("Kind", crd.Spec.Names.Kind),
				HaveField("Version", crd.Spec.Versions[len(crd.Spec.Versions)-1].Name))), filepath.Base(file))
		}
	})
})
