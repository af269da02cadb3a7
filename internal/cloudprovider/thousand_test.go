// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("A thousand Creates at once", func() {
	const (
		launches = 1000
		// tasksPerRound is the default of instance.Config.
		tasksPerRound = 20
	)
	It("should launch one server for each NodeClaim, found by lists that all of them share", func() {
		// The API server is in memory: what is looked at is the launches, not the making of a thousand objects. Launches and cloud share a
		// clock that only the spec moves: however slow the machine is, there are two looks, before the servers are built and after.
		memory, now := unit.InMemory(), clocktesting.NewFakeClock(time.Now())
		memory.IDWait = 5 * time.Minute
		memory.Reset(ctx, cloud.Options{Clock: now, Latency: time.Second, HideBuilding: true})
		DeferCleanup(memory.CloseCloud)
		memory.Restart(ctx, func(d *wiring.Dependencies) { d.ServerClock = now })
		memory.Tune(func(o *options.Options) {
			o.VisibilityWindow, o.ServerPollInterval, o.ServerListMaxAge = 5*time.Minute, 3*time.Second, options.Defaults().ServerListMaxAge
		})
		Expect(memory.NodeClass(ctx, unit.WithDefaults)).Error().ToNot(HaveOccurred())
		pool := unit.NodePool()
		Expect(memory.Client.Create(ctx, pool)).To(Succeed())
		claims := lo.Times(launches, func(int) *karpv1.NodeClaim { return lo.Must(memory.NodeClaim(ctx, pool)) })
		memory.Sandbox.ResetRequests()

		created := make([]*karpv1.NodeClaim, launches)
		errs := make([]error, launches)
		var all sync.WaitGroup
		for i, claim := range claims {
			all.Go(func() { created[i], errs[i] = memory.CloudProvider.Create(ctx, claim.DeepCopy()) })
		}
		Eventually(now.Waiters).WithTimeout(memory.IDWait).Should(BeNumerically(">=", launches))
		now.Step(3 * time.Second)
		all.Wait()
		Expect(lo.Compact(errs)).To(BeEmpty())

		built := lo.KeyBy(memory.Sandbox.Servers(), func(s cloud.Server) string { return "bizflycloud://" + s.ID })
		Expect(built).To(HaveLen(launches), "no server is without its claim")
		Expect(lo.UniqBy(lo.Values(built), func(s cloud.Server) string { return s.Name })).To(HaveLen(launches))
		for i, claim := range claims {
			server, found := built[created[i].Status.ProviderID]
			Expect(found).To(BeTrue(), "%s has no server", claim.Name)
			Expect(server.Metadata).To(HaveKeyWithValue(v1alpha1.MetadataNodeClaimUID, string(claim.UID)))
			stored := &karpv1.NodeClaim{}
			Expect(memory.Client.Get(ctx, client.ObjectKeyFromObject(claim), stored)).To(Succeed())
			Expect(stored.Annotations).To(HaveKey(v1alpha1.AnnotationLaunchIntent))
		}
		counts := memory.Sandbox.RequestCounts()
		Expect(counts[createRoute]).To(Equal(launches))
		Expect(counts["GET /iaas-cloud/api/servers"]).To(Equal(2))
		tasks := lo.SumBy(lo.Entries(counts), func(entry lo.Entry[string, int]) int {
			return lo.Ternary(strings.HasPrefix(entry.Key, "GET /iaas-cloud/api/tasks/"), entry.Value, 0)
		})
		Expect(tasks).To(BeNumerically("<=", 2*tasksPerRound))
	})
})
