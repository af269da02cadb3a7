// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/jointoken"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

// fromSecret creates a Secret with templates, and a Custom NodeClass of its key userData.
func fromSecret(data map[string]string) *v1alpha1.BizflyNodeClass {
	GinkgoHelper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "templates"}, StringData: data}
	Expect(kube.Create(ctx, object)).To(Succeed())
	DeferCleanup(func() { Expect(kube.Delete(ctx, object)).To(Succeed()) })
	nodeClass := custom("")
	nodeClass.Spec.UserData, nodeClass.Spec.UserDataFrom = nil, &v1alpha1.UserDataSource{
		SecretKeyRef: &v1alpha1.KeySelector{Name: "templates", Key: "userData"}}
	return nodeClass
}

func inline(nodeClass *v1alpha1.BizflyNodeClass, text string) *v1alpha1.BizflyNodeClass {
	nodeClass.Spec.UserData = lo.ToPtr(text)
	return nodeClass
}

// piece is one part of a MIME multipart document as cloud-init sees it.
type piece struct{ contentType, text string }

func pieces(userData string) []piece {
	GinkgoHelper()
	message := lo.Must(mail.ReadMessage(strings.NewReader(userData)))
	Expect(message.Header.Get("MIME-Version")).To(Equal("1.0"))
	mediaType, parameters := lo.Must2(mime.ParseMediaType(message.Header.Get("Content-Type")))
	Expect(mediaType).To(Equal("multipart/mixed"))
	reader := multipart.NewReader(message.Body, parameters["boundary"])
	var found []piece
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return found
		}
		Expect(err).ToNot(HaveOccurred())
		mediaType, _ := lo.Must2(mime.ParseMediaType(part.Header.Get("Content-Type")))
		Expect(part.FileName()).To(BeEmpty(), "cloud-init calls a part of an archive part-002, too")
		var body io.Reader = part
		if part.Header.Get("Content-Transfer-Encoding") == "base64" {
			body = base64.NewDecoder(base64.StdEncoding, part)
		}
		text := lo.Must(io.ReadAll(body))
		found = append(found, piece{mediaType, string(text)})
	}
}

func hash(nodeClass *v1alpha1.BizflyNodeClass) string {
	GinkgoHelper()
	resolution := lo.Must(provider().Resolve(ctx, nodeClass))
	return resolution.UserDataHash
}

const ownScript = "#!/bin/bash\n/opt/bizfly-kubernetes-engine/bootstrap.sh\n"

