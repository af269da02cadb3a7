// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pool lists the worker pools of a BKE cluster, and keeps BKE's autoscaler from changing their sizes.
package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/output"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
)

// API is what of BizFly Cloud is read and changed.
type API interface {
	// GetCluster returns one BKE cluster with its worker pools.
	GetCluster(ctx context.Context, uid string) (*gobizfly.FullCluster, error)
	// UpdateWorkerPool changes a worker pool.
	UpdateWorkerPool(ctx context.Context, clusterUID, poolID string, change bizfly.WorkerPoolChange) error
}

// Pool is a worker pool. Sizes are numbers of nodes.
type Pool struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Flavor      string `json:"flavor"`
	Zone        string `json:"zone"`
	DesiredSize int    `json:"desiredSize"`
	MinSize     int    `json:"minSize"`
	MaxSize     int    `json:"maxSize"`
	Autoscaling bool   `json:"autoscaling"`
	Status      string `json:"status"`
}

// Of converts a pool as the API shows it.
func Of(p gobizfly.ExtendedWorkerPool) Pool {
	return Pool{
		Name: p.Name, ID: p.UID, Flavor: p.Flavor, Zone: p.AvailabilityZone, DesiredSize: p.DesiredSize, MinSize: p.MinSize, MaxSize: p.MaxSize,
		Autoscaling: p.EnableAutoScaling, Status: p.ProvisionStatus,
	}
}

// Scales reports whether BKE's autoscaler can change the size of the pool.
func (p Pool) Scales() bool { return p.Autoscaling && p.MinSize != p.MaxSize }

// String is what matters of a pool to its autoscaling.
func (p Pool) String() string {
	if !p.Autoscaling {
		return "autoscaling off, " + output.Plural(p.DesiredSize, "node")
	}
	return fmt.Sprintf("autoscaling on, %s, %d to %d", output.Plural(p.DesiredSize, "node"), p.MinSize, p.MaxSize)
}

// Result is what was done with a pool.
type Result struct {
	Before Pool `json:"before"`
	After  Pool `json:"after"`
	// Steps are what was sent and read back, in their order; empty where nothing had to change.
	Steps []string `json:"steps"`
}

// Cluster is the pools of one BKE cluster.
type Cluster struct {
	API API
	// UID is the cluster's uid.
	UID string
	// Interval is the time between two looks at what became of a change; three show it as unchanged.
	Interval time.Duration
}

// List returns the pools, sorted by name.
func (c *Cluster) List(ctx context.Context) ([]Pool, error) {
	cluster, err := c.API.GetCluster(ctx, c.UID)
	if err != nil {
		return nil, fmt.Errorf("reading BKE cluster %s: %w", c.UID, err)
	}
	pools := lo.Map(cluster.WorkerPools, func(p gobizfly.ExtendedWorkerPool, _ int) Pool { return Of(p) })
	slices.SortFunc(pools, func(a, b Pool) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return pools, nil
}

// Select returns the pools with these names or ids.
func Select(pools []Pool, names ...string) ([]Pool, error) {
	var selected []Pool
	for _, name := range names {
		found := lo.Filter(pools, func(p Pool, _ int) bool { return p.Name == name || p.ID == name })
		switch len(found) {
		case 0:
			return nil, fmt.Errorf("the cluster has no worker pool %q, it has %s", name,
				strings.Join(lo.Map(pools, func(p Pool, _ int) string { return p.Name }), ", "))
		case 1:
			selected = append(selected, found[0])
		default:
			return nil, fmt.Errorf("%d worker pools are called %q, name one by its id: %s", len(found), name,
				strings.Join(lo.Map(found, func(p Pool, _ int) string { return p.ID }), ", "))
		}
	}
	return lo.Uniq(selected), nil
}

// read returns one pool.
func (c *Cluster) read(ctx context.Context, id string) (Pool, error) {
	pools, err := c.List(ctx)
	if err != nil {
		return Pool{}, err
	}
	selected, err := Select(pools, id)
	if err != nil {
		return Pool{}, err
	}
	return selected[0], nil
}

// Pin keeps BKE's autoscaler from changing a pool's size: it switches autoscaling off and, where the cloud does not do that,
// sets least and greatest size to the present one.
func (c *Cluster) Pin(ctx context.Context, p Pool) (Result, error) {
	result := Result{Before: p, After: p, Steps: []string{}}
	if !p.Scales() {
		return result, nil
	}
	err := c.change(ctx, &result, "enable_autoscaling: false", bizfly.WorkerPoolChange{EnableAutoscaling: lo.ToPtr(false)})
	if err != nil || !result.After.Scales() {
		return result, err
	}
	// The size is that of now, or nodes that were added since would be removed.
	if result.After, err = c.read(ctx, p.ID); err != nil {
		return result, err
	}
	size := lo.ToPtr(result.After.DesiredSize)
	err = c.change(ctx, &result, fmt.Sprintf("desired_size, min_size and max_size: %d", *size),
		bizfly.WorkerPoolChange{DesiredSize: size, MinSize: size, MaxSize: size})
	if err == nil && result.After.Scales() {
		err = fmt.Errorf("the worker pool %s still scales by itself (%s): switch its autoscaling off in the BizFly Cloud console",
			result.After.Name, result.After)
	}
	return result, err
}

// change sends a change and reads the pool until it does not scale any more. A change that the cloud rejects as invalid is a step,
// not an error: another may be accepted. Where the answer is lost or unreadable, what is read back decides.
func (c *Cluster) change(ctx context.Context, result *Result, what string, change bizfly.WorkerPoolChange) error {
	err := c.API.UpdateWorkerPool(ctx, c.UID, result.Before.ID, change)
	if bizfly.IsInvalid(err) && !bizfly.IsNotSent(err) {
		result.Steps = append(result.Steps, fmt.Sprintf("sent %s; BizFly Cloud rejected it: %s", what, err))
		return nil
	}
	if err != nil && !bizfly.IsAmbiguous(err) {
		return fmt.Errorf("changing the worker pool %s: %w", result.Before.Name, err)
	}
	looks := 0
	if err := wait.PollUntilContextCancel(ctx, c.Interval, true, func(ctx context.Context) (bool, error) {
		found, err := c.read(ctx, result.Before.ID)
		if err != nil {
			return false, err
		}
		looks++
		result.After = found
		return !result.After.Scales() || looks == 3, nil
	}); err != nil {
		return fmt.Errorf("reading back the worker pool %s, whose change was sent: %w", result.Before.Name, err)
	}
	result.Steps = append(result.Steps, fmt.Sprintf("sent %s; read back: %s", what, result.After))
	return nil
}
