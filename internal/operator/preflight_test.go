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

package operator_test

import (
	"bytes"
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("Preflight", func() {
	var (
		kube client.Client
		opts *options.Options
	)
	BeforeEach(func() {
		kube = lo.Must(client.New(env.Config, client.Options{Scheme: scheme.Scheme}))
		box := cloud.Start(cloud.Options{})
		DeferCleanup(box.Close)
		opts = options.Defaults()
		opts.ClusterName, opts.APIURL, opts.AllowHTTP, opts.Region, opts.Namespace = "unit", box.APIURL, true, "HN", "default"
		opts.AppCredID, opts.AppCredSecret = box.Credentials().AppCredID, box.Credentials().AppCredSecret
	})
	preflight := func(ctx context.Context) (string, error) {
		var out bytes.Buffer
		err := operator.Preflight(options.ToContext(coreoptions.ToContext(ctx, coretest.Options()), opts), kube, &out)
		return out.String(), err
	}

	It("should pass with credentials that the cloud accepts", func(ctx context.Context) {
		out, err := preflight(ctx)
		Expect(err).ToNot(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring("ok     the login at "+opts.APIURL+" in HN\n"), ContainSubstring("ok     the catalog of BizFly Cloud\n")))
	})
	It("should fail with those that it does not, without naming them", func(ctx context.Context) {
		opts.AppCredSecret = "wrong-secret"
		out, err := preflight(ctx)
		Expect(err).To(MatchError(ContainSubstring("1 checks failed")))
		Expect(out).To(ContainSubstring("FAILED the login"))
		Expect(out).ToNot(ContainSubstring("wrong-secret"))
	})
	It("should fail for a BizflyNodeClass that is not ready, and report why", func(ctx context.Context) {
		nodeClass := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "preflight"}}
		Expect(kube.Create(ctx, nodeClass)).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return kube.Delete(ctx, nodeClass) })
		nodeClass.StatusConditions().SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "no image matches")
		Expect(kube.Status().Update(ctx, nodeClass)).To(Succeed())
		out, err := preflight(ctx)
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("FAILED BizflyNodeClass preflight: "), ContainSubstring("ImagesReady=False (ImageNotFound) no image matches")))
	})
})
