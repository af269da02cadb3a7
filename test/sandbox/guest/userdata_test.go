// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/guest"
)

const (
	token    = "abc123.0123456789abcdef"
	serverID = `SERVER_ID=$({ curl -sf --retry 5 http://169.254.169.254/openstack/latest/meta_data.json | ` +
		`sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' | grep . || tr 'A-F' 'a-f' < /sys/class/dmi/id/product_uuid; })`
	ownScript  = "/opt/bizfly-kubernetes-engine/bootstrap.sh\n"
	unregister = "karpenter.sh/unregistered"
)

// bootstrapToken makes a token that the API server accepts, as what the groups stand for.
// Each has an id of its own: the API server may still know one that is gone.
func bootstrapToken(groups string) string {
	GinkgoHelper()
	id := rand.String(6)
	name := "bootstrap-token-" + id
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err := secrets.Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": groups,
		},
	}, metav1.CreateOptions{})
	Expect(err).ToNot(HaveOccurred())
	DeferCleanup(func() {
		Expect(secrets.Delete(context.Background(), name, metav1.DeleteOptions{})).To(Succeed())
	})
	return id + ".0123456789abcdef"
}

// multipartOf is a MIME document.
func multipartOf(parts ...string) string {
	document := "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"b\"\r\n\r\n"
	for i := 0; i+1 < len(parts); i += 2 {
		document += "--b\r\nContent-Type: " + parts[i] + "\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte(parts[i+1])) +
			"\r\n"
	}
	return document + "--b--\r\n"
}

