// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/samber/lo"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/explain"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
)

// explain prices the constraints of a plan and prints them.
func (a *App) explain(ctx context.Context, s *connect.Session, printer *output.Printer, options planFlags) error {
	show, end := progress(printer)
	result, err := explain.Compute(ctx, s, options.Options.Options, options.limit, func(plans int) { show("%d plans", plans) })
	end()
	if err != nil {
		return err
	}
	if done, err := printer.Value(result); !done {
		printAssumed(printer, result.Catalog, result.Assumed)
		printPlan(printer, result.Plan)
		printConstraints(printer, result)
	} else if err != nil {
		return err
	}
	return options.failed(printer, bill{result.VNDPerMonth, len(result.Unplaced)})
}

func printConstraints(printer *output.Printer, result *explain.Explanation) {
	printer.Printf("\n")
	if len(result.Constraints) > 0 {
		printer.Rows([]string{"Without", "Of", "Which", ">VND/month less", ">Of the bill", ">Pods more"},
			lo.Map(result.Constraints, func(c explain.Constraint, _ int) []string {
				return []string{
					c.Kind, c.Of, c.Detail, output.VND(c.VNDPerMonth), fmt.Sprintf("%.1f%%", 100*c.VNDPerHour/max(result.VNDPerHour, 1)),
					lo.Ternary(c.Placed > 0, fmt.Sprint(c.Placed), ""),
				}
			}))
		printer.Printf("\n")
	}
	printer.Printf("%s with a price; %d without an effect of 1%% of the bill", output.Plural(len(result.Constraints), "constraint"), result.Free)
	if result.TimeOver > 0 {
		printer.Printf("; %d were not tried until the time was over", result.TimeOver)
	}
	printer.Printf(". Each line is dropped alone, so the prices do not add up.\n")
}