var _ = Describe("User data from a Secret", func() {
	It("should be a template like any other", func() {
		Expect(render(input(fromSecret(map[string]string{"userData": "#!/bin/bash\necho {{ .NodeName }} " + secret}))).UserData).
			To(Equal("#!/bin/bash\necho general-x7k2p-0a1b2c3d " + secret))
	})
	It("should be a key of a ConfigMap where that is named, and need its own grant", func() {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scripts"}, Data: map[string]string{"userData": "#!/bin/sh"}}
		Expect(kube.Create(ctx, object)).To(Succeed())
		DeferCleanup(func() { Expect(kube.Delete(ctx, object)).To(Succeed()) })
		nodeClass := custom("")
		nodeClass.Spec.UserData, nodeClass.Spec.UserDataFrom = nil, &v1alpha1.UserDataSource{
			ConfigMapKeyRef: &v1alpha1.KeySelector{Name: "scripts", Key: "userData"}}
		config.Options.UserDataSecretNames = []string{"scripts"}
		Expect(invalidOf(validate(nodeClass)).Message).To(And(ContainSubstring("userDataConfigMaps"), HavePrefix("spec.userDataFrom.configMapKeyRef.name")))
		config.Options.UserDataConfigMapNames = []string{"scripts"}
		Expect(render(input(nodeClass)).UserData).To(Equal("#!/bin/sh"))
		before := hash(nodeClass)
		object.Data["userData"] = "#!/bin/bash"
		Expect(kube.Update(ctx, object)).To(Succeed())
		Expect(hash(nodeClass)).ToNot(Equal(before))
		nodeClass.Spec.UserDataFrom.ConfigMapKeyRef.Key = "gpu"
		Expect(invalidOf(validate(nodeClass)).Message).To(ContainSubstring(`no key "gpu"; set spec.userDataFrom.configMapKeyRef.key`))
	})
	It("should be the key that is named", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#!/bin/sh", "gpu": "#!/bin/bash"})
		nodeClass.Spec.UserDataFrom.SecretKeyRef.Key = "gpu"
		Expect(render(input(nodeClass)).UserData).To(Equal("#!/bin/bash"))
	})
	DescribeTable("should be rejected with the remedy, and without what is in it", func(change func(*v1alpha1.BizflyNodeClass), texts ...string) {
		nodeClass := fromSecret(map[string]string{"userData": "#!/bin/bash\n" + secret, "broken": "{{ " + secret, "large": strings.Repeat("x", 65537), "empty": " "})
		change(nodeClass)
		invalid := invalidOf(validate(nodeClass))
		for _, text := range append(texts, "spec.userDataFrom") {
			Expect(invalid.Message).To(ContainSubstring(text))
		}
		Expect(invalid.Message).ToNot(ContainSubstring(secret))
		Expect(provider().Render(ctx, input(nodeClass))).Error().To(MatchError(invalid.Message))
	},
		Entry("where it is not granted", func(n *v1alpha1.BizflyNodeClass) { n.Spec.UserDataFrom.SecretKeyRef.Name = "credentials" },
			`"credentials"`, "userDataSecrets", `USER_DATA_SECRET_NAMES, now "templates"`),
		Entry("where it does not exist", func(*v1alpha1.BizflyNodeClass) { config.Options.Namespace = "default" }, `"templates"`, "namespace default"),
		Entry("where the key does not exist", func(n *v1alpha1.BizflyNodeClass) { n.Spec.UserDataFrom.SecretKeyRef.Key = "gpu" }, `no key "gpu"`),
		Entry("where it is no template", func(n *v1alpha1.BizflyNodeClass) { n.Spec.UserDataFrom.SecretKeyRef.Key = "broken" }, "line 1", "does not parse"),
		Entry("where it is too large", func(n *v1alpha1.BizflyNodeClass) { n.Spec.UserDataFrom.SecretKeyRef.Key = "large" }, "65537 bytes"),
		Entry("where it is empty", func(n *v1alpha1.BizflyNodeClass) { n.Spec.UserDataFrom.SecretKeyRef.Key = "empty" }, "it is empty"),
	)
	It("should change the hash when it changes, and only then", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#!/bin/bash\n"})
		before := hash(nodeClass)
		Expect(before).To(MatchRegexp(`^[0-9a-f]{16}$`))
		object := &corev1.Secret{}
		object.Namespace, object.Name = namespace, "templates"
		object.Data = map[string][]byte{"userData": []byte("#!/bin/bash\n"), "other": []byte("x")}
		Expect(kube.Update(ctx, object)).To(Succeed())
		Expect(hash(nodeClass)).To(Equal(before))
		object.Data["userData"] = []byte("#!/bin/bash\ntrue\n")
		Expect(kube.Update(ctx, object)).To(Succeed())
		Expect(hash(nodeClass)).ToNot(Equal(before))
	})
	It("should differ from the same text inline before it and after it", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#!/bin/bash\na"})
		Expect(hash(inline(nodeClass, "#!/bin/bash\nb"))).ToNot(Equal(hash(custom("#!/bin/bash\na#!/bin/bash\nb"))))
	})
	It("should come with what is rendered: a Secret may change after the NodeClass is resolved", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#!/bin/bash\n"})
		nodeClass.Status.UserDataHash = "an earlier one"
		Expect(render(input(nodeClass)).UserDataHash).To(Equal(hash(nodeClass)))
		Expect(render(input(bke())).UserDataHash).To(BeEmpty())
	})
	It("should leave the hash empty where there is no template", func() {
		Expect(hash(bke())).To(BeEmpty())
		Expect(hash(inline(bke(), "#!/bin/bash"))).ToNot(BeEmpty())
	})
})

