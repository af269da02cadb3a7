// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/plan"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
)

// overlay is a NodeOverlay of all instance types.
const overlay = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dearer}
spec:
  requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
  priceAdjustment: "+50%"
`

// requests are those of a pod.
func requests(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// unschedulable is the status of a pod for which the kube-scheduler has found no node.
var unschedulable = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
	Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
}}}

// runningNode is a node of Karpenter with a pod that runs.
func (f *fixture) runningNode() {
	GinkgoHelper()
	labels := map[string]string{
		karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "p2.8c_16g", corev1.LabelTopologyZone: "HN1", corev1.LabelHostname: "node-1",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
	}
	size := requests("8", "16Gi")
	size[corev1.ResourcePods] = resource.MustParse("110")
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim-1", Labels: labels, Finalizers: []string{karpv1.TerminationFinalizer}},
		Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.bizflycloud.vn", Kind: "BizflyNodeClass", Name: "default"}},
		Status:     karpv1.NodeClaimStatus{ProviderID: providerid.New("server-1"), NodeName: "node-1", Capacity: size, Allocatable: size},
	}
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions().SetTrue(condition)
	}
	f.put(claim, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "runs", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1",
			Kind: "ReplicaSet", Name: "runs", UID: "runs"}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: requests("500m", "512Mi")},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
}

// leaves are all commands that do something, by their words.
func leaves(command *cobra.Command, path ...string) []string {
	var found []string
	for _, sub := range command.Commands() {
		if sub.Runnable() {
			found = append(found, strings.Join(append(path, sub.Name()), " "))
		}
		found = append(found, leaves(sub, append(path, sub.Name())...)...)
	}
	return found
}

var _ = Describe("feature gates", func() {
	names := lo.Map(coreoptions.KarpenterFeatureGates, func(gate coreoptions.FeatureGate, _ int) string { return gate.Name })
	each := lo.Map(names, func(name string, _ int) TableEntry { return Entry(name, name+"=true") })
	all := Entry("all together", strings.Join(lo.Map(names, func(name string, _ int) string { return name + "=true" }), ","))
	none := Entry("none", strings.Join(lo.Map(names, func(name string, _ int) string { return name + "=false" }), ","))

	DescribeTable("should let every command answer", func(gates string) {
		f.install()
		f.apply(pools)
		f.runningNode()
		f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "waits"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: requests("12", "8Gi")},
		}}}, Status: unschedulable})
		if strings.Contains(gates, "NodeOverlay=true") {
			f.apply(overlay)
		}
		setEnv("FEATURE_GATES", gates)
		file := written("web.yaml", web)
		commands := map[string][][]string{
			"flavors":        {{}, {"--nodepool", "default"}, {"--pod", "waits", "-n", "shop"}},
			"plan":           {{}, {"--pending"}, {"-f", file}, {"-f", file, "--pending"}, {"-f", file, "--offline"}},
			"plan compare":   {{written("pools.yaml", pools)}},
			"plan explain":   {{"-f", file}},
			"plan suggest":   {{"-f", file}},
			"repack":         {{}, {"default", "--yes"}},
			"why":            {{"runs", "-n", "shop"}, {"waits", "-n", "shop"}, {"nodepool/default"}, {"nodeclaim/claim-1"}, {"node/node-1"}},
			"doctor":         {{}, {"--preflight"}},
			"top":            {{}, {"--idle"}},
			"diff":           {{"-f", written("pools.yaml", pools)}},
			"leftovers":      {{}, {"--delete", "--yes"}},
			"pool list":      {{}},
			"pool pin":       {{"--all", "--yes"}},
			"support-bundle": {{"--file", filepath.Join(GinkgoT().TempDir(), "bundle.tar.gz")}},
			"version":        {{}},
		}
		Expect(leaves((&cli.App{}).Command())).To(ConsistOf(lo.Keys(commands)), "a new command belongs to the table")
		for name, variants := range commands {
			for _, variant := range variants {
				args := append(strings.Fields(name), variant...)
				f.run(args...)
				Expect(f.err).ToNot(Or(ContainSubstring("is a defect"), ContainSubstring("not applied")), fmt.Sprint(args))
				Expect(f.out+f.err).ToNot(BeEmpty(), fmt.Sprint(args))
				if strings.HasPrefix(name, "plan") {
					Expect(f.out).To(MatchRegexp(`[1-9]\d* new nodes?(, \d+ on nodes that exist)?: [1-9]|(?m)^as it is +[1-9]`), "%v: %s", args, f.err)
				}
			}
		}
	}, append(each, all, none))

	It("should plan with the prices of NodeOverlays, and say where the gate is off", func() {
		file, all := written("pools.yaml", pools+"---\n"+web), written("overlay.yaml", pools+"---\n"+web+"---\n"+overlay)
		f.reader = nil
		before := answer[plan.Plan](f, "plan", "-f", file)
		off := answer[plan.Plan](f, "plan", "-f", all)
		Expect(off.VNDPerHour).To(Equal(before.VNDPerHour))
		Expect(off.Notes).To(ContainElement("NodeOverlay dearer is not applied: the feature gate NodeOverlay is off"))
		setEnv("FEATURE_GATES", "NodeOverlay=true")
		on := answer[plan.Plan](f, "plan", "-f", all)
		Expect(on.Unplaced).To(BeEmpty())
		Expect(on.VNDPerHour).To(BeNumerically("~", 1.5*before.VNDPerHour, 0.01))
		Expect(on.Notes).To(BeEmpty())
		wrong := answer[plan.Plan](f, "plan", "-f", written("wrong.yaml", pools+"---\n"+web+"---\n"+overlay+"---\n"+
			strings.NewReplacer("dearer", "cheaper", "+50%", "-50%").Replace(overlay)))
		Expect(wrong.Notes).To(ContainElement(MatchRegexp("NodeOverlay (dearer|cheaper) is not applied: .*conflict")))
	})

	It("should let why answer where there is a NodeOverlay", func() {
		f.install()
		f.apply(pools + "---\n" + overlay)
		f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "waits"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
			Status: unschedulable})
		setEnv("FEATURE_GATES", "NodeOverlay=true")
		Expect(f.run("why", "waits", "-n", "shop")).To(Equal(cli.ExitOK), f.err)
		Expect(f.out).To(ContainSubstring("Karpenter can launch a"))
		Expect(f.out + f.err).ToNot(ContainSubstring("awaiting"))
	})

	It("should end a panic as one line that says what to report", func() {
		for _, cause := range []any{"nothing is there", errors.New("nothing is there")} {
			var out, errOut bytes.Buffer
			app := cli.For(nil, nil, &out, &errOut)
			app.Connect = func(context.Context, connect.Options) (*connect.Session, error) { panic(cause) }
			Expect(app.Run(context.Background(), "plan", "-f", "secret.yaml")).To(Equal(cli.ExitFailure))
			Expect(strings.Count(errOut.String(), "\n")).To(Equal(1), errOut.String())
			Expect(errOut.String()).To(And(HavePrefix("error: this is a defect of the plugin"), ContainSubstring("nothing is there"),
				ContainSubstring("gates_test.go:"), ContainSubstring("/issues"), ContainSubstring("kubectl bizfly version"), Not(ContainSubstring("goroutine"))))
		}
	})
})
