// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle_test drives the real binaries on a real control plane: what a user sees, and what only a process that is
// killed can show. It is slow, and so it only runs when it is asked to: `make e2e`.
package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

// patience is how long a launch or a removal may take on a busy machine.
const patience = 2 * time.Minute

func TestLifecycle(t *testing.T) {
	if os.Getenv("E2E") == "" {
		t.Skip("needs the whole control plane and minutes: run `make e2e`")
	}
	suite.Run(t, "End to end", Label("e2e"))
}

var (
	ctx context.Context
	env *environment.Environment
	// untouched is what neverReached has started.
	untouched *environment.Environment
)

var _ = BeforeSuite(func() {
	ctx = context.Background()
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	var err error
	env, err = environment.Start(ctx, environment.Options{
		Latency: 2 * time.Second, Boot: time.Second, Seed: GinkgoRandomSeed(),
		// What a crash leaves behind must be seen to go within a spec, so everything that waits, waits less.
		ControllerEnv: map[string]string{
			"LAUNCH_TIMEOUT": "40s",
			"GARBAGE_COLLECTION_INTERVAL": "3s", "GARBAGE_COLLECTION_GRACE": "45s",
			"JOIN_TOKENS": "true", "USER_DATA_SECRET_NAMES": "templates",
			// At its most talkative, since nothing that it writes may hold a secret.
			"LOG_LEVEL": "debug",
		},
		SandboxArgs: markedSecrets(),
		Progress:    func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	Expect(env.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metaOf(controllerNamespace)})).To(Succeed())
	DeferCleanup(func() {
		if untouched != nil {
			Expect(untouched.Stop()).To(Succeed())
		}
	})
})

// neverReached is an environment in which no controller has ever reached its cloud, started when it is first needed.
func neverReached() *environment.Environment {
	GinkgoHelper()
	if untouched == nil {
		var err error
		untouched, err = environment.Start(ctx, environment.Options{NoController: true, Seed: GinkgoRandomSeed()})
		Expect(err).NotTo(HaveOccurred())
	}
	return untouched
}

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() && env != nil {
		GinkgoWriter.Printf("the last lines of the controller:\n%s\n", env.Log("controller", 40))
	}
})

// create creates an object. At the end of the spec it deletes it and waits until it is gone, so that the next spec finds nothing of it.
func create(object client.Object) {
	GinkgoHelper()
	Expect(env.Client().Create(ctx, object)).To(Succeed())
	DeferCleanup(func() {
		Expect(client.IgnoreNotFound(env.Client().Delete(ctx, object))).To(Succeed())
		Eventually(func() error { return env.Client().Get(ctx, client.ObjectKeyFromObject(object), object) }).Should(MatchError(apierrors.IsNotFound, "gone"))
	})
}

// restartController restarts the controller with overrides, and without them at the end of the spec.
func restartController(overrides map[string]string) *environment.Controller {
	GinkgoHelper()
	DeferCleanup(func() {
		_, err := env.RestartController(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
	})
	controller, err := env.RestartController(ctx, overrides)
	Expect(err).NotTo(HaveOccurred())
	return controller
}

// unique makes a name that no other spec uses.
func unique(prefix string) string { return fmt.Sprintf("%s-%s", prefix, rand.String(5)) }

func nodeClass(spec v1alpha1.BizflyNodeClassSpec) *v1alpha1.BizflyNodeClass {
	return &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: unique("class")}, Spec: spec}
}

// nodePool returns a NodePool of its own, whose empty nodes are deleted.
func nodePool(class string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodePool {
	pool := environment.NodePool(unique("pool"), class)
	pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, requirements...)
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1s")
	return pool
}

// deployment returns a Deployment of pods that only fit on the pool's nodes.
func deployment(pool *karpv1.NodePool, replicas int32, changes ...func(*corev1.PodSpec)) *appsv1.Deployment {
	return environment.Deployment(unique("app"), replicas, append(changes, environment.OnPool(pool.Name))...)
}

// running are the Deployment's pods that run on a node.
func running(g Gomega, d *appsv1.Deployment) []corev1.Pod {
	pods := e2e.Listed(g, env, &corev1.PodList{}, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	return lo.Filter(pods.Items, func(p corev1.Pod, _ int) bool {
		return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	})
}

// servers are the servers of a pool that exist, in any state.
func servers(g Gomega, pool *karpv1.NodePool) []cloud.Server { return e2e.ServersOf(g, env, pool.Name) }

// claims are the pool's NodeClaims.
func claims(g Gomega, pool *karpv1.NodePool) []karpv1.NodeClaim {
	return e2e.Listed(g, env, &karpv1.NodeClaimList{}, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name}).Items
}

// expectNothingLeft waits until the pool has no claim and the cloud holds nothing at all.
func expectNothingLeft(pool *karpv1.NodePool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(claims(g, pool)).To(BeEmpty())
		g.Expect(e2e.Truth(g, env).Resources()).To(BeEmpty())
	}).Should(Succeed())
}
