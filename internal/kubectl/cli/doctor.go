/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/doctor"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/kubectl/output"
)

func (a *App) doctor() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use: "doctor", Args: cobra.NoArgs,
		Short: "Check cluster and project before the installation, and the installation afterwards",
		Long: `doctor checks what a node needs, from credentials to firewalls, and what costs money without need.
It exits with 0 if there is no error, with 1 if there is one (or a warning, with --strict), and with 2 if it could not look.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if printer.Format == output.HTML {
				return output.ErrNoReport
			}
			report := doctor.Examine(ctx, s, nil)
			if err := finish(printer, report, nil, printReport); err != nil {
				return err
			}
			if report.Failed(strict) {
				return errFindings
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 for warnings too")
	return cmd
}

var severityColors = map[doctor.Severity]text.Color{doctor.Error: text.FgRed, doctor.Warning: text.FgYellow, doctor.Info: text.FgCyan}

func printReport(printer *output.Printer, r *doctor.Report) {
	for _, f := range r.Findings {
		printer.Printf("%s %s\n    %s\n    why: %s\n    fix: %s\n\n", printer.Paint(severityColors[f.Severity], fmt.Sprintf("%-7s", f.Severity)), f.Code, f.What,
			f.Why, f.Fix)
	}
	for _, name := range r.Passed {
		printer.Printf("%s %s\n", tick(printer, true), name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		printer.Printf("- %s: not checked: %s\n", name, r.Skipped[name])
	}
	count := func(severity doctor.Severity) int {
		return lo.CountBy(r.Findings, func(f doctor.Finding) bool { return f.Severity == severity })
	}
	printer.Printf("\n%d errors, %d warnings, %d checks passed, %d not checked\n", count(doctor.Error), count(doctor.Warning), len(r.Passed), len(r.Skipped))
	if waste := lo.SumBy(r.Findings, func(f doctor.Finding) float64 { return f.VNDPerMonth }); waste > 0 {
		printer.Printf("Paid for without need: about %s VND per month\n", output.VND(waste))
	}
	printer.Notes(r.Notes)
}
