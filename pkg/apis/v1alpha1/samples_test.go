/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package v1alpha1_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
)

var _ = Describe("The samples of NodeClasses, NodePools and ProviderConfigs", func() {
	It("should be taken by the API server, and have no field that it does not know", func() {
		tried := map[string]int{}
		Expect(filepath.WalkDir("../../../config/samples", func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".yaml") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
			for {
				object := &unstructured.Unstructured{}
				if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				group := object.GroupVersionKind().Group
				if group != "karpenter.bizflycloud.vn" && group != "karpenter.sh" {
					continue
				}
				tried[object.GetKind()]++
				Expect(env.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed(), path)
			}
		})).To(Succeed())
		Expect(tried).To(And(HaveKeyWithValue("BizflyNodeClass", BeNumerically(">=", 6)), HaveKeyWithValue("NodePool", BeNumerically(">=", 3))))
	})
})

var _ = Describe("The columns that kubectl shows", func() {
	DescribeTable("should say what one looks for, and the rest with -o wide", func(kind string, shown, wide []string) {
		crd, ok := lo.Find(apis.CRDs, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Spec.Names.Kind == kind })
		Expect(ok).To(BeTrue())
		name := func(c apiextensionsv1.CustomResourceColumnDefinition, _ int) string { return c.Name }
		columns := lo.GroupBy(crd.Spec.Versions[0].AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) int32 { return c.Priority })
		Expect(lo.Map(columns[0], name)).To(Equal(shown))
		Expect(lo.Map(columns[1], name)).To(Equal(wide))
	},
		Entry("of a NodeClass", "BizflyNodeClass", []string{"Ready", "Reason", "Image", "Zones", "Flavors", "Verified", "Age"}, []string{"Plan", "Kubernetes", "Networks"}),
		Entry("of a ProviderConfig", "ProviderConfig", []string{"Ready", "Reason", "Region", "Project", "Age"}, []string{}),
	)
})
