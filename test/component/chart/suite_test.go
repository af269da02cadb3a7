// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests what the Helm charts and config/ install.
package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestChart(t *testing.T) { suite.Run(t, "Chart") }

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(30 * time.Second)
	// Helm and kubectl read these in processes of their own, where Go's test cache does not see it.
	for _, dir := range []string{"charts", "config"} {
		files := 0
		Expect(filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			files++
			_, err = os.Stat(path)
			return err
		})).To(Succeed())
		Expect(files).To(BeNumerically(">", 10), dir)
	}
})

// version is that of the chart, which is that of the image too.
func version() string {
	GinkgoHelper()
	text, err := os.ReadFile(chartFile("Chart.yaml"))
	Expect(err).ToNot(HaveOccurred())
	chart := struct{ Version, AppVersion string }{}
	Expect(yaml.Unmarshal(text, &chart)).To(Succeed())
	Expect(chart.AppVersion).To(Equal(chart.Version))
	return chart.Version
}
