// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

var _ = Describe("A guest", func() {
	var h *testCloud
	BeforeEach(func() { h = newTestCloud(guest.Options{}) })

	It("should join only after it has booted", func() {
		server := h.AddServer(h.spec("slow"))
		h.Advance(boot - time.Second)
		h.sync()
		Expect(nodeNames()).To(BeEmpty())
		Expect(h.truth(server.ID)).To(BeNil())
		h.Advance(time.Second)
		h.sync()
		Expect(nodeNames()).To(Equal([]string{"slow"}))
		Expect(h.truth(server.ID)).To(Equal(&cloud.Guest{Joined: true, Node: "slow"}))
	})

	It("should join as its server's name in lower case", func() {
		server := h.start(h.spec("general-TNnUw4Im"))
		h.sync()
		Expect(nodeNames()).To(Equal([]string{"general-tnnuw4im"}))
		Expect(node("general-tnnuw4im").Spec.ProviderID).To(Equal("bizflycloud://" + server.ID))
	})

	DescribeTable("should never join without what a real one needs",
		func(change func(*cloud.ServerSpec), reason string) {
			spec := h.spec("stray")
			change(&spec)
			server := h.start(spec)
			Expect(nodeNames()).To(BeEmpty())
			Expect(h.truth(server.ID).Joined).To(BeFalse())
			Expect(h.truth(server.ID).Reason).To(ContainSubstring(reason))
			Expect(h.truth(server.ID).Reason).ToNot(ContainSubstring(h.BKE().ClusterToken))
		},
		Entry("no user data", func(s *cloud.ServerSpec) { s.UserData = "" }, "not a script"),
		Entry("no shebang", func(s *cloud.ServerSpec) { s.UserData = strings.TrimPrefix(script, "#!/bin/bash\n") }, "not a script"),
		Entry("another script", func(s *cloud.ServerSpec) { s.UserData = "#!/bin/bash\necho hello\n" }, "does not run"),
		Entry("the script only in a comment", func(s *cloud.ServerSpec) { s.UserData = "#!/bin/bash\n# /opt/bizfly-kubernetes-engine/bootstrap.sh\n" },
			"does not run"),
		Entry("the script only as an argument", func(s *cloud.ServerSpec) { s.UserData = "#!/bin/bash\nls /opt/bizfly-kubernetes-engine/bootstrap.sh\n" },
			"does not run"),
		Entry("another service", func(s *cloud.ServerSpec) { s.Metadata["bizfly_cloud_service"] = "x" }, "bizfly_cloud_service"),
		Entry("another cluster", func(s *cloud.ServerSpec) { s.Metadata["bke_cluster_id"] = "x" }, "bke_cluster_id"),
		Entry("no token", func(s *cloud.ServerSpec) { delete(s.Metadata, "bke_cluster_token") }, "bke_cluster_token"),
		Entry("another endpoint", func(s *cloud.ServerSpec) { s.Metadata["bke_join_endpoint"] += "x" }, "bke_join_endpoint"),
		Entry("a label that a kubelet may not set", func(s *cloud.ServerSpec) {
			s.UserData = "#!/bin/bash\necho KUBELET_EXTRA_ARGS=--node-labels=node-role.kubernetes.io/worker= > /etc/default/kubelet\n" + script
		}, "unknown 'kubernetes.io' or 'k8s.io' labels"),
		Entry("a taint without effect", func(s *cloud.ServerSpec) {
			s.UserData = "#!/bin/bash\necho KUBELET_EXTRA_ARGS=--register-with-taints=a=b > /etc/default/kubelet\n" + script
		}, "invalid taint"),
		Entry("more memory than its kubelet is to keep", func(s *cloud.ServerSpec) {
			s.UserData = "#!/bin/bash\necho KUBELET_EXTRA_ARGS=--kube-reserved=memory=900Gi > /etc/default/kubelet\n" + script
		}, "invalid Node Allocatable configuration: memory"),
	)

	It("should never join from an image without the script", func() {
		c := newTestCloud(guest.Options{})
		server := c.AddServer(c.spec("plain"))
		c.EditServer(server.ID, func(s *cloud.Server) { s.Truth.WorkerImage = false })
		c.Advance(boot)
		c.sync()
		Expect(c.truth(server.ID).Reason).To(ContainSubstring("has no /opt/bizfly-kubernetes-engine/bootstrap.sh"))
	})

	DescribeTable("should take labels and taints from the kubelet's extra arguments",
		func(lines string) {
			spec := h.spec("tainted")
			spec.UserData = "#!/bin/bash\n" + lines + "\nexec /opt/bizfly-kubernetes-engine/bootstrap.sh\n"
			h.start(spec)
			tainted := node("tainted")
			Expect(tainted.Spec.Taints).To(ContainElements(
				corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
				corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule},
			))
			Expect(tainted.Labels).To(And(HaveKeyWithValue("karpenter.sh/nodepool", "default"), HaveKeyWithValue("node.kubernetes.io/x", "y")))
			Expect(tainted.Status.Capacity.Pods().Value()).To(Equal(int64(42)))
		},
		Entry("from printf into a file",
			`printf '%s\n' 'KUBELET_EXTRA_ARGS=--register-with-taints=karpenter.sh/unregistered=:NoExecute,team=ml:NoSchedule `+
				`--node-labels=karpenter.sh/nodepool=default,node.kubernetes.io/x=y --max-pods=42' > '/etc/default/kubelet'`),
		Entry("from a here-document",
			"cat > /etc/default/kubelet <<END\nKUBELET_EXTRA_ARGS=--register-with-taints=karpenter.sh/unregistered:NoExecute,team=ml:NoSchedule "+
				"--node-labels=karpenter.sh/nodepool=default,node.kubernetes.io/x=y --max-pods=42\nEND"),
		Entry("from a systemd drop-in",
			`echo 'Environment="KUBELET_EXTRA_ARGS=--register-with-taints=karpenter.sh/unregistered:NoExecute,team=ml:NoSchedule `+
				`--node-labels=karpenter.sh/nodepool=default,node.kubernetes.io/x=y --max-pods=42"' >> /etc/x`),
	)

	It("should see less memory than is advertised, and leave what the Kubernetes Engine reserves", func() {
		spec := h.spec("sized")
		spec.Flavor, spec.RootDiskGiB = "p2.2c_2g", 20
		h.start(spec)
		status := node("sized").Status
		Expect(status.Capacity.Cpu().Value()).To(Equal(int64(2)))
		Expect(status.Capacity.Memory().Value()).To(BeNumerically("~", 2048*0.96*(1<<20), 4096))
		Expect(status.Capacity.StorageEphemeral().Value()).To(BeNumerically("~", 19*0.98*(1<<30), 1))
		Expect(status.Capacity.Pods().Value()).To(Equal(int64(110)))
		Expect(status.Allocatable.Cpu().MilliValue()).To(Equal(int64(2000 - 50 - 20)))
		kept := status.Capacity.Memory().Value() - status.Allocatable.Memory().Value()
		Expect(kept).To(Equal(int64((391 + 100 + 100) << 20)))
		Expect(status.Allocatable.StorageEphemeral().Value()).To(BeNumerically("<", status.Capacity.StorageEphemeral().Value()))
		Expect(status.Capacity).ToNot(HaveKey(corev1.ResourceName("nvidia.com/gpu")))
	})

	It("should see as much memory as its image leaves", func() {
		c := newTestCloud(guest.Options{MemoryOverhead: 0.07, ImageMemoryOverhead: map[string]float64{"light": 0.02}})
		c.start(c.spec("heavy"))
		light := c.spec("light")
		light.ImageID = "light"
		c.start(light)
		Expect(node("heavy").Status.Capacity.Memory().Value()).To(BeNumerically("~", 4096*0.93*(1<<20), 4096))
		Expect(node("light").Status.Capacity.Memory().Value()).To(BeNumerically("~", 4096*0.98*(1<<20), 4096))
	})

	DescribeTable("should be reserved as much as the one public answer, and sensibly beyond",
		func(cpu int, memoryMiB, milliCPU, mib int) {
			gotCPU, gotMiB := guest.KubeReserved(cpu, int64(memoryMiB))
			Expect(gotCPU).To(Equal(int64(milliCPU)))
			Expect(gotMiB).To(Equal(int64(mib)))
		},
		Entry("the public answer: 2 vCPUs and 1977 MiB", 2, 1977, 50, 394),
		Entry("1 vCPU, 1 GiB", 1, 1024, 40, 156),
		Entry("4 vCPUs, 8 GiB", 4, 8192, 60, 1743),
		Entry("64 vCPUs, 256 GiB", 64, 262144, 210, 12065),
	)

	It("should have the GPUs of its flavor", func() {
		spec := h.spec("gpu")
		spec.Flavor = "p2.16c_64g_2xa30"
		h.start(spec)
		status := node("gpu").Status
		Expect(status.Capacity).To(HaveKey(corev1.ResourceName("nvidia.com/gpu")))
		gpus := status.Allocatable["nvidia.com/gpu"]
		Expect(gpus.Value()).To(Equal(int64(2)))
	})

	It("should fall silent with its server and come back with it", func() {
		server := h.start(h.spec("flaky"))
		before := node("flaky").Status.NodeInfo.BootID
		Expect(h.SetServerStatus(server.ID, "SHUTOFF")).To(Succeed())
		h.sync()
		Expect(node("flaky").Labels).ToNot(HaveKey(guest.LabelAlive))
		Expect(h.SetServerStatus(server.ID, "ACTIVE")).To(Succeed())
		h.sync()
		Expect(node("flaky").Labels).ToNot(HaveKey(guest.LabelAlive), "it boots")
		h.Advance(boot)
		h.sync()
		Expect(node("flaky").Labels).To(HaveKey(guest.LabelAlive))
		Expect(node("flaky").Status.NodeInfo.BootID).ToNot(Equal(before))
	})

	It("should not come back when only its Node is deleted", func() {
		h.start(h.spec("deleted"))
		Expect(client.CoreV1().Nodes().Delete(context.Background(), "deleted", metav1.DeleteOptions{})).To(Succeed())
		h.Advance(time.Hour)
		h.sync()
		Expect(nodeNames()).To(BeEmpty())
	})

	It("should not become ready where servers of pools have a firewall that it lacks", func() {
		h = newTestCloud(guest.Options{Ready: true}, func(o *cloud.Options) { o.Modes = []string{"pool-firewall"} })
		like, other := h.spec("like"), h.spec("other")
		for _, firewall := range h.Options().Catalog.Firewalls[cloud.RegionHN] {
			if firewall.Name == "kubernetes-nodes" {
				like.Firewalls = []string{firewall.ID}
			}
		}
		h.start(like)
		h.start(other)
		h.sync()
		ready := func(name string) corev1.ConditionStatus {
			var status corev1.ConditionStatus
			for _, condition := range node(name).Status.Conditions {
				if condition.Type == corev1.NodeReady {
					status = condition.Status
				}
			}
			return status
		}
		Expect(ready("like")).To(Equal(corev1.ConditionTrue))
		Expect(node("like").Labels).To(HaveKey(guest.LabelAlive))
		Expect(ready("other")).To(Equal(corev1.ConditionFalse))
		Expect(node("other").Labels).ToNot(HaveKey(guest.LabelAlive))
	})

	It("should have the conditions of a node-problem-detector, with reasons of broken nodes", func() {
		h = newTestCloud(guest.Options{Ready: true}, func(o *cloud.Options) { o.Modes = []string{"problem-detector"} })
		h.start(h.spec("healthy"))
		h.sync()
		Expect(node("healthy").Status.Conditions).To(And(HaveLen(8), ContainElement(And(HaveField("Type", corev1.NodeConditionType("ReadonlyFilesystem")),
			HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "FilesystemIsReadOnly")))))
	})
})

