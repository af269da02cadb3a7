// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/cloudprovider"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const unknownServer = "bizflycloud://71b9caeb-0000-4000-8000-000000000000"

var foreignIDs = []any{
	Entry("none", ""),
	Entry("another cloud's", "aws:///ap-southeast-1a/i-0123456789"),
	Entry("one with three slashes", "bizflycloud:///71b9caeb"),
	Entry("one that is a path", "bizflycloud://../volumes/1"),
}

var _ = Describe("Get", func() {
	It("should describe a server", func() {
		nodeClass()
		created := launched(nodeClaim(nil))
		got := lo.Must(env.CloudProvider.Get(ctx, created.Status.ProviderID))
		Expect(got.Status.ProviderID).To(Equal(created.Status.ProviderID))
		Expect(got.Status.ImageID).To(Equal(created.Status.ImageID))
		Expect(got.Name).To(Equal(created.Name))
		Expect(got.CreationTimestamp.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(got.Labels).To(HaveKey(corev1.LabelInstanceTypeStable))
		for key, value := range got.Labels {
			Expect(created.Labels).To(HaveKeyWithValue(key, value))
		}
	})
	It("should not find a server that does not exist", func() {
		_, err := env.CloudProvider.Get(ctx, unknownServer)
		Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeTrue())
	})
	It("should not report a server as missing when BizFly Cloud does not answer", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers/*", Effect: cloud.EffectStatus, Status: http.StatusServiceUnavailable})
		_, err := env.CloudProvider.Get(ctx, unknownServer)
		Expect(err).To(HaveOccurred())
		Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeFalse())
	})
	DescribeTable("should not find a foreign provider id:", append([]any{func(id string) {
		_, err := env.CloudProvider.Get(ctx, id)
		Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeTrue())
	}}, foreignIDs...)...)
})

var _ = Describe("List", func() {
	It("should list the servers of this cluster only, whatever else is in the project", func() {
		nodeClass()
		created := launched(nodeClaim(nil))
		other := launched(nodeClaim(nil))
		Expect(env.Sandbox.EditServer(serverOf(other).ID, func(s *cloud.Server) { s.Metadata[v1alpha1.MetadataClusterUID] = "another" })).To(BeTrue())
		Expect(env.CloudProvider.List(ctx)).To(ConsistOf(HaveField("Status.ProviderID", created.Status.ProviderID)))
	})
	It("should report which servers are being deleted", func() {
		nodeClass()
		created := launched(nodeClaim(nil))
		Expect(env.Sandbox.SetServerStatus(serverOf(created).ID, "DELETED")).To(Succeed())
		Expect(env.CloudProvider.List(ctx)).To(ConsistOf(And(HaveField("Status.ProviderID", created.Status.ProviderID),
			HaveField("DeletionTimestamp", Not(BeNil())))))
	})
	It("should contain a registered node's server that the cloud's list lacks and that exists", func() {
		nodeClass()
		claim := lo.Must(env.Launched(ctx))
		env.Clock.Step(time.Minute)
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"})
		Expect(env.CloudProvider.List(ctx)).To(BeEmpty(), "core waits for a NodeClaim that has not registered")
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		Expect(env.CloudProvider.List(ctx)).To(ConsistOf(HaveField("Status.ProviderID", claim.Status.ProviderID)))

		env.Sandbox.ClearFaults()
		Expect(env.Sandbox.EditServer(serverOf(claim).ID, func(s *cloud.Server) { s.Metadata[v1alpha1.MetadataClusterUID] = "another" })).To(BeTrue())
		env.Clock.Step(time.Minute)
		Expect(env.CloudProvider.List(ctx)).To(BeEmpty(), "it is not this cluster's any more")
	})
	It("should contain a server that cannot be read, which keeps no other one from being found gone", func() {
		nodeClass()
		unreadable, gone := lo.Must(env.Launched(ctx)), lo.Must(env.Launched(ctx))
		for _, claim := range []*karpv1.NodeClaim{unreadable, gone} {
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		}
		Expect(env.Sandbox.RemoveServer(serverOf(gone).ID)).To(Succeed())
		env.Clock.Step(time.Minute)
		env.Sandbox.AddFaults(1,
			cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectBody, Body: "[]"},
			cloud.Fault{Method: http.MethodGet, Path: "/servers/" + serverOf(unreadable).ID, Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		Expect(env.CloudProvider.List(ctx)).To(ConsistOf(HaveField("Status.ProviderID", unreadable.Status.ProviderID)))
	})
	DescribeTable("should contain a server that another project has, while its kubelet reports", func(
		status corev1.ConditionStatus, reported int) {
		nodeClass()
		claim := lo.Must(env.Launched(ctx))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "moved-"}}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
		claim.Status.NodeName = node.Name
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		Expect(env.Client.Status().Update(ctx, claim)).To(Succeed())
		moved := cloud.ServerEdit{Project: lo.ToPtr("another")}
		Expect(env.Sandbox.ApplyServerEdit(serverOf(claim).ID, moved)).To(Succeed())
		for range 2 {
			// One that was deleted a moment ago looks the same.
			Expect(env.Recorder.Calls(events.ReasonServerElsewhere)).To(BeZero())
			env.Clock.Step(time.Minute)
			Expect(env.CloudProvider.List(ctx)).To(HaveLen(lo.Ternary(status == corev1.ConditionUnknown, 0, 1)))
		}
		Expect(env.Recorder.Calls(events.ReasonServerElsewhere)).To(Equal(reported))
	},
		Entry("ready", corev1.ConditionTrue, 1),
		Entry("not ready", corev1.ConditionFalse, 1),
		Entry("silent", corev1.ConditionUnknown, 0),
	)
	It("should be an error rather than short", func() {
		env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectTruncated})
		_, err := env.CloudProvider.List(ctx)
		Expect(err).To(HaveOccurred())
	})
})

var _ = Describe("Delete", func() {
	It("should delete server and disks, and need no NodeClass for it", func() {
		class := nodeClass()
		created := launched(nodeClaim(nil))
		Expect(env.Client.Delete(ctx, class)).To(Succeed())
		env.Restart(ctx)
		deleted(created)
		Expect(servers()).To(BeEmpty())
		Expect(env.Sandbox.State().Volumes).To(BeEmpty())
		Eventually(func() []string { return env.Sandbox.State().LeftNodes }).Should(ContainElement(intentOf(created).Name))
	})
	It("should not report the server as gone while BizFly Cloud is deleting it", func() {
		env.Reset(ctx, cloud.Options{Latency: 500 * time.Millisecond})
		nodeClass()
		created := launched(nodeClaim(nil))
		Eventually(func() string { return serverOf(created).Status }).Should(Equal("ACTIVE"))
		Expect(env.CloudProvider.Delete(ctx, created)).To(Succeed())
		deleted(created)
		Expect(servers()).To(BeEmpty())
	})
	It("should not touch a server of another cluster", func() {
		nodeClass()
		created := launched(nodeClaim(nil))
		Expect(env.Sandbox.EditServer(serverOf(created).ID, func(s *cloud.Server) { s.Metadata[v1alpha1.MetadataClusterUID] = "another" })).To(BeTrue())
		Expect(corecloudprovider.IsNodeClaimNotFoundError(env.CloudProvider.Delete(ctx, created))).To(BeTrue())
		Expect(servers()).To(HaveLen(1))
	})
	It("should not touch a server whose metadata was wiped, and report it on the NodeClaim", func() {
		nodeClass()
		created := launched(nodeClaim(nil))
		id := serverOf(created).ID
		Expect(env.Sandbox.EditServer(id, func(s *cloud.Server) { s.Metadata = nil })).To(BeTrue())
		Expect(corecloudprovider.IsNodeClaimNotFoundError(env.CloudProvider.Delete(ctx, created))).To(BeTrue())
		Expect(servers()).To(HaveLen(1))
		Expect(env.Recorder.Events()).To(ContainElement(And(
			HaveField("Reason", events.ReasonServerLeft), HaveField("Message", ContainSubstring(id)),
			HaveField("InvolvedObject", HaveField("Name", created.Name)))))
	})
	DescribeTable("should not find a foreign provider id:", append([]any{func(id string) {
		claim := &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: id}}
		Expect(corecloudprovider.IsNodeClaimNotFoundError(env.CloudProvider.Delete(ctx, claim))).To(BeTrue())
	}}, foreignIDs...)...)
})

var _ = Describe("GetInstanceTypes", func() {
	It("should return the same shared slice until something changes, without a request", func() {
		nodeClass()
		pool := unit.NodePool()
		first := instanceTypes(pool)
		env.Sandbox.ResetRequests()
		second := instanceTypes(pool)
		Expect(&second[0]).To(BeIdenticalTo(&first[0]))
		Expect(env.Sandbox.Requests()).To(BeEmpty())
	})
	It("should go on while the NodeClass is not ready, since running nodes need their prices", func() {
		class := nodeClass()
		pool := unit.NodePool()
		before := instanceTypes(pool)
		Expect(env.SetCondition(ctx, class, func(s status.ConditionSet) {
			s.SetFalse(v1alpha1.ConditionTypeFirewallsReady, "FirewallNotFound", "no such firewall")
		})).To(Succeed())
		Expect(instanceTypes(pool)).To(HaveLen(len(before)))
	})
	It("should report that a NodeClass was never resolved", func() {
		class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: unit.NodeClassName}}
		Expect(env.Client.Create(ctx, class)).To(Succeed())
		_, err := env.CloudProvider.GetInstanceTypes(ctx, unit.NodePool())
		Expect(corecloudprovider.IsNodeClassNotReadyError(err)).To(BeTrue())
	})
	DescribeTable("should be an error, and no panic, for", func(change func(*karpv1.NodePool)) {
		nodeClass()
		pool := unit.NodePool()
		change(pool)
		_, err := env.CloudProvider.GetInstanceTypes(ctx, pool)
		Expect(err).To(HaveOccurred())
	},
		Entry("no reference", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef = nil }),
		Entry("a foreign kind", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: unit.NodeClassName}
		}),
		Entry("a NodeClass that does not exist", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "missing"}
		}),
	)
	It("should define every well-known label, so that none matches by accident", func() {
		nodeClass()
		for _, it := range instanceTypes(unit.NodePool()) {
			for label := range karpv1.WellKnownLabels.Difference(karpv1.WellKnownLabelsForOfferings) {
				if label != karpv1.NodePoolLabelKey {
					Expect(it.Requirements).To(HaveKey(label), it.Name)
				}
			}
		}
	})
})

var _ = Describe("IsDrifted", func() {
	drift := func(claim *karpv1.NodeClaim) corecloudprovider.DriftReason {
		GinkgoHelper()
		env.Sandbox.ResetRequests()
		reason := lo.Must(env.CloudProvider.IsDrifted(ctx, claim))
		Expect(env.Sandbox.Requests()).To(BeEmpty(), "drift reads caches only")
		Expect(string(reason)).To(MatchRegexp(`^([A-Za-z]*)$`))
		return reason
	}
	var class *v1alpha1.BizflyNodeClass
	var claim *karpv1.NodeClaim
	BeforeEach(func() {
		class = nodeClass()
		claim = launched(nodeClaim(nil))
		Expect(env.CloudProvider.List(ctx)).ToNot(BeEmpty())
	})
	It("should not see drift where nothing has changed", func() {
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should see a changed field that a running server cannot take over", func() {
		class.Spec.PublicIPv4 = lo.ToPtr(false)
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(env.Resolve(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(Equal(cloudprovider.NodeClassDrift))
	})
	It("should not compare hashes of different versions", func() {
		class.Annotations[v1alpha1.AnnotationNodeClassHash] = "0"
		class.Annotations[v1alpha1.AnnotationNodeClassHashVersion] = "v0"
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should not compare with a NodeClass that was not stamped yet", func() {
		class.Annotations = nil
		Expect(env.Client.Update(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should see that new servers boot another image", func() {
		class.Status.Images[0].ID = "another"
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(Equal(cloudprovider.ImageDrift))
	})
	It("should not see another image while the image cannot be resolved", func() {
		class.Status.Images[0].ID = "another"
		class.StatusConditions().SetUnknownWithReason(v1alpha1.ConditionTypeImagesReady, "LookupFailed", "the cloud does not answer")
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should not see another image when none is known", func() {
		class.Status.Images = nil
		Expect(env.Client.Status().Update(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should see a server that was resized", func() {
		claim.Labels[corev1.LabelInstanceTypeStable] = "nix.8c_16g"
		Expect(drift(claim)).To(Equal(cloudprovider.FlavorDrift))
	})
	It("should see nothing without a list", func() {
		claim.Labels[corev1.LabelInstanceTypeStable] = "nix.8c_16g"
		env.Instances.Flush()
		Expect(drift(claim)).To(BeEmpty())
	})
	It("should not see drift when the NodeClass is gone", func() {
		Expect(env.Client.Delete(ctx, class)).To(Succeed())
		Expect(drift(claim)).To(BeEmpty())
	})
})

var _ = Describe("The rest of the interface", func() {
	It("should return fresh NodeClasses that core can read into", func() {
		first, second := env.CloudProvider.GetSupportedNodeClasses(), env.CloudProvider.GetSupportedNodeClasses()
		Expect(first).To(HaveLen(1))
		Expect(first[0]).ToNot(BeIdenticalTo(second[0]))
	})
	It("should name itself", func() {
		Expect(env.CloudProvider.Name()).To(Equal("bizflycloud"))
	})
	It("should have repair policies that core accepts", func() {
		core := coreoptions.ToContext(ctx, coretest.Options(coretest.OptionsFields{FeatureGates: coretest.FeatureGates{NodeRepair: lo.ToPtr(true)}}))
		Expect(health.NewRepairPolicyMatcher(core, env.CloudProvider)).ToNot(BeNil())
	})
	DescribeTable("should return to core how a reboot failed",
		func(status int, expected func(error) bool) {
			nodeClass()
			claim := lo.Must(env.Launched(ctx))
			env.Sandbox.AddFaults(1, cloud.Fault{Method: http.MethodPost, Path: "/servers/*/action", Effect: cloud.EffectStatus, Status: status, Message: "no"})
			err := env.CloudProvider.Reboot(ctx, claim, "operation")
			Expect(err).To(HaveOccurred())
			Expect(expected(err)).To(BeTrue(), "%v", err)
		},
		Entry("403 is final", http.StatusForbidden, corecloudprovider.IsNodeRebootFailedError),
		Entry("400 is final", http.StatusBadRequest, corecloudprovider.IsNodeRebootFailedError),
		Entry("404 is a node that is gone", http.StatusNotFound, corecloudprovider.IsNodeClaimNotFoundError),
		Entry("409 is worth a retry", http.StatusConflict, plain),
		Entry("429 is worth a retry", http.StatusTooManyRequests, plain),
		Entry("500 is worth a retry", http.StatusInternalServerError, plain),
	)
	It("should not reboot what a foreign provider ID names", func() {
		err := env.CloudProvider.Reboot(ctx, &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: "aws:///i-1"}}, "operation")
		Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeTrue())
	})
	DescribeTable("should have core repair a node", func(condition corev1.NodeConditionType, unhealthy corev1.ConditionStatus,
		action corecloudprovider.RepairAction) {
		Expect(env.CloudProvider.RepairPolicies()).To(ContainElement(And(
			HaveField("ConditionType", condition), HaveField("ConditionStatus", unhealthy), HaveField("Action", action),
		)))
	},
		Entry("whose kubelet is silent", corev1.NodeReady, corev1.ConditionUnknown, corecloudprovider.RebootNode),
		Entry("whose kubelet is not ready", corev1.NodeReady, corev1.ConditionFalse, corecloudprovider.ReplaceNode),
		Entry("whose kernel hangs", corev1.NodeConditionType("KernelDeadlock"), corev1.ConditionTrue, corecloudprovider.RebootNode),
		Entry("whose container runtime hangs", corev1.NodeConditionType("ContainerRuntimeUnhealthy"), corev1.ConditionTrue,
			corecloudprovider.RebootNode),
		Entry("whose systemd does not answer", corev1.NodeConditionType("SystemdOffline"), corev1.ConditionTrue, corecloudprovider.RebootNode),
		Entry("whose file system is read-only", corev1.NodeConditionType("ReadonlyFilesystem"), corev1.ConditionTrue, corecloudprovider.ReplaceNode),
	)
})

