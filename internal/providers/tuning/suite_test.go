// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package tuning_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

func TestTuning(t *testing.T) { suite.Run(t, "Tuning") }

// table is a price table in which a GPU of the newest kind costs this.
func table(gpu float64) string {
	return strings.Replace(string(lo.Must(os.ReadFile("../../pricing/table.yaml"))), "h100: 90000", fmt.Sprintf("h100: %g", gpu), 1)
}

var _ = Describe("Sync", func() {
	var (
		kube     client.Client
		readErr  error
		settings *options.Store
		provider *tuning.DefaultProvider
		object   *v1alpha1.ProviderConfig
	)
	start := func() {
		opts := options.Defaults()
		opts.Namespace = "karpenter"
		settings = options.NewStore(opts)
		provider = tuning.NewDefaultProvider(kube, settings)
	}
	BeforeEach(func() {
		readErr = nil
		kube = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if readErr != nil {
					return readErr
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		object = &v1alpha1.ProviderConfig{Spec: v1alpha1.ProviderConfigSpec{
			TuningConfigMapRef: &v1alpha1.ConfigMapReference{Name: options.DefaultTuningConfigMapName},
		}}
		start()
	})
	configMap := func(data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: options.DefaultTuningConfigMapName, Namespace: "karpenter"}, Data: data}
	}
	write := func(ctx context.Context, made *corev1.ConfigMap) {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(kube.Delete(ctx, configMap(nil)))).To(Succeed())
		Expect(kube.Create(ctx, made)).To(Succeed())
	}
	// sync looks once, and writes the status as the leader does.
	sync := func(ctx context.Context) *tuning.Result {
		result := provider.Sync(ctx, object)
		object.Status.Tuning = result.Active
		return result
	}
	tune := func(ctx context.Context, data map[string]string) *tuning.Result {
		GinkgoHelper()
		write(ctx, configMap(data))
		return sync(ctx)
	}
	expensive := func() string { return table(99999) }

	It("should lay the keys over the options, and remember their texts", func(ctx context.Context) {
		result := tune(ctx, map[string]string{"unavailableOfferingTTL": "5m"})
		Expect(result).To(Equal(&tuning.Result{ConfigMap: options.DefaultTuningConfigMapName, Changed: []string{"unavailableOfferingTTL"},
			Active: map[string]string{"unavailableOfferingTTL": "5m"}}))
		Expect(settings.Load().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
		before := settings.Load()
		Expect(sync(ctx).Changed).To(BeEmpty())
		Expect(settings.Load()).To(BeIdenticalTo(before))
	})
	It("should read the ConfigMap that the Role grants where the reference names none", func(ctx context.Context) {
		object.Spec.TuningConfigMapRef.Name = ""
		result := tune(ctx, map[string]string{"unavailableOfferingTTL": "5m"})
		Expect(result.ConfigMap).To(Equal(options.DefaultTuningConfigMapName))
		Expect(settings.Load().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
	})
	DescribeTable("should keep the values that are active",
		func(ctx context.Context, spoil func(ctx context.Context)) {
			Expect(tune(ctx, map[string]string{"prices": expensive(), "unavailableOfferingTTL": "5m"}).Problems).To(BeEmpty())
			prices := settings.Load().Prices
			spoil(ctx)
			for _, restarted := range []bool{false, true} {
				if restarted {
					start()
				}
				result := sync(ctx)
				Expect(result.Err != nil || len(result.Problems) > 0).To(BeTrue())
				Expect(settings.Load().Prices.GPUs).To(Equal(prices.GPUs), "restarted: %t", restarted)
				Expect(settings.Load().UnavailableOfferingTTL).To(Equal(5*time.Minute), "restarted: %t", restarted)
				Expect(object.Status.Tuning).To(HaveKeyWithValue("prices", expensive()))
			}
		},
		Entry("when a value becomes invalid", func(ctx context.Context) {
			write(ctx, configMap(map[string]string{"prices": "gpus: {a30: 0}", "unavailableOfferingTTL": "5m"}))
		}),
		Entry("when all values become invalid", func(ctx context.Context) {
			write(ctx, configMap(map[string]string{"prices": "{", "unavailableOfferingTTL": "5"}))
		}),
		Entry("when a value becomes too long for the status", func(ctx context.Context) {
			write(ctx, configMap(map[string]string{"prices": expensive() + "#" + strings.Repeat("x", v1alpha1.MaxTuningValueBytes), "unavailableOfferingTTL": "5m"}))
		}),
		Entry("when the ConfigMap is deleted", func(ctx context.Context) { Expect(kube.Delete(ctx, configMap(nil))).To(Succeed()) }),
		Entry("when the ConfigMap cannot be read", func(context.Context) { readErr = errors.New("the API server is away") }),
		Entry("when another ConfigMap is named", func(context.Context) { object.Spec.TuningConfigMapRef.Name = "other" }),
	)
	It("should keep a list while one of its entries is invalid", func(ctx context.Context) {
		tune(ctx, map[string]string{"hiddenFlavors": "a"})
		result := tune(ctx, map[string]string{"hiddenFlavors": "a*,b"})
		Expect(result.Problems).To(ConsistOf(And(ContainSubstring(`"a*"`), ContainSubstring("last valid value stays"))))
		Expect(settings.Load().HiddenFlavors).To(Equal([]string{"a"}))
	})
	It("should use the default of a key that never had a valid value", func(ctx context.Context) {
		result := tune(ctx, map[string]string{"prices": "{", "unavailableOfferingTTL": "5", "hiddenFlavors": "a*,b"})
		Expect(result.Problems).To(HaveLen(3))
		Expect(result.Problems).To(HaveEach(ContainSubstring("the default")))
		Expect(result.Active).To(BeEmpty())
		Expect(settings.Load().Prices).To(Equal(options.Defaults().Prices))
		Expect(settings.Load().UnavailableOfferingTTL).To(Equal(3 * time.Minute))
		Expect(settings.Load().HiddenFlavors).To(BeEmpty())
	})
	DescribeTable("should go back to the defaults when asked to",
		func(ctx context.Context, ask func(ctx context.Context)) {
			tune(ctx, map[string]string{"prices": expensive(), "unavailableOfferingTTL": "5m"})
			ask(ctx)
			result := sync(ctx)
			Expect(result.Changed).To(ConsistOf("prices", "unavailableOfferingTTL"))
			Expect(result.Active).To(BeEmpty())
			Expect(settings.Load().Prices).To(BeIdenticalTo(options.Defaults().Prices))
		},
		Entry("by an empty ConfigMap", func(ctx context.Context) { write(ctx, configMap(nil)) }),
		Entry("by removing the reference", func(context.Context) { object.Spec.TuningConfigMapRef = nil }),
	)
	It("should correct a value that was invalid", func(ctx context.Context) {
		tune(ctx, map[string]string{"unavailableOfferingTTL": "5m"})
		tune(ctx, map[string]string{"unavailableOfferingTTL": "5"})
		Expect(tune(ctx, map[string]string{"unavailableOfferingTTL": "6m"}).Problems).To(BeEmpty())
		Expect(settings.Load().UnavailableOfferingTTL).To(Equal(6 * time.Minute))
	})
	It("should name a key that does not exist with those that do, and apply the others", func(ctx context.Context) {
		result := tune(ctx, map[string]string{"catalogIntervall": "1m", "unavailableOfferingTTL": "2m"})
		Expect(settings.Load().UnavailableOfferingTTL).To(Equal(2 * time.Minute))
		Expect(result.Problems).To(ConsistOf(And(HavePrefix("catalogIntervall=1m is invalid: "), ContainSubstring("catalogInterval, "))))
	})
	It("should name key, value and bounds on one line, and not repeat a complete document", func(ctx context.Context) {
		result := tune(ctx, map[string]string{"unavailableOfferingTTL": strings.Repeat("ă ", 1000)})
		Expect(result.Problems).To(ConsistOf(And(HavePrefix("unavailableOfferingTTL=ă ă"), ContainSubstring("... is invalid: "), ContainSubstring("1s to 24h"),
			Not(ContainSubstring("\n")))))
		Expect(len([]rune(result.Problems[0]))).To(BeNumerically("<", 250))
	})
})
