// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// fullValues switch everything on.
const fullValues = "ci/full-values.yaml"

// w is the repository.
var w *workspace

func TestChart(t *testing.T) { suite.Run(t, "Chart") }

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(30 * time.Second)
	var err error
	w, err = newWorkspace()
	Expect(err).ToNot(HaveOccurred())
})

// version is that of the chart, which is that of the image too.
func version() string {
	GinkgoHelper()
	text, err := os.ReadFile(w.chart("Chart.yaml"))
	Expect(err).ToNot(HaveOccurred())
	chart := struct{ Version, AppVersion string }{}
	Expect(yaml.Unmarshal(text, &chart)).To(Succeed())
	Expect(chart.AppVersion).To(Equal(chart.Version))
	return chart.Version
}

// rendered are the objects of a rendering by kind and name.
func rendered(ctx context.Context, values string, args ...string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	text, err := w.render(ctx, values, args...)
	Expect(err).ToNot(HaveOccurred())
	return byID(text)
}

func byID(text string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	objects, err := parse(text)
	Expect(err).ToNot(HaveOccurred())
	result := map[string]unstructured.Unstructured{}
	for _, object := range objects {
		Expect(result).ToNot(HaveKey(id(object)), "made twice")
		result[id(object)] = object
	}
	return result
}

// as converts an object into its type; a field that the type does not have is an error.
func as[T any](object unstructured.Unstructured) T {
	GinkgoHelper()
	var typed T
	Expect(object.Object).ToNot(BeNil())
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true)).To(Succeed())
	return typed
}
