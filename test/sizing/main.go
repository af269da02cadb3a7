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

// Command sizing measures how much processor time and memory the controller needs for clusters of a given size: the real
// binary on a real control plane, with a sandbox of BizFly Cloud and nodes that KWOK keeps alive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

const (
	// podsPerNode is how many pods fill a node of the flavor that is launched.
	podsPerNode = 3
	flavor      = "nix.4c_8g"
	name        = "fill"
	// settle is how long a size is left alone before rest is measured: core consolidates 15 s after the last change.
	settle = 30 * time.Second
)

type flags struct {
	sizes   []int
	rest    time.Duration
	timeout time.Duration
}

func main() {
	var f flags
	sizes := flag.String("nodes", "100,500", "the sizes to measure, in growing order")
	flag.DurationVar(&f.rest, "rest", 3*time.Minute, "how long a cluster that has nothing to do is measured")
	flag.DurationVar(&f.timeout, "timeout", 40*time.Minute, "how long one size may take to come up")
	flag.Parse()
	log.SetLogger(logr.Discard())
	for _, text := range strings.Split(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			fmt.Fprintf(os.Stderr, "--nodes: %q is not a number of nodes\n", text)
			os.Exit(2)
		}
		f.sizes = append(f.sizes, size)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := f.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func (f flags) run(ctx context.Context) (err error) {
	env, err := environment.Start(ctx, environment.Options{
		Latency: 2 * time.Second, Boot: 3 * time.Second, Seed: 1,
		Progress:  func(what string) { fmt.Println(what) },
		NodeLease: 10 * time.Minute,
		// A claim must not be ended because this machine is slow: that would be measured instead.
		ControllerEnv: map[string]string{"LAUNCH_TIMEOUT": "10m", "GARBAGE_COLLECTION_GRACE": "15m"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	m := &meter{url: env.Controller().MetricsURL()}
	if err := prepare(ctx, env.Client()); err != nil {
		return err
	}
	fmt.Println("| what | nodes | pods | seconds | CPU seconds | milli-CPU | memory at its highest (MiB) | Go heap in use at its end (MiB) |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	nodes := 0
	for _, size := range f.sizes {
		if nodes, err = f.grow(ctx, env, m, nodes, size); err != nil {
			return err
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		if err := m.measure(ctx, "at rest", func() (int, error) { return nodes, pause(ctx, f.rest) }); err != nil {
			return err
		}
	}
	// What is no longer needed is deleted, node by node and disk by disk.
	return m.measure(ctx, fmt.Sprintf("half of the pods of %d nodes go", nodes), func() (int, error) {
		left := nodes
		if err := scale(ctx, env.Client(), nodes/2*podsPerNode); err != nil {
			return 0, err
		}
		late := await(ctx, f.timeout, func() (bool, error) {
			var err error
			left, err = registered(ctx, env.Client())
			return left <= nodes*3/4, err
		})
		return left, late
	})
}

// grow makes the cluster bigger, and returns how big it has become. When it takes too long, what was reached is measured
// all the same, and reported.
func (f flags) grow(ctx context.Context, env *environment.Environment, m *meter, from, to int) (int, error) {
	reached := 0
	err := m.measure(ctx, fmt.Sprintf("grow from %d to %d", from, to), func() (int, error) {
		if err := scale(ctx, env.Client(), to*podsPerNode); err != nil {
			return 0, err
		}
		late := await(ctx, f.timeout, func() (bool, error) {
			var err error
			reached, err = registered(ctx, env.Client())
			return reached >= to, err
		})
		if late != nil {
			fmt.Fprintf(os.Stderr, "%d of %d nodes had registered: %s\n", reached, to, late)
		}
		return reached, ctx.Err()
	})
	return reached, err
}

// prepare makes a NodeClass, a NodePool of one flavor and a Deployment of nothing yet.
func prepare(ctx context.Context, c client.Client) error {
	class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: name},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{flavor}},
				},
			}},
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
				ConsolidateAfter:    karpv1.MustParseNillableDuration("30s"),
				Budgets:             []karpv1.Budget{{Nodes: "20%"}},
			},
		},
	}
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: lo.ToPtr[int32](0),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: lo.ToPtr[int64](1),
					Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1200m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
					}}},
				},
			},
		},
	}
	for _, object := range []client.Object{class, pool, deployment} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T: %w", object, err)
		}
	}
	return await(ctx, time.Minute, func() (bool, error) {
		err := c.Get(ctx, types.NamespacedName{Name: name}, class)
		return class.StatusConditions().Root().IsTrue(), err
	})
}

func scale(ctx context.Context, c client.Client, replicas int) error {
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault}}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if err := c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("scaling to %d pods: %w", replicas, err)
	}
	return nil
}

// registered counts the nodes that Karpenter has taken in and that do not go.
func registered(ctx context.Context, c client.Client) (int, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes, client.MatchingLabels{karpv1.NodeRegisteredLabelKey: "true"}); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}
	return lo.CountBy(nodes.Items, func(n corev1.Node) bool { return n.DeletionTimestamp.IsZero() }), nil
}
