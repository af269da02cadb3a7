// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/samber/lo"
	clocktesting "k8s.io/utils/clock/testing"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var _ = Describe("Catalog over the real client", func() {
	var sandbox *cloud.Sandbox
	var clk *clocktesting.FakeClock
	var provider *catalog.DefaultProvider

	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{})
		DeferCleanup(sandbox.Close)
		clk = clocktesting.NewFakeClock(start)
		provider = catalog.NewDefaultProvider(clientOf(sandbox), clk, catalog.Config{BKEClusterID: sandbox.BKE().ClusterUID})
	})
	It("should not be ready before the first refresh", func() {
		Expect(provider.Snapshot()).Error().To(MatchError(catalog.ErrNotReady))
	})
	It("should read the BKE cluster once it is known which it is, and be ready before", func(ctx context.Context) {
		learned := ""
		provider = catalog.NewDefaultProvider(clientOf(sandbox), clk, catalog.Config{LearnedBKEClusterID: func(context.Context) string { return learned }})
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Cluster).To(BeNil())
		Expect(must(provider).ClusterUnknown).To(BeTrue())
		learned = sandbox.BKE().ClusterUID
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Cluster.UID).To(Equal(learned))
		Expect(must(provider).ClusterUnknown).To(BeFalse())
	})
	It("should serve what the cloud offers in the region", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		snapshot := must(provider)
		Expect(snapshot.Seq).To(BeEquivalentTo(1))
		Expect(snapshot.BKEReadAt).To(Equal(start))
		Expect(snapshot.Region.ShortName).To(Equal("HN"))
		Expect(lo.Map(snapshot.Region.Zones, func(z gobizfly.AvailabilityZone, _ int) string { return z.ShortName })).To(Equal([]string{"HN1", "HN2"}))
		Expect(len(snapshot.Flavors)).To(BeNumerically(">=", 60))
		Expect(slices.IsSortedFunc(snapshot.Flavors, func(a, b *gobizfly.ServerFlavorResponse) int {
			return slices.Compare([]string{a.Name, a.ID}, []string{b.Name, b.ID})
		})).To(BeTrue())
		Expect(sandbox.RequestCounts()).ToNot(HaveKey(ContainSubstring("/server-types")), "a category that it does not list is not closed")
		Expect(snapshot.VolumeTypes).NotTo(BeEmpty())
		Expect(snapshot.KubernetesVersions).NotTo(BeEmpty())
		Expect(snapshot.Cluster.UID).To(Equal(sandbox.BKE().ClusterUID))
		Expect(snapshot.Cluster.VPCNetworkID).To(Equal(sandbox.BKE().NetworkID))
	})
	It("should not ask the Kubernetes Engine without a cluster id", func(ctx context.Context) {
		sandbox.AddFaults(1, cloud.Fault{Path: "/api/kubernetes-engine/**", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		provider = catalog.NewDefaultProvider(clientOf(sandbox), clk, catalog.Config{})
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Cluster).To(BeNil())
		Expect(must(provider).KubernetesVersions).To(BeEmpty())
		Expect(sandbox.FaultsFired()).To(Equal([]int{0}))
	})
	It("should keep the number and move the time when nothing has changed", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		before := must(provider)
		clk.Step(time.Minute)
		Expect(provider.Refresh(ctx)).To(Succeed())
		after := must(provider)
		Expect(after.Seq).To(Equal(before.Seq))
		Expect(after.BKEReadAt).To(Equal(start.Add(time.Minute)))
		Expect(before.BKEReadAt).To(Equal(start), "a snapshot is immutable")
		Expect(after.Flavors[0]).To(BeIdenticalTo(before.Flavors[0]))
	})
	It("should stay not ready while a part that instance types need was never read", func(ctx context.Context) {
		sandbox.AddFaults(1, cloud.Fault{Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusForbidden, Count: 1})
		Expect(provider.Refresh(ctx)).To(MatchError(ContainSubstring("reading the flavors")))
		Expect(provider.Snapshot()).Error().To(MatchError(catalog.ErrNotReady))
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Seq).To(BeEquivalentTo(1))
	})
	It("should be ready while the Kubernetes Engine has never answered, and tell its age", func(ctx context.Context) {
		sandbox.AddFaults(1, cloud.Fault{Path: "/api/kubernetes-engine/**", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		for range 3 {
			clk.Step(time.Hour)
			Expect(provider.Refresh(ctx)).To(MatchError(And(ContainSubstring("reading the Kubernetes versions"), ContainSubstring("reading the BKE cluster"))))
		}
		snapshot := must(provider)
		Expect(snapshot.Flavors).NotTo(BeEmpty())
		Expect(snapshot.Seq).To(BeEquivalentTo(1))
		Expect(snapshot.Cluster).To(BeNil())
		Expect(snapshot.ClusterUnknown).To(BeTrue(), "that there is no cluster proves nothing")
		Expect(gauge("karpenter_bizfly_catalog_age_seconds", "")).To(Equal(3 * time.Hour.Seconds()))
		sandbox.ClearFaults()
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).ClusterUnknown).To(BeFalse())
		Expect(must(provider).Cluster.UID).To(Equal(sandbox.BKE().ClusterUID))
		Expect(gauge("karpenter_bizfly_catalog_age_seconds", "")).To(BeZero())
	})
	It("should tell its age from the start until it is read", func(ctx context.Context) {
		sandbox.AddFaults(1, cloud.Fault{Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		clk.Step(2 * time.Hour)
		Expect(provider.Refresh(ctx)).NotTo(Succeed())
		Expect(gauge("karpenter_bizfly_catalog_age_seconds", "")).To(Equal(2 * time.Hour.Seconds()))
	})
	It("should keep the last good content of the part that fails and take over the others", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		flavors := len(must(provider).Flavors)
		sandbox.AddFaults(1,
			cloud.Fault{Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusForbidden},
			cloud.Fault{Path: "/volume-types", Effect: cloud.EffectBody,
				Body: `{"volume_types":[{"name":"NEW","category":"premium","type":"SSD","availability_zones":["HN1"]}]}`})
		clk.Step(time.Minute)
		err := provider.Refresh(ctx)
		Expect(bizfly.IsPermission(err)).To(BeTrue(), "the cause stays visible: %v", err)
		snapshot := must(provider)
		Expect(snapshot.Flavors).To(HaveLen(flavors))
		Expect(snapshot.VolumeTypes).To(HaveLen(1))
		Expect(snapshot.Seq).To(BeEquivalentTo(2))
		Expect(snapshot.BKEReadAt).To(Equal(start.Add(time.Minute)))
		Expect(gauge("karpenter_bizfly_catalog_age_seconds", "")).To(Equal(60.0))
		Expect(gauge("karpenter_bizfly_catalog_last_read_failed", "flavors")).To(Equal(1.0))
		Expect(gauge("karpenter_bizfly_catalog_last_read_failed", "volume types")).To(Equal(0.0))
	})
	DescribeTable("should replace a part that was never read by what is there, until it is read",
		func(ctx context.Context, mode, path, message string, replaced, read gomegatypes.GomegaMatcher) {
			// The same shape as the mode, in a cloud that recovers.
			Expect(cloud.ModeNamed(mode).What).To(ContainSubstring(path))
			fault := cloud.Fault{Path: path, Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable, Body: `{"message":"down"}`}
			sandbox.AddFaults(1, fault)
			Expect(provider.Refresh(ctx)).To(MatchError(ContainSubstring(message)))
			Expect(*must(provider)).To(replaced)
			clk.Step(time.Minute)
			Expect(provider.Refresh(ctx)).NotTo(Succeed())
			Expect(gauge("karpenter_bizfly_catalog_age_seconds", "")).To(Equal(60.0), "not everything was read")
			Expect(must(provider).Seq).To(BeEquivalentTo(1))

			sandbox.ClearFaults()
			Expect(provider.Refresh(ctx)).To(Succeed())
			Expect(*must(provider)).To(read)
			sandbox.AddFaults(1, fault)
			Expect(provider.Refresh(ctx)).NotTo(Succeed())
			Expect(*must(provider)).To(read, "what was read stays")
		},
		Entry("regions by the zones of flavors and volume types", "regions-down", "/regions", "reading the regions",
			And(HaveField("Region.RegionName", "HaNoi"), HaveField("Region.ShortName", "HN"), HaveField("Region.Icon", ""),
				HaveField("Zones()", Equal([]catalog.Zone{{Name: "HN1", Active: true}, {Name: "HN2", Active: true}}))),
			HaveField("Region.Icon", Not(BeEmpty()))),
	)
	It("should not be ready while the volume types were never read, and say that it is they", func(ctx context.Context) {
		sandbox.AddFaults(1, cloud.Fault{Path: "/volume-types", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable, Message: "down"})
		for range 2 {
			Expect(provider.Refresh(ctx)).To(MatchError(ContainSubstring("reading the volume types")))
			_, err := provider.Snapshot()
			Expect(err).To(And(MatchError(catalog.ErrNotReady),
				MatchError(HaveSuffix("read yet: reading the volume types: bizfly cloud: ListVolumeTypes: Outage (status 503): down"))))
			Expect(gauge("karpenter_bizfly_catalog_last_read_failed", "volume types")).To(Equal(1.0))
		}
		sandbox.ClearFaults()
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).VolumeTypes).To(HaveLen(8))
	})
	It("should name volume types by their identifier, whichever field has it", func(ctx context.Context) {
		for _, modes := range [][]string{nil, {"volume-types-swapped"}} {
			box := cloud.Start(cloud.Options{Modes: modes})
			swapped := catalog.NewDefaultProvider(clientOf(box), clk, catalog.Config{})
			Expect(swapped.Refresh(ctx)).To(Succeed())
			box.Close()
			name, ok := must(swapped).VolumeType("HN2", "premium", v1alpha1.DiskMediumSSD)
			Expect(ok).To(BeTrue())
			Expect(name).To(Equal("PREMIUM-SSD1"))
		}
	})
	DescribeTable("should take an empty answer for an error and keep what it had",
		func(ctx context.Context, path, body, message string) {
			Expect(provider.Refresh(ctx)).To(Succeed())
			before := must(provider)
			sandbox.AddFaults(1, cloud.Fault{Path: path, Effect: cloud.EffectBody, Body: body})
			Expect(provider.Refresh(ctx)).To(MatchError(ContainSubstring(message)))
			Expect(must(provider).Seq).To(Equal(before.Seq))
			Expect(must(provider)).To(HaveValue(Equal(*before)))
		},
		Entry("flavors", "/flavors", `[]`, "reading the flavors"),
		Entry("volume types", "/volume-types", `{"volume_types":[]}`, "reading the volume types"),
		Entry("versions", "/k8s_versions", `{"controller_versions":[],"worker_versions":[]}`, "reading the Kubernetes versions"),
		Entry("a region without zones", "/regions", `{"HN":{"active":true,"region_name":"HaNoi","short_name":"HN","zones":[]}}`, "reading the regions"),
		Entry("a cluster without uid", "/_/*", `{}`, "reading the BKE cluster"),
	)
})