var _ = Describe("The cloud controller manager", func() {
	var h *testCloud
	BeforeEach(func() { h = newTestCloud(guest.Options{Region: "HaNoi"}) })

	It("should initialize a Node with identity, type, place and addresses", func() {
		spec := h.spec("new")
		spec.Zone, spec.Wan, spec.Flavor = "HN2", true, "nix.2c_4g"
		server := h.start(spec)
		n := node("new")
		Expect(n.Spec.ProviderID).To(Equal("bizflycloud://" + server.ID))
		for key, value := range map[string]string{
			corev1.LabelInstanceTypeStable: "nix.2c_4g", corev1.LabelInstanceType: "nix.2c_4g", corev1.LabelTopologyZone: "HN2",
			corev1.LabelFailureDomainBetaZone: "HN2", corev1.LabelTopologyRegion: "HaNoi", corev1.LabelFailureDomainBetaRegion: "HaNoi",
		} {
			Expect(n.Labels).To(HaveKeyWithValue(key, value))
		}
		Expect(taintKeys(n)).ToNot(ContainElement(uninitialized))
		Expect(n.Status.Addresses).To(ConsistOf(
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "new"},
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: server.IPAddresses.LAN[0].Addr},
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: server.IPAddresses.WANV4[0].Addr},
		))
	})

	It("should find the server of a Node by its name, in upper or lower case", func() {
		server := h.AddServer(cloud.ServerSpec{Name: "Mixed-Case"})
		_, err := client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "mixed-case"},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		h.sync()
		Expect(node("mixed-case").Spec.ProviderID).To(Equal("bizflycloud://" + server.ID))
	})

	It("should leave a Node alone that no server belongs to, or another cloud's", func() {
		for name, providerID := range map[string]string{"unknown": "", "foreign": "other://x"} {
			_, err := client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.NodeSpec{
					ProviderID: providerID, Taints: []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}},
				},
			}, metav1.CreateOptions{})
			Expect(err).ToNot(HaveOccurred())
		}
		h.sync()
		for _, name := range []string{"unknown", "foreign"} {
			Expect(taintKeys(node(name))).To(ContainElement(uninitialized))
		}
	})

	It("should delete the Node of a server that is gone once it has been silent for 30 to 35 s", func() {
		server := h.start(h.spec("gone"))
		Expect(h.RemoveServer(server.ID)).To(Succeed())
		h.sync()
		h.Advance(29 * time.Second)
		h.sync()
		Expect(nodeNames()).To(Equal([]string{"gone"}))
		h.Advance(6 * time.Second)
		h.sync()
		_, err := client.CoreV1().Nodes().Get(context.Background(), "gone", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})

	It("should count the silence from when the server stopped running", func() {
		server := h.start(h.spec("stopped"))
		Expect(h.SetServerStatus(server.ID, "SHUTOFF")).To(Succeed())
		h.sync()
		h.Advance(time.Minute)
		h.sync()
		Expect(nodeNames()).To(Equal([]string{"stopped"}), "the server exists")
		Expect(h.RemoveServer(server.ID)).To(Succeed())
		h.sync()
		Expect(nodeNames()).To(BeEmpty())
	})

	It("should delete the Node of a server that is gone at once where configured", func() {
		soon := newTestCloud(guest.Options{NodeSilence: -1})
		server := soon.start(soon.spec("gone"))
		Expect(soon.RemoveServer(server.ID)).To(Succeed())
		soon.sync()
		Expect(nodeNames()).To(BeEmpty())
	})

	It("should leave everything to another one where configured", func() {
		alone := newTestCloud(guest.Options{NoCCM: true})
		server := alone.start(alone.spec("alone"))
		n := node("alone")
		Expect(n.Spec.ProviderID).To(BeEmpty())
		Expect(taintKeys(n)).To(ContainElement(uninitialized))
		Expect(n.Status.Addresses).To(ConsistOf(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "alone"}))
		Expect(alone.RemoveServer(server.ID)).To(Succeed())
		alone.Advance(time.Hour)
		alone.sync()
		Expect(nodeNames()).To(Equal([]string{"alone"}))
	})

	It("should taint the Node of a server that is off until it is on", func() {
		const shutdown = "node.cloudprovider.kubernetes.io/shutdown"
		server := h.start(h.spec("off"))
		Expect(h.SetServerStatus(server.ID, "SHUTOFF")).To(Succeed())
		h.sync()
		Expect(taintKeys(node("off"))).To(ContainElement(shutdown))
		Expect(h.SetServerStatus(server.ID, "ACTIVE")).To(Succeed())
		h.sync()
		Expect(taintKeys(node("off"))).ToNot(ContainElement(shutdown))
	})
})
