// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/diff"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

func (a *App) diff() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use: "diff", Args: cobra.NoArgs,
		Short: "Show which nodes a change of NodePools and BizflyNodeClasses would replace",
		Long: `diff compares files with the NodePools and BizflyNodeClasses of the cluster, and shows which nodes the change
would replace, which would change in place and which would stay. It exits with 0 if the change replaces no node, and
with 1 if it does. It changes nothing.`,
		Example: `  kubectl bizfly diff -f nodeclass.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			result, err := diff.Compute(ctx, s, a.In, files)
			if err := finish(printer, result, err, printDiff); err != nil {
				return err
			}
			return lo.Ternary(result.Count(diff.Replaced) > 0, errFindings, nil)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, `manifests, folders, or "-" for the standard input`)
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func printDiff(printer *output.Printer, d *diff.Diff) {
	for _, o := range d.Objects {
		what := lo.CoalesceOrEmpty(strings.Join(o.Fields, ", "), "no change")
		printer.Printf("%s %s: %s\n", o.Kind, o.Name, lo.Ternary(o.New, "new", what))
	}
	if len(d.Nodes) > 0 {
		printer.Printf("\n")
		printer.Rows([]string{"Node", "NodePool", "Flavor", "Zone", ">Pods", ">VND/hour", "Change", "Why"},
			lo.Map(d.Nodes, func(n diff.Node, _ int) []string {
				return []string{
					n.Name, n.NodePool, n.Flavor, n.Zone, strconv.Itoa(n.Pods),
					lo.Ternary(n.VNDPerHour > 0, output.VND(n.VNDPerHour), "?"), n.Change, n.Reason,
				}
			}))
	}
	printer.Printf("\nReplaced: %s, %s VND per hour, with %s to move. ",
		output.Plural(d.Count(diff.Replaced), "node"), output.VND(d.VNDPerHour), output.Plural(d.Pods, "pod"))
	printer.Printf("Replaced without the change: %d. Changed in place: %d. Stay: %d\n",
		d.Count(diff.AlreadyDrifted), d.Count(diff.InPlace), d.Count(diff.Stays))
}
