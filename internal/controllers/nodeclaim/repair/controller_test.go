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

package repair_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/repair"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/unit"
)

// oldList is a cloud whose list lags.
type oldList struct {
	instance.Provider
	servers []*instance.Instance
}

func (l *oldList) List(context.Context) ([]*instance.Instance, error) { return l.servers, nil }

var _ = Describe("Stopped servers", func() {
	var controller *repair.Controller
	var claim *karpv1.NodeClaim
	BeforeEach(func() {
		controller = repair.NewController(env.Client, env.Instances, env.Recorder, env.Clock)
		var err error
		claim, err = env.Launched(ctx)
		Expect(err).ToNot(HaveOccurred())
	})
	id := func() string {
		GinkgoHelper()
		server, ok := providerid.Parse(claim.Status.ProviderID)
		Expect(ok).To(BeTrue())
		return server
	}
	look := func() reconcile.Result {
		GinkgoHelper()
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		result, err := controller.Reconcile(ctx, claim)
		Expect(err).ToNot(HaveOccurred())
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		return result
	}
	stop := func() {
		GinkgoHelper()
		Expect(env.Sandbox.SetServerStatus(id(), "SHUTOFF")).To(Succeed())
	}
	running := func() *status.Condition { return claim.StatusConditions().Get(v1alpha1.ConditionTypeServerRunning) }
	starts := func() int {
		return lo.CountBy(env.Sandbox.Requests(), func(r cloud.Request) bool { return r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/action") })
	}
	start := func() {
		GinkgoHelper()
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		nodeClass.Spec.StoppedServers = v1alpha1.StoppedServersStart
		Expect(env.Client.Update(ctx, nodeClass)).To(Succeed())
	}

	It("should leave a running server alone", func() {
		Expect(look().RequeueAfter).To(Equal(time.Minute))
		Expect(running()).To(BeNil())
		Expect(claim.DeletionTimestamp.IsZero()).To(BeTrue())
	})
	It("should say on the claim that its server was stopped, and replace it only after five minutes", func() {
		stop()
		Expect(look().RequeueAfter).To(Equal(30 * time.Second))
		Expect(running().IsFalse()).To(BeTrue())
		Expect(running().Reason).To(Equal("ServerStopped"))
		Expect(running().Message).To(ContainSubstring("replaced when it is still stopped 5m0s later"))
		Expect(env.Recorder.Calls(events.ReasonServerStopped)).To(Equal(1))
		// A claim whose conditions core computes is none the worse for it.
		Expect(claim.StatusConditions().Get(karpv1.ConditionTypeLaunched).IsTrue()).To(BeTrue())

		env.Clock.Step(4 * time.Minute)
		look()
		Expect(claim.DeletionTimestamp.IsZero()).To(BeTrue())

		env.Clock.Step(61 * time.Second)
		look()
		Expect(claim.DeletionTimestamp.IsZero()).To(BeFalse())
		Expect(claim.Annotations).To(HaveKey(karpv1.NodeClaimTerminationTimestampAnnotationKey))
		Expect(env.Recorder.Calls(events.ReasonServerReplaced)).To(Equal(1))
		Expect(starts()).To(BeZero())
	})
	It("should remember across a restart since when the server is stopped", func() {
		stop()
		look()
		env.Restart(ctx)
		controller = repair.NewController(env.Client, env.Instances, env.Recorder, env.Clock)
		env.Clock.Step(6 * time.Minute)
		look()
		Expect(claim.DeletionTimestamp.IsZero()).To(BeFalse())
	})
	It("should note that a server which somebody started again runs, and count from the beginning when it is stopped once more", func() {
		stop()
		look()
		env.Clock.Step(4 * time.Minute)
		Expect(env.Sandbox.SetServerStatus(id(), "ACTIVE")).To(Succeed())
		look()
		Expect(running().IsTrue()).To(BeTrue())
		Expect(env.Recorder.Calls(events.ReasonServerStarted)).To(Equal(1))
		stop()
		look()
		env.Clock.Step(4 * time.Minute)
		look()
		Expect(claim.DeletionTimestamp.IsZero()).To(BeTrue())
	})
	It("should start the server where the NodeClass says so", func() {
		start()
		stop()
		look()
		Expect(running().Message).To(ContainSubstring("started again"))
		Expect(env.Sandbox.Servers()[0].Status).To(Equal("ACTIVE"))
		Expect(starts()).To(Equal(1))
		look()
		Expect(running().IsTrue()).To(BeTrue())
		Expect(claim.DeletionTimestamp.IsZero()).To(BeTrue())
	})
	It("should replace a server that cannot be started", func() {
		start()
		stop()
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers/*/action", Effect: cloud.EffectStatus, Status: http.StatusConflict})
		look()
		env.Clock.Step(6 * time.Minute)
		look()
		Expect(claim.DeletionTimestamp.IsZero()).To(BeFalse())
		Expect(env.Recorder.Calls(events.ReasonServerReplaced)).To(Equal(1))
	})
	It("should not replace a server by an old list that says that it is stopped", func() {
		stop()
		look()
		env.Clock.Step(6 * time.Minute)
		servers, err := env.Instances.List(ctx)
		Expect(err).ToNot(HaveOccurred())
		Expect(env.Sandbox.SetServerStatus(id(), "ACTIVE")).To(Succeed())
		controller = repair.NewController(env.Client, &oldList{Provider: env.Instances, servers: servers}, env.Recorder, env.Clock)
		Expect(look().RequeueAfter).To(Equal(30 * time.Second))
		Expect(claim.DeletionTimestamp.IsZero()).To(BeTrue())
	})
	It("should leave a claim alone that is going, or has no server yet", func() {
		stop()
		Expect(env.Client.Delete(ctx, claim)).To(Succeed())
		Expect(look()).To(BeZero())
		fresh, err := env.NodeClaim(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		result, err := controller.Reconcile(ctx, fresh)
		Expect(err).ToNot(HaveOccurred())
		Expect(result).To(BeZero())
	})
	It("should replace where the NodeClass is gone", func() {
		stop()
		nodeClass := &v1alpha1.BizflyNodeClass{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, nodeClass)).To(Succeed())
		Expect(env.Client.Delete(ctx, nodeClass)).To(Succeed())
		look()
		Expect(running().IsFalse()).To(BeTrue())
	})
})