var _ = Describe("Catalog over an API of the test's own", func() {
	var api *stub
	var provider *catalog.DefaultProvider

	BeforeEach(func() {
		api = newStub()
		provider = catalog.NewDefaultProvider(api, clocktesting.NewFakeClock(start), catalog.Config{BKEClusterID: "c"})
	})
	DescribeTable("should replace the regions by the zones of the login's region alone",
		func(ctx context.Context, region, label string, zones ...string) {
			api.set(func() {
				api.region, api.regionsDown = region, &bizfly.APIError{Class: bizfly.ClassOutage, Status: http.StatusServiceUnavailable}
				api.flavors[0].Generation.AvailabilityZones = []string{"HCM2", "HCM1", "HN2", "somewhere"}
				api.flavors[1].Generation.AvailabilityZones = []string{"HN1", "HN2", ""}
			})
			Expect(provider.Refresh(ctx)).To(MatchError(ContainSubstring("reading the regions")))
			if label == "" {
				Expect(provider.Snapshot()).Error().To(MatchError(catalog.ErrNotReady))
				return
			}
			Expect(must(provider).RegionLabel()).To(Equal(label))
			Expect(lo.Map(must(provider).Zones(), func(z catalog.Zone, _ int) string { return z.Name })).To(Equal(zones))
		},
		Entry("of HaNoi", "HaNoi", "HN", "HN1", "HN2"),
		Entry("of HoChiMinh", "HoChiMinh", "HCM", "HCM1", "HCM2"),
		Entry("of a region that no flavor names", "VC-HaNoi", ""),
	)
	It("should name the regions there are where the login's is none of them, and not replace it", func(ctx context.Context) {
		api.set(func() { api.region = "VC-HaNoi" })
		Expect(provider.Refresh(ctx)).To(MatchError(And(ContainSubstring(`"VC-HaNoi" is not among those of the account`), ContainSubstring("HN (HaNoi)"))))
		Expect(provider.Snapshot()).Error().To(MatchError(catalog.ErrNotReady))
	})
	It("should raise the number when the content changes", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		api.set(func() { api.flavors = append(api.flavors, flavor("c")) })
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Seq).To(BeEquivalentTo(2))
		Expect(must(provider).Flavors).To(HaveLen(3))
	})
	It("should raise the number when something inside a flavor changes", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		api.set(func() { f := *api.flavors[0]; f.BillingPlans = []string{"saving_plan"}; api.flavors[0] = &f })
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Seq).To(BeEquivalentTo(2))
	})
	It("should not take another order for a change", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		api.set(func() {
			slices.Reverse(api.flavors)
			f := *api.flavors[0]
			f.BillingPlans = slices.Clone(f.BillingPlans)
			slices.Reverse(f.BillingPlans)
			api.flavors[0] = &f
			slices.Reverse(api.volumeTypes)
		})
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Seq).To(BeEquivalentTo(1))
	})
	It("should not take the coming and going of workers for a change", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		api.set(func() {
			api.cluster.WorkerPoolsCount++
			api.cluster.WorkerPools = make([]gobizfly.ExtendedWorkerPool, 3)
		})
		Expect(provider.Refresh(ctx)).To(Succeed())
		Expect(must(provider).Seq).To(BeEquivalentTo(1))
		Expect(must(provider).Cluster.WorkerPools).To(BeEmpty())
	})
	It("should end at its deadline although a read does not", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		api.set(func() {
			api.listFlavors = func(ctx context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		Expect(errors.Is(provider.Refresh(ctx), context.DeadlineExceeded)).To(BeTrue())
	})
	It("should be readable while it is refreshed", func(ctx context.Context) {
		Expect(provider.Refresh(ctx)).To(Succeed())
		var stop atomic.Bool
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for last := uint64(0); !stop.Load(); {
					snapshot, err := provider.Snapshot()
					if err != nil || snapshot.Seq < last || len(snapshot.Flavors) == 0 {
						panic("a reader saw the catalog go backwards")
					}
					last = snapshot.Seq
				}
			})
		}
		for i := range 50 {
			api.set(func() { api.flavors[0] = flavor(string(rune('a' + i%26))) })
			Expect(provider.Refresh(ctx)).To(Succeed())
		}
		stop.Store(true)
		readers.Wait()
	})
})

