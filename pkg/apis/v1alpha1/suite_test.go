// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"testing"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var (
	ctx = context.Background()
	env *coretest.Environment
)

func TestV1alpha1(t *testing.T) { suite.Run(t, "V1alpha1") }

var _ = BeforeSuite(func() {
	suite.UseControlPlane()
	env = coretest.NewEnvironment(coretest.WithCRDs(apis.CRDs...))
})

var _ = AfterSuite(func() {
	Expect(env.Stop()).To(Succeed())
})

// create makes an object as a user would write it: what typed objects leave out or add decides many rules.
func create(kind, name, body string) (*unstructured.Unstructured, error) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(body), &object.Object)).To(Succeed())
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetName(name)
	err := env.Client.Create(ctx, object)
	if err == nil {
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client.Delete(ctx, object))).To(Succeed()) })
	}
	return object, err
}

// expectVerdict is the end of every table: without a message the object must be taken.
func expectVerdict(kind, body, message string) {
	GinkgoHelper()
	_, err := create(kind, lo.Ternary(kind == "ProviderConfig", v1alpha1.ProviderConfigName, "tested"), body)
	if message == valid {
		Expect(err).ToNot(HaveOccurred())
		return
	}
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(ContainSubstring(message)))
}

// nodeClass makes a BizflyNodeClass and reads it back with its defaults.
func nodeClass(body string) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	object := lo.Must(create("BizflyNodeClass", "tested", body))
	typed := &v1alpha1.BizflyNodeClass{}
	Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(object), typed)).To(Succeed())
	return typed
}
