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
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("InPlaceHash", func() {
	class := func(plan v1alpha1.NetworkPlan, firewalls ...string) *v1alpha1.BizflyNodeClass {
		made := &v1alpha1.BizflyNodeClass{Spec: v1alpha1.BizflyNodeClassSpec{NetworkPlan: plan}}
		for _, id := range firewalls {
			made.Status.Firewalls = append(made.Status.Firewalls, v1alpha1.FirewallStatus{ID: id, Name: "name of " + id})
		}
		return made
	}
	It("should be the same for what means the same", func() {
		Expect(class("").InPlaceHash()).To(Equal(class(v1alpha1.NetworkPlanFreeDataTransfer).InPlaceHash()))
		Expect(class("", "a", "b").InPlaceHash()).To(Equal(class("", "b", "a", "b").InPlaceHash()))
	})
	It("should change with the firewalls and the network plan, and with nothing else", func() {
		Expect(class("", "a").InPlaceHash()).ToNot(Equal(class("").InPlaceHash()))
		Expect(class("", "a").InPlaceHash()).ToNot(Equal(class("", "b").InPlaceHash()))
		Expect(class(v1alpha1.NetworkPlanFreeBandwidth).InPlaceHash()).ToNot(Equal(class("").InPlaceHash()))
		other := class("", "a")
		other.Spec.BillingPlan, other.Status.SSHKeyName, other.Status.Firewalls[0].Name = v1alpha1.BillingPlanSavingPlan, "key", "renamed"
		Expect(other.InPlaceHash()).To(Equal(class("", "a").InPlaceHash()))
	})
	It("should be no part of the hash by which nodes are replaced", func() {
		Expect(class(v1alpha1.NetworkPlanFreeBandwidth, "a").Hash()).To(Equal(class("").Hash()))
	})
})
