// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const createRoute = "POST /iaas-cloud/api/servers"

var (
	ctx = unit.CoreContext()
	env *unit.Environment
)

func TestCloudProvider(t *testing.T) { suite.Run(t, "CloudProvider") }

var _ = unit.Suite(ctx, &env)

func nodeClass(mutate ...func(*v1alpha1.BizflyNodeClass)) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	return lo.Must(env.NodeClass(ctx, mutate...))
}

func nodeClaim(pool *karpv1.NodePool, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	GinkgoHelper()
	return lo.Must(env.NodeClaim(ctx, pool, requirements...))
}

func launched(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	GinkgoHelper()
	return lo.Must(env.Launch(ctx, claim))
}

// failedCreate calls Create and expects that it fails.
func failedCreate(claim *karpv1.NodeClaim) error {
	GinkgoHelper()
	_, err := env.CloudProvider.Create(ctx, claim.DeepCopy())
	Expect(err).To(HaveOccurred())
	return err
}

const hddQuota = "VolumeSizeExceedsAvailableQuota: " +
	"Requested volume or snapshot exceeds allowed gigabytes_PREMIUM-HDD1 quota."

// failCreate lets create requests meet a fault, by default a rejection with its status.
func failCreate(fault cloud.Fault) {
	fault.Method, fault.Path = http.MethodPost, "/servers"
	fault.Effect = lo.CoalesceOrEmpty(fault.Effect, cloud.EffectStatus)
	env.Sandbox.AddFaults(1, fault)
}

// unanswered returns a NodeClaim whose create request may or may not have been received.
func unanswered(pool *karpv1.NodePool) *karpv1.NodeClaim {
	GinkgoHelper()
	failCreate(cloud.Fault{Effect: cloud.EffectReset})
	env.WithoutIDWait()
	claim := nodeClaim(pool)
	Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
	return claim
}

// looksAgain waits until so many further lists of servers were read: what waits for a server has looked, and goes on.
func looksAgain(times int) {
	GinkgoHelper()
	lists := func() int { return env.Sandbox.RequestCounts()["GET /iaas-cloud/api/servers"] }
	Eventually(lists).Should(BeNumerically(">=", lists()+times))
}

// createRequests is how many servers were requested, rejected requests included.
func createRequests() int { return env.Sandbox.RequestCounts()[createRoute] }

func servers() []cloud.Server { return env.Servers() }

func serverOf(claim *karpv1.NodeClaim) cloud.Server {
	GinkgoHelper()
	return env.Server(claim.Status.ProviderID)
}

// deleted calls Delete as core does until it reports that the server is gone.
func deleted(claim *karpv1.NodeClaim) {
	GinkgoHelper()
	Eventually(func() bool {
		err := env.CloudProvider.Delete(ctx, claim)
		Expect(corecloudprovider.IgnoreNodeClaimNotFoundError(err)).To(Succeed())
		return corecloudprovider.IsNodeClaimNotFoundError(err)
	}).Should(BeTrue())
}

func exists(claim *karpv1.NodeClaim) bool {
	GinkgoHelper()
	live := &karpv1.NodeClaim{}
	err := env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return !apierrors.IsNotFound(err) && live.DeletionTimestamp.IsZero()
}

func intentOf(claim *karpv1.NodeClaim) *instance.Intent {
	GinkgoHelper()
	live := &karpv1.NodeClaim{}
	Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), live)).To(Succeed())
	return lo.Must(launch.ReadIntent(live))
}

// reasonOf is why Create kept the NodeClaim, or ended it.
func reasonOf(err error) string {
	var createError *corecloudprovider.CreateError
	if errors.As(err, &createError) {
		return createError.ConditionReason
	}
	var ended *corecloudprovider.InsufficientCapacityError
	if errors.As(err, &ended) {
		reason, _, _ := strings.Cut(errors.Unwrap(ended).Error(), ":")
		return reason
	}
	return ""
}

// ended calls Create and expects that it ends the NodeClaim.
func ended(claim *karpv1.NodeClaim) {
	GinkgoHelper()
	err := failedCreate(claim)
	Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue(), "%v", err)
}

func instanceTypes(pool *karpv1.NodePool) corecloudprovider.InstanceTypes {
	GinkgoHelper()
	all := lo.Must(env.CloudProvider.GetInstanceTypes(ctx, pool))
	Expect(all).ToNot(BeEmpty())
	return all
}

// available is how many offerings are available.
func available(pool *karpv1.NodePool) int {
	GinkgoHelper()
	return lo.SumBy(instanceTypes(pool), func(it *corecloudprovider.InstanceType) int { return len(it.Offerings.Available()) })
}

// priced is the price of every offering, available or not, by flavor and zone.
func priced(pool *karpv1.NodePool) map[string]float64 {
	GinkgoHelper()
	prices := map[string]float64{}
	for _, it := range instanceTypes(pool) {
		for _, offering := range it.Offerings {
			prices[it.Name+"/"+offering.Zone()] = offering.Price
		}
	}
	return prices
}