var _ = Describe("User data from several places", func() {
	It("should be a MIME multipart document: Secret, inline, BKE's own script last", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#cloud-config\npackages: [jq]\n"})
		nodeClass.Spec.BootstrapMode = v1alpha1.BootstrapModeBKE
		output := render(input(inline(nodeClass, "#!/bin/bash\necho {{ .NodeName }}\n")))
		Expect(pieces(output.UserData)).To(Equal([]piece{
			{"text/cloud-config", "#cloud-config\npackages: [jq]\n"},
			{"text/x-shellscript", "#!/bin/bash\necho general-x7k2p-0a1b2c3d\n"},
			{"text/x-shellscript", ownScript},
		}))
		Expect(output.Metadata).To(HaveKeyWithValue("bke_cluster_token", secret))
	})
	It("should begin with its first line, also where a template has left empty ones before it", func() {
		Expect(render(input(custom("{{/* a comment */}}\n\n#!/bin/bash\necho 1\n"))).UserData).To(Equal("#!/bin/bash\necho 1\n"))
		By("and with what editors of Windows put around it")
		Expect(render(input(custom("\ufeff#!/bin/bash\r\necho 1\r\n"))).UserData).To(Equal("#!/bin/bash\necho 1\n"))
	})
	It("should leave out what renders to nothing, and be rejected where that is all", func() {
		only := "{{ if index .Labels \"gpu\" }}#!/bin/bash\n{{ end }}\n"
		Expect(validate(inline(bke(), only))).To(Succeed())
		Expect(render(input(inline(bke(), only))).UserData).To(Equal(ownScript))
		Expect(validate(custom(only))).To(Succeed(), "labels are not known yet")
		_, err := provider().Render(ctx, input(custom(only)))
		Expect(invalidOf(err).Message).To(Equal("spec.userData: it renders to nothing, so that no server would join"))
	})
	It("should be the same text each time", func() {
		nodeClass := inline(bke(), "#!/bin/bash\ntrue\n")
		Expect(render(input(nodeClass)).UserData).To(Equal(render(input(nodeClass)).UserData))
	})
	It("should be one cloud-config where all of it is", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#cloud-config\npackages: [jq]\nruncmd: [one]\nntp: {enabled: true, servers: [a]}\nhostname: x\n"})
		userData := render(input(inline(nodeClass, "#cloud-config\nruncmd: [[two, three]]\nntp: {servers: [b]}\nhostname: {{ .NodeName }}\n"))).UserData
		Expect(userData).To(HavePrefix("#cloud-config\n"))
		Expect(userData).To(MatchYAML("packages: [jq]\nruncmd: [one, [two, three]]\nntp: {enabled: true, servers: [a, b]}\nhostname: general-x7k2p-0a1b2c3d\n"))
	})
	It("should put the lists of two cloud-configs together also before BKE's own script", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#cloud-config\nruncmd: [one]\n"})
		nodeClass.Spec.BootstrapMode = v1alpha1.BootstrapModeBKE
		Expect(pieces(render(input(inline(nodeClass, "#cloud-config\nruncmd: [two]\n"))).UserData)).To(Equal([]piece{
			{"text/cloud-config", "#cloud-config\nruncmd:\n- one\n- two\n"}, {"text/x-shellscript", ownScript},
		}))
	})
	It("should know a JSON patch of a cloud-config", func() {
		Expect(pieces(render(input(inline(bke(), "#cloud-config-jsonp\n[]"))).UserData)[0].contentType).To(Equal("text/cloud-config-jsonp"))
	})
	It("should take the parts of what is a document already, whatever their encoding", func() {
		document := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x\"\n\n" +
			"--x\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString([]byte("#!/bin/bash\necho một\n")) +
			"\n" +
			"--x\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: quoted-printable\n\n#!/bin/bash=0Aecho=20hai\n" +
			"--x\nContent-Type: text/cloud-config; charset=\"us-ascii\"\n\n#cloud-config\n{}\n--x--\n"
		Expect(pieces(render(input(inline(bke(), document))).UserData)).To(Equal([]piece{
			{"text/x-shellscript", "#!/bin/bash\necho một\n"}, {"text/x-shellscript", "#!/bin/bash\necho hai"}, {"text/cloud-config", "#cloud-config\n{}"},
			{"text/x-shellscript", ownScript},
		}))
	})
	DescribeTable("should be rejected, naming the field", func(text, message string) {
		invalid := invalidOf(validate(inline(bke(), text)))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonInvalidUserData))
		Expect(invalid.Message).To(And(HavePrefix("spec.userData: "), ContainSubstring(message), Not(ContainSubstring(secret))))
	},
		Entry("where nothing identifies it", "echo "+secret, "begin with #!/bin/bash, #cloud-config"),
		Entry("where a document is broken", "Content-Type: text/plain\n\n"+secret, "is none"),
		Entry("where a document has no parts", "Content-Type: multipart/mixed; boundary=x\n\n"+secret+"\n--x--\n", "is none"),
		Entry("where a part is a document again", "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: multipart/mixed; boundary=y\n\n"+
			"--y\nContent-Type: text/x-shellscript\n\n#!/bin/bash\n"+secret+"\n--y--\n--x--\n", "is a document again"),
		Entry("where it is too large with BKE's own", "#!/bin/bash\n"+strings.Repeat("x", 16384-12), "larger than the 16384 bytes"),
	)
	It("should be rejected where aliases would take the controller's memory", func() {
		nodeClass := inline(fromSecret(map[string]string{"userData": "#cloud-config\n{}"}), "#cloud-config\nplain: ["+strings.Repeat("1,", 1500)+"]\n"+
			"a: &a "+strings.Repeat("x", 4000)+"\nb: &b ["+strings.Repeat("*a,", 450)+"]\nc: ["+strings.Repeat("*b,", 100)+"]\n")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := validate(nodeClass)
		runtime.ReadMemStats(&after)
		Expect(invalidOf(err).Message).To(ContainSubstring("larger than the 16384 bytes"))
		Expect((after.TotalAlloc-before.TotalAlloc)>>20).To(BeNumerically("<", 64), "MiB")
	})
	DescribeTable("should be rejected where cloud-init could not use it, with part, line and remedy", func(text, where, message string) {
		const document = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x\"\n\n"
		text = strings.Replace(text, "DOCUMENT\n", document, 1)
		for _, nodeClass := range []*v1alpha1.BizflyNodeClass{inline(bke(), text), custom(text)} {
			invalid := invalidOf(validate(nodeClass))
			Expect(invalid.Reason).To(Equal(bootstrap.ReasonInvalidUserData))
			Expect(invalid.Message).To(And(HavePrefix("spec.userData"+where+": "), ContainSubstring(message), Not(ContainSubstring(secret))))
		}
	},
		Entry("nodeadm's configuration", "DOCUMENT\n--x\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--x\nContent-Type: application/node.eks.aws\n\n"+
			"apiVersion: node.eks.aws/v1alpha1\n# "+secret+"\n--x--\n", ", part 2", "only EKS has; write the kubelet's settings into spec.kubelet"),
		Entry("another type", "DOCUMENT\n--x\nContent-Type: application/"+secret+"\n\na\n--x--\n", ", part 1", "use text/x-shellscript or text/cloud-config"),
		Entry("a plain text without a known first line",
			"DOCUMENT\n--x\nContent-Type: text/plain\n\necho "+secret+"\n--x--\n", ", part 1", "does not know its first line"),
		Entry("a part of broken cloud-config",
			"DOCUMENT\n--x\nContent-Type: text/cloud-config\n\n#cloud-config\na: 1\nb: [\"x\n\n--x--\n", ", part 1, line 4", "no YAML map"),
		Entry("broken cloud-config", "#cloud-config\nruncmd:\n- a\n  b: "+secret+"\n c: d\n", ", line 4", "cloud-init schema --config-file"),
		Entry("cloud-config that is a list", "#cloud-config\n- "+secret+"\n", ", line 2", "no YAML map"),
	)
	DescribeTable("should be accepted where cloud-init can use it, or another program", func(text string) {
		Expect(validate(custom(text))).To(Succeed())
	},
		Entry("a type that a part handles", "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/part-handler\n\n#part-handler\n"+
			"--x\nContent-Type: application/mine\n\na\n--x--\n"),
		Entry("a script for each boot", "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/x-shellscript-per-boot\n\n#!/bin/sh\n--x--\n"),
		Entry("a plain text whose first line is known", "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\n#!/bin/sh\n--x--\n"),
		Entry("a document in a document", "Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: multipart/mixed; boundary=y\n\n"+
			"--y\nContent-Type: text/x-shellscript\n\n#!/bin/bash\n--y--\n--x--\n"),
		Entry("a cloud-config of comments", "#cloud-config\n# nothing yet\n"),
		Entry("Ignition", `{"ignition": {"version": "3.4.0"}}`),
	)
	It("should name how braces of another program are written", func() {
		invalid := invalidOf(validate(custom("#!/bin/sh\ndocker ps --format '{{.Names}}'\n")))
		Expect(invalid.Message).To(And(HavePrefix("spec.userData, line 2, column "), ContainSubstring(`docker ps --format '{{ "{{.Names}}" }}'`)))
		Expect(render(input(custom("#!/bin/sh\ndocker ps --format '{{ \"{{.Names}}\" }}'\n"))).UserData).To(Equal("#!/bin/sh\ndocker ps --format '{{.Names}}'\n"))
	})
	It("should be rejected where cloud-config is no map", func() {
		nodeClass := fromSecret(map[string]string{"userData": "#cloud-config\n- " + secret})
		Expect(invalidOf(validate(inline(nodeClass, "#cloud-config\n{}"))).Message).To(And(
			HavePrefix("spec.userDataFrom, line 2: "), ContainSubstring("no YAML map"), Not(ContainSubstring(secret))))
	})
})

