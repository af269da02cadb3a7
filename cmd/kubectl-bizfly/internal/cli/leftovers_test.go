// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/leftovers"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("leftovers", func() {
	server := func(name, claim string) cloud.Server {
		return f.AddServer(cloud.ServerSpec{Name: name, Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID, v1alpha1.MetadataNodeClaimUID: claim}})
	}
	proven := func(claim string) string { return instance.Name(claim, claim, clusterUID, 1) }
	left := func(status int, args ...string) {
		GinkgoHelper()
		Expect(f.run(append([]string{"leftovers"}, args...)...)).To(Equal(status), f.err)
	}

	It("should find nothing where nothing is left", func() {
		f.AddServer(cloud.ServerSpec{Name: "of-somebody-else"})
		left(cli.ExitOK)
		Expect(f.out).To(ContainSubstring("nothing is left"))
	})

	It("should exit with 1 until a look finds nothing, also where it requests the deletion", func() {
		server(proven("lost"), "lost")
		f.AddVolume(cloud.VolumeSpec{Name: proven("a") + "_rootdisk"})
		left(cli.ExitFindings, "--delete", "--yes")
		Expect(f.out).To(And(ContainSubstring("its deletion is requested"), Not(ContainSubstring("kept"))))
		Eventually(func() int { return f.run("leftovers", "--delete", "--yes") }).Should(Equal(cli.ExitOK))
		Expect(f.out).To(ContainSubstring("nothing is left"))
	})

	It("should delete only with --yes, and only what is provably of this cluster and of no node", func() {
		lost, node, copied := server(proven("lost"), "lost"), server(proven("node"), "node"), server("copy-of-it", "lost")
		held := server(proven("held"), "held")
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: providerid.New(node.ID)}},
			&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "restored"}, Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(held.ID)}},
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{

					CSI: &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.CSIBlockDriver,
						VolumeHandle: f.AddVolume(cloud.VolumeSpec{Name: proven("b") + "_rootdisk"}).ID}}}})
		root, foreign := f.AddVolume(cloud.VolumeSpec{Name: proven("a") + "_rootdisk"}), f.AddVolume(cloud.VolumeSpec{Name: "other_rootdisk"})
		items := lo.KeyBy(answer[leftovers.Found](f, "leftovers").Items, func(i leftovers.Item) string { return i.ID })
		Expect(items[lost.ID].Kept).To(BeEmpty())
		Expect(items[root.ID].Kept).To(BeEmpty())
		Expect(items[node.ID].Kept).To(HavePrefix("node n is still in the cluster"))
		Expect(items[copied.ID].Kept).To(HavePrefix("its name does not prove"))
		Expect(items).To(ContainElement(HaveField("Kept", "PersistentVolume kept names it")))
		Expect(items).ToNot(Or(HaveKey(held.ID), HaveKey(foreign.ID)))

		left(cli.ExitFindings, "--delete")
		Expect(f.out).To(ContainSubstring("Nothing was changed. To do it, run: kubectl bizfly leftovers --delete --yes"))
		Expect(f.Servers()).To(HaveLen(4))
		left(cli.ExitFindings, "--delete", "--yes")
		after := answer[leftovers.Found](f, "leftovers")
		Expect(lo.Map(after.Items, func(i leftovers.Item, _ int) string { return i.ID })).To(And(ContainElements(node.ID, copied.ID),
			Not(ContainElement(lost.ID)), Not(ContainElement(root.ID))))
		Expect(lo.Map(f.State().Volumes, func(v cloud.Volume, _ int) string { return v.Name })).To(ContainElements(proven("b")+"_rootdisk", "other_rootdisk"))
	})

	It("should not say that nothing is left where the servers are in another project", func() {
		f.pin(strings.TrimPrefix(f.URL, "http://"))
		left(cli.ExitFailure)
		Expect(f.err).To(ContainSubstring("this cluster's servers are in project another"))
	})

	It("should delete nothing in what may be a clone of the cluster", func() {
		server(proven("lost"), "lost")
		config := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}}
		config.RecordAPIServers([]string{"10.0.0.1"})
		f.put(config, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}}})
		left(cli.ExitFindings, "--delete", "--yes")
		Expect(f.out).To(ContainSubstring("kept: none of the recorded API servers is left, so this cluster may be a clone"))
		Expect(f.Servers()).To(HaveLen(1))
		config.RecordAPIServers([]string{"10.0.0.1", "10.0.0.2"})
		f.put(config)
		left(cli.ExitFindings, "--delete", "--yes")
		Expect(f.out).To(ContainSubstring("its deletion is requested"))
	})

	It("should delete nothing while PersistentVolumes cannot be read", func() {
		server(proven("lost"), "lost")
		f.failLists(&corev1.PersistentVolumeList{}, forbidden)
		left(cli.ExitFindings, "--delete", "--yes")
		Expect(f.out).To(ContainSubstring("kept: which disks PersistentVolumes own is not known: you may not list persistentvolumes"))
		Expect(f.Servers()).To(HaveLen(1))
	})
})
