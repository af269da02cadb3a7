// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"testing"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/patrickmn/go-cache"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	coretest "sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/expectations"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclass/status"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

const clusterToken = "s3cr3t-cluster-token"

var (
	ctx = unit.CoreContext()
	env *coretest.Environment
)

func TestStatus(t *testing.T) { suite.Run(t, "NodeClassStatus") }

var _ = unit.APIServer(&env)

// setup is a cloud and a controller that reads it through all real providers.
type setup struct {
	*wiring.Providers
	// Reader is what providers read without a cache; reads counts that.
	client.Reader
	reads      int
	sandbox    *cloud.Sandbox
	lists      caches
	recorder   *coretest.EventRecorder
	controller *status.Controller
	// clock is the controller's; the cloud and the catalog run in real time.
	clock *clocktesting.FakeClock
}

// caches are those that the providers were built with.
type caches []*cache.Cache

// flush forgets what is cached.
func (c caches) flush() {
	for _, each := range c {
		each.Flush()
	}
}

// newSetup returns a setup with this catalog and these settings. Its catalog has been read.
func newSetup(content *cloud.Catalog, configure ...func(*options.Options)) *setup {
	GinkgoHelper()
	w := newUnreadSetup(content, configure...)
	Expect(w.Catalog.Refresh(ctx)).To(Succeed())
	return w
}

func newUnreadSetup(content *cloud.Catalog, configure ...func(*options.Options)) *setup {
	GinkgoHelper()
	w := &setup{Reader: env.Client, recorder: coretest.NewEventRecorder(), clock: clocktesting.NewFakeClock(time.Now())}
	w.sandbox = cloud.Start(cloud.Options{Catalog: content, ClusterToken: clusterToken, JoinEndpoint: "https://engine.example/engine/cluster_join/c"})
	DeferCleanup(w.sandbox.Close)
	bke, opts := w.sandbox.BKE(), options.Defaults()
	opts.ClusterName, opts.BKEClusterID, opts.BKEClusterToken = bke.ClusterName, bke.ClusterUID, bke.ClusterToken
	opts.BKEJoinEndpoint, opts.BKELogEndpoint = bke.JoinEndpoint, bke.LogEndpoint
	for _, change := range configure {
		change(opts)
	}
	w.Providers = wiring.Build(wiring.Dependencies{
		API: connect.Client(ctx, w.sandbox), Client: env.Client, APIReader: w, Recorder: w.recorder, Settings: options.NewStore(opts),
		NewCache: func(time.Duration) *cache.Cache {
			made := cache.New(cache.NoExpiration, 0)
			w.lists = append(w.lists, made)
			return made
		},
	})
	w.controller = status.NewController(env.Client, w.clock,
		w.Catalog, w.Images, w.Networks, w.Bootstrap, w.Flavors)
	return w
}

// Get implements client.Reader, and counts.
func (w *setup) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	w.reads++
	return w.Reader.Get(ctx, key, object, opts...)
}

// apply makes or changes the NodeClass of a spec that is written as users write it.
func apply(spec string) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	Expect(yaml.Unmarshal([]byte("spec: {"+spec+"}"), &object.Object)).To(Succeed())
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BizflyNodeClass"))
	object.SetName("general")
	current := &v1alpha1.BizflyNodeClass{}
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(object), current); err == nil {
		object.SetResourceVersion(current.ResourceVersion)
		Expect(env.Client.Update(ctx, object)).To(Succeed())
	} else {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(env.Client.Create(ctx, object)).To(Succeed())
		DeferCleanup(func() { Expect(env.Client.DeleteAllOf(ctx, &v1alpha1.BizflyNodeClass{})).To(Succeed()) })
	}
	return stored()
}

func stored() *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	nodeClass := &v1alpha1.BizflyNodeClass{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: "general"}, nodeClass)).To(Succeed())
	return nodeClass
}

// look reconciles the NodeClass once and returns what is stored then.
func (w *setup) look() (*v1alpha1.BizflyNodeClass, reconcile.Result) {
	GinkgoHelper()
	result := expectations.ExpectObjectReconciled(ctx, env.Client, w.controller, stored())
	return stored(), result
}

func condition(nodeClass *v1alpha1.BizflyNodeClass, conditionType string) *opstatus.Condition {
	return nodeClass.StatusConditions(opstatus.WithObservedOnly()).Get(conditionType)
}

func ready(nodeClass *v1alpha1.BizflyNodeClass) *opstatus.Condition {
	return condition(nodeClass, opstatus.ConditionReady)
}
