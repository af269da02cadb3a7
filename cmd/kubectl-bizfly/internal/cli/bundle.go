// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/bundle"
)

func (a *App) bundle() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "support-bundle", Args: cobra.NoArgs, Short: "Write what a bug report needs to an archive, secrets removed",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, s, printer, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			now := time.Now()
			if path == "" {
				path = fmt.Sprintf("kubectl-bizfly-%s.tar.gz", now.UTC().Format("20060102-150405"))
			}
			file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // the user names it
			if err != nil {
				return fmt.Errorf("creating the archive: %w", err)
			}
			defer func() {
				if closeErr := file.Close(); err == nil {
					err = closeErr
				}
			}()
			written, err := bundle.Write(ctx, s, file, now)
			if err != nil {
				return err
			}
			printer.Printf("wrote %s: %d files. Look through it before you send it.\n", path, len(written.Files))
			printer.Notes(written.Missing)
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "file", "", "the archive; default kubectl-bizfly-<time>.tar.gz in the current folder")
	return cmd
}
