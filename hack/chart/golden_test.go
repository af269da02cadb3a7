// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// newest is the version that the golden files are for; what others differ in is in versions.txt.
const newest = "1.36.0"

var versions = []string{"1.30.0", "1.31.0", "1.32.0", "1.33.0", "1.34.0", "1.35.0", newest}

// expectGolden compares with a file of testdata. UPDATE_GOLDEN=true (make chart-golden) writes it instead; look at the
// difference before you commit it.
func expectGolden(name, text string) {
	GinkgoHelper()
	// A release changes nothing but its version.
	text = strings.NewReplacer(
		chartName+"-"+version()+"\n", chartName+"-VERSION\n",
		"app.kubernetes.io/version: "+version()+"\n", "app.kubernetes.io/version: VERSION\n",
		chartName+":"+version()+`"`, chartName+`:VERSION"`,
	).Replace(text)
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") == "true" {
		Expect(os.MkdirAll("testdata", 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		return
	}
	golden, err := os.ReadFile(path)
	Expect(err).ToNot(HaveOccurred())
	Expect(text).To(Equal(string(golden)), "the rendering is not that of %s: if it is meant to be, run `make chart-golden`", path)
}

// withoutFiles leaves out what is made of files that others write: alerts and dashboards change for their own reasons.
var withoutFiles = []string{"--set", "prometheusRule.enabled=false", "--set", "dashboards.enabled=false"}

// difference names the objects that one rendering has and the other has not, or that differ.
func difference(from, to map[string]unstructured.Unstructured) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[name]; !ok {
			words = append(words, "without "+name)
		} else if !reflect.DeepEqual(from[name], to[name]) {
			words = append(words, "another "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if _, ok := from[name]; !ok {
			words = append(words, "with "+name)
		}
	}
	if words == nil {
		return "the same"
	}
	return strings.Join(words, ", ")
}

var _ = Describe("golden files", func() {
	It("should be the output of the chart for its required values", func(ctx context.Context) {
		text, err := w.render(ctx, defaultValues, "--kube-version", newest)
		Expect(err).ToNot(HaveOccurred())
		expectGolden("default.yaml", text)
	})
	It("should be what the chart makes when everything is switched on", func(ctx context.Context) {
		text, err := w.render(ctx, fullValues, append(withoutFiles, "--kube-version", newest)...)
		Expect(err).ToNot(HaveOccurred())
		expectGolden("full.yaml", text)
	})
	It("should list what other versions of Kubernetes get", func(ctx context.Context) {
		var lines strings.Builder
		for _, values := range []string{defaultValues, fullValues} {
			// Older versions reject that the full values switch it off.
			render := func(version string) map[string]unstructured.Unstructured {
				return rendered(ctx, values, slices.Concat(withoutFiles, []string{"--set", "settings.ignoreDRARequests=true", "--kube-version", version})...)
			}
			reference := render(newest)
			for _, version := range versions {
				other := render(version)
				fmt.Fprintf(&lines, "%s, Kubernetes %s: %s\n", filepath.Base(values), version, difference(reference, other))
			}
		}
		expectGolden("versions.txt", lines.String())
	})
	It("should need a version that has what is switched on", func(ctx context.Context) {
		devices := []string{"--set", "settings.ignoreDRARequests=false", "--kube-version"}
		_, err := w.render(ctx, defaultValues, append(devices, "1.33.9")...)
		Expect(err).To(MatchError(ContainSubstring("settings.ignoreDRARequests is false, and Kubernetes v1.33.9 has no resource.k8s.io/v1")))
		_, err = w.render(ctx, defaultValues, append(devices, "1.34.0")...)
		Expect(err).ToNot(HaveOccurred())
	})
	It("should not be for a version that is too old", func(ctx context.Context) {
		_, err := w.render(ctx, defaultValues, "--kube-version", "1.29.9")
		Expect(err).To(MatchError(ContainSubstring("1.30")))
	})
})

var _ = Describe("lint", func() {
	DescribeTable("should find nothing", func(ctx context.Context, args ...string) {
		_, err := w.helm(ctx, append([]string{"lint", "--strict", "--quiet"}, args...)...)
		Expect(err).ToNot(HaveOccurred())
	},
		Entry("with no values", "charts/"+chartName),
		Entry("with the least that must be given", "charts/"+chartName, "--values", "charts/"+chartName+"/"+defaultValues),
		Entry("with everything", "charts/"+chartName, "--values", "charts/"+chartName+"/"+fullValues),
		Entry("in the definitions", "charts/"+chartName+"-crd"),
	)
})