var _ = Describe("A join token", func() {
	withToken := func(template string) *v1alpha1.BizflyNodeClass {
		nodeClass := custom(template)
		nodeClass.Spec.JoinToken = &v1alpha1.JoinToken{}
		return nodeClass
	}
	It("should be requested with the attempt that it is for, and valid for half an hour", func() {
		in := input(withToken("{{ .JoinToken }} {{ .JoinToken }}"))
		Expect(render(in).UserData).To(Equal("node01.0123456789abcdef node01.0123456789abcdef"))
		Expect(tokens.requests).To(HaveEach(jointoken.Request{NodeClaim: in.NodeClaim, NodeName: "general-x7k2p-0a1b2c3d", Attempt: 1, TTL: 30 * time.Minute}))
	})
	It("should not be created while a template is only tried, nor for one that does not use it", func() {
		Expect(validate(withToken("{{ .JoinToken }}"))).To(Succeed())
		render(input(withToken("#!/bin/bash")))
		Expect(tokens.requests).To(BeEmpty())
	})
	It("should be rejected where the controller may create none", func() {
		config.JoinTokens = nil
		invalid := invalidOf(validate(withToken("{{ .JoinToken }}")))
		Expect(invalid.Reason).To(Equal(bootstrap.ReasonJoinTokensDisabled))
		Expect(invalid.Message).To(And(ContainSubstring("spec.joinToken"), ContainSubstring("joinTokens.enabled"), ContainSubstring("JOIN_TOKENS=true")))
		Expect(provider().Render(ctx, input(withToken("{{ .JoinToken }}")))).Error().To(MatchError(invalid.Message))
	})
	It("should be missed by a template that uses it without asking", func() {
		Expect(invalidOf(validate(custom("{{ .JoinToken }}"))).Message).To(ContainSubstring("spec.joinToken is not set"))
	})
})

