// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/prices"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
)

func (a *App) prices() *cobra.Command {
	var wanted prices.Options
	var from, listURL string
	var configMap bool
	cmd := &cobra.Command{
		Use: "prices", Args: cobra.NoArgs, Short: "Print the tuning value `prices` from BizFly Cloud's price list",
		Long: `prices reads the price list of BizFly Cloud's billing service, without a login, and prints what of it the controller's price table
can use: the value of the tuning key prices. That list answered in 2021; it was not verified since. Lines that it does not understand
are listed on the standard error, and never guessed.`,
		Example: `  kubectl bizfly prices --region HN > prices.yaml
  kubectl bizfly prices --from plans.json --per month --configmap`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printer, err := output.New(a.Out, a.Err, a.format)
			if err != nil {
				return err
			}
			plans, err := readPlans(cmd.Context(), from, listURL)
			if err != nil {
				return withoutPrices(err)
			}
			result, err := prices.Read(plans, wanted)
			if err != nil {
				return err
			}
			return printPrices(printer, result, configMap, cmp.Or(a.controllerNamespace, "karpenter"))
		},
	}
	cmd.Flags().StringVar(&wanted.Region, "region", "", "only the prices of this region, HN or HCM; default all, where they agree")
	cmd.Flags().StringVar(&wanted.Per, "per", "", "what a price is for where the list does not say: hour or month")
	cmd.Flags().StringVar(&from, "from", "", "read a saved answer from this file instead")
	cmd.Flags().StringVar(&listURL, "url", prices.DefaultURL, "where the price list is")
	cmd.Flags().BoolVar(&configMap, "configmap", false, "print the tuning ConfigMap instead of the value")
	cmd.MarkFlagsMutuallyExclusive("from", "url")
	_ = cmd.RegisterFlagCompletionFunc("per", cobra.FixedCompletions([]string{"hour", "month"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// withoutPrices adds what remains true and what can be done to the reason for which there are no prices.
func withoutPrices(err error) error {
	return fmt.Errorf("%w. The price table of the controller stays as it is; correct it from an invoice (docs/concepts/pricing.md), or give a saved "+
		"answer with --from", err)
}

func readPlans(ctx context.Context, from, listURL string) ([]json.RawMessage, error) {
	if from == "" {
		return prices.Fetch(ctx, listURL)
	}
	body, err := os.ReadFile(from) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("reading the saved answer: %w", err)
	}
	return prices.Plans(body)
}

func printPrices(printer *output.Printer, result *prices.Result, configMap bool, namespace string) error {
	if done, err := printer.Value(result); done {
		return err
	}
	if len(result.Unused) > 0 {
		output.Fprintf(printer.Err, "%s not used:\n", output.Plural(len(result.Unused), "line"))
		for _, line := range result.Unused {
			output.Fprintf(printer.Err, "  %s\n", line)
		}
	}
	if result.Prices == "" {
		return withoutPrices(errors.New("the price list has no price that can be used"))
	}
	if !configMap {
		printer.Printf("%s", []byte(result.Prices))
		return nil
	}
	encoded, err := output.EncodeYAML(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: options.DefaultTuningConfigMapName, Namespace: namespace},
		Data: map[string]string{"prices": result.Prices},
	})
	if err != nil {
		return fmt.Errorf("encoding the ConfigMap: %w", err)
	}
	printer.Printf("%s", encoded)
	return nil
}