func clientOf(sandbox *cloud.Sandbox) *bizfly.Client {
	return connect.Client(context.Background(), sandbox)
}

func must(provider catalog.Provider) *catalog.Snapshot {
	GinkgoHelper()
	return lo.Must(provider.Snapshot())
}

// gauge reads a metric of the process; part selects by label, empty for a metric without.
func gauge(name, part string) float64 {
	GinkgoHelper()
	families := lo.Must(crmetrics.Registry.Gather())
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if part == "" || metric.GetLabel()[0].GetValue() == part {
				return metric.GetGauge().GetValue()
			}
		}
	}
	Fail("no metric " + name + " " + part)
	return 0
}

// stub answers what the test says, for what no server can be made to do on time.
type stub struct {
	bizfly.API
	mu          sync.Mutex
	region      string
	flavors     []*gobizfly.ServerFlavorResponse
	volumeTypes []*gobizfly.VolumeType
	cluster     gobizfly.FullCluster
	listFlavors func(context.Context) ([]*gobizfly.ServerFlavorResponse, error)
	regionsDown error
}

func flavor(name string) *gobizfly.ServerFlavorResponse {
	return &gobizfly.ServerFlavorResponse{ID: name, Name: name, VCPUs: 1, RAM: 1024, BillingPlans: []string{"saving_plan", "on_demand"}}
}