var _ = Describe("User data", func() {
	var h *testCloud
	BeforeEach(func() { h = newTestCloud(guest.Options{}) })

	DescribeTable("should be run as cloud-init runs it", func(userData string, labels ...string) {
		spec := h.spec("guest")
		spec.UserData = userData
		server := h.start(spec)
		Expect(h.truth(server.ID)).To(Equal(&cloud.Guest{Joined: true, Node: "guest"}))
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			Expect(node("guest").Labels).To(HaveKeyWithValue(key, value))
		}
	},
		Entry("a script", "#!/bin/bash\nset -euo pipefail\n[ -x /nowhere ] || sudo bash -c '"+strings.TrimSpace(ownScript)+"'\n"),
		Entry("a cloud-config whose commands run a file that it writes",
			"#cloud-config\nwrite_files:\n- {path: /etc/default/kubelet, content: KUBELET_EXTRA_ARGS=--node-labels=a=b}\n- {path: /usr/bin/join, content: "+
				"\"#!/bin/sh\\n"+strings.TrimSpace(ownScript)+"\\n\"}\nruncmd:\n- [/usr/bin/join]\n", "a=b"),
		Entry("a file in base64, and a command as text",
			"#cloud-config\nwrite_files:\n- {path: /x, encoding: b64, content: "+
				""+base64.StdEncoding.EncodeToString([]byte("KUBELET_EXTRA_ARGS=--node-labels=a=b"))+"}\nruncmd:\n- "+ownScript, "a=b"),
		Entry("a document of several parts, scripts in their order", multipartOf(
			"text/x-shellscript", "#!/bin/bash\nNAME=one\necho KUBELET_EXTRA_ARGS=--node-labels=part=$NAME > /etc/default/kubelet\n",
			"text/cloud-config", "#cloud-config\npackages: [jq]\n",
			"text/x-shellscript", "#!/bin/bash\n"+ownScript), "part=one"),
		Entry("a script that finds out which server it is on",
			"#!/bin/bash\nset -euo pipefail\n"+serverID+"\ncat > /etc/default/kubelet <<EOF\nKUBELET_EXTRA_ARGS=--node-labels=id=${SERVER_ID:+found}\nEOF\n"+ownScript,
			"id=found"),
		Entry("a script that pipes into a shell", "#!/bin/bash\necho "+strings.TrimSpace(ownScript)+" | sh -s\n"),
	)
	It("should filter what is piped into the programs that samples and users filter with", func() {
		spec := h.spec("guest")
		spec.UserData = "#!/bin/bash\nset -euo pipefail\nPART=$(printf 'x\\nPART=ONE;y\\n' | tail -n 1 | cut -d ';' -f1 | tr A-Z a-z | sed -ne 's/=/-/p' | " +
			"/usr/bin/sed -E 's/^(.*)$/\\1\\n/' | head -1 | grep -om 1 'part-[a-z]*' | base64 -w 0 | base64 -d -)\n" +
			"SUM=$(printf x | sha256sum | cut -c1-8)\n" +
			"echo KUBELET_EXTRA_ARGS=--node-labels=part=$PART,sum=$SUM > /etc/default/kubelet\n" + ownScript
		h.start(spec)
		Expect(node("guest").Labels).To(And(HaveKeyWithValue("part", "part-one"), HaveKeyWithValue("sum", "2d711642")))
	})
	DescribeTable("should reach neither files nor programs of the machine that the sandbox runs on", func(command string) {
		dir := GinkgoT().TempDir()
		fromTemporary, err := filepath.Rel(os.TempDir(), dir)
		Expect(err).ToNot(HaveOccurred())
		for name, content := range map[string]string{"secret": "leaked\n", "script.sed": "s/.*/leaked/p\n", "sed": "#!/bin/sh\necho leaked\n"} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700)).To(Succeed())
		}
		spec := h.spec("guest")
		spec.UserData = "#!/bin/bash\nLEAK=$(echo | " + strings.NewReplacer("DIR", dir, "REL", fromTemporary).Replace(command) + " | tr -d '\\n')\n" +
			"echo KUBELET_EXTRA_ARGS=--node-labels=leak=${LEAK:-nothing} > /etc/default/kubelet\n" + ownScript
		h.start(spec)
		Expect(node("guest").Labels).To(HaveKeyWithValue("leak", "nothing"))
		Expect(filepath.Join(dir, "written")).ToNot(BeAnExistingFile())
	},
		Entry("by a command of sed", "sed '1e echo leaked; echo > DIR/written'"),
		Entry("by a command of sed after -e", "sed -n -e 'e echo leaked; echo > DIR/written'"),
		Entry("by a replacement of sed that is run", `sed 's/.*/echo leaked/e'`),
		Entry("by what sed writes", "sed 'w DIR/written'"),
		Entry("by what sed reads", "sed 'r DIR/secret'"),
		Entry("by a script of sed, behind another flag", "sed -nfDIR/script.sed"),
		Entry("by a file of sed, before its script", "sed -n REL/secret -e p"),
		Entry("by a relative file of sed", "sed -n p REL/secret"),
		Entry("by a relative file of grep", "grep -h . REL/secret"),
		Entry("by a file of grep, where its pattern is a flag's", "grep -he leaked REL/secret"),
		Entry("by a file of grep behind what looks like the standard input", "grep -hv - REL/secret"),
		Entry("by all files of grep", "grep -rh leaked"),
		Entry("by a relative file of head", "head -n 1 REL/secret"),
		Entry("by a relative file of cut", "cut -c1-9 REL/secret"),
		Entry("by a relative file of base64", "base64 REL/secret"),
		Entry("by a program of the machine that has a filter's name", "DIR/sed -n p"),
	)
	DescribeTable("should never let a machine join without what a real one needs", func(userData, reason string) {
		spec := h.spec("stray")
		if strings.Contains(userData, "v1beta3") || strings.Contains(userData, "containerd") {
			spec.Metadata["kubernetes_version"] = "v1.37.2"
		}
		spec.UserData = userData
		server := h.start(spec)
		Expect(nodeNames()).To(BeEmpty())
		Expect(h.truth(server.ID).Reason).To(And(ContainSubstring(reason), Not(ContainSubstring("0123456789abcdef"))))
	},
		Entry("a broken document", "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Ty", "broken MIME document"),
		Entry("a cloud-config that is no YAML", "#cloud-config\n: [", "not YAML"),
		Entry("a branch that is not taken", "#!/bin/bash\nif false; then "+strings.TrimSpace(ownScript)+"; fi\n", "does not run"),
		Entry("a script that fails before", "#!/bin/bash\nset -e\nfalse\n"+ownScript, "does not run"),
		Entry("a script that never ends", "#!/bin/bash\nwhile true; do :; done\n"+ownScript, "does not run"),
		Entry("kubeadm without a token", "#!/bin/bash\nkubeadm join 10.0.0.1:6443 --discovery-token-unsafe-skip-ca-verification\n", "the token is not"),
		Entry("kubeadm without a pin", "#!/bin/bash\nkubeadm join 10.0.0.1:6443 --token "+token+"\n", "caCertHashes"),
		Entry("kubeadm without an endpoint", "#!/bin/bash\nkubeadm join --token "+token+" --discovery-token-unsafe-skip-ca-verification\n", "not host:port"),
		Entry("kubeadm without its file", "#!/bin/bash\nkubeadm join --config /join.yaml\n", "no file /join.yaml"),
		Entry("kubeadm with arguments of another version",
			"#cloud-config\nwrite_files:\n- path: /join.yaml\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta4\n    kind: JoinConfiguration\n    "+
				"nodeRegistration: {kubeletExtraArgs: {cloud-provider: external}}\nruncmd: [kubeadm join --config /join.yaml]\n",
			"has not the form of kubeadm.k8s.io/v1beta4"),
		Entry("kubeadm of 1.37 with a configuration that it has no more",
			"#cloud-config\nwrite_files:\n- path: /join.yaml\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta3\n    kind: JoinConfiguration\n"+
				"runcmd: [kubeadm join --config /join.yaml]\n", "kubeadm: 1.37 knows no JoinConfiguration"),
		Entry("a kubelet of 1.37 with a flag that it has no more",
			"#cloud-config\nwrite_files:\n- path: /join.yaml\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta4\n    kind: JoinConfiguration\n    "+
				"nodeRegistration: {kubeletExtraArgs: [{name: containerd, value: /run/c.sock}]}\nruncmd: [kubeadm join --config /join.yaml]\n",
			"unknown flag of 1.37: --containerd"),
		Entry("k3s without a server", "#!/bin/bash\nk3s agent --token "+token+"\n", "is not an https URL"),
		Entry("k3s without a token", "#!/bin/bash\nk3s agent --server https://10.0.0.1:6443\n", "the token is not"),
	)
})

