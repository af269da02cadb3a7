// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	// timeLimit is how long the demo may take in all.
	timeLimit = 4 * time.Minute
	// stopReserve is the part of the time limit that is kept for stopping everything.
	stopReserve = 15 * time.Second
	// consolidationPatience is how long consolidation is waited for: a look every 10 s, a second one after 15 s, a drain.
	consolidationPatience = 45 * time.Second
	// reducedReplicas is what the first Deployment is reduced to; what is left still spreads evenly over two zones.
	reducedReplicas = 4
)

// errPatience reports that consolidation was waited for long enough.
var errPatience = errors.New("not within the time that a demo has")

// result is what the demo is measured by: the last line that it prints.
type result struct {
	podsBound, nodesLaunched            int
	serversLeft, volumesLeft, portsLeft int
	foreignRequests                     int
	// pods is how many should be bound; nodesLeft and claimsLeft are the cluster's view of what is left.
	pods, nodesLeft, claimsLeft int
}

func (r result) String() string {
	return fmt.Sprintf("RESULT pods_bound=%d nodes_launched=%d servers_left=%d volumes_left=%d ports_left=%d foreign_requests=%d",
		r.podsBound, r.nodesLaunched, r.serversLeft, r.volumesLeft, r.portsLeft, r.foreignRequests)
}

// check reports what is wrong with the result, nil when nothing is.
func (r result) check() error {
	var errs []error
	for _, c := range []struct {
		wrong bool
		what  string
	}{
		{r.podsBound != r.pods, fmt.Sprintf("%d of %d pods were bound", r.podsBound, r.pods)},
		{r.nodesLaunched == 0, "no node was launched"},
		{r.serversLeft > 0, fmt.Sprintf("%d servers are left", r.serversLeft)},
		{r.volumesLeft > 0, fmt.Sprintf("%d volumes are left", r.volumesLeft)},
		{r.portsLeft > 0, fmt.Sprintf("%d ports are left", r.portsLeft)},
		{r.nodesLeft > 0, fmt.Sprintf("%d nodes are left", r.nodesLeft)},
		{r.claimsLeft > 0, fmt.Sprintf("%d node claims are left", r.claimsLeft)},
		{r.foreignRequests > 0, fmt.Sprintf("%d requests were meant for other hosts", r.foreignRequests)},
	} {
		if c.wrong {
			errs = append(errs, errors.New(c.what))
		}
	}
	return errors.Join(errs...)
}

// demo runs the demo and prints its result as the last line, unless it is interrupted.
func (f flags) demo(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit-stopReserve, fmt.Errorf("not done within %s", timeLimit))
	defer cancel()
	var r result
	t := newTimeline(os.Stdout)
	defer func() {
		if check := r.check(); err == nil {
			err = check
		}
		if errors.Is(err, errInterrupted) {
			return // nothing was measured
		}
		if err != nil {
			fmt.Println("FAILED:", err)
		}
		fmt.Println(r)
	}()
	env, err := environment.Start(ctx, options(func(what string) { t.print("cluster", "%s", what) }))
	if err != nil {
		return err
	}
	defer func() {
		var hosts []string
		r.foreignRequests, hosts = env.ForeignRequests()
		for _, host := range hosts {
			t.print("foreign", "a request was meant for %s", host)
		}
		if stopErr := env.Stop(); err == nil {
			err = stopErr
		}
	}()
	t.print("cluster", "ready; the sandbox of BizFly Cloud listens on %s", env.Sandbox().URL())
	stopScraping, err := scrape(ctx, f.scrapes, env.Controller().MetricsURL(),
		(&witness{sandbox: env.Sandbox(), client: env.Client(), history: newHistory()}).truth)
	if err != nil {
		return err
	}
	defer func() {
		if scrapeErr := stopScraping(); err == nil {
			err = scrapeErr
		}
	}()
	if f.scrapes != "" {
		if err := trouble(ctx, env.Sandbox()); err != nil {
			return err
		}
		t.print("cloud", "will reject one create request and fail one read, so that the scrapes contain both")
	}
	err = f.play(ctx, env, t, &r)
	if err != nil && !errors.Is(err, errInterrupted) {
		t.diagnose(env)
	}
	return err
}

// play creates the workloads, waits until they run and are packed, takes them away and waits until nothing is left.
func (f flags) play(ctx context.Context, env *environment.Environment, t *timeline, r *result) error {
	t.env = env
	defer func() { t.fill(r) }()
	phases := workloads()
	for _, workload := range slices.Concat(phases...) {
		r.pods += int(*workload.deployment.Spec.Replicas)
	}
	if err := applyPool(ctx, env.Client()); err != nil {
		return err
	}
	t.print("apply", "BizflyNodeClass default with spec: {}, NodePool default")
	if err := t.await(ctx, "the NodeClass is ready", t.nodeClassReady); err != nil {
		return err
	}
	pods := 0
	for _, phase := range phases {
		for _, workload := range phase {
			pods += int(*workload.deployment.Spec.Replicas)
			if err := env.Client().Create(ctx, workload.deployment); err != nil {
				return fmt.Errorf("creating the Deployment %s: %w", workload.deployment.Name, err)
			}
			t.print("apply", "Deployment %s: %s", workload.deployment.Name, workload.about)
		}
		if err := t.await(ctx, "every pod runs", func(s snapshot) bool { return s.running() == pods }); err != nil {
			return err
		}
		t.print("pods", "all %d run, on %d nodes that together cost %s", pods, len(t.last.nodes), t.bill())
	}
	r.podsBound = pods
	if err := consolidate(ctx, env, t, phases[0][0], pods); err != nil {
		return err
	}
	for _, workload := range slices.Concat(phases...) {
		if err := env.Scale(ctx, client.ObjectKeyFromObject(workload.deployment), 0); err != nil {
			return err
		}
	}
	t.print("apply", "every Deployment is scaled to zero")
	if err := t.await(ctx, "nothing is left", snapshot.empty); err != nil {
		return err
	}
	t.print("cluster", "no pod, node, server, volume or port is left")
	return nil
}

// consolidate takes pods away from the small nodes of the first phase and waits until the large ones of the second have
// got what is left on at least one of them. Nothing depends on it: Karpenter decides when it looks, and where it has
// looked too early it looks again only after minutes.
func consolidate(ctx context.Context, env *environment.Environment, t *timeline, small workload, pods int) error {
	if err := env.Scale(ctx, client.ObjectKeyFromObject(small.deployment), reducedReplicas); err != nil {
		return err
	}
	pods -= int(*small.deployment.Spec.Replicas) - reducedReplicas
	t.print("apply", "Deployment %s is scaled to %d", small.deployment.Name, reducedReplicas)
	before := len(t.last.nodes)
	limited, cancel := context.WithTimeoutCause(ctx, consolidationPatience, errPatience)
	defer cancel()
	err := t.await(limited, "an underutilized node is given back", func(s snapshot) bool {
		return s.running() == pods && len(s.nodes) < before && len(s.servers) == len(s.nodes) && len(s.claims) == len(s.nodes)
	})
	switch {
	case err == nil:
		t.print("pods", "all %d run, on %d nodes that together cost %s", pods, len(t.last.nodes), t.bill())
	case errors.Is(err, errPatience):
		t.print("pods", "no node was given back within %s; Karpenter looks again later", consolidationPatience)
	default:
		return err
	}
	return nil
}
