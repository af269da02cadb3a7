// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/flavors"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

func (a *App) flavors() *cobra.Command {
	var options flavors.Options
	var requirements, pod string
	cmd := &cobra.Command{
		Use: "flavors", Aliases: []string{"flavor"}, Args: cobra.NoArgs,
		Short: "List flavors by zone: size as nodes see it, price, availability, and what excludes them",
		Example: `  # The cheapest flavors with at least 4 vCPUs in HN1
  kubectl bizfly flavors --requirements 'cpu>3,zone=HN1'
  # What the NodePool "default" may launch, and the reason for every exclusion
  kubectl bizfly flavors --nodepool default`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if options.Requirements, err = flavors.ParseRequirements(requirements); err != nil {
				return err
			}
			if pod != "" {
				options.Pod = types.NamespacedName{Namespace: a.namespace(), Name: pod}
			}
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { printer.Notes(s.Notes) }()
			rows, err := flavors.List(ctx, s, options)
			return finish(printer, rows, err, printFlavors)
		},
	}
	cmd.Flags().StringVar(&options.NodePool, "nodepool", "", "list for the requirements of this NodePool, with the reason for every exclusion")
	cmd.Flags().StringVar(&pod, "pod", "", "list what could run this pod, with the reason for every exclusion; with --nodepool, in that NodePool")
	cmd.Flags().StringVar(&options.NodeClass, "nodeclass", "", "list for this BizflyNodeClass (disks, billing plan, zones); default: one of defaults")
	cmd.Flags().StringVar(&requirements, "requirements", "", "filter, for example 'category in (basic,premium),cpu>3,memory<16384,zone=HN1'")
	cmd.MarkFlagsMutuallyExclusive("nodepool", "nodeclass")
	return cmd
}

func printFlavors(printer *output.Printer, rows []flavors.Row) {
	printer.Rows([]string{"Flavor", "Zone", "Category", ">vCPU", ">Memory", ">On node", ">Allocatable", "GPU", ">VND/hour", ">VND/month", "Price", "Available"},
		lo.Map(rows, func(r flavors.Row, _ int) []string {
			if r.VNDPerHour == 0 {
				return []string{r.Flavor, lo.CoalesceOrEmpty(r.Zone, "-"), r.Category, strconv.Itoa(r.CPU), gib(int64(r.MemoryMiB)), "", "", r.GPU, "", "", "", "no: " +
					r.Reason}
			}
			return []string{
				r.Flavor, r.Zone, r.Category, strconv.Itoa(r.CPU), gib(int64(r.MemoryMiB)), gib(r.NodeMemoryMiB),
				fmt.Sprintf("%sm %s", strconv.FormatInt(r.Allocatable.Cpu().MilliValue(), 10), gib(r.Allocatable.Memory().Value()>>20)),
				r.GPU, output.VND(r.VNDPerHour), output.VND(r.VNDPerMonth), r.Price, lo.Ternary(r.Available, "yes", "no: "+r.Reason),
			}
		}))
	available := lo.CountBy(rows, func(r flavors.Row) bool { return r.Available })
	printer.Printf("\n%d of %d offerings are available. Prices include the root disk, without VAT.\n", available, len(rows))
}

// gib writes MiB as GiB.
func gib(mib int64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64), "0"), ".") + "Gi"
}
