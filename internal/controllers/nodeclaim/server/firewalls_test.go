// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/nodeclaim/server"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Firewalls", func() {
	var controller *server.Controller
	var class *v1alpha1.BizflyNodeClass
	BeforeEach(func() { controller = newController() })
	firewall := func(name string) string {
		GinkgoHelper()
		found, ok := lo.Find(env.Sandbox.Options().Catalog.Firewalls["HN"], func(f cloud.Firewall) bool { return f.Name == name })
		Expect(ok).To(BeTrue())
		return found.ID
	}
	// wants makes the NodeClass want these firewalls, as its own controllers would.
	wants := func(firewalls ...string) {
		GinkgoHelper()
		Expect(env.Resolve(ctx, class)).To(Succeed())
		class.Status.Firewalls = lo.Map(firewalls, func(name string, _ int) v1alpha1.FirewallStatus {
			return v1alpha1.FirewallStatus{ID: firewall(name), Name: name}
		})
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
	}
	// registered launches a node whose disks and interfaces are recorded.
	registered := func() *karpv1.NodeClaim {
		GinkgoHelper()
		claim := lo.Must(env.Launched(ctx))
		Eventually(func() string { return env.Server(claim.Status.ProviderID).Status }).Should(Equal("ACTIVE"))
		env.Instances.Flush()
		Expect(controller.Reconcile(ctx, claim)).Error().ToNot(HaveOccurred())
		registeredAt(claim, time.Now().Add(time.Minute))
		return claim
	}
	launched := func(firewalls ...string) *karpv1.NodeClaim {
		GinkgoHelper()
		class = &v1alpha1.BizflyNodeClass{}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: unit.NodeClassName}, class)).To(Succeed())
		wants(firewalls...)
		return registered()
	}
	live := func(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
		GinkgoHelper()
		got := &karpv1.NodeClaim{}
		Expect(env.APIReader.Get(ctx, client.ObjectKeyFromObject(claim), got)).To(Succeed())
		return got
	}
	// attached are the firewalls that are recorded as ours.
	attached := func(claim *karpv1.NodeClaim) []string {
		GinkgoHelper()
		intent := lo.Must(launch.ReadIntent(live(claim)))
		return intent.Firewalls
	}
	look := func(claim *karpv1.NodeClaim) (reconcile.Result, error) {
		GinkgoHelper()
		env.Instances.Flush()
		return controller.Reconcile(ctx, live(claim))
	}
	done := func(claim *karpv1.NodeClaim) {
		GinkgoHelper()
		result := lo.Must(look(claim))
		Expect(result.RequeueAfter).To(Equal(2 * time.Minute))
	}
	// changes are the requests that change something.
	changes := func() []string {
		return lo.FilterMap(env.Sandbox.Requests(), func(r cloud.Request, _ int) (string, bool) {
			return r.Method + " " + r.Route, r.Method != http.MethodGet && !strings.Contains(r.Route, "token")
		})
	}
	id := func(claim *karpv1.NodeClaim) string { return unit.ServerID(claim.Status.ProviderID) }
	// groups are the firewalls of each interface, by the interface's name.
	groups := func(claim *karpv1.NodeClaim) [][]string {
		state := env.Sandbox.State()
		ports := append(state.NetworkInterfaces, lo.Map(state.WanIPs, func(ip cloud.WanIP, _ int) cloud.NetworkInterface { return ip.NetworkInterface })...)
		return lo.FilterMap(ports, func(p cloud.NetworkInterface, _ int) ([]string, bool) {
			return p.SecurityGroups, p.AttachedServer.ID == id(claim)
		})
	}
	have := func(names ...string) types.GomegaMatcher {
		return And(HaveLen(2), HaveEach(ConsistOf(lo.Map(names, func(n string, _ int) any { return firewall(n) })...)))
	}

	It("should send and record nothing for a server that has what it was launched with", func() {
		claim := launched("web")
		env.Sandbox.ResetRequests()
		version := live(claim).ResourceVersion
		done(claim)
		Expect(changes()).To(BeEmpty())
		Expect(live(claim).ResourceVersion).To(Equal(version))
		Expect(env.Recorder.Calls(events.ReasonServerUpdated)).To(BeZero())
	})
	It("should bring other firewalls to every interface and take off those that it had attached", func() {
		claim := launched("web")
		done(claim)
		wants("kubernetes-nodes")
		done(claim)
		Expect(groups(claim)).To(have("kubernetes-nodes"))
		Expect(attached(claim)).To(ConsistOf(firewall("kubernetes-nodes")))
		Expect(env.Recorder.Calls(events.ReasonServerUpdated)).To(Equal(1))
		wants("kubernetes-nodes", "web")
		done(claim)
		Expect(groups(claim)).To(have("kubernetes-nodes", "web"))
	})
	It("should not take a firewall that is not there for an interface that is gone", func() {
		claim := launched("web")
		done(claim)
		wants("kubernetes-nodes")
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/network-interfaces/*/action", Effect: cloud.EffectStatus, Status: http.StatusNotFound,
			Message: "Security group could not be found"})
		Expect(look(claim)).Error().To(MatchError(ContainSubstring("changing the firewalls of server")))
		Expect(attached(claim)).To(ConsistOf(firewall("web"), firewall("kubernetes-nodes")))
		env.Sandbox.ClearFaults()
		done(claim)
		Expect(groups(claim)).To(have("kubernetes-nodes"))
	})
	It("should attach the cloud's default firewall when none is selected, and detach it again", func() {
		claim := launched("web")
		wants()
		done(claim)
		Expect(groups(claim)).To(have("default"))
		wants("web")
		done(claim)
		Expect(groups(claim)).To(have("web"))
	})
	It("should replace the default firewall of a server that was launched without any", func() {
		claim := launched()
		Expect(groups(claim)).To(have("default"))
		wants("web")
		done(claim)
		Expect(groups(claim)).To(have("web"))
	})
	It("should attach a selected firewall again that someone has removed", func() {
		claim := launched("web")
		for _, port := range env.Sandbox.State().NetworkInterfaces {
			Expect(env.Sandbox.DetachFirewall(port.ID, firewall("web"))).To(Succeed())
		}
		done(claim)
		Expect(groups(claim)).To(have("web"))
		Expect(env.Recorder.Calls(events.ReasonServerUpdated)).To(Equal(1))
		env.Sandbox.ResetRequests()
		done(claim)
		Expect(changes()).To(BeEmpty())
	})
	It("should never remove a firewall that a user attached", func() {
		claim := launched("web")
		for _, port := range env.Sandbox.State().NetworkInterfaces {
			Expect(env.Sandbox.AttachFirewall(port.ID, firewall("default"))).To(Succeed())
		}
		wants("kubernetes-nodes")
		done(claim)
		Expect(groups(claim)).To(ConsistOf(ConsistOf(firewall("kubernetes-nodes"), firewall("default")), ConsistOf(firewall("kubernetes-nodes"))))
	})
	It("should not change an interface that a user attached", func() {
		claim := launched("web")
		env.Sandbox.AddWanIP(id(claim), "of the customer")
		wants("kubernetes-nodes")
		done(claim)
		Expect(groups(claim)).To(ConsistOf(ConsistOf(firewall("kubernetes-nodes")), ConsistOf(firewall("kubernetes-nodes")), BeEmpty()))
	})
	It("should change no interface until it is recorded which ones are the server's own", func() {
		claim := launched("web")
		stored := live(claim)
		stored.Annotations[v1alpha1.AnnotationDelivered] = strings.Replace(stored.Annotations[v1alpha1.AnnotationDelivered], "interfaces", "unknown", 1)
		Expect(env.Client.Update(ctx, stored)).To(Succeed())
		wants("kubernetes-nodes")
		Expect(look(claim)).Error().To(MatchError(ContainSubstring("none of its network interfaces is recorded")))
		Expect(groups(claim)).To(have("web"))
		Expect(env.Recorder.Calls(events.ReasonServerUpdateFailed)).To(Equal(1))

		By("recording them from the list that was just read")
		Expect(controller.Reconcile(ctx, live(claim))).Error().ToNot(HaveOccurred())
		Expect(groups(claim)).To(have("kubernetes-nodes"))
	})
	It("should add, and remove nothing, where it was not recorded what was attached", func() {
		claim := launched("web")
		stored := live(claim)
		stored.Annotations[v1alpha1.AnnotationLaunchIntent] = `{"attempt":1,"name":"` + env.Sandbox.Servers()[0].Name + `"}`
		Expect(env.Client.Update(ctx, stored)).To(Succeed())
		wants("kubernetes-nodes")
		done(claim)
		Expect(groups(claim)).To(have("web", "kubernetes-nodes"))
	})
	DescribeTable("should read nothing more of a server that has what is selected, while nothing is recorded", func(intent string) {
		claim := launched("web")
		stored := live(claim)
		stored.Annotations[v1alpha1.AnnotationLaunchIntent] = intent
		if intent == "" {
			delete(stored.Annotations, v1alpha1.AnnotationLaunchIntent)
		}
		Expect(env.Client.Update(ctx, stored)).To(Succeed())
		env.Sandbox.ResetRequests()
		done(claim)
		Expect(env.Sandbox.RequestCounts()).ToNot(HaveKey("GET /iaas-cloud/api/servers/{id}"))
		Expect(env.Sandbox.RequestCounts()).To(HaveKeyWithValue("GET /iaas-cloud/api/network-interfaces", 1))
		Expect(changes()).To(BeEmpty())
	},
		Entry("of a launch", ""),
		Entry("of its firewalls", `{"attempt":1,"name":"some"}`),
	)
	DescribeTable("should try again until it is done, and say that it is not",
		func(fault cloud.Fault) {
			claim := launched("web")
			done(claim)
			wants("kubernetes-nodes")
			fault.Count = 1
			env.Sandbox.AddFaults(1, fault)
			Expect(look(claim)).Error().To(HaveOccurred())
			Expect(env.Recorder.Calls(events.ReasonServerUpdateFailed)).To(Equal(1))
			done(claim)
			Expect(groups(claim)).To(have("kubernetes-nodes"))
		},
		Entry("when an interface is rejected", cloud.Fault{Method: "POST", Path: "/network-interfaces/*/action", Effect: cloud.EffectStatus, Status: 409}),
		Entry("when an answer is lost after the work", cloud.Fault{Method: "POST", Path: "/network-interfaces/*/action", Effect: cloud.EffectLostResponse}),
	)
	It("should take off what it had attached once a list has the interface again that it lacked", func() {
		claim := launched("web")
		done(claim)
		wants("kubernetes-nodes")
		port, _ := lo.Find(env.Sandbox.State().NetworkInterfaces, func(p cloud.NetworkInterface) bool { return p.AttachedServer.ID == id(claim) })
		env.Sandbox.AddFaults(1, cloud.Fault{Method: "GET", Path: "/network-interfaces", Effect: cloud.EffectBody,
			Body: string(lo.Must(json.Marshal([]cloud.NetworkInterface{port})))})
		done(claim)
		env.Sandbox.ClearFaults()
		done(claim)
		Expect(groups(claim)).To(have("kubernetes-nodes"))
	})
	It("should finish a change that was interrupted although the NodeClass was changed back", func() {
		claim := launched("web")
		done(claim)
		wants("web", "kubernetes-nodes")
		env.Sandbox.AddFaults(1, cloud.Fault{Method: "POST", Path: "/network-interfaces/*/action", Effect: cloud.EffectLostResponse, Count: 1})
		Expect(look(claim)).Error().To(HaveOccurred())
		Expect(groups(claim)).To(ContainElement(ContainElement(firewall("kubernetes-nodes"))))
		wants("web")
		done(claim)
		Expect(groups(claim)).To(have("web"))
	})
	It("should attach what a process that died had only written down", func() {
		claim := launched("web")
		done(claim)
		wants("web", "kubernetes-nodes")
		env.Sandbox.AddFaults(1, cloud.Fault{Method: "POST", Path: "/network-interfaces/*/action", Effect: cloud.EffectReset, Count: 1})
		Expect(look(claim)).Error().To(HaveOccurred())
		env.Restart(ctx)
		controller = newController()
		done(claim)
		Expect(groups(claim)).To(have("web", "kubernetes-nodes"))
	})
	DescribeTable("should change nothing",
		func(prepare func(*karpv1.NodeClaim)) {
			claim := launched("web")
			done(claim)
			wants("kubernetes-nodes")
			prepare(claim)
			env.Sandbox.ResetRequests()
			Expect(look(claim)).Error().ToNot(HaveOccurred())
			Expect(changes()).To(BeEmpty())
		},
		Entry("on a server of another cluster", func(claim *karpv1.NodeClaim) {
			Expect(env.Sandbox.ApplyServerEdit(id(claim), cloud.ServerEdit{Metadata: map[string]*string{v1alpha1.MetadataClusterUID: lo.ToPtr("another")}})).
				To(Succeed())
		}),
		Entry("on a server of another claim", func(claim *karpv1.NodeClaim) {
			Expect(env.Sandbox.ApplyServerEdit(id(claim), cloud.ServerEdit{Metadata: map[string]*string{v1alpha1.MetadataNodeClaim: lo.ToPtr("another")}})).
				To(Succeed())
		}),
		Entry("on a server that is stopped", func(claim *karpv1.NodeClaim) {
			Expect(env.Sandbox.SetServerStatus(id(claim), "SHUTOFF")).To(Succeed())
		}),
		Entry("on a server that is gone", func(claim *karpv1.NodeClaim) { Expect(env.Sandbox.RemoveServer(id(claim))).To(Succeed()) }),
		Entry("for a claim that is being deleted", func(claim *karpv1.NodeClaim) { Expect(env.Client.Delete(ctx, claim)).To(Succeed()) }),
	)
	DescribeTable("should not follow a NodeClass",
		func(prepare func()) {
			claim := launched("web")
			done(claim)
			wants("kubernetes-nodes")
			prepare()
			env.Sandbox.ResetRequests()
			Expect(look(claim)).Error().ToNot(HaveOccurred())
			Expect(changes()).To(BeEmpty())
		},
		Entry("that is not ready", func() {
			class.StatusConditions().SetFalse(v1alpha1.ConditionTypeFirewallsReady, "FirewallNotFound", "nothing matches")
			Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		}),
		Entry("whose last change was not resolved yet", func() {
			class.Spec.Zones = []string{"HN1"}
			Expect(env.Client.Update(ctx, class)).To(Succeed())
		}),
		Entry("that is gone", func() { Expect(env.Client.Delete(ctx, class)).To(Succeed()) }),
	)
	It("should follow a NodeClass of which nothing can be launched now", func() {
		claim := launched("web")
		done(claim)
		wants("kubernetes-nodes")
		class.StatusConditions().SetFalse(v1alpha1.ConditionTypeFlavorsReady, "NoFlavors", "nothing is available")
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		done(claim)
		Expect(groups(claim)).To(have("kubernetes-nodes"))
	})
	It("should follow for a NodeClaim that was restored from a backup, which has another UID", func() {
		original := live(launched("web"))
		restored := original.DeepCopy()
		restored.UID, restored.ResourceVersion = "", ""
		stored := original.DeepCopy()
		original.Finalizers = nil
		Expect(env.Client.Patch(ctx, original, client.MergeFrom(stored))).To(Succeed())
		Expect(env.Client.Delete(ctx, original)).To(Succeed())
		Expect(env.Client.Create(ctx, restored)).To(Succeed())
		restored.Status = stored.Status
		Expect(env.Client.Status().Update(ctx, restored)).To(Succeed())
		wants("kubernetes-nodes")
		done(restored)
		Expect(groups(restored)).To(have("kubernetes-nodes"))
	})
	It("should not leave an interface without any firewall", func() {
		claim := launched("web")
		catalog := env.Sandbox.Options().Catalog
		for i := range catalog.Firewalls["HN"] {
			if catalog.Firewalls["HN"][i].Name == "default" {
				catalog.Firewalls["HN"][i].Name = "other"
			}
		}
		wants()
		Expect(look(claim)).Error().To(MatchError(ContainSubstring("select one")))
		Expect(groups(claim)).To(have("web"))
		Expect(env.Recorder.Calls(events.ReasonServerUpdateFailed)).To(Equal(1))
	})
	It("should change a few servers at once and the others one after the other", func() {
		claims := []*karpv1.NodeClaim{launched("web")}
		for range 6 {
			claims = append(claims, registered())
		}
		wants("kubernetes-nodes")
		for _, claim := range claims {
			Expect(look(claim)).Error().ToNot(HaveOccurred())
		}
		changed := func() int {
			return lo.CountBy(claims, func(claim *karpv1.NodeClaim) bool {
				return lo.EveryBy(groups(claim), func(of []string) bool { return slices.Contains(of, firewall("kubernetes-nodes")) })
			})
		}
		Expect(changed()).To(Equal(5))
		result := lo.Must(look(claims[6]))
		Expect(result.RequeueAfter).To(BeNumerically("~", 7500*time.Millisecond, 2500*time.Millisecond), "spread, and not every second")
		env.Clock.Step(result.RequeueAfter)
		done(claims[6])
		Expect(changed()).To(Equal(6))
	})
	It("should let no more than five changes wait for a cloud that hangs", func() {
		claims := []*karpv1.NodeClaim{launched("web")}
		for range 5 {
			claims = append(claims, registered())
		}
		wants("kubernetes-nodes")
		entered := make(chan struct{}, len(claims))
		controller = server.NewController(env.Client, hanging{env.Instances, entered}, env.Networks, env.CloudProvider.Launches, nil, env.Recorder, env.Clock)
		until, stop := context.WithCancel(ctx)
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		for _, claim := range claims[:5] {
			stored := live(claim)
			group.Go(func() { _, _ = controller.Reconcile(until, stored) })
		}
		for range 5 {
			Eventually(entered).Should(Receive())
		}
		env.Clock.Step(time.Minute)
		result := lo.Must(look(claims[5]))
		Expect(result.RequeueAfter).To(BeNumerically("<=", 10*time.Second))
		Expect(entered).To(BeEmpty())
	})
})

// hanging is a cloud that answers no change.
type hanging struct {
	server.Instances
	entered chan<- struct{}
}

func (h hanging) SetFirewalls(ctx context.Context, _ string, _ instance.Firewalls) (bool, bool, error) {
	h.entered <- struct{}{}
	<-ctx.Done()
	return false, false, ctx.Err()
}
