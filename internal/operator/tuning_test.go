// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	coreoperator "sigs.k8s.io/karpenter/pkg/operator"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Tuning", Ordered, ContinueOnFailure, func() {
	const flavorName = "p2.2c_4g"
	var (
		box  *cloud.Sandbox
		op   *operator.Operator
		kube client.Client
	)
	opts := &options.Options{}
	ctx, stop := context.WithCancel(opts.ToContext(coreoptions.ToContext(context.Background(), coretest.Options())))
	// One operator for all specs: a tuned key must come back to its default in any order of them.
	BeforeAll(func() {
		kube = lo.Must(client.New(env.Config, client.Options{Scheme: scheme.Scheme}))
		// No server that is launched here ever appears.
		box = cloud.Start(cloud.Options{Latency: time.Hour, HideBuilding: true})
		DeferCleanup(box.Close)
		*opts = *options.Defaults()
		opts.ClusterName, opts.APIURL, opts.AllowHTTP, opts.Region, opts.Namespace = "unit", box.APIURL, true, "HN", "default"
		opts.AppCredID, opts.AppCredSecret = box.Credentials().AppCredID, box.Credentials().AppCredSecret
		manager := unit.NewManager(env.Config)
		op = lo.Must(operator.New(ctx, &coreoperator.Operator{
			Manager: manager, EventRecorder: coretest.NewEventRecorder(), Clock: clock.RealClock{}, InstanceTypeStore: nodeoverlay.NewInstanceTypeStore(),
		}))
		done := make(chan error, 1)
		go func() { done <- manager.Start(ctx) }()
		DeferCleanup(func() {
			stop()
			Eventually(done).Should(Receive())
		})
		Expect(manager.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
		op.API.Confirm(lo.Must(op.API.Scope(ctx)))
	})

	configMap := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: options.DefaultTuningConfigMapName, Namespace: "default"}}
	}
	object := &v1alpha1.ProviderConfig{Spec: v1alpha1.ProviderConfigSpec{
		TuningConfigMapRef: &v1alpha1.ConfigMapReference{Name: options.DefaultTuningConfigMapName},
	}}
	// tune sets one key; no key at all when it is empty.
	tune := func(key, value string) *tuning.Result {
		GinkgoHelper()
		written := configMap()
		if key != "" {
			written.Data = map[string]string{key: value}
		}
		if err := kube.Update(ctx, written); err != nil {
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			Expect(kube.Create(ctx, written)).To(Succeed())
		}
		result := op.Tuning.Sync(ctx, object)
		Expect(result.Err).ToNot(HaveOccurred())
		Expect(result.Problems).To(BeEmpty())
		return result
	}
	BeforeEach(func() {
		tune("", "")
		box.ClearFaults()
		box.ResetRequests()
	})
	AfterEach(func() {
		Expect(op.Tuning.Sync(ctx, &v1alpha1.ProviderConfig{}).Err).ToNot(HaveOccurred())
		Expect(op.Settings.Load()).To(Equal(opts))
	})
	Context("instance types", func() {
		nodeClass := &v1alpha1.BizflyNodeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "tuned", UID: "tuned", Generation: 1}, Status: v1alpha1.BizflyNodeClassStatus{Zones: []string{"HN1"}},
		}
		get := func() *corecloudprovider.InstanceType {
			GinkgoHelper()
			types := lo.Must(op.Providers.Flavors.List(ctx, nodeClass))
			found, _ := lo.Find(types, func(it *corecloudprovider.InstanceType) bool { return it.Name == flavorName })
			return found
		}
		It("should change vmMemoryOverheadPercent", func() {
			Expect(get().Capacity.Memory().Value()).To(BeEquivalentTo(int64(3788) << 20))
			tune("vmMemoryOverheadPercent", "0.25")
			Expect(get().Capacity.Memory().Value()).To(BeEquivalentTo(3072 << 20))
			tune("", "")
			Expect(get().Capacity.Memory().Value()).To(BeEquivalentTo(int64(3788) << 20))
		})
		It("should change prices", func() {
			before := get().Offerings[0].Price
			table := string(lo.Must(os.ReadFile("../pricing/table.yaml")))
			tune("prices", strings.Replace(table, "OnDemand: {compute: 1,", "OnDemand: {compute: 2,", 1))
			disks := 40 * pricing.DefaultTable().Disks[v1alpha1.DiskMediumSSD]
			Expect(get().Offerings[0].Price).To(BeNumerically("~", 2*(before-disks)+disks, 0.001))
			tune("", "")
			Expect(get().Offerings[0].Price).To(Equal(before))
		})
		It("should change hiddenFlavors", func() {
			Expect(get()).ToNot(BeNil())
			tune("hiddenFlavors", "nix.2c_4g,"+flavorName)
			Expect(get()).To(BeNil())
			tune("", "")
			Expect(get()).ToNot(BeNil())
		})
	})
	It("should report which keys have changed, and not apply what has not", func() {
		Expect(tune("unavailableOfferingTTL", "7m").Changed).To(ConsistOf("unavailableOfferingTTL"))
		Expect(tune("unavailableOfferingTTL", "7m").Changed).To(BeEmpty())
		Expect(tune("catalogInterval", "17s").Changed).To(ConsistOf("unavailableOfferingTTL", "catalogInterval"))
	})
})
