// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// newest is the version of Kubernetes that the golden files are for, oldest the first that the chart admits.
const newest, oldest = "1.36.0", "1.30.0"

// expectGolden compares with a file of testdata. UPDATE_GOLDEN=true writes it instead; look at the difference before you commit it.
func expectGolden(name, text string) {
	GinkgoHelper()
	// A release changes nothing but its version.
	text = strings.NewReplacer(
		chartName+"-"+version()+"\n", chartName+"-VERSION\n",
		"app.kubernetes.io/version: "+version()+"\n", "app.kubernetes.io/version: VERSION\n",
		chartName+":"+version()+`"`, chartName+`:VERSION"`,
	).Replace(text)
	path := filepath.Join("testdata", name)
	golden, err := os.ReadFile(path) // also before it is written, so that Go's test cache knows of it
	if os.Getenv("UPDATE_GOLDEN") == "true" {
		err = os.WriteFile(path, []byte(text), 0o600)
		golden = []byte(text)
	}
	Expect(err).ToNot(HaveOccurred())
	Expect(text).To(Equal(string(golden)), "not that of %s: if it is meant to be, run `UPDATE_GOLDEN=true go test ./test/component/chart`", path)
}

// withoutFiles leaves out what is made of files that others write: alerts and dashboards change for their own reasons.
var withoutFiles = settings("prometheusRule.enabled=false", "dashboards.enabled=false")

var _ = Describe("golden files", func() {
	It("should be the output of the chart for its required values", func(ctx context.Context) {
		text, err := render(ctx, defaultValues, "--kube-version", newest)
		Expect(err).ToNot(HaveOccurred())
		expectGolden("default.yaml", text)
	})
	It("should be what the chart makes when everything is switched on", func(ctx context.Context) {
		text, err := render(ctx, fullValues, append(withoutFiles, "--kube-version", newest)...)
		Expect(err).ToNot(HaveOccurred())
		expectGolden("full.yaml", text)
	})
	DescribeTable("should be the same for every version of Kubernetes", func(ctx context.Context, version string) {
		for _, values := range []string{defaultValues, fullValues} {
			// Older versions reject that the full values switch it off.
			args := slices.Concat(withoutFiles, settings("settings.ignoreDRARequests=true"))
			Expect(rendered(ctx, values, append(args, "--kube-version", version)...)).
				To(Equal(rendered(ctx, values, append(args, "--kube-version", newest)...)), values)
		}
	}, Entry(nil, oldest), Entry(nil, "1.33.0"), Entry(nil, "1.34.0"), Entry(nil, "1.35.0"))
	It("should need a version that has what is switched on", func(ctx context.Context) {
		devices := []string{"--set", "settings.ignoreDRARequests=false", "--kube-version"}
		_, err := render(ctx, defaultValues, append(devices, "1.33.9")...)
		Expect(err).To(MatchError(ContainSubstring("settings.ignoreDRARequests is false, and Kubernetes v1.33.9 has no resource.k8s.io/v1")))
		Expect(render(ctx, defaultValues, append(devices, "1.34.0")...)).Error().ToNot(HaveOccurred())
	})
	It("should not be for a version that is too old", func(ctx context.Context) {
		Expect(render(ctx, defaultValues, "--kube-version", "1.29.9")).Error().To(MatchError(ContainSubstring("1.30")))
	})
})
