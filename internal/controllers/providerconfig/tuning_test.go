// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

// applyConfigMap makes the tuning ConfigMap, or changes it.
func applyConfigMap(data map[string]string) {
	GinkgoHelper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tuningName, Namespace: namespace}, Data: data}
	if err := kubeClient.Update(ctx, configMap); err != nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(kubeClient.Create(ctx, configMap)).To(Succeed())
	}
}

// refer names a ConfigMap in the ProviderConfig.
func refer(name string) {
	GinkgoHelper()
	apply(v1alpha1.ProviderConfigSpec{TuningConfigMapRef: &v1alpha1.ConfigMapReference{Name: name}})
}

// tuned is what came into force last, and fails when nothing did.
func tuned() *options.Options {
	GinkgoHelper()
	Expect(process.active.Load()).ToNot(BeIdenticalTo(process.seen))
	process.seen = process.active.Load()
	return process.seen
}

// nothingTuned fails when anything came into force.
func nothingTuned() {
	GinkgoHelper()
	Expect(process.active.Load()).To(BeIdenticalTo(process.seen))
}

func ready() *status.Condition {
	GinkgoHelper()
	return condition(v1alpha1.ConditionTypeTuningReady)
}

// messages are those of the events with the reason.
func messages(reason string) []string {
	var all []string
	for _, event := range process.recorder.Events() {
		if event.Reason == reason {
			all = append(all, event.Message)
		}
	}
	return all
}

var _ = Describe("The tuning", func() {
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{})
		process = start(true, environment())
		process.look()
	})
	AfterEach(func() {
		sandbox.Close()
		Expect(kubeClient.DeleteAllOf(ctx, &v1alpha1.ProviderConfig{})).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
	})

	It("should be ready where none is asked for, and nothing be applied", func() {
		Expect(ready().IsTrue()).To(BeTrue())
		Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
		nothingTuned()
	})
	It("should not be read unless it is asked for", func() {
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m"})
		process.look()
		nothingTuned()
	})
	It("should come into force at the next look, once", func() {
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m"})
		refer(tuningName)
		process.look()
		Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
		Expect(ready().IsTrue()).To(BeTrue())
		process.look()
		nothingTuned()
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "6m"})
		process.look()
		Expect(tuned().UnavailableOfferingTTL).To(Equal(6 * time.Minute))
	})
	DescribeTable("should go back to the default",
		func(remove func()) {
			applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m", "catalogInterval": "10s"})
			refer(tuningName)
			process.look()
			Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
			remove()
			process.look()
			Expect(tuned().UnavailableOfferingTTL).To(Equal(options.Defaults().UnavailableOfferingTTL))
		},
		Entry("when the key is removed", func() { applyConfigMap(map[string]string{"catalogInterval": "10s"}) }),
		Entry("when the reference is removed", func() { apply(v1alpha1.ProviderConfigSpec{}) }),
		Entry("when the ConfigMap is emptied", func() { applyConfigMap(nil) }),
	)
	DescribeTable("should keep the active value, also over a restart, and report it",
		func(spoil func(), says string) {
			applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m"})
			refer(tuningName)
			process.look()
			Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
			Expect(stored().Status.Tuning).To(Equal(map[string]string{"unavailableOfferingTTL": "5m"}))
			spoil()
			process.look()
			nothingTuned()
			Expect(ready().Message).To(And(ContainSubstring(says), ContainSubstring("stay")))
			process = start(true, environment())
			process.look()
			Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
			Expect(stored().Status.Tuning).To(Equal(map[string]string{"unavailableOfferingTTL": "5m"}))
		},
		Entry("when the value becomes invalid", func() { applyConfigMap(map[string]string{"unavailableOfferingTTL": "5"}) },
			"unavailableOfferingTTL=5 is invalid: use a duration: 1s to 24h"),
		Entry("when the ConfigMap is removed", func() {
			Expect(kubeClient.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
		}, "the ConfigMap does not exist"),
	)
	It("should name the rule when another ConfigMap may be read, and keep what is active", func() {
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m"})
		refer(tuningName)
		process.look()
		Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
		refer("someone-elses")
		process.look()
		Expect(ready().IsFalse()).To(BeTrue())
		Expect(ready().Reason).To(Equal(providerconfig.ReasonConfigMapUnusable))
		Expect(ready().Message).To(And(ContainSubstring("someone-elses"), ContainSubstring(tuningName), ContainSubstring("resourceNames")))
		Expect(condition(status.ConditionReady).IsTrue()).To(BeFalse())
		nothingTuned()
	})
	It("should say that the ConfigMap does not exist until it does", func() {
		refer(tuningName)
		process.look()
		Expect(ready().Reason).To(Equal(providerconfig.ReasonConfigMapUnusable))
		Expect(ready().Message).To(ContainSubstring(tuningName))
		applyConfigMap(nil)
		process.look()
		Expect(ready().IsTrue()).To(BeTrue())
		Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
	})
	It("should name each ignored key in an event, list them, and apply the rest", func() {
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "5 minutes", "unavailableOfferingTtl": "5m", "catalogInterval": "10s"})
		refer(tuningName)
		process.look()
		Expect(tuned().CatalogInterval).To(Equal(10 * time.Second))
		Expect(ready().IsTrue()).To(BeTrue())
		Expect(ready().Reason).To(Equal(providerconfig.ReasonKeysIgnored))
		Expect(ready().Message).To(And(ContainSubstring("unavailableOfferingTTL=5 minutes"), ContainSubstring("unavailableOfferingTtl=5m")))
		warnings := lo.Uniq(messages("TuningIgnored"))
		Expect(warnings).To(ConsistOf(
			And(ContainSubstring(tuningName), ContainSubstring("unavailableOfferingTTL=5 minutes is invalid"), ContainSubstring("1s to 24h")),
			And(ContainSubstring("unavailableOfferingTtl=5m is invalid"), ContainSubstring("no such key")),
		))
		applyConfigMap(map[string]string{"catalogInterval": "10s"})
		process.look()
		Expect(ready().Reason).ToNot(Equal(providerconfig.ReasonKeysIgnored))
	})
	It("should bound what the condition lists", func() {
		data := map[string]string{}
		for _, letter := range "abcdefghijklmno" {
			data[string(letter)] = strings.Repeat("x", 10000)
		}
		applyConfigMap(data)
		refer(tuningName)
		process.look()
		Expect(ready().Message).To(ContainSubstring("and 5 more"))
		Expect(len(ready().Message)).To(BeNumerically("<", 8192))
	})
	It("should come into force on a replica that is not the leader, which writes nothing", func() {
		applyConfigMap(map[string]string{"unavailableOfferingTTL": "5m"})
		refer(tuningName)
		before := stored().ResourceVersion
		process = start(false, environment())
		_, err := process.controller.Reconcile(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(tuned().UnavailableOfferingTTL).To(Equal(5 * time.Minute))
		Expect(stored().ResourceVersion).To(Equal(before))
	})
})
