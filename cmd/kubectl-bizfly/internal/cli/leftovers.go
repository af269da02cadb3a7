// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/leftovers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

func (a *App) leftovers() *cobra.Command {
	var remove, yes bool
	cmd := &cobra.Command{
		Use: "leftovers", Args: cobra.NoArgs, Short: "List what of this cluster's is still in the project after an uninstall, and delete it",
		Long: `leftovers lists servers, disks and addresses that Karpenter launched for this cluster and that no NodeClaim accounts for. With --delete it
shows what it would delete, and with --yes it deletes: servers with their own disks, and free root disks. It deletes only what a name proves to be of
this cluster, and no server whose node is still in the cluster, nor a disk that a PersistentVolume names. It exits with 1 if something was left when
it looked, also where it has just requested the deletion: run it again until nothing is left.`,
		Example: `  kubectl bizfly leftovers
  kubectl bizfly leftovers --delete --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			found, err := leftovers.Find(ctx, s)
			if err != nil {
				return err
			}
			if remove && yes {
				err = found.Delete(ctx)
			}
			if done, unwritten := printer.Value(found); done {
				err = lo.CoalesceOrEmpty(err, unwritten)
			} else {
				a.printLeftovers(printer, found, remove, yes)
			}
			if err == nil && len(found.Items) > 0 {
				err = errFindings
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "delete what is provably of this cluster; shows it without --yes")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	return cmd
}

func (a *App) printLeftovers(printer *output.Printer, found *leftovers.Found, remove, yes bool) {
	left := lo.Ternary(len(found.Items) == 0, "nothing is left", output.Plural(len(found.Items), "leftover"))
	printer.Printf("Of cluster %s, in %s: %s\n", found.Cluster, found.Scope, left)
	if len(found.Items) > 0 {
		what := lo.Ternary(remove && yes, "its deletion is requested", "it can be deleted")
		printer.Rows([]string{"Kind", "Name", "ID", "What"}, lo.Map(found.Items, func(i leftovers.Item, _ int) []string {
			return []string{i.Kind, i.Name, i.ID, lo.Ternary(i.Kept == "", what, "kept: "+i.Kept)}
		}))
	}
	if len(found.Deletable()) > 0 && (!remove || !yes) {
		printer.Printf("\n%s\n", a.doIt("leftovers", "--delete"))
	}
}
