// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

const (
	// night and day are how many nodes the pods need.
	nightNodes, dayNodes = 2, 6
	// idle is how often a settled cluster is looked at: its passes and steps have intervals of two minutes and more.
	idle = 10 * time.Minute
)

// month is what a month has left, as far as another month can be compared with it.
type month struct {
	// wanted is how many hours of servers the pods needed, billed how many the cloud has counted.
	wanted, billed float64
	// vnd is the bill.
	vnd float64
	// requests counts those to the cloud by method and route.
	requests map[string]int
	// goroutines, series, warnings and annotations are what there is at its end.
	goroutines, series, annotations int
	warnings                        int
}

// runningCluster is a cluster whose load changes with the hour.
type runningCluster struct {
	*simulation
	nodes  int
	wanted float64
	since  time.Time
	// oldImage reports that the NodeClass selects an older image than the newest.
	oldImage bool
	// days counts those of both months. A controller lives for upgradeDays; held is what the present one held after each of them.
	days int
	held []sizes
}

// upgradeDays is how many days a version of the controller is used.
const upgradeDays = 15

// hold measures what the controller holds.
func (c *runningCluster) hold() {
	synctest.Wait()
	leader := c.leader()
	for _, cached := range leader.caches {
		cached.DeleteExpired() // as their janitors do outside of simulations
	}
	c.held = append(c.held, sizesOf(c.providers, leader.server, leader.collector, leader.status))
}

// mayHold are how many entries may be held where more than a week fills it.
var mayHold = map[string]int{
	"capacity.DefaultProvider.histories": 12, // each flavor, zone and image of the last day
	"redact.Redactor.tokens":             upgradeDays * 4,
	"redact.known.forms":                 upgradeDays * 4 * 3, // in each spelling
}

// grown are the maps, slices and caches that hold more than they may, or than in the first days of their process: the first week, or less
// where the months are shorter.
func (c *runningCluster) grown(days int) (grown []string) {
	GinkgoHelper()
	week := min(7, days)
	Expect(len(c.held)).To(BeNumerically(">", week), "a last day that can be compared with the first ones")
	for place, entries := range c.held[len(c.held)-1] {
		most, stated := mayHold[place]
		if !stated {
			most = lo.Max(lo.Map(c.held[:week], func(s sizes, _ int) int { return s[place] }))
		}
		if entries > most {
			grown = append(grown, fmt.Sprintf("%s: %d instead of at most %d", place, entries, most))
		}
	}
	return grown
}

// need sets how many nodes the pods need, and counts the hours of those before.
func (c *runningCluster) need(nodes int) {
	c.wanted += float64(c.nodes) * time.Since(c.since).Hours()
	c.nodes, c.since = nodes, time.Now()
}

// settle lets core plan for the pods and end what is too much, until the cluster has what they need.
func (c *runningCluster) settle() bool {
	claims := lo.Filter(c.liveClaims(), func(claim karpv1.NodeClaim, _ int) bool { return claim.DeletionTimestamp.IsZero() })
	slices.SortFunc(claims, func(a, b karpv1.NodeClaim) int { return strings.Compare(a.Name, b.Name) })
	for _, claim := range claims[min(c.nodes, len(claims)):] {
		c.deleteClaim(&claim)
	}
	return c.liveUntil(act{nodes: c.nodes})
}

// pass lets time pass in a settled cluster.
func (c *runningCluster) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Until(end) >= idle; {
		time.Sleep(idle)
		for _, claim := range c.liveClaims() {
			c.reconcile("server", claim.DeepCopy())
			c.wait(c.leader(), "server"+claim.Name, time.Minute)
		}
		for _, controller := range []string{"collector", "core collector"} {
			c.reconcileSingleton(controller)
			c.wait(c.leader(), controller, time.Minute)
		}
		_ = c.shared.Refresh(c.ctx)
		c.observe()
	}
}

// day is one day: pods come in the morning and go in the evening, and on some days something happens.
func (c *runningCluster) day(n int) {
	c.days++
	switch {
	case n%7 == 3: // a quota keeps the morning's nodes away for a while
		c.cloud.SetQuota(cloud.Quota{Instances: lo.ToPtr(foreignServers + nightNodes + 1)})
	case n%7 == 5: // nothing answers for two hours
		c.broken = []subject{{name: "everything", matches: func(*http.Request, []byte) bool { return true },
			fault: cloud.Fault{Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable}}}
	case c.days%upgradeDays == 1:
		c.leader().kill()
		c.shared, c.held = nil, nil
		c.leader()
	}
	if c.broken != nil {
		c.pass(2 * time.Hour)
		c.broken = nil
	}
	c.need(dayNodes)
	if n%7 == 3 {
		for range 60 {
			c.liveOnce(dayNodes, true)
			time.Sleep(30 * time.Second)
		}
		c.cloud.SetQuota(cloud.Quota{})
	}
	c.mustSettle(n, "the morning")
	c.pass(4 * time.Hour)
	c.need(dayNodes + 2)
	c.mustSettle(n, "a deployment, whose new pods start before the old ones end")
	c.pass(30 * time.Minute)
	c.need(dayNodes)
	c.mustSettle(n, "the end of the deployment")
	c.pass(4*time.Hour + 30*time.Minute)
	if n%7 == 0 { // an image, which replaces all nodes
		c.nodeClass.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{Alias: lo.Ternary(c.oldImage, "bke@latest", "bke@"+otherVersion)}}
		c.oldImage = !c.oldImage
		c.nodeClass.Generation++
		c.leader()
		c.resolve(c.nodeClass)
		c.mustSettle(n, "a new image")
	}
	c.need(nightNodes)
	c.mustSettle(n, "the evening")
	c.pass(12 * time.Hour)
	c.hold()
}

