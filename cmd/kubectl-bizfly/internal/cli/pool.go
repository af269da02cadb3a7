// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/pool"
)

func (a *App) pool() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pool", Short: "List the worker pools of the BKE cluster, and switch their autoscaling off",
		Long: `pool shows the worker pools of the BKE cluster. BKE's autoscaler and Karpenter answer the same pending pod, each with a node of
its own, so the autoscaling of every pool must be off: pool pin does that. The command line of BizFly Cloud cannot.

The cluster is that of BKE_CLUSTER_ID in your shell, or else the one that the server of a pool's node names.`,
	}
	cmd.AddCommand(a.poolList(), a.poolPin())
	return cmd
}

// poolCluster connects, and finds the BKE cluster.
func (a *App) poolCluster(ctx context.Context) (context.Context, *pool.Cluster, *output.Printer, error) {
	ctx, s, printer, err := a.connect(ctx)
	if err != nil {
		return ctx, nil, nil, err
	}
	cloud, err := s.Login(ctx)
	if err != nil {
		return ctx, nil, nil, err
	}
	uid, err := cloud.BKECluster(ctx, s)
	if err != nil {
		return ctx, nil, nil, err
	}
	return ctx, &pool.Cluster{API: cloud.Pools, UID: uid, Interval: a.PoolInterval}, printer, nil
}

func (a *App) poolList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Args: cobra.NoArgs, Short: "List the worker pools with their sizes, and whether they scale by themselves",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cluster, printer, err := a.poolCluster(cmd.Context())
			if err != nil {
				return err
			}
			pools, err := cluster.List(ctx)
			if err != nil {
				return err
			}
			if done, err := printer.Value(pools); done {
				return err
			}
			printer.Rows([]string{"Pool", "ID", "Flavor", "Zone", ">Nodes", ">Min", ">Max", "Autoscaling", "Status"}, lo.Map(pools, func(p pool.Pool, _ int) []string {
				return []string{p.Name, p.ID, p.Flavor, p.Zone, strconv.Itoa(p.DesiredSize), strconv.Itoa(p.MinSize), strconv.Itoa(p.MaxSize),
					lo.Ternary(!p.Autoscaling, "off", lo.Ternary(p.Scales(), "on", "on, pinned")), p.Status}
			}))
			return nil
		},
	}
}

func (a *App) poolPin() *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use: "pin POOL...", Short: "Switch the autoscaling of worker pools off",
		Long: `pin switches the autoscaling of worker pools off, and reads back what became of it. Where BizFly Cloud accepts the request and changes
nothing, it sets least and greatest size to the present number of nodes, so that the autoscaler cannot change it. No node is added or
removed. It prints the command that is the way back. Without --yes it only shows what it would change.`,
		Example: `  kubectl bizfly pool pin pool-1
  kubectl bizfly pool pin --all --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name the worker pools, or all of them with --all")
			}
			return a.pinPools(cmd.Context(), args, yes)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all worker pools of the cluster")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	return cmd
}

// pinPools pins the named worker pools, or all where none is named. Without yes it shows them.
func (a *App) pinPools(ctx context.Context, names []string, yes bool) error {
	ctx, cluster, printer, err := a.poolCluster(ctx)
	if err != nil {
		return err
	}
	pools, err := cluster.List(ctx)
	if err == nil && len(names) > 0 {
		pools, err = pool.Select(pools, names...)
	}
	if err != nil {
		return err
	}
	if len(pools) == 0 {
		return errors.New("the BKE cluster has no worker pool")
	}
	output.Fprintf(a.Err, "BKE cluster: %s\n", cluster.UID)
	if !yes {
		if done, err := printer.Value(pools); done {
			return err
		}
		scaling := lo.Filter(pools, func(p pool.Pool, _ int) bool { return p.Scales() })
		for _, p := range scaling {
			printer.Printf("%s would not scale by itself any more (%s)\n", p.Name, p)
		}
		printer.Printf("%s\n", a.doIt("pool", "pin", strings.Join(lo.Map(pools, func(p pool.Pool, _ int) string { return p.ID }), " ")))
		return nil
	}
	results := []pool.Result{}
	var failed error
	for _, p := range pools {
		result, err := cluster.Pin(ctx, p)
		if err == nil || len(result.Steps) > 0 {
			results = append(results, result)
		}
		failed = errors.Join(failed, err)
	}
	if done, err := printer.Value(results); done {
		return errors.Join(err, failed)
	}
	for _, r := range results {
		printPoolResult(printer, cluster.UID, r)
	}
	return failed
}

func printPoolResult(printer *output.Printer, cluster string, r pool.Result) {
	if len(r.Steps) == 0 {
		printer.Printf("%s: nothing to change: %s\n", r.Before.Name, r.Before)
	}
	for _, step := range r.Steps {
		printer.Printf("%s: %s\n", r.Before.Name, step)
	}
	if r.Before.Scales() && !r.After.Scales() {
		printer.Printf("The way back: bizfly kubernetes workerpool update %s %s --autoscaling=true --min-size %d --max-size %d\n", cluster, r.Before.ID,
			r.Before.MinSize, r.Before.MaxSize)
	}
}
