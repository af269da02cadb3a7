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
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/doctor"
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
			report := doctor.Examine(ctx, s)
			if err := finish(printer, report, nil, doctor.Print); err != nil {
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
