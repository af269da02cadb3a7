// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
)

func (a *App) top() *cobra.Command {
	var idle bool
	command := &cobra.Command{
		Use: "top", Args: cobra.NoArgs, Short: "Show nodes now: flavor, zone, age, requests against allocatable, price",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			if idle {
				answer, err := rules.ForIdle(ctx, s)
				return finish(printer, answer, err, printIdle)
			}
			cluster, err := top.Read(ctx, s)
			return finish(printer, cluster, err, printTop)
		},
	}
	command.Flags().BoolVar(&idle, "idle", false,
		"show for each node what no pod requests of it, and the one reason why it is still there")
	return command
}

func printIdle(printer *output.Printer, i *rules.Idle) {
	what := map[string]string{}
	printer.Rows([]string{"Reason", ">Nodes", ">VND/hour", ">Unused", "What ends it"},
		lo.Map(i.Reasons, func(r rules.IdleReason, _ int) []string {
			what[r.Reason] = r.What
			return []string{r.What, strconv.Itoa(r.Nodes), output.VND(r.VNDPerHour), output.VND(r.UnusedVNDPerHour), r.Help}
		}))
	printer.Printf("\n")
	printer.Rows([]string{"Node", "NodePool", "Flavor", ">CPU", ">Memory", ">VND/hour", "Why it is still there"},
		lo.Map(i.Nodes, func(n rules.IdleNode, _ int) []string {
			return []string{n.Name, lo.CoalesceOrEmpty(n.NodePool, "-"), n.Flavor, output.Percent(n.CPU),
				output.Percent(n.Memory), hourly(n.Node), what[n.Reason] + ": " + n.Detail}
		}))
	printer.Printf("\n%s: %s VND per hour, %s of it for what no pod requests; %s VND per month%s\n",
		output.Plural(len(i.Nodes), "node"), output.VND(i.VNDPerHour), output.VND(i.UnusedVNDPerHour), output.VND(i.VNDPerMonth),
		unpriced(lo.Map(i.Nodes, func(n rules.IdleNode, _ int) top.Node { return n.Node })))
}

// unpriced says which nodes a sum leaves out.
func unpriced(nodes []top.Node) string {
	return without(lo.CountBy(nodes, func(n top.Node) bool { return !n.Priced() }))
}

func without(unpriced int) string {
	return lo.Ternary(unpriced > 0, fmt.Sprintf(" without %s whose price is not known", output.Plural(unpriced, "node")), "")
}

// hourly is the price of a node, where it is known.
func hourly(n top.Node) string {
	return lo.Ternary(n.Priced(), output.VND(n.VNDPerHour), "?")
}

// narrow is the width below which the bars would make rows of ordinary names wrap.
const narrow = 126

func printTop(printer *output.Printer, c *top.Cluster) {
	bar := lo.Ternary(printer.Width > 0 && printer.Width < narrow, 0, 10)
	printer.Rows([]string{"Node", "NodePool", "Flavor", "Zone", ">Age", "Status", "CPU", "Memory", ">Pods", ">VND/hour"},
		lo.Map(c.Nodes, func(n top.Node, _ int) []string {
			return []string{
				n.Name, lo.CoalesceOrEmpty(n.NodePool, "-"), n.Flavor, n.Zone, duration.HumanDuration(time.Since(n.Created)), n.Status,
				printer.Bar(n.CPU, bar), printer.Bar(n.Memory, bar), strconv.Itoa(n.Pods), hourly(n),
			}
		}))
	printer.Printf("\n%s, %s pending: %s VND per hour, %s VND per month%s\n", output.Plural(len(c.Nodes), "node"),
		output.Plural(c.Pending, "pod"), output.VND(c.VNDPerHour), output.VND(c.VNDPerMonth), unpriced(c.Nodes))
}
