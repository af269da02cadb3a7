// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/input"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/suggest"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/properties/randomcluster"
	workloads "github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/bill"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/measure/packing"
)

const (
	// quiet is how long nothing must have changed in a cluster that has settled, beside consolidateAfter: core looks at all again every 5 minutes.
	quiet = 15 * time.Minute
	// usualFlavor is what worker pools are usually made of.
	usualFlavor = "p2.8c_16g"
	// The columns of fixed pools.
	poolBest, poolUsual = "pool-best", "pool-8c_16g"
	// wayReference is the bound, waySuggested and wayRepacked the columns of kubectl bizfly plan suggest and repack.
	wayReference, waySuggested, wayRepacked = "reference", "suggested", "repacked"
)

// column is one way to run a workload.
type column struct {
	// name is its key in the results, title what the page calls it.
	name, title string
	// change is what its NodePool has unlike the sample.
	change func(*karpv1.NodePool)
	// tuning is that of its controller.
	tuning map[string]string
	// pools are its NodePools, where it has others than the sample.
	pools []*karpv1.NodePool
	// flavor is that of a fixed pool.
	flavor string
}

// policies are the ways to run a workload with the NodePool of config/samples. The first is what Karpenter does by default.
func policies() []column {
	with := func(name, title string, policy karpv1.ConsolidationPolicy, after string) column {
		return column{name: name, title: title, change: func(pool *karpv1.NodePool) {
			pool.Spec.Disruption.ConsolidationPolicy, pool.Spec.Disruption.ConsolidateAfter = policy, karpv1.MustParseNillableDuration(after)
		}}
	}
	return []column{
		with("underutilized-30s", "`WhenEmptyOrUnderutilized`, 30s", karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "30s"),
		with("underutilized-10m", "`WhenEmptyOrUnderutilized`, 10m", karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "10m"),
		with("balanced-30s", "`Balanced`, 30s", karpv1.ConsolidationPolicyBalanced, "30s"),
		with("balanced-5m", "`Balanced`, 5m", karpv1.ConsolidationPolicyBalanced, "5m"),
		with("balanced-10m", "`Balanced`, 10m", karpv1.ConsolidationPolicyBalanced, "10m"),
		with("empty-30s", "`WhenEmpty`, 30s", karpv1.ConsolidationPolicyWhenEmpty, "30s"),
	}
}

// hourly is the policy with nodes that stay for the hours that are paid.
func hourly(c column) column {
	c.name, c.tuning = c.name+"-1h", map[string]string{"billingPeriod": "1h"}
	return c
}

// columns are all ways that are measured.
func columns() []column {
	return append(ways(), ofHours()...)
}

// ofHours are the policies with nodes that stay for the hours that are paid.
func ofHours() []column { return lo.Map(policies(), func(c column, _ int) column { return hourly(c) }) }

// ways are those without the hours that are paid, in the order of the page.
func ways() []column {
	return append(policies(), column{name: waySuggested, title: "suggested NodePool, 30s"}, repackedColumn(),
		column{name: poolBest, title: "pool of the best single flavor"}, column{name: poolUsual, title: "pool of 8c_16g"})
}

// flavor is what a fixed pool and the bound know of a flavor.
type flavor struct {
	name        string
	allocatable corev1.ResourceList
	// vndPerHour is its price with the sample's root disk.
	vndPerHour float64
}

// bench is what all runs share.
type bench struct {
	begun   time.Time
	sample  *karpv1.NodePool
	flavors []flavor
	bins    []packing.Bin

	mu sync.Mutex // of results
}

// newBench reads the sample and what it may launch.
func newBench(ctx context.Context) *bench {
	content := lo.Must(os.ReadFile(filepath.Join(root, sampleFile)))
	b := &bench{begun: time.Now(), sample: &karpv1.NodePool{}}
	lo.Must0(yaml.UnmarshalStrict(content, b.sample))
	if len(b.sample.Spec.Disruption.Budgets) == 0 {
		b.sample.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}} // the API server's default
	}
	live := randomcluster.NewKarpenter(ctx, b.sample.DeepCopy())
	defer live.CloseCloud()
	types := lo.Must(live.CloudProvider.GetInstanceTypes(ctx, live.Pools[0]))
	allowed := scheduling.NewNodeSelectorRequirementsWithMinValues(b.sample.Spec.Template.Spec.Requirements...)
	for _, it := range types {
		offerings := it.Offerings.Available().Compatible(allowed)
		if it.Requirements.Intersects(allowed) != nil || len(offerings) == 0 {
			continue
		}
		b.flavors = append(b.flavors, flavor{it.Name, it.Allocatable(), offerings.Cheapest().Price})
	}
	// Of flavors alike, those of the newer names are first.
	slices.SortFunc(b.flavors, func(x, y flavor) int {
		return cmp.Or(cmp.Compare(x.vndPerHour, y.vndPerHour), -cmp.Compare(x.name, y.name))
	})
	for _, f := range b.flavors {
		b.bins = append(b.bins, packing.Bin{Name: f.name, VNDPerHour: f.vndPerHour, Allocatable: f.allocatable})
	}
	return b
}