// plain reports whether core repeats the reboot.
func plain(err error) bool {
	return !corecloudprovider.IsNodeRebootFailedError(err) && !corecloudprovider.IsNodeClaimNotFoundError(err) &&
		!corecloudprovider.IsNodeRebootNotImplementedError(err)
}

// lostMetadata is a cloud whose list lacks every server of the cluster, and which answers by their ids.
type lostMetadata struct {
	cloudprovider.Instances
	reading, most, reads atomic.Int32
	gone                 bool

	mu    sync.Mutex
	round chan struct{}
}

func (*lostMetadata) Snapshot(context.Context, time.Duration) (*instance.Snapshot, error) {
	return instance.NewSnapshot(nil), nil
}

func (l *lostMetadata) Get(_ context.Context, id string) (*instance.Instance, error) {
	now := l.reading.Add(1)
	defer l.reading.Add(-1)
	for most := l.most.Load(); now > most && !l.most.CompareAndSwap(most, now); most = l.most.Load() {
	}
	l.awaitNineOthers()
	if l.gone {
		return nil, instance.ErrNotFound
	}
	return &instance.Instance{ID: id}, nil
}

// awaitNineOthers returns when ten read at once.
func (l *lostMetadata) awaitNineOthers() {
	l.mu.Lock()
	if l.round == nil {
		l.round = make(chan struct{})
	}
	round := l.round
	if l.reads.Add(1)%10 == 0 {
		close(round)
		l.round = nil
	}
	l.mu.Unlock()
	<-round
}

