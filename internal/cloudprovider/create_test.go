// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/launch"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

var _ = Describe("Create", func() {
	Context("the NodeClass", func() {
		It("should end the NodeClaim when there is none", func() {
			err := failedCreate(nodeClaim(nil))
			Expect(reasonOf(err)).To(Equal(launch.ReasonNodeClassUnresolved))
			Expect(err).To(MatchError(ContainSubstring("correct nodeClassRef of the NodePool")))
		})
		It("should end the NodeClaim when it is being deleted", func() {
			class := nodeClass(func(c *v1alpha1.BizflyNodeClass) { c.Finalizers = []string{v1alpha1.TerminationFinalizer} })
			Expect(env.Client.Delete(ctx, class)).To(Succeed())
			err := failedCreate(nodeClaim(nil))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("being deleted"), ContainSubstring("correct nodeClassRef of the NodePool"))))
		})
		It("should end the NodeClaim when it is not ready", func() {
			class := nodeClass()
			Expect(env.SetCondition(ctx, class, func(s status.ConditionSet) {
				s.SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "no such image")
			})).To(Succeed())
			Expect(corecloudprovider.IsNodeClassNotReadyError(failedCreate(nodeClaim(nil)))).To(BeTrue())
		})
		It("should end the NodeClaim when its last change was not resolved yet", func() {
			class := nodeClass()
			class.Spec.PublicIPv4 = lo.ToPtr(false)
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			claim := nodeClaim(nil)
			claim.Labels = map[string]string{karpv1.NodePoolLabelKey: "default"}
			err := failedCreate(claim)
			Expect(corecloudprovider.IsNodeClassNotReadyError(err)).To(BeTrue(), "%v", err)
			Expect(createRequests()).To(BeZero())
		})
		It("should retry a NodeClaim without a NodePool until its last change is resolved", func() {
			class := nodeClass()
			class.Spec.PublicIPv4 = lo.ToPtr(false)
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			err := failedCreate(nodeClaim(nil))
			Expect(corecloudprovider.IsNodeClassNotReadyError(err)).To(BeFalse(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("is being resolved")))
			Expect(createRequests()).To(BeZero())
		})
		It("should end a NodePool's NodeClaim while the NodeClass is first resolved, or core stalls", func() {
			class := &v1alpha1.BizflyNodeClass{}
			class.Name = unit.NodeClassName
			Expect(env.Client.Create(ctx, class)).To(Succeed())
			claim := nodeClaim(nil)
			claim.Labels = map[string]string{karpv1.NodePoolLabelKey: "default"}
			Expect(corecloudprovider.IsNodeClassNotReadyError(failedCreate(claim))).To(BeTrue())
		})
		It("should retry a NodeClaim without a NodePool while the NodeClass is first resolved", func() {
			class := &v1alpha1.BizflyNodeClass{}
			class.Name = unit.NodeClassName
			Expect(env.Client.Create(ctx, class)).To(Succeed())
			err := failedCreate(nodeClaim(nil))
			var unknown *corecloudprovider.CreateError
			Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
			Expect(unknown.ConditionReason).To(Equal(launch.ReasonNodeClassReadinessUnknown))
			Expect(corecloudprovider.IsInsufficientCapacityError(err) || corecloudprovider.IsNodeClassNotReadyError(err)).To(BeFalse())
			Expect(createRequests()).To(BeZero())
		})
		It("should retry when it cannot be read", func() {
			nodeClass()
			claim := nodeClaim(nil)
			intercepted(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("connection refused")
			}})
			err := failedCreate(claim)
			Expect(corecloudprovider.IsInsufficientCapacityError(err) || corecloudprovider.IsNodeClassNotReadyError(err)).To(BeFalse())
			Expect(err).To(MatchError(ContainSubstring("connection refused")))
		})
		It("should reject a foreign kind or no reference at all without a panic", func() {
			claim := nodeClaim(nil)
			claim.Spec.NodeClassRef = nil
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
		})
	})
	Context("the intent", func() {
		BeforeEach(func() { nodeClass() })
		It("should be recorded before the create request, and not in the NodeClaim that core passed", func() {
			claim := nodeClaim(nil)
			passed := claim.DeepCopy()
			created := lo.Must(env.CloudProvider.Create(ctx, passed))
			Expect(passed).To(Equal(claim))
			recorded := intentOf(claim)
			Expect(recorded.Attempt).To(Equal(1))
			Expect(recorded.Rejected).To(BeFalse())
			Expect(servers()).To(ConsistOf(HaveField("Name", recorded.Name)))
			By("leaving it to core to write the task, with the labels")
			returned := lo.Must(launch.ReadIntent(created))
			Expect(recorded.TaskID).To(BeEmpty())
			Expect(returned.TaskID).ToNot(BeEmpty())
			Expect(returned.Name).To(Equal(recorded.Name))
		})
		It("should prevent a create request when it cannot be recorded", func() {
			claim := nodeClaim(nil)
			working := env.CloudProvider
			patched(func(int, func() error) error { return errors.New("etcd is away") })
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("etcd is away")))
			Expect(createRequests()).To(BeZero())
			env.CloudProvider = working
			launched(claim)
			Expect(servers()).To(HaveLen(1))
		})
		It("should launch one server although two processes lead for a moment", func() {
			claim := nodeClaim(nil)
			other := env.CloudProvider
			patched(func(number int, patch func() error) error {
				switch number {
				case 1: // core has changed the NodeClaim
					return apierrors.NewConflict(schema.GroupResource{}, claim.Name, nil)
				case 2: // the other process has launched since the NodeClaim was read again
					Expect(other.Create(ctx, claim.DeepCopy())).Error().ToNot(HaveOccurred())
				}
				return patch()
			})
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("the object has been modified")))
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("another process has launched")))
			Expect(launched(claim).Status.ProviderID).To(Equal(providerid.New(servers()[0].ID)))
			Expect(createRequests()).To(Equal(1))
		})
		It("should be written once, and once more when its request is rejected", func() {
			claim := nodeClaim(nil)
			patches := 0
			patched(func(number int, patch func() error) error {
				patches = number
				return patch()
			})
			failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
			Expect(failedCreate(claim)).To(HaveOccurred())
			Expect(patches).To(Equal(2))
			Expect(intentOf(claim).Rejected).To(BeTrue())
			launched(claim)
			Expect(patches).To(Equal(3))
		})
		It("should follow that of another process which was rejected", func() {
			claim := nodeClaim(nil)
			other := env.CloudProvider
			patched(func(number int, patch func() error) error {
				if number == 1 {
					failCreate(cloud.Fault{Effect: cloud.EffectThrottle, Count: 1})
					Expect(other.Create(ctx, claim.DeepCopy())).Error().To(HaveOccurred())
				}
				return patch()
			})
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("another process has launched")))
			launched(claim)
			Expect(intentOf(claim).Attempt).To(Equal(2))
			Expect(createRequests()).To(Equal(2))
		})
		It("should follow one of this process whose rejection could not be recorded", func() {
			claim := nodeClaim(nil)
			secondPatchFails()
			failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Count: 1})
			launched(claim)
			Expect(intentOf(claim).Attempt).To(Equal(2))
			Expect(createRequests()).To(Equal(2))
		})
		It("should follow one of this process although its rejection could not be recorded", func() {
			claim := nodeClaim(nil)
			failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Count: 1})
			patches, down := 0, false
			config := env.CloudProviderConfig
			config.KubeClient = failing(interceptor.Funcs{Patch: func(
				ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
			) error {
				if patches++; patches == 2 {
					down = true
					return errors.New("etcd is away")
				}
				return c.Patch(ctx, o, p, options...)
			}})
			config.APIReader = failing(interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
			) error {
				if down {
					return errors.New("etcd is away")
				}
				return c.Get(ctx, key, o, options...)
			}})
			env.CloudProvider = cloudprovider.New(config)
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("etcd is away")))
			Expect(createRequests()).To(Equal(1))
			down = false
			launched(claim)
			Expect(createRequests()).To(Equal(2))
			Expect(intentOf(claim).Attempt).To(Equal(3))
		})
		It("should not replace one that cannot be read", func() {
			claim := nodeClaim(nil)
			patched(func(int, func() error) error {
				unreadable := claim.DeepCopy()
				unreadable.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: "{"}
				Expect(env.APIReader.Patch(ctx, unreadable, client.MergeFrom(claim))).To(Succeed())
				return apierrors.NewConflict(schema.GroupResource{}, claim.Name, nil)
			})
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("cannot be read")))
			Expect(createRequests()).To(BeZero())
		})
		It("should neither be recorded nor followed while the UID of the cluster is not known", func() {
			claim, other := nodeClaim(nil), nodeClaim(nil)
			launched(claim)
			env.Restart(ctx, func(d *wiring.Dependencies) { d.ClusterUID = "" })
			for _, c := range []*karpv1.NodeClaim{claim, other} {
				Expect(failedCreate(c)).To(MatchError(ContainSubstring("UID of the kube-system namespace is not known")))
			}
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("looking for server " + intentOf(claim).Name)))
			Expect(intentOf(other)).To(BeNil())
			Expect(createRequests()).To(Equal(1))
		})
		It("should prevent a create request for a NodeClaim that is being deleted", func() {
			claim := nodeClaim(nil)
			Expect(env.Client.Delete(ctx, claim.DeepCopy())).To(Succeed())
			Expect(failedCreate(claim)).To(HaveOccurred())
			Expect(createRequests()).To(BeZero())
		})
		It("should prevent a create request for a NodeClaim that is deleted while it is recorded", func() {
			claim := nodeClaim(nil)
			patched(func(int, func() error) error {
				Expect(env.APIReader.Delete(ctx, claim.DeepCopy())).To(Succeed())
				return apierrors.NewConflict(schema.GroupResource{}, claim.Name, nil)
			})
			Expect(failedCreate(claim)).To(MatchError(ContainSubstring("is deleted or being deleted")))
			Expect(createRequests()).To(BeZero())
		})
		It("should prevent a create request for a NodeClaim of the same name with another UID", func() {
			claim := nodeClaim(nil)
			claim.UID = "another"
			Expect(failedCreate(claim)).To(HaveOccurred())
			Expect(createRequests()).To(BeZero())
		})
		DescribeTable("should end the NodeClaim when it cannot be read any more", func(text string) {
			claim := nodeClaim(nil)
			claim.Annotations = map[string]string{v1alpha1.AnnotationLaunchIntent: text}
			Expect(env.Client.Update(ctx, claim)).To(Succeed())
			err := failedCreate(claim)
			Expect(reasonOf(err)).To(Equal(launch.ReasonLaunchIntentUnreadable))
			Expect(err).To(MatchError(ContainSubstring("annotation " + v1alpha1.AnnotationLaunchIntent + " cannot be read")))
			Expect(createRequests()).To(BeZero())
		},
			Entry("because it is cut off", "{"),
			Entry("because it has no attempt", `{"name":"general-abcde"}`),
			Entry("because it has no name", `{"attempt":1}`),
		)
		It("should be read at the API server, and nothing be requested while that does not answer", func() {
			claim := nodeClaim(nil)
			config := env.CloudProviderConfig
			config.APIReader = failing(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("connection refused")
			}})
			env.CloudProvider = cloudprovider.New(config)
			err := failedCreate(claim)
			Expect(err).To(MatchError(ContainSubstring("reading NodeClaim " + claim.Name + ": connection refused")))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeFalse())
			Expect(createRequests()).To(BeZero())
		})
		It("should be recorded as rejected when its request was not sent before the caller's deadline", func() {
			claim := nodeClaim(nil)
			caller, end := context.WithCancel(ctx)
			patched(func(_ int, patch func() error) error {
				defer end()
				return patch()
			})
			Expect(env.CloudProvider.Create(caller, claim.DeepCopy())).Error().To(HaveOccurred())
			Expect(createRequests()).To(BeZero())
			Expect(intentOf(claim)).To(And(HaveField("Attempt", 1), HaveField("Rejected", true)))
		})
	})
	Context("called again for one NodeClaim", func() {
		It("should return the same server from memory, although the NodeClaim is stale", func() {
			nodeClass()
			claim := nodeClaim(nil)
			Expect(launched(claim).Status.ProviderID).To(Equal(launched(claim).Status.ProviderID))
			Expect(createRequests()).To(Equal(1))
		})
		It("should return the same server after a restart", func() {
			nodeClass()
			claim := nodeClaim(nil)
			first := launched(claim)
			env.Restart(ctx)
			second := launched(claim)
			Expect(second.Status.ProviderID).To(Equal(first.Status.ProviderID))
			Expect(second.Labels).To(Equal(first.Labels))
			Expect(createRequests()).To(Equal(1))
		})
		It("should wait for the server of a request that was on its way when the process ended", func() {
			nodeClass()
			failCreate(cloud.Fault{Effect: cloud.EffectLostResponse, Count: 1})
			env.Sandbox.AddFaults(2, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
			env.WithoutIDWait()
			claim := nodeClaim(nil)
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			requested(claim, -time.Hour)
			env.Restart(ctx)
			created := make(chan error, 1)
			go func() { _, err := env.CloudProvider.Create(ctx, claim.DeepCopy()); created <- err }()
			looksAgain(3)
			Expect(created).ToNot(Receive())
			env.Sandbox.ClearFaults()
			Eventually(created).Should(Receive(BeNil()))
			Expect(createRequests()).To(Equal(1))
		})
		It("should know its flavor after a restart, although the API calls it by its short name", func() {
			nodeClass()
			claim := nodeClaim(nil, unit.Requirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, "nix.2c_2g"))
			first := launched(claim)
			server := serverOf(first)
			Expect(server.FlavorName).ToNot(Equal(first.Labels[corev1.LabelInstanceTypeStable]))
			Expect(env.Sandbox.EditServer(server.ID, func(s *cloud.Server) { s.Flavor.Name = server.FlavorName })).To(BeTrue())
			addFlavor(cloud.Flavor{ID: "short", Name: server.FlavorName, VCPUs: 1, RAM: 1024, Category: "premium"})
			env.Restart(ctx)
			created := lo.Must(env.CloudProvider.Create(ctx, claim.DeepCopy()))
			Expect(first.Labels).To(Equal(created.Labels))
			Expect(created.Status.Capacity).To(HaveLen(len(first.Status.Capacity)))
		})
		DescribeTable("should know a server's size and labels although the NodeClass no longer selects it", func(
			change func(*v1alpha1.BizflyNodeClassSpec),
		) {
			class := nodeClass()
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"},
				cloud.Fault{Method: http.MethodGet, Path: "/tasks/*", Effect: cloud.EffectReset})
			env.WithoutIDWait()
			claim := nodeClaim(nil, unit.Requirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "HN1"))
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			env.Sandbox.ClearFaults()
			env.Restart(ctx)
			change(&class.Spec)
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			Expect(env.Resolve(ctx, class)).To(Succeed())
			created := lo.Must(env.CloudProvider.Create(ctx, claim.DeepCopy()))
			Expect(created.Labels).To(HaveKeyWithValue(corev1.LabelTopologyZone, "HN1"))
			Expect(created.Labels).To(HaveKey(v1alpha1.LabelInstanceCategory))
			Expect(created.Status.Capacity).To(HaveKey(corev1.ResourceCPU))
			Expect(created.Status.Allocatable).To(HaveKey(corev1.ResourceMemory))
		},
			Entry("because of its flavor", func(s *v1alpha1.BizflyNodeClassSpec) {
				s.FlavorSelectorTerms = []v1alpha1.FlavorSelectorTerm{{Name: "nix.16c_32g"}}
			}),
			Entry("because of its zone", func(s *v1alpha1.BizflyNodeClassSpec) { s.Zones = []string{"HN2"} }),
		)
		It("should keep the hash of the NodeClass that the server was launched with", func() {
			class := nodeClass()
			hash := class.Hash()
			claim := nodeClaim(nil)
			launched(claim)
			class.Spec.PublicIPv4 = lo.ToPtr(false)
			Expect(env.Client.Update(ctx, class)).To(Succeed())
			Expect(class.Hash()).ToNot(Equal(hash))
			Expect(env.Resolve(ctx, class)).To(Succeed())
			env.Restart(ctx)
			Expect(launched(claim).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNodeClassHash, hash))
		})
		It("should find the server although the NodeClass is not ready any more", func() {
			class := nodeClass()
			claim := nodeClaim(nil)
			first := launched(claim)
			Expect(env.SetCondition(ctx, class, func(s status.ConditionSet) {
				s.SetFalse(v1alpha1.ConditionTypeImagesReady, "ImageNotFound", "no such image")
			})).To(Succeed())
			env.Restart(ctx)
			Expect(launched(claim).Status.ProviderID).To(Equal(first.Status.ProviderID))
		})
		It("should wait across a restart for a slow server, without a second create request", func() {
			cloudTime := clocktesting.NewFakeClock(time.Now())
			env.Reset(ctx, cloud.Options{Clock: cloudTime, Latency: time.Minute, HideBuilding: true})
			env.WithoutIDWait()
			nodeClass()
			claim := nodeClaim(nil)
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			Expect(intentOf(claim).TaskID).ToNot(BeEmpty())
			env.Restart(ctx)
			cloudTime.Step(time.Minute)
			created := lo.Must(env.CloudProvider.Create(ctx, claim.DeepCopy()))
			Expect(serverOf(created).Name).To(Equal(intentOf(claim).Name))
			Expect(createRequests()).To(Equal(1))
		})
		It("should end the NodeClaim at once when nothing came of a request answered long ago", func() {
			env.Reset(ctx, cloud.Options{Latency: time.Hour, HideBuilding: true})
			env.WithoutIDWait()
			nodeClass()
			claim := nodeClaim(nil)
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			requested(claim, -time.Hour)
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/tasks/*", Effect: cloud.EffectTask404})
			env.Restart(ctx)
			env.Tune(func(o *options.Options) { o.VisibilityWindow = 30 * time.Minute })
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
		})
		It("should end the NodeClaim in time although the clock of an earlier process was ahead", func() {
			env.Reset(ctx, cloud.Options{Latency: time.Hour, HideBuilding: true})
			env.WithoutIDWait()
			nodeClass()
			claim := nodeClaim(nil)
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			requested(claim, time.Hour)
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/tasks/*", Effect: cloud.EffectTask404})
			env.Restart(ctx)
			env.WithoutIDWait()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			env.Clock.Step(10 * time.Minute)
			env.WithoutVisibilityWindow()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
		})
		It("should give the NodeClaim up once the window has passed that began with the process", func() {
			nodeClass()
			claim := unanswered(nil)
			env.Restart(ctx)
			env.WithoutIDWait()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonAwaitingServerID))
			env.Clock.Step(time.Hour)
			env.WithoutVisibilityWindow()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
		})
		It("should find the server of a create request whose answer was lost", func() {
			nodeClass()
			failCreate(cloud.Fault{Effect: cloud.EffectLostResponse})
			claim := nodeClaim(nil)
			var created *karpv1.NodeClaim
			Eventually(func() (err error) {
				created, err = env.CloudProvider.Create(ctx, claim.DeepCopy())
				return err
			}).Should(Succeed())
			Expect(serverOf(created).Name).To(Equal(intentOf(claim).Name))
			Expect(createRequests()).To(Equal(1))
		})
		It("should end the NodeClaim, and send no second request, when the first may have arrived", func() {
			nodeClass()
			claim := unanswered(nil)
			env.WithoutVisibilityWindow()
			Expect(reasonOf(failedCreate(claim))).To(Equal(launch.ReasonLaunchOutcomeUnknown))
			env.Sandbox.ClearFaults()
			ended(claim)
			Expect(createRequests()).To(Equal(1), "although core could not delete it")
			Expect(servers()).To(BeEmpty())
		})
	})
	Context("insufficient capacity", func() {
		It("should try the next offering at once, and mark the rejected ones unavailable", func() {
			nodeClass()
			pool := unit.NodePool()
			flavor := launched(nodeClaim(pool)).Labels[corev1.LabelInstanceTypeStable]
			env.Sandbox.SetStock(flavor, "*", "*", 0)
			before, ordered := available(pool), createRequests()
			created := launched(nodeClaim(pool))
			Expect(created.Labels[corev1.LabelInstanceTypeStable]).ToNot(Equal(flavor))
			tried := createRequests() - ordered
			Expect(tried).To(And(BeNumerically(">", 1), BeNumerically("<=", 3)))
			Expect(available(pool)).To(Equal(before - (tried - 1)))
			unavailable, ok := lo.Find(instanceTypes(pool), func(it *corecloudprovider.InstanceType) bool { return it.Name == flavor })
			Expect(ok).To(BeTrue(), "an unavailable flavor is never gone")
			Expect(unavailable.Offerings.Available()).To(BeEmpty())
		})
		It("should number the attempts, so that each has a server name of its own", func() {
			nodeClass()
			pool := unit.NodePool()
			flavor := launched(nodeClaim(pool)).Labels[corev1.LabelInstanceTypeStable]
			env.Sandbox.SetStock(flavor, "*", "*", 0)
			ordered, claim := createRequests(), nodeClaim(pool)
			launched(claim)
			Expect(intentOf(claim).Attempt).To(Equal(createRequests() - ordered))
		})
		It("should end the NodeClaim after three create requests", func() {
			nodeClass()
			env.Sandbox.SetStock("*", "*", "*", 0)
			claim := nodeClaim(nil)
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
			Expect(createRequests()).To(Equal(3))
			Expect(exists(claim)).To(BeTrue(), "core deletes it")
		})
		It("should try no other offering after ten seconds: core plans anew with what is known", func() {
			nodeClass()
			env.Sandbox.SetStock("*", "*", "*", 0)
			patched(func(_ int, patch func() error) error {
				env.Clock.Step(ttl.FailOver / 2) // the intent of the request, and its rejection
				return patch()
			})
			ended(nodeClaim(nil))
			Expect(createRequests()).To(Equal(1))
		})
		It("should use again what was unavailable after a while", func() {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			env.Sandbox.SetStock("*", "*", "*", 0)
			Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
			Expect(available(pool)).To(Equal(before - 3))
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			Eventually(func() int { return available(pool) }).Should(Equal(before))
		})
		DescribeTable("should pause every launch when the account is rejected", func(effect cloud.Effect, reason string) {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			failCreate(cloud.Fault{Effect: effect, Count: 1})
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(pool)))).To(BeTrue())
			Expect(createRequests()).To(Equal(1))
			Expect(env.Recorder.Events()).To(ContainElement(And(HaveField("Reason", events.ReasonAccountLimit), HaveField("Message", ContainSubstring(reason)))))
			Expect(env.Recorder.Calls(events.ReasonOfferingUnavailable)).To(BeZero(), "no offering is at fault")
			Expect(available(pool)).To(BeZero())
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(pool)))).To(BeTrue())
			Expect(createRequests()).To(Equal(1), "no create request during the pause")
			rejected, _ := env.CloudProvider.Launches.AccountRejected()
			Expect(rejected).To(Equal(reason))
			env.Clock.Step(options.Defaults().AccountPause + time.Second)
			Eventually(func() int { return available(pool) }).Should(Equal(before))
			launched(nodeClaim(pool))
			rejected, _ = env.CloudProvider.Launches.AccountRejected()
			Expect(rejected).To(BeEmpty())
		},
			Entry("by its balance", cloud.EffectBalance, capacity.ReasonBalanceExhausted),
		)
		It("should pause the NodeClass whose disks exceed a quota, and no other", func() {
			nodeClass(func(c *v1alpha1.BizflyNodeClass) {
				c.Spec.RootDisk = &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumHDD}
			})
			fast := nodeClass(func(c *v1alpha1.BizflyNodeClass) {
				c.Name, c.Spec.RootDisk = "fast", &v1alpha1.RootDisk{Medium: v1alpha1.DiskMediumSSD}
			})
			failCreate(cloud.Fault{Contains: "HDD1", Status: http.StatusForbidden, Message: hddQuota})
			pool := unit.NodePool()
			for range 2 {
				Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(nodeClaim(pool)))).To(BeTrue())
				Expect(createRequests()).To(Equal(1))
				Expect(available(pool)).To(BeZero())
			}
			other := nodeClaim(nil)
			other.Spec.NodeClassRef.Name = fast.Name
			Expect(env.CloudProvider.Create(ctx, other.DeepCopy())).Error().ToNot(HaveOccurred())
		})
		It("should name the account while that is rejected, and not what its NodeClass met before", func() {
			nodeClass()
			pool := unit.NodePool()
			failCreate(cloud.Fault{Count: 1, Status: http.StatusForbidden, Message: hddQuota})
			Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
			env.Clock.Step(options.Defaults().UnavailableOfferingTTL + time.Second)
			Eventually(func() int { return available(pool) }).ShouldNot(BeZero())
			failCreate(cloud.Fault{Effect: cloud.EffectBalance, Count: 1})
			Expect(failedCreate(nodeClaim(pool))).To(HaveOccurred())
			Expect(failedCreate(nodeClaim(pool))).To(MatchError(And(ContainSubstring(capacity.ReasonBalanceExhausted), Not(ContainSubstring("Quota")))))
		})
		It("should mark the offering, end the NodeClaim and leave nothing when a build fails later", func() {
			nodeClass()
			pool := unit.NodePool()
			before := available(pool)
			failCreate(cloud.Fault{Effect: cloud.EffectNoCapacity, Async: true, Count: 1})
			claim := nodeClaim(pool)
			Expect(corecloudprovider.IsInsufficientCapacityError(failedCreate(claim))).To(BeTrue())
			Expect(available(pool)).To(Equal(before - 1))
			Expect(env.Recorder.Calls(events.ReasonLaunchFailed)).To(Equal(1))
			Eventually(servers).Should(BeEmpty())
		})
	})
	DescribeTable("should launch, list and delete a server", func(options cloud.Options, name string) {
		env.Reset(ctx, options)
		nodeClass()
		claim := launched(nodeClaim(nil))
		Expect(serverOf(claim).Name).To(MatchRegexp("^" + strings.ReplaceAll(name, "NAME", intentOf(claim).Name) + "$"))
		Expect(createRequests()).To(Equal(1))
		Expect(env.CloudProvider.List(ctx)).To(ConsistOf(HaveField("Status.ProviderID", claim.Status.ProviderID)))
		deleted(claim)
		Expect(env.Sandbox.State().Servers).To(BeEmpty())
		Expect(env.Sandbox.State().Volumes).To(BeEmpty())
	},
		Entry("to whose name the cloud appends a code", cloud.Options{AppendNameCode: true}, "NAME-[0-9A-Za-z]{8}"),
		Entry("to which the cloud gives another name", cloud.Options{ChangeNames: true}, "vm-[0-9a-f]{8}"),
	)
	It("should launch one server for each of many NodeClaims at once", func() {
		nodeClass()
		pool := unit.NodePool()
		claims := lo.Times(30, func(int) *karpv1.NodeClaim { return nodeClaim(pool) })
		type result struct {
			claim *karpv1.NodeClaim
			err   error
		}
		results := make(chan result, len(claims))
		for _, claim := range claims {
			go func() {
				created, err := env.CloudProvider.Create(ctx, claim.DeepCopy())
				results <- result{created, err}
			}()
		}
		var ids []string
		for range claims {
			r := <-results
			Expect(r.err).ToNot(HaveOccurred())
			ids = append(ids, r.claim.Status.ProviderID)
		}
		slices.Sort(ids)
		Expect(slices.Compact(ids)).To(HaveLen(len(claims)))
		Expect(servers()).To(HaveLen(len(claims)))
	})
})

// requested moves the time of the recorded intent of the NodeClaim.
func requested(claim *karpv1.NodeClaim, by time.Duration) {
	GinkgoHelper()
	intent := intentOf(claim)
	intent.RequestedAt = intent.RequestedAt.Add(by)
	old := claim.DeepCopy()
	old.Annotations = lo.Assign(old.Annotations, map[string]string{v1alpha1.AnnotationLaunchIntent: string(lo.Must(json.Marshal(intent)))})
	Expect(env.Client.Patch(ctx, old, client.MergeFrom(claim))).To(Succeed())
}

// failing is the cached client with some calls replaced.
func failing(funcs interceptor.Funcs) client.Client {
	GinkgoHelper()
	inner := lo.Must(client.NewWithWatch(env.Environment.Config, client.Options{Scheme: env.Client.Scheme()}))
	return interceptor.NewClient(inner, funcs)
}

// intercepted gives the cloud provider a client with some calls replaced.
func intercepted(funcs interceptor.Funcs) {
	GinkgoHelper()
	config := env.CloudProviderConfig
	config.KubeClient = failing(funcs)
	env.CloudProvider = cloudprovider.New(config)
}

// patched gives the cloud provider a client whose patches a function does, or does not do; it gets the number of each, from 1.
func patched(do func(number int, patch func() error) error) {
	GinkgoHelper()
	patches := 0
	intercepted(interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
	) error {
		patches++
		return do(patches, func() error { return c.Patch(ctx, o, p, options...) })
	}})
}

// secondPatchFails lets the cloud provider record an intent, and not its outcome.
func secondPatchFails() {
	GinkgoHelper()
	patched(func(number int, patch func() error) error {
		if number == 2 {
			return errors.New("etcd is away")
		}
		return patch()
	})
}