// once runs a workload once.
func (b *bench) once(ctx context.Context, k kind, c column, w workloads.Workload) *randomcluster.Bill {
	var live *randomcluster.Live
	settled := 2 * quiet
	if c.flavor != "" {
		i := slices.IndexFunc(b.flavors, func(f flavor) bool { return f.name == c.flavor })
		if i < 0 {
			panic(fmt.Errorf("the sample does not allow flavor %s", c.flavor))
		}
		live = randomcluster.NewPool(ctx, c.flavor, b.flavors[i].allocatable)
	} else {
		pools := lo.Map(c.pools, func(pool *karpv1.NodePool, _ int) *karpv1.NodePool { return pool.DeepCopy() })
		if len(pools) == 0 {
			pools = []*karpv1.NodePool{b.sample.DeepCopy()}
			c.change(pools[0])
		}
		settled = quiet + *pools[0].Spec.Disruption.ConsolidateAfter.Duration
		live = randomcluster.NewKarpenter(ctx, pools...)
		live.Tune(ctx, c.tuning)
	}
	defer live.CloseCloud()
	if k.name == "day" {
		var nightly func()
		if c.name == wayRepacked {
			nightly = func() { b.repack(ctx, live) }
		}
		return live.RunDay(ctx, w.Pods, repackAt, nightly)
	}
	bill := live.Settle(ctx, w.Pods, settled)
	if c.name != wayRepacked {
		return bill
	}
	return b.repacked(ctx, live, bill, settled)
}

// bestPool runs a workload on a pool of each flavor, and returns the cheapest one that held all pods.
func (b *bench) bestPool(ctx context.Context, k kind, w workloads.Workload) *Outcome {
	var best *Outcome
	price := 0.0
	for _, f := range b.flavors {
		if f.vndPerHour == price || !strings.HasPrefix(f.name, "p2.") && !strings.HasPrefix(f.name, "nix.") {
			continue // the same at the same price, or what costs more for the same
		}
		price = f.vndPerHour
		bill := b.once(ctx, k, column{flavor: f.name}, w)
		if bill.Unserved == 0 && (best == nil || k.money(bill) < k.money(best.Bill)) {
			best = &Outcome{bill, f.name}
		}
	}
	if best == nil {
		panic(fmt.Errorf("no flavor holds all pods of %s", w.Name))
	}
	return best
}

// moment is a time of a workload until which nothing comes or goes.
type moment struct{ at, until time.Duration }

func moments(w workloads.Workload) []moment {
	var changes []time.Duration
	for _, pod := range w.Pods {
		changes = append(changes, pod.Arrives, pod.Leaves)
	}
	slices.Sort(changes)
	changes = slices.Compact(changes)
	return lo.Map(changes, func(at time.Duration, i int) moment {
		return moment{at, lo.NthOr(changes, i+1, workloads.Day)}
	})
}

// bound is the lowest price that any nodes could have, for a day at each moment anew.
func (b *bench) bound(k kind, w workloads.Workload) (bound float64) {
	if k.name != "day" {
		return packing.Bound(itemsAt(w.Pods, 0), b.bins)
	}
	for _, m := range moments(w) {
		bound += packing.Bound(itemsAt(w.Pods, m.at), b.bins) * (m.until - m.at).Hours()
	}
	return bound
}

// suggested is the NodePool that kubectl bizfly plan suggest has for a workload: for a day, for the pods of its most
// expensive moment. Where none is worth a change, it is the sample.
func (b *bench) suggested(ctx context.Context, w workloads.Workload) column {
	busiest := lo.MaxBy(moments(w), func(x, y moment) bool {
		return packing.Bound(itemsAt(w.Pods, x.at), b.bins) > packing.Bound(itemsAt(w.Pods, y.at), b.bins)
	})
	var manifest bytes.Buffer
	for _, item := range itemsAt(w.Pods, busiest.at) {
		pod := coretest.Pod(coretest.PodOptions{
			ObjectMeta: metav1.ObjectMeta{Name: item.Name}, ResourceRequirements: corev1.ResourceRequirements{Requests: item.Requests},
		})
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		content := lo.Must(yaml.Marshal(pod))
		fmt.Fprintf(&manifest, "---\n%s", content)
	}
	s := lo.Must(connect.NewFor(ctx, nil, connect.Options{Offline: true}))
	found := lo.Must(suggest.Compute(s.Context(ctx), s, suggest.Options{Options: input.Options{Files: []string{"-"}, Stdin: &manifest}}, time.Hour, func(int) {}))
	c := column{name: waySuggested, change: policies()[0].change}
	if m := found.Suggested; m != nil {
		pool := b.sample.DeepCopy()
		pool.Name, pool.Spec = m.Metadata["name"], m.Spec
		c.change(pool)
		pool.Spec.Disruption.Budgets = b.sample.Spec.Disruption.Budgets
		c.pools = append(c.pools, pool)
	}
	return c
}

// itemsAt are the pods that are wanted then.
func itemsAt(pods []workloads.Pod, at time.Duration) []packing.Item {
	var items []packing.Item
	for _, pod := range pods {
		if pod.Arrives <= at && (pod.Leaves == 0 || pod.Leaves > at) {
			items = append(items, packing.Item{Name: pod.Name, Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(pod.MilliCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(pod.MiB<<20, resource.BinarySI),
			}})
		}
	}
	return items
}