// manyClaims is a cache with registered NodeClaims.
type manyClaims struct {
	client.Client
	claims []karpv1.NodeClaim
}

func (m manyClaims) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*karpv1.NodeClaimList).Items = m.claims
	return nil
}

var _ = Describe("A list that lacks servers", func() {
	list := func(claims int, servers *lostMetadata) ([]*karpv1.NodeClaim, error) {
		config := env.CloudProviderConfig
		servers.Instances = config.Instances
		config.Instances = servers
		config.KubeClient = manyClaims{env.Client, lo.Times(claims, func(i int) karpv1.NodeClaim {
			claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", i)},
				Spec:   karpv1.NodeClaimSpec{NodeClassRef: unit.NodeClassRef()},
				Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(fmt.Sprintf("71b9caeb-0000-4000-8000-%012d", i))}}
			claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			return claim
		})}
		return cloudprovider.New(config).List(ctx)
	}
	It("should be completed by reading servers side by side", func() {
		servers := &lostMetadata{}
		Expect(list(100, servers)).To(HaveLen(100))
		Expect(servers.reads.Load()).To(BeEquivalentTo(100))
		Expect(servers.most.Load()).To(BeNumerically("<=", 10))
	})
	It("should be an error after a bounded number of reads where it lacks a thousand", func() {
		servers := &lostMetadata{}
		_, err := list(1000, servers)
		Expect(err).To(MatchError(ContainSubstring("lacks those of 1000 NodeClaims, of which 900 were not read yet")))
		Expect(servers.reads.Load()).To(BeEquivalentTo(100))
	})
	It("should not have servers that are gone", func() {
		Expect(list(20, &lostMetadata{gone: true})).To(BeEmpty())
	})
})