var _ = Describe("A k3s agent", func() {
	agent := func(arguments, token string) string {
		return "#!/bin/bash\nset -euo pipefail\n" + serverID + "\nmkdir -p /etc/rancher/k3s\ncat > /etc/rancher/k3s/config.yaml <<EOF\nserver: " + config.Host +
			"\ntoken: " + token + "\n" +
			"node-label: [team=ml]\nnode-taint: [\"" + unregister +
			"=:NoExecute\"]\nkubelet-arg:\n- cloud-provider=external\n- provider-id=bizflycloud://${SERVER_ID}\n" + arguments +
			"EOF\ncurl -sfL https://get.k3s.io | INSTALL_K3S_CHANNEL=stable sh -s - agent\n"
	}
	authority := func() string {
		sum := sha256.Sum256(config.CAData)
		return "K10" + hex.EncodeToString(sum[:]) + "::"
	}
	It("should join with a token that the API server accepts, and register with its arguments", func() {
		token := bootstrapToken("system:bootstrappers:k3s:default-node-token")
		h := newTestCloud(guest.Options{Cluster: config})
		spec := h.spec("agent")
		spec.Flavor = "p2.2c_4g"
		spec.UserData = agent("- max-pods=50\n- pods-per-core=10\n- kube-reserved=cpu=100m,memory=500Mi\n- system-reserved=cpu=50m,memory=100Mi\n- "+
			"'eviction-hard=memory.available<200Mi,nodefs.available<10%'\n", authority()+token)
		server := h.start(spec)
		Eventually(func() *cloud.Guest { h.sync(); return h.truth(server.ID) }).WithPolling(200 * time.Millisecond).
			Should(Equal(&cloud.Guest{Joined: true, Node: "agent"}))
		h.sync()
		joined := node("agent")
		Expect(joined.Spec.ProviderID).To(Equal("bizflycloud://" + server.ID))
		Expect(joined.Labels).To(HaveKeyWithValue("team", "ml"))
		Expect(taintKeys(joined)).To(And(ContainElement(unregister), Not(ContainElement(uninitialized))), "the cloud controller manager has been there")
		Expect(joined.Status.Capacity.Pods().Value()).To(Equal(int64(20)))
		Expect(joined.Status.Allocatable.Cpu().MilliValue()).To(Equal(int64(2000 - 150)))
		Expect(joined.Status.Capacity.Memory().Value() - joined.Status.Allocatable.Memory().Value()).To(Equal(int64(800 << 20)))
	})
	It("should join as a service whose downloaded program has the given checksum only", func() {
		pinned := func(sum, token string) string {
			script, _, _ := strings.Cut(agent("", authority()+token), "curl -sfL https://get.k3s.io")
			return script + "curl -sfL -o /usr/local/bin/k3s https://github.com/k3s-io/k3s/releases/download/v1.35.0%2Bk3s1/k3s\n" +
				"echo '" + sum + "  /usr/local/bin/k3s' | sha256sum -c -\n" +
				"cat > /etc/systemd/system/k3s-agent.service <<'UNIT'\n[Service]\nExecStart=/usr/local/bin/k3s agent\nUNIT\n" +
				"systemctl daemon-reload\nsystemctl enable --now k3s-agent.service\n"
		}
		token := bootstrapToken("system:bootstrappers:k3s:default-node-token")
		h := newTestCloud(guest.Options{Cluster: config})
		spec := h.spec("agent")
		spec.UserData = pinned(guest.K3sSHA256, token)
		server := h.start(spec)
		Eventually(func() *cloud.Guest { h.sync(); return h.truth(server.ID) }).WithPolling(200 * time.Millisecond).
			Should(Equal(&cloud.Guest{Joined: true, Node: "agent"}))
		spec = h.spec("forged")
		spec.UserData = pinned(strings.Repeat("0", 64), token)
		server = h.start(spec)
		Eventually(func() string { h.sync(); return h.truth(server.ID).Reason }).WithPolling(200 * time.Millisecond).Should(ContainSubstring("does not run"))
	})
	DescribeTable("should not join", func(groups, prefix, said string) {
		token := bootstrapToken(groups)
		h := newTestCloud(guest.Options{Cluster: config})
		spec := h.spec("agent")
		spec.UserData = agent("", prefix+token)
		if said == "does not accept" {
			spec.UserData = strings.ReplaceAll(spec.UserData, token, token[:6]+".ffffffffffffffff")
		}
		server := h.start(spec)
		Eventually(func() string { h.sync(); return h.truth(server.ID).Reason }).WithPolling(200 * time.Millisecond).Should(ContainSubstring(said))
		Expect(nodeNames()).To(BeEmpty())
	},
		Entry("with a token of other groups", "system:bootstrappers:other", "", "does not stand for"),
		Entry("with another authority's hash", "system:bootstrappers:k3s:default-node-token", "K10"+strings.Repeat("0", 64)+"::", "is not that of its authority"),
		Entry("with a wrong token", "system:bootstrappers:k3s:default-node-token", "", "does not accept"),
	)
})