var _ = Describe("The cluster, where nothing is configured", func() {
	BeforeEach(func() { config.Options.ClusterEndpoint, config.CABundle = "", nil })
	DescribeTable("should be missed by the templates that need it, with the remedy", func(template, remedy string) {
		Expect(invalidOf(validate(custom(template))).Message).To(ContainSubstring(remedy))
		Expect(validate(custom("#!/bin/bash"))).To(Succeed())
	},
		Entry("endpoint", "{{ .APIServerEndpoint }}", "set CLUSTER_ENDPOINT"),
		Entry("authority", "{{ .CABundle }}", "kube-public/cluster-info"),
		Entry("pins", "{{ .CACertHashes }}", "kube-public/cluster-info"),
		Entry("DNS", "{{ .ClusterDNS }}", "set spec.kubelet.clusterDNS"),
	)
	It("should be what kubeadm publishes", func() {
		published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, Data: map[string]string{
			"kubeconfig": "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster: {server: \"https://api.example.com:6443\", certificate-authority-data: " +
				base64.StdEncoding.EncodeToString([]byte(authority)) + "}\n",
		}}
		dns := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-dns"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.10", Ports: []corev1.ServicePort{{Port: 53}}}}
		Expect(kube.Create(ctx, published)).To(Succeed())
		Expect(kube.Create(ctx, dns)).To(Succeed())
		DeferCleanup(func() {
			Expect(kube.Delete(ctx, published)).To(Succeed())
			Expect(kube.Delete(ctx, dns)).To(Succeed())
		})
		Expect(render(input(custom(`{{ .APIServerEndpoint }} {{ join "," .CACertHashes }} {{ join "," .ClusterDNS }}`))).UserData).
			To(Equal("api.example.com:6443 " + authorityHash + " 10.0.0.10"))
		reader := &counted{Reader: kube}
		config.Reader = reader
		render(input(custom(strings.Repeat(`{{ .APIServerEndpoint }} {{ .CABundle }} {{ join "," .ClusterDNS }}`, 9))))
		Expect(reader.reads).To(Equal(2), "a template can ask thousands of times")
		nodeClass := custom(`{{ join "," .ClusterDNS }}`)
		nodeClass.Spec.Kubelet = &v1alpha1.KubeletConfiguration{ClusterDNS: []string{"10.96.0.53"}}
		Expect(render(input(nodeClass)).UserData).To(Equal("10.96.0.53"), "the NodeClass comes first")
	})
})

// counted counts what is read.
type counted struct {
	client.Reader
	reads int
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.reads++
	return c.Reader.Get(ctx, key, object)
}