var _ = Describe("A cluster that may be a clone", func() {
	var recognized error
	asked := 0
	BeforeEach(func() {
		nodeClass()
		recognized, asked = nil, 0
		configuration := env.CloudProviderConfig
		configuration.Recognized = func(context.Context) error { asked++; return recognized }
		env.CloudProvider = cloudprovider.New(configuration)
	})
	later := func(err error) {
		recognized = err
		env.Clock.Step(time.Minute)
	}
	It("should launch, delete and reboot nothing until it is confirmed, and report it once", func() {
		claim := launched(nodeClaim(nil))
		later(&config.ControlPlaneChangedError{Recorded: []string{"10.0.0.1:6443"}, Found: []string{"10.9.0.1:6443"}})
		another := nodeClaim(nil)
		before := len(env.Sandbox.Requests())
		for range 3 {
			err := failedCreate(another)
			Expect(err).To(MatchError(ContainSubstring("until the control plane is confirmed")))
			Expect(corecloudprovider.IsInsufficientCapacityError(err)).To(BeFalse(), "core calls again")
			err = env.CloudProvider.Delete(ctx, claim)
			Expect(err).To(MatchError(ContainSubstring("may be a clone")))
			Expect(corecloudprovider.IsNodeClaimNotFoundError(err)).To(BeFalse(), "the server exists")
			err = env.CloudProvider.Reboot(ctx, claim, "operation")
			Expect(err).To(MatchError(ContainSubstring("may be a clone")))
			Expect(corecloudprovider.IsNodeRebootFailedError(err)).To(BeFalse(), "core would replace the node")
		}
		Expect(env.Sandbox.Requests()).To(HaveLen(before), "BizFly Cloud is not asked for anything")
		Expect(env.Recorder.Calls(events.ReasonControlPlaneUnconfirmed)).To(BeNumerically(">=", 1))

		later(nil)
		launched(another)
		deleted(claim)
	})
	DescribeTable("should go on where nothing is known, since only a changed control plane shows a clone", func(err error) {
		later(err)
		deleted(launched(nodeClaim(nil)))
	},
		Entry("because the addresses cannot be read", config.ErrNoAPIServers),
		Entry("because an API server has just joined", config.ErrAPIServersChanging),
		Entry("because the ProviderConfig cannot be read", errors.New("etcd is away")),
	)
	It("should read the control plane once for all calls of a few seconds", func() {
		for range 5 {
			launched(nodeClaim(nil))
		}
		Expect(asked).To(Equal(1))
	})
})
