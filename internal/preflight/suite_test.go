// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"errors"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/preflight"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestPreflight(t *testing.T) { suite.Run(t, "Preflight") }

// unreadable is a cluster whose objects cannot be listed.
type unreadable struct{ client.Reader }

// List implements client.Reader.
func (unreadable) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no matches for kind")
}

var _ = Describe("Look", func() {
	// stored is an object whose conditions are true as of generation 1.
	stored := func(object status.Object, generation int64) client.Object {
		object.SetGeneration(1)
		for _, condition := range object.StatusConditions().List() {
			object.StatusConditions().SetTrue(condition.Type)
		}
		object.SetGeneration(generation)
		return object
	}
	config := func() *v1alpha1.ProviderConfig {
		return &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	}
	nodeClass := func(name string) *v1alpha1.BizflyNodeClass {
		return &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	look := func(ctx context.Context, objects ...client.Object) (string, error) {
		return preflight.Look(ctx, fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build())
	}

	It("should pass before a NodeClass is configured", func(ctx context.Context) {
		Expect(look(ctx, stored(config(), 1))).To(Equal("ProviderConfig default: ready\n"))
	})
	It("should fail where the controller has never logged in", func(ctx context.Context) {
		_, err := look(ctx, stored(nodeClass("a"), 1))
		Expect(err).To(MatchError(ContainSubstring("no ProviderConfig default")))
	})
	It("should pass what the controller has found ready", func(ctx context.Context) {
		Expect(look(ctx, stored(config(), 1), stored(nodeClass("a"), 1))).To(Equal("ProviderConfig default: ready\nBizflyNodeClass a: ready\n"))
	})
	It("should say which conditions are not true, without control characters", func(ctx context.Context) {
		broken := stored(nodeClass("broken"), 1).(*v1alpha1.BizflyNodeClass)
		broken.StatusConditions().SetFalse(v1alpha1.ConditionTypeZonesReady, "ZoneNotFound", "HN9 does not exist\x1b[2J")
		text, err := look(ctx, stored(config(), 1), broken)
		Expect(err).To(MatchError(ContainSubstring("not ready: BizflyNodeClass broken;")))
		Expect(text).To(Equal("ProviderConfig default: ready\nBizflyNodeClass broken: not ready\n" +
			`  ZonesReady is False: ZoneNotFound: "HN9 does not exist\x1b[2J"` + "\n"))
	})
	It("should not accept conditions of an earlier generation, nor none", func(ctx context.Context) {
		text, err := look(ctx, stored(config(), 2), nodeClass("new"))
		Expect(err).To(MatchError(ContainSubstring("ProviderConfig default, BizflyNodeClass new")))
		Expect(text).To(ContainSubstring("the controller has not checked it yet"))
	})
	It("should fail where it cannot look", func(ctx context.Context) {
		Expect(preflight.Look(ctx, unreadable{})).Error().To(MatchError(ContainSubstring("upgrade both charts")))
	})
})
