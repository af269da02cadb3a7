// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
)

func (a *App) doctor() *cobra.Command {
	var strict, preflight bool
	cmd := &cobra.Command{
		Use: "doctor", Args: cobra.NoArgs,
		Short: "Check cluster and project before the installation, and the installation afterwards",
		Long: `doctor checks what a node needs, from credentials to firewalls, and what costs money without need.
It exits with 0 if there is no error, with 1 if there is one (with --strict also if there is a warning, or a check could not look), and with 2
if it gave no answer.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			report := lo.Ternary(preflight, rules.Preflight, rules.Examine)(ctx, s)
			if err := finish(printer, report, nil, rules.Print); err != nil {
				return err
			}
			if report.Failed(strict) {
				return errFindings
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&preflight, "preflight", false, "find out, with requests that only read, what a launch depends on")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 for warnings, and for checks that could not look")
	return cmd
}
