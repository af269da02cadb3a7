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

// Package chaos_test is tier B of the chaos: the real binaries on a real control plane, everything around them going
// wrong, and the promises looked at all the while. It takes minutes, and so it only runs when it is asked to:
// `make chaos-processes`.
package chaos_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/environment"
)

const (
	// grace is the age below which the garbage collector leaves a server alone.
	grace = 45 * time.Second
	// tuningNamespace and tuningName are where the controller reads its tuning.
	tuningNamespace = "karpenter"
	tuningName      = "karpenter-provider-bizflycloud-tuning"
)

var (
	ctx = context.Background()
	env *environment.Environment
	// estate is what other people own in the cloud, in all runs.
	estate *belongings
	// replicas are the two controllers of the cluster.
	replicas []*replica
)

func TestChaos(t *testing.T) {
	if os.Getenv("E2E") == "" {
		t.Skip("needs the whole control plane and minutes: run `make chaos-processes`")
	}
	log.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	RunSpecs(t, "Chaos with processes", Label("chaos"))
}

// One control plane and one cloud serve all runs: what a run leaves behind is found by the next one too.
var _ = BeforeSuite(func() {
	SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	var err error
	env, err = environment.Start(ctx, environment.Options{
		Latency: 2 * time.Second, Boot: time.Second, Seed: int64(number("SEED", 1)), NoController: true,
		// A server that goes behind everybody's back takes its Node with it soon, or the runs would wait for that.
		SandboxArgs: []string{"--node-silence=0s"},
		// Everything that waits, waits less, so that what a misfortune leads to is seen within the run.
		ControllerEnv: map[string]string{
			"LAUNCH_TIMEOUT": "40s", "SERVER_ID_WAIT": "20s", "VISIBILITY_WINDOW": "30s", "UNAVAILABLE_OFFERING_TTL": "15s",
			"GARBAGE_COLLECTION_INTERVAL": "3s", "GARBAGE_COLLECTION_GRACE": grace.String(), "LOG_LEVEL": "debug",
			"DISABLE_LEADER_ELECTION": "", "LEADER_ELECTION_NAMESPACE": metav1.NamespaceSystem,
		},
		Progress: func(what string) { GinkgoWriter.Println(what) },
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	configure()
	estate = newBelongings()
	replicas = []*replica{{name: "a"}, {name: "b"}}
	for _, r := range replicas {
		r.start()
	}
	DeferCleanup(func() {
		for _, r := range replicas {
			r.end()
		}
	})
})

// configure shortens what is no option of the controller.
func configure() {
	GinkgoHelper()
	Expect(env.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tuningNamespace}})).To(Succeed())
	Expect(env.Client().Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tuningNamespace, Name: tuningName},
		Data:       map[string]string{"accountPause": "5s"},
	})).To(Succeed())
	Expect(env.Client().Create(ctx, &v1alpha1.ProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName},
		Spec:       v1alpha1.ProviderConfigSpec{TuningConfigMapRef: &v1alpha1.ConfigMapReference{Name: tuningName}},
	})).To(Succeed())
}

func number(name string, fallback uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic(fmt.Sprintf("%s=%q is not a number", name, text))
	}
	return value
}

var _ = Describe("Tier B", Ordered, func() {
	first, runs := number("SEED", 1), number("RUNS", 2)
	for seed := first; seed < first+runs; seed++ {
		It(fmt.Sprintf("should keep every promise with processes that are killed, an API server that is away and a cloud that fails, seed %d", seed), func() {
			newWorld(seed).run()
		})
	}
})
