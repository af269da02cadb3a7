// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bill_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/samber/lo"
)

// The markers of what is written into the page.
const (
	begin = "<!-- written by make bench WHAT=bill: begin -->"
	end   = "<!-- end -->"
)

// insert returns the page with the results between its markers.
func insert(page string, r *Results) (string, error) {
	head, rest, found := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the page lacks the markers %s and %s", begin, end)
	}
	return head + begin + "\n\n" + report(r) + "\n" + end + tail, nil
}

// sums are what a way costs and does over all workloads of a kind.
type sums struct {
	vnd, byHours, waited     float64
	evictions, launches, pod int
}

func sumOf(rows []*Row, way string, money func(*Outcome) float64) (s sums) {
	for _, row := range rows {
		o := row.Ways[way]
		s.vnd += money(o)
		s.byHours += o.VNDByHours
		s.waited += o.Waited
		s.evictions += o.Evictions
		s.launches += o.Launches
		s.pod += row.Pods
	}
	return s
}

func perHour(o *Outcome) float64 { return o.VNDPerHour }

func ofDay(o *Outcome) float64 { return o.VND }

// thousands writes a whole number with commas.
func thousands(value float64) string {
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	var parts []string
	for len(digits) > 3 {
		parts = append([]string{digits[len(digits)-3:]}, parts...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, parts...), ",")
}

// table begins one.
func table(b *strings.Builder, columns ...string) {
	fmt.Fprintf(b, "| %s |\n%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
}

// repackReport writes what repacking saves, of each workload.
func repackReport(rows []*Row) string {
	var b strings.Builder
	b.WriteString("What [`repack`](../reference/kubectl-bizfly.md#repack) makes of the settled nodes, in VND per hour:\n\n")
	table(&b, "workload", "before", "repacked", "ratio", "evictions per pod", "suggested NodePool", "its ratio to repacked")
	for _, row := range rows {
		before, repacked, suggested := row.Ways["underutilized-30s"], row.Ways[wayRepacked], row.Ways[waySuggested]
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f | %s | %.2f |\n", row.Title, thousands(before.VNDPerHour), thousands(repacked.VNDPerHour),
			repacked.VNDPerHour/row.Bound, float64(repacked.Evictions)/float64(row.Pods), thousands(suggested.VNDPerHour),
			suggested.VNDPerHour/repacked.VNDPerHour)
	}
	return b.String()
}

// hoursReport writes what nodes cost that stay for the hours that are paid, over all days.
func hoursReport(rows []*Row) string {
	var b strings.Builder
	b.WriteString("The days if started hours are charged in full, in VND, without and with the tuning key `billingPeriod: 1h`:\n\n")
	table(&b, "policy", "without", "with it", "evictions per pod without", "with it", "servers launched without", "with it",
		"with it, if billed by the second")
	for _, c := range policies() {
		without, with := sumOf(rows, c.name, ofDay), sumOf(rows, hourly(c).name, ofDay)
		pods := float64(without.pod)
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f | %d | %d | %s |\n", c.title, thousands(without.byHours), thousands(with.byHours),
			float64(without.evictions)/pods, float64(with.evictions)/pods, without.launches, with.launches, thousands(with.vnd))
	}
	return b.String() + "\n"
}

// report writes the generated part of the page.
func report(r *Results) string {
	var b strings.Builder
	bound := func(rows []*Row) float64 { return lo.SumBy(rows, func(row *Row) float64 { return row.Bound }) }
	settleBound, dayBound := bound(r.Settle), bound(r.Day)
	fmt.Fprintf(&b, "Measured on %s. Ratio = bill / the lowest bill that any set of nodes could have.\n\n", r.Measured)
	table(&b, "all workloads together", "settled, VND per hour", "ratio", "days, VND", "ratio", "if started hours are charged in full, VND",
		"evictions per pod", "seconds that a pod waited", "servers launched")
	for _, c := range ways() {
		settled, days := sumOf(r.Settle, c.name, perHour), sumOf(r.Day, c.name, ofDay)
		pods := float64(days.pod)
		fmt.Fprintf(&b, "| %s | %s | %.2f | %s | %.2f | %s | %.2f | %.0f | %d |\n", c.title, thousands(settled.vnd), settled.vnd/settleBound,
			thousands(days.vnd), days.vnd/dayBound, thousands(days.byHours), float64(days.evictions)/pods, days.waited/pods, days.launches)
	}
	fmt.Fprintf(&b, "| bound | %s | 1.00 | %s | 1.00 | | | | |\n\n", thousands(settleBound), thousands(dayBound))
	b.WriteString("Evictions, waiting and launches are those of the days.\n\n")
	b.WriteString(hoursReport(r.Day))
	b.WriteString(repackReport(r.Settle))
	return b.String()
}