func newStub() *stub {
	s := &stub{
		region:      "HaNoi",
		flavors:     []*gobizfly.ServerFlavorResponse{flavor("a"), flavor("b")},
		volumeTypes: []*gobizfly.VolumeType{{Name: "A"}, {Name: "B"}},
	}
	s.cluster.UID, s.cluster.Version.K8SVersion = "c", "v1.35.4"
	return s
}

func (s *stub) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stub) Scope(context.Context) (bizfly.Scope, error) {
	return bizfly.Scope{Region: s.region}, nil
}

func (s *stub) ListRegions(context.Context) ([]gobizfly.Region, error) {
	if s.regionsDown != nil {
		return nil, s.regionsDown
	}
	return []gobizfly.Region{{Active: true, RegionName: "HaNoi", ShortName: "HN", Zones: []gobizfly.AvailabilityZone{{ShortName: "HN1", Active: true}}}}, nil
}

func (s *stub) ListFlavors(ctx context.Context) ([]*gobizfly.ServerFlavorResponse, error) {
	s.mu.Lock()
	list, flavors := s.listFlavors, slices.Clone(s.flavors)
	s.mu.Unlock()
	if list != nil {
		return list(ctx)
	}
	return flavors, nil
}

func (s *stub) ListVolumeTypes(context.Context) ([]*gobizfly.VolumeType, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.volumeTypes), nil
}

func (s *stub) ListKubernetesVersions(context.Context) ([]gobizfly.ControllerVersion, error) {
	return []gobizfly.ControllerVersion{{ID: "1", K8SVersion: "v1.35.4"}}, nil
}

func (s *stub) GetCluster(context.Context, string) (*gobizfly.FullCluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := s.cluster
	return &cluster, nil
}
