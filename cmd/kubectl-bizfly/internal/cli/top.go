// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/session"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/top"
)

func (a *App) top() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "top", Args: cobra.NoArgs, Short: "Show nodes now: flavor, zone, age, requests against allocatable, price",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			if !watch {
				return showTop(ctx, s, printer)
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
			defer stop()
			ticker := time.NewTicker(max(interval, time.Second))
			defer ticker.Stop()
			for shown := false; ; {
				printer.Clear()
				// What may pass, such as a timeout, does not end it once there was an answer.
				switch err := showTop(ctx, s, printer); {
				case err == nil:
					shown = true
				case ctx.Err() == nil && !shown:
					return err
				case ctx.Err() == nil:
					printer.Notes([]string{err.Error()})
				}
				select {
				case <-ctx.Done():
					return nil
				case <-ticker.C:
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "redraw until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "how often --watch redraws")
	return cmd
}

func showTop(ctx context.Context, s *session.Session, printer *output.Printer) error {
	cluster, err := top.Read(ctx, s)
	return finish(printer, cluster, err, printTop)
}

func printTop(printer *output.Printer, c *top.Cluster) {
	printer.Rows([]string{"Node", "NodePool", "Flavor", "Zone", ">Age", "Status", "CPU", "Memory", ">Pods", ">VND/hour"},
		lo.Map(c.Nodes, func(n top.Node, _ int) []string {
			return []string{
				n.Name, lo.CoalesceOrEmpty(n.NodePool, "-"), n.Flavor, n.Zone, duration.HumanDuration(time.Since(n.Created)), n.Status,
				printer.Bar(n.CPU, 10), printer.Bar(n.Memory, 10), strconv.Itoa(n.Pods), lo.Ternary(n.VNDPerHour > 0, output.VND(n.VNDPerHour), "?"),
			}
		}))
	printer.Printf("\n%s, %s pending: %s VND per hour, %s VND per month", output.Plural(len(c.Nodes), "node"),
		output.Plural(c.Pending, "pod"), output.VND(c.VNDPerHour), output.VND(c.VNDPerMonth))
	if unpriced := lo.CountBy(c.Nodes, func(n top.Node) bool { return n.VNDPerHour == 0 }); unpriced > 0 {
		printer.Printf(" without %s whose price is not known", output.Plural(unpriced, "node"))
	}
	printer.Printf("\n")
}