var _ = Describe("A node of kubeadm", func() {
	var token string
	BeforeEach(func() {
		ctx := context.Background()
		token = bootstrapToken("system:bootstrappers:karpenter")
		published := clientcmdapi.NewConfig()
		published.Clusters[""] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
		kubeconfig, err := clientcmd.Write(*published)
		Expect(err).ToNot(HaveOccurred())
		_, err = client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
			Data: map[string]string{"kubeconfig": string(kubeconfig), "jws-kubeconfig-" + token[:6]: "signed"}}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		_, err = client.RbacV1().Roles(metav1.NamespacePublic).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "info"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"cluster-info"}, Verbs: []string{"get"}}}},
			metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		_, err = client.RbacV1().RoleBindings(metav1.NamespacePublic).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "info"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "info"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:anonymous"}}}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "join"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers:karpenter"}}}, metav1.CreateOptions{})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(func() {
			Expect(client.CoreV1().ConfigMaps(metav1.NamespacePublic).Delete(ctx, "cluster-info", metav1.DeleteOptions{})).To(Succeed())
			Expect(client.RbacV1().Roles(metav1.NamespacePublic).Delete(ctx, "info", metav1.DeleteOptions{})).To(Succeed())
			Expect(client.RbacV1().RoleBindings(metav1.NamespacePublic).Delete(ctx, "info", metav1.DeleteOptions{})).To(Succeed())
			Expect(client.RbacV1().ClusterRoleBindings().Delete(ctx, "join", metav1.DeleteOptions{})).To(Succeed())
			Expect(client.CertificatesV1().CertificateSigningRequests().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
		})
	})
	endpoint := func() string { return strings.TrimPrefix(config.Host, "https://") }

	It("should ask for a certificate with its token, once, and join with nothing less", func() {
		h := newTestCloud(guest.Options{})
		spec := h.spec("node")
		spec.UserData = "#!/bin/bash\nkubeadm join " + endpoint() + " --token " + token + " --discovery-token-unsafe-skip-ca-verification\n"
		server := h.start(spec)
		waits := func() string { h.sync(); return h.truth(server.ID).Reason }
		Eventually(waits).WithPolling(200 * time.Millisecond).Should(ContainSubstring("not approved and signed yet"))
		for range 5 {
			Expect(waits()).To(ContainSubstring("not approved and signed yet"))
		}
		requests, err := client.CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{})
		Expect(err).ToNot(HaveOccurred())
		Expect(requests.Items).To(HaveExactElements(HaveField("Spec", And(
			HaveField("Username", "system:bootstrap:"+token[:6]), HaveField("SignerName", certificatesv1.KubeAPIServerClientKubeletSignerName)))))
		Expect(nodeNames()).To(BeEmpty())
	})
	It("should not accept a cluster whose authority is not the pinned one", func() {
		h := newTestCloud(guest.Options{})
		spec := h.spec("node")
		spec.UserData = "#!/bin/bash\nkubeadm join " + endpoint() + " --token=" + token + " --discovery-token-ca-cert-hash sha256:" + strings.Repeat("0", 64) + "\n"
		server := h.start(spec)
		Eventually(func() string { h.sync(); return h.truth(server.ID).Reason }).Should(ContainSubstring("does not trust the cluster"))
	})
})
