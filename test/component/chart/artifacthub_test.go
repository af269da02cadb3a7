// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var _ = Describe("What Artifact Hub shows of the chart", func() {
	It("should describe each of our definitions", func() {
		content, err := os.ReadFile(chartFile("Chart.yaml"))
		Expect(err).ToNot(HaveOccurred())
		var chart struct {
			Annotations map[string]string `json:"annotations"`
		}
		Expect(yaml.Unmarshal(content, &chart)).To(Succeed())
		var described []struct{ Kind, Version, Name string }
		Expect(yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/crds"]), &described)).To(Succeed())
		files, err := filepath.Glob(filepath.Join(root, "pkg/apis/crds/*.yaml"))
		Expect(err).ToNot(HaveOccurred())
		Expect(described).To(And(Not(BeEmpty()), HaveLen(len(files))))
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).ToNot(HaveOccurred())
			var crd apiextensionsv1.CustomResourceDefinition
			Expect(yaml.Unmarshal(content, &crd)).To(Succeed())
			Expect(described).To(ContainElement(And(HaveField("Name", crd.Name), HaveField("Kind", crd.Spec.Names.Kind),
				HaveField("Version", crd.Spec.Versions[len(crd.Spec.Versions)-1].Name))), file)
		}
	})
})
