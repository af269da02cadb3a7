// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// expectNoUnwantedGPU fails for a NodePool that would launch a server with GPUs for pods that request none: categories of flavors may
// contain both. A pool that names its flavors, or requires GPUs and keeps other pods away, has decided.
func expectNoUnwantedGPU(pool *unstructured.Unstructured, path string) {
	GinkgoHelper()
	requirements, _ := lo.Must2(unstructured.NestedSlice(pool.Object, "spec", "template", "spec", "requirements"))
	operators := map[any]any{}
	for _, requirement := range requirements {
		fields := requirement.(map[string]any) //nolint:forcetypeassert // the API server has taken it
		operators[fields["key"]] = fields["operator"]
	}
	if operators[v1alpha1.LabelInstanceGPUCount] == "Exists" {
		taints, _ := lo.Must2(unstructured.NestedSlice(pool.Object, "spec", "template", "spec", "taints"))
		Expect(taints).NotTo(BeEmpty(), "%s: NodePool %s", path, pool.GetName())
		return
	}
	Expect(operators).To(Or(HaveKeyWithValue(v1alpha1.LabelInstanceGPUCount, "DoesNotExist"), HaveKeyWithValue("node.kubernetes.io/instance-type", "In")),
		"%s: NodePool %s", path, pool.GetName())
}

// examples are the manifests of the samples, and of the page that has an example of each field.
func examples() map[string][]byte {
	GinkgoHelper()
	manifests := map[string][]byte{}
	Expect(filepath.WalkDir("../../../config/samples", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".yaml") {
			manifests[path], err = os.ReadFile(path)
		}
		return err
	})).To(Succeed())
	page := lo.Must(os.ReadFile("../../../docs/reference/fields.md"))
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatchIndex(page, -1) {
		manifests[fmt.Sprintf("fields.md at %d", block[0])] = page[block[2]:block[3]]
	}
	return manifests
}

var _ = Describe("The samples and examples of NodeClasses, NodePools and ProviderConfigs", func() {
	It("should be taken by the API server, and have no field that it does not know", func() {
		tried := map[string]int{}
		for path, content := range examples() {
			decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
			for {
				object := &unstructured.Unstructured{}
				err := decoder.Decode(&object.Object)
				if errors.Is(err, io.EOF) {
					break
				}
				Expect(err).NotTo(HaveOccurred(), path)
				group := object.GroupVersionKind().Group
				if group != "karpenter.bizflycloud.vn" && group != "karpenter.sh" {
					continue
				}
				tried[object.GetKind()]++
				if object.GetKind() == "NodePool" {
					expectNoUnwantedGPU(object, path)
				}
				Expect(env.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed(), path)
			}
		}
		Expect(tried).To(And(HaveKeyWithValue("BizflyNodeClass", BeNumerically(">=", 8)), HaveKeyWithValue("NodePool", BeNumerically(">=", 3)),
			HaveKeyWithValue("ProviderConfig", BeNumerically(">=", 1))))
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
		Entry("of a NodeClass", "BizflyNodeClass", []string{"Ready", "Reason", "Image", "Zones", "Flavors", "Age"},
			[]string{"Plan", "Kubernetes", "Networks"}),
		Entry("of a ProviderConfig", "ProviderConfig", []string{"Ready", "Reason", "Account", "Region", "Project", "Age"}, []string{}),
	)

	// cells are what the API server answers to kubectl get -o wide.
	cells := func(object client.Object) map[string]any {
		GinkgoHelper()
		gvk := object.GetObjectKind().GroupVersionKind()
		mapping := lo.Must(env.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version))
		config := rest.CopyConfig(env.Config)
		config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &v1alpha1.GroupVersion, "/apis", scheme.Codecs.WithoutConversion()
		answer, err := lo.Must(rest.RESTClientFor(config)).Get().Resource(mapping.Resource.Resource).Name(object.GetName()).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
		Expect(err).NotTo(HaveOccurred())
		table := &metav1.Table{}
		Expect(json.Unmarshal(answer, table)).To(Succeed())
		Expect(table.Rows).To(HaveLen(1))
		found := map[string]any{}
		for i, column := range table.ColumnDefinitions {
			found[column.Name] = table.Rows[0].Cells[i]
		}
		return found
	}
	It("should show several zones and networks completely, and no reason while all is well", func() {
		class := nodeClass("spec: {}")
		class.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BizflyNodeClass"))
		class.Status.Images = []v1alpha1.ImageStatus{{ID: "1", Name: "bke v1.35.4 ubuntu"}}
		class.Status.Summary = &v1alpha1.NodeClassSummary{Zones: "HN1,HN2", Networks: "default-vpc,tiny"}
		class.Status.FlavorCount = 7
		for _, condition := range class.StatusConditions().List() {
			class.StatusConditions().SetTrue(condition.Type)
		}
		gvk := class.GroupVersionKind()
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		class.SetGroupVersionKind(gvk)
		Expect(cells(class)).To(And(
			HaveKeyWithValue("Ready", "True"), HaveKeyWithValue("Reason", Or(BeNil(), BeEmpty())), HaveKeyWithValue("Zones", "HN1,HN2"),
			HaveKeyWithValue("Networks", "default-vpc,tiny"), HaveKeyWithValue("Image", "bke v1.35.4 ubuntu"), HaveKeyWithValue("Flavors", BeNumerically("==", 7)),
		))
	})
	It("should show of a ProviderConfig why it is not ready, and nothing while it is", func() {
		object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		Expect(env.Client.Create(ctx, object)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.Delete(ctx, object)).To(Succeed()) })
		show := func() map[string]any {
			Expect(env.Client.Status().Update(ctx, object)).To(Succeed())
			object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProviderConfig"))
			return cells(object)
		}
		for _, condition := range object.StatusConditions().List() {
			object.StatusConditions().SetTrue(condition.Type)
		}
		object.StatusConditions().SetFalse(v1alpha1.ConditionTypeWithinSpendingLimits, "MaxServersReached", "Ready does not depend on it")
		Expect(show()).To(And(HaveKeyWithValue("Ready", "True"), HaveKeyWithValue("Reason", BeNil())))
		object.StatusConditions().SetFalse(v1alpha1.ConditionTypeCredentialsReady, "CredentialsInvalid", "wrong")
		object.Status.Reason = "CredentialsInvalid"
		Expect(show()).To(And(HaveKeyWithValue("Ready", "False"), HaveKeyWithValue("Reason", "CredentialsInvalid")))
	})
})
