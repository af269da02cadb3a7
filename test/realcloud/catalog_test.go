// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// maxOfferings is how many offerings are tried until one is launched.
const maxOfferings = 3

// offer is what is launched.
type offer struct {
	flavor, category, zone string
	cpu, memoryMiB         int
	// old is true for a flavor without a generation, which may be listed and closed.
	old bool
	// price is in VND per hour, disk included, by the table that the controller has.
	price float64
}

// offerings chooses what is launched, on demand and large enough for a kubelet: the least expensive first. The others are for when that one
// cannot be launched: of other flavors, one old flavor at most, and within the budget even if each of them is charged.
func (r *run) offerings() ([]offer, error) {
	snapshot, err := r.Catalog.Snapshot()
	if err != nil {
		return nil, err
	}
	var all []offer
	for _, f := range snapshot.Flavors {
		if r.flavor != "" && f.Name != r.flavor || !usable(f) {
			continue
		}
		for _, z := range snapshot.Region.Zones {
			o := offer{flavor: f.Name, category: strings.ToLower(f.Category), zone: z.ShortName, cpu: f.VCPUs, memoryMiB: f.RAM, old: f.Generation.Code == ""}
			_, disk := snapshot.VolumeType(o.zone, o.category, v1alpha1.DiskMediumSSD)
			available := z.Active && disk && (len(f.Generation.AvailabilityZones) == 0 || lo.Contains(f.Generation.AvailabilityZones, o.zone))
			if !available || r.zone != "" && o.zone != r.zone {
				continue
			}
			var known bool
			o.price, known = pricing.DefaultTable().Price(pricing.Item{
				Category: o.category, Generation: f.Generation.Code, CPU: f.VCPUs, MemoryMiB: f.RAM,
				Disks:       []pricing.Disk{{GiB: rootDiskGiB, Type: v1alpha1.DiskMediumSSD}, {GiB: dataDiskGiB, Type: v1alpha1.DiskMediumSSD}},
				BillingPlan: v1alpha1.BillingPlanOnDemand,
			})
			if known {
				all = append(all, o)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no flavor with 2 vCPUs and 2 GiB is available on demand (E2E_CLOUD_FLAVOR=%q, E2E_CLOUD_ZONE=%q)", r.flavor, r.zone)
	}
	slices.SortStableFunc(all, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.price, b.price), lo.Ternary(a.old, 1, 0)-lo.Ternary(b.old, 1, 0))
	})
	var chosen []offer
	budget := r.budget
	for _, o := range all {
		if lo.SomeBy(chosen, func(c offer) bool { return r.flavor == "" && (c.flavor == o.flavor || c.old && o.old) }) {
			continue
		}
		if budget -= o.price * longest.Hours(); budget < 0 || len(chosen) == maxOfferings {
			break
		}
		chosen = append(chosen, o)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s in %s costs about %.0f VND for %s: raise E2E_CLOUD_BUDGET_VND or name a smaller E2E_CLOUD_FLAVOR",
			all[0].flavor, all[0].zone, all[0].price*longest.Hours(), longest)
	}
	return chosen, nil
}

// usable reports whether this run may launch a flavor.
func usable(f *gobizfly.ServerFlavorResponse) bool {
	plan := len(f.BillingPlans) == 0 || lo.Contains(f.BillingPlans, bizfly.PlanWord(v1alpha1.BillingPlanOnDemand))
	return plan && f.GPU == nil && f.VCPUs >= 2 && f.RAM >= 2048 && !strings.Contains(f.Name, "_vps")
}

// describe records the catalog.
func describe(r *run) {
	GinkgoHelper()
	snapshot, err := r.Catalog.Snapshot()
	Expect(err).NotTo(HaveOccurred())
	names := func(of []string) []string { return lo.Must(sorted(lo.Uniq(of))) }
	r.find("billing-plans", "the billing plans of flavors", names(lo.FlatMap(snapshot.Flavors,
		func(f *gobizfly.ServerFlavorResponse, _ int) []string { return f.BillingPlans })))
	r.find("categories", "what categories flavors have",
		names(lo.Map(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) string { return f.Category })))
	r.find("gpu-flavors", "what flavors with GPUs are called", names(lo.FilterMap(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) (string, bool) {
		return f.Name, f.GPU != nil
	})))
	r.find("volume-types", "what volume types there are, by category and zones", names(lo.Map(snapshot.VolumeTypes, func(v *gobizfly.VolumeType, _ int) string {
		return fmt.Sprintf("%s (%s, %s): %s", v.Name, v.Type, v.Category, strings.Join(v.AvailabilityZones, ", "))
	})))
	old := lo.Filter(snapshot.Flavors, func(f *gobizfly.ServerFlavorResponse, _ int) bool { return f.Generation.Code == "" })
	r.find("old-flavors", "how many flavors are listed without a generation, and how many of these are said to be new or name billing plans", map[string]int{
		"listed": len(old), "is_new": lo.CountBy(old, func(f *gobizfly.ServerFlavorResponse) bool { return f.IsNew }),
		"billing_plans":   lo.CountBy(old, func(f *gobizfly.ServerFlavorResponse) bool { return len(f.BillingPlans) > 0 }),
		"of a generation": len(snapshot.Flavors) - len(old),
	})
	r.find("zones", "what zones there are", names(lo.Map(snapshot.Region.Zones, func(z gobizfly.AvailabilityZone, _ int) string { return z.ShortName })))
	r.workerImages = workerImages(snapshot.KubernetesVersions)
	r.find("worker-images", "whether each Kubernetes version has a worker image", lo.EveryBy(snapshot.KubernetesVersions, func(v gobizfly.ControllerVersion) bool {
		return v.WorkerImageID != ""
	}))
	r.find("not-asked", "what this run does not find out, and why", map[string]string{
		"saving plans":         "they are prepaid, and an invoice shows what is refunded",
		"changes of the plan":  "a server that changes to a saving plan is paid for in advance",
		"small workers":        "whether a node with less than 2 vCPUs and 2 GiB becomes ready: it takes a second server",
		"parts that fail":      "what the cloud does while regions, server types or volume types cannot be read: it must fail for that",
		"console logs":         "no public client has a call for what a server prints while it boots",
		"stopped servers":      "an invoice shows their price: a started hour of one, and of the disk",
		"unpaid accounts":      "the answer to a launch of one; its status and words are in the events LaunchRejected",
		"quotas":               "no request answers them",
		"rate limits":          "finding them means to hit them",
		"limits of a request":  "how long user data, and how many entries metadata may be: ours are far below Nova's",
		"autoscaling of pools": "it is the user's; kubectl bizfly pool pin reads back what became of it",
		"package":              "whether max_nodes of the BKE package counts this node: only a full package shows it",
	})
}

func sorted(of []string) ([]string, error) {
	of = slices.Clone(of)
	slices.Sort(of)
	return of, nil
}