func (c *runningCluster) mustSettle(day int, what string) {
	if !c.settle() {
		c.violated("day %d, %s: not settled after an hour: %s", day, what, strings.Join(c.checker.Unsettled(c.seen()), "; "))
	}
}

// month lives so many days and returns what they have left.
func (c *runningCluster) month(days int) month {
	c.cloud.ResetRequests()
	before, wanted := c.cloud.Bill(), c.wanted
	for n := range days {
		c.day(1 + n)
	}
	c.need(c.nodes)
	after := c.cloud.Bill()
	c.told.mu.Lock()
	warnings := lo.Sum(lo.Values(c.told.warnings))
	c.told.warnings = nil
	c.told.mu.Unlock()
	hours := func(b cloud.Bill) float64 { return lo.Sum(lo.Values(b.Hours)) }
	elapsed := after.At.Sub(before.At).Hours()
	return month{
		wanted: c.wanted - wanted, billed: hours(after) - hours(before) - foreignServers*elapsed, vnd: after.VND - before.VND,
		requests: c.cloud.RequestCounts(), goroutines: runtime.NumGoroutine(), series: seriesOf(), warnings: warnings,
		annotations: lo.SumBy(c.liveClaims(), func(claim karpv1.NodeClaim) int { return len(claim.Annotations) }),
	}
}

// seriesOf counts the series of all metrics.
func seriesOf() (series int) {
	for _, family := range lo.Must(crmetrics.Registry.Gather()) {
		series += len(family.GetMetric())
	}
	return series
}

var _ = Describe("Two months of a cluster", func() {
	// make chaos lives whole months; each day takes a second of processor time.
	days := int(suite.Number("MONTH_DAYS", 2))
	It("should cost what its pods needed, hold no more after a week, and be alike", func() {
		sim := newSimulation(suite.Number("SEED", 1))
		var (
			months []month
			held   sizes
			grown  []string
		)
		synctest.Test(root, func(t *testing.T) {
			defer settle()
			sim.begin(t.Context(), func(o *cloud.Options) {
				o.HideBuilding, o.ConflictOnBuild, o.AsyncRejections, o.TokenTTL, o.Latency = false, false, false, 12*time.Hour, 20*time.Second
			})
			sim.boot, sim.oldClaims = 40*time.Second, sets.New[types.UID]()
			sim.wanted = []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"nix.2c_4g"}},
			}
			c := &runningCluster{simulation: sim, nodes: nightNodes, since: time.Now()}
			c.mustSettle(0, "the start")
			for range 2 {
				months = append(months, c.month(days))
			}
			held, grown = c.held[len(c.held)-1], c.grown(days)
			for _, p := range sim.processes {
				p.cancel()
			}
			time.Sleep(2 * time.Hour)
		})
		Expect(sim.violations).To(BeEmpty(), report(sim))
		Expect(grown).To(BeEmpty(), "what a controller holds after a week it also holds after another")
		for i, m := range months {
			AddReportEntry(fmt.Sprintf("month %d", i+1), fmt.Sprintf("%.0f hours wanted, %.0f billed, %.0f VND, %d goroutines, %d series, %d warnings, requests %v",
				m.wanted, m.billed, m.vnd, m.goroutines, m.series, m.warnings, m.requests))
			// Servers are paid for from the request to the deletion, and what an outage keeps runs on: two hours a week.
			Expect(m.billed).To(BeNumerically("~", m.wanted, 0.05*m.wanted))
		}
		for place := range mayHold {
			Expect(held).To(HaveKey(place))
		}
		AddReportEntry("maps, slices and caches", held)
		one, two := months[0], months[1]
		Expect(two.vnd).To(BeNumerically("~", one.vnd, 0.05*one.vnd))
		Expect(two.goroutines).To(BeNumerically("<=", one.goroutines+5))
		Expect(two.series).To(BeNumerically("<=", one.series*105/100))
		Expect(two.annotations).To(Equal(one.annotations))
		Expect(two.warnings).To(BeNumerically("~", one.warnings, 20+one.warnings/4))
		total := func(m month) int { return lo.Sum(slices.Collect(maps.Values(m.requests))) }
		Expect(total(two)).To(BeNumerically("~", total(one), total(one)/10))
	})
})
