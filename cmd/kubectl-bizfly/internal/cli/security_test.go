// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/flavors"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
)

var _ = Describe("credentials", func() {
	// received are the logins that a host of a tenant was sent.
	var received []string
	var tenantURL string
	BeforeEach(func() {
		received = nil
		tenant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			received = append(received, string(body))
			w.WriteHeader(http.StatusUnauthorized)
		}))
		DeferCleanup(tenant.Close)
		tenantURL = tenant.URL + "/api"
	})
	// controllerIn is a Deployment with the controller's label.
	controllerIn := func(namespace string, env ...corev1.EnvVar) {
		d := f.controller(env...)
		d.Namespace = namespace
		f.put(d)
	}
	// secretIn is the Secret that the controller of a namespace logs in with.
	secretIn := func(namespace, id, secret string) {
		f.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controllerName}, Data: map[string][]byte{
			"application_credential_id": []byte(id), "application_credential_secret": []byte(secret),
		}})
	}
	endpoint := func(url string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "BIZFLY_CLOUD_API_URL", Value: url}, {Name: "BIZFLY_CLOUD_ALLOW_HTTP", Value: "true"}, {Name: "BIZFLY_CLOUD_REGION", Value: "HN"},
			{Name: "SYSTEM_NAMESPACE", Value: "karpenter"}, {Name: "CREDENTIALS_SECRET_NAME", Value: controllerName},
		}
	}
	// onlyCluster takes all away that the plugin's own environment says about the cloud.
	onlyCluster := func() {
		for _, key := range []string{"BIZFLY_CLOUD_API_URL", "BIZFLY_CLOUD_ALLOW_HTTP", "BIZFLY_CLOUD_REGION", "BIZFLY_CLOUD_APP_CRED_ID",
			"BIZFLY_CLOUD_APP_CRED_SECRET"} {
			unsetEnv(key)
		}
		f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{
			SecretRef: &v1alpha1.SecretReference{Name: controllerName}}})
	}

	DescribeTable("should be read for no Deployment while several may be the controller", func(command ...string) {
		onlyCluster()
		secretIn("karpenter", "REAL-ID", "REAL-SECRET-VALUE")
		controllerIn("karpenter", endpoint(f.APIURL)...)
		controllerIn("apps", endpoint(tenantURL)...)
		Expect(f.run(command...)).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring("--controller-namespace"), ContainSubstring("apps/"), ContainSubstring("karpenter/")))
		Expect(received).To(BeEmpty())
	},
		Entry("flavors", "flavors"), Entry("plan", "plan"), Entry("top", "top"), Entry("doctor", "doctor"), Entry("why", "why", "web-0"),
		Entry("support-bundle", "support-bundle"), Entry("version", "version"),
	)

	It("should be those of the controller's namespace that the user names, with its endpoint", func() {
		onlyCluster()
		secretIn("karpenter", f.Credentials().AppCredID, f.Credentials().AppCredSecret)
		controllerIn("karpenter", endpoint(f.APIURL)...)
		controllerIn("apps", endpoint(tenantURL)...)
		Expect(answer[[]flavors.Row](f, "flavors", "--controller-namespace", "karpenter")).ToNot(BeEmpty())
		setEnv("SYSTEM_NAMESPACE", "karpenter")
		Expect(f.run("flavors")).To(Equal(cli.ExitOK), f.err)
		Expect(received).To(BeEmpty())
	})

	It("should not leave their namespace for the only Deployment, whatever namespace it names", func() {
		onlyCluster()
		secretIn("karpenter", "REAL-ID", "REAL-SECRET-VALUE")
		controllerIn("apps", endpoint(tenantURL)...)
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(received).To(BeEmpty())
		secretIn("apps", "TENANT-ID", "TENANT-SECRET")
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(received).To(ConsistOf(ContainSubstring("TENANT-ID")))
	})

	It("should not be sent to an endpoint of a Deployment where they are the user's own", func() {
		unsetEnv("BIZFLY_CLOUD_API_URL")
		unsetEnv("BIZFLY_CLOUD_ALLOW_HTTP")
		// Without an endpoint the default one is used, to which this cluster's scope is not pinned: nothing leaves the machine.
		f.pin("127.0.0.1:1")
		d := f.controller(endpoint(tenantURL)...)
		d.Spec.Template.Spec.Containers[0].Args = []string{"--bizfly-api-url=" + tenantURL, "--bizfly-allow-http", "--system-namespace=karpenter"}
		f.put(d)
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("the credentials were not sent to manage.bizflycloud.vn"))
		Expect(received).To(BeEmpty())
	})

	It("should not be sent to a host that the pinned scope does not name", func() {
		onlyCluster()
		secretIn("karpenter", "REAL-ID", "REAL-SECRET-VALUE")
		controllerIn("karpenter", endpoint(tenantURL)...)
		f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:   v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: controllerName}},
			Status: v1alpha1.ProviderConfigStatus{Scope: &v1alpha1.ScopeStatus{Host: "manage.bizflycloud.vn", Region: "HaNoi", ProjectID: "p"}}})
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("the servers of this cluster are at manage.bizflycloud.vn"))
		Expect(received).To(BeEmpty())
	})

	It("should not be sent while the pinned scope cannot be read again", func() {
		setEnv("BIZFLY_CLOUD_API_URL", tenantURL)
		f.pin("manage.bizflycloud.vn")
		for _, failed := range []error{apierrors.NewTooManyRequests("later", 1), context.DeadlineExceeded} {
			reads := 0
			f.reader = interceptor.NewClient(f.objects.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, ok := object.(*v1alpha1.ProviderConfig); ok {
						if reads++; reads > 1 {
							return failed
						}
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
			Expect(f.err).To(And(ContainSubstring("the credentials were not sent: reading the ProviderConfig"), ContainSubstring(failed.Error())))
			Expect(received).To(BeEmpty())
		}
	})

	providerConfigs := v1alpha1.GroupVersion.WithResource("providerconfigs").GroupResource()
	DescribeTable("should be sent where the user has no pinned scope to compare with", func(failed error) {
		f.failGets(&v1alpha1.ProviderConfig{}, failed)
		Expect(answer[[]flavors.Row](f, "flavors")).ToNot(BeEmpty())
	},
		Entry("no ProviderConfig", apierrors.NewNotFound(providerConfigs, "default")),
		Entry("no right to read it", apierrors.NewForbidden(providerConfigs, "default", errors.New("no"))),
		Entry("no definition of it", &meta.NoKindMatchError{GroupKind: v1alpha1.GroupVersion.WithKind("ProviderConfig").GroupKind()}),
	)

	// asInstalled is the ProviderConfig of the chart, over a Deployment of which no setting may mix with the user's own credentials.
	asInstalled := func() {
		controllerIn("karpenter", append(endpoint(f.APIURL), corev1.EnvVar{Name: "BIZFLY_CLOUD_AUTH_METHOD", Value: "password"},
			corev1.EnvVar{Name: "BIZFLY_CLOUD_EMAIL", Value: "controller@example.com"}, corev1.EnvVar{Name: "BIZFLY_CLOUD_PASSWORD", Value: "no"})...)
		f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{
			Region: "HN", SecretRef: &v1alpha1.SecretReference{Name: controllerName}}})
	}
	// forbidSecrets is a user without the right to read Secrets.
	forbidSecrets := func() {
		f.failGets(&corev1.Secret{}, apierrors.NewForbidden(corev1.Resource("secrets"), controllerName, errors.New("no")))
	}

	It("should be the user's own where set, without the right to read the controller's Secret", func() {
		asInstalled()
		forbidSecrets()
		Expect(answer[[]flavors.Row](f, "flavors")).ToNot(BeEmpty())
	})

	It("should be those of files that flags name, before those of the environment", func() {
		asInstalled()
		forbidSecrets()
		id, secret := written("id", f.Credentials().AppCredID+"\n"), written("secret", f.Credentials().AppCredSecret+"\n")
		setEnv("BIZFLY_CLOUD_APP_CRED_SECRET", "another")
		unsetEnv("BIZFLY_CLOUD_REGION")
		Expect(answer[[]flavors.Row](f, "flavors", "--region", "HN", "--credential-id-file", id, "--credential-secret-file", secret)).ToNot(BeEmpty())
		Expect(f.run("flavors", "--credential-id-file", id)).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("credential-secret-file"))
		Expect(f.run("flavors", "--credential-id-file", id, "--credential-secret-file", secret+"-missing")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(ContainSubstring("reading the credentials"))
	})

	It("should be the user's own e-mail and password, whatever method the controller uses", func() {
		controllerIn("karpenter", append(endpoint(f.APIURL), corev1.EnvVar{Name: "BIZFLY_CLOUD_AUTH_METHOD", Value: "application_credential"})...)
		f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{
			Region: "HN", SecretRef: &v1alpha1.SecretReference{Name: controllerName}}})
		forbidSecrets()
		unsetEnv("BIZFLY_CLOUD_APP_CRED_ID")
		unsetEnv("BIZFLY_CLOUD_APP_CRED_SECRET")
		setEnv("BIZFLY_CLOUD_EMAIL", f.Credentials().Email)
		setEnv("BIZFLY_CLOUD_PASSWORD", f.Credentials().Password)
		Expect(answer[[]flavors.Row](f, "flavors")).ToNot(BeEmpty())
	})

	It("should be those of the controller's Secret where the user has an e-mail alone", func() {
		controllerIn("karpenter", endpoint(f.APIURL)...)
		secretIn("karpenter", f.Credentials().AppCredID, f.Credentials().AppCredSecret)
		f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{
			Region: "HN", SecretRef: &v1alpha1.SecretReference{Name: controllerName}}})
		unsetEnv("BIZFLY_CLOUD_APP_CRED_ID")
		unsetEnv("BIZFLY_CLOUD_APP_CRED_SECRET")
		setEnv("BIZFLY_CLOUD_EMAIL", f.Credentials().Email)
		Expect(answer[[]flavors.Row](f, "flavors")).ToNot(BeEmpty())
	})

	It("should be the user's own where set, with the right to read the controller's Secret", func() {
		asInstalled()
		secretIn("karpenter", "REAL-ID", "REAL-SECRET-VALUE")
		Expect(answer[[]flavors.Row](f, "flavors")).ToNot(BeEmpty())
	})

	It("should be asked for where the user has none and may not read the controller's Secret", func() {
		onlyCluster()
		controllerIn("karpenter", endpoint(f.APIURL)...)
		forbidSecrets()
		Expect(f.run("flavors")).To(Equal(cli.ExitFailure))
		Expect(f.err).To(And(ContainSubstring("set BIZFLY_CLOUD_REGION"),
			ContainSubstring("you may not get the Secret "+controllerName+" in namespace karpenter"), Not(ContainSubstring("resourceNames"))))
	})

	It("should be read with the controller's settings, whatever other programs have in the shell", func() {
		setEnv("LOG_LEVEL", "trace")
		setEnv("FEATURE_GATES", "everything")
		setEnv("SCHEDULER_CONFIG", "/etc/scheduler.yaml")
		d := f.controller(corev1.EnvVar{Name: "FEATURE_GATES", Value: "NodeOverlay=true"})
		d.Spec.Template.Spec.Containers[0].Args = []string{"--zap-encoder", "json", "--disable-leader-election", "--batch-max-duration", "20s",
			"--batch-idle-duration=2s"}
		f.put(d)
		f.change = func(s *connect.Session) {
			Expect(s.Core.FeatureGates.NodeOverlay).To(BeTrue())
			Expect(s.Core.BatchMaxDuration).To(Equal(20 * time.Second))
			Expect(s.Core.BatchIdleDuration).To(Equal(2 * time.Second))
		}
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(And(ContainSubstring("FEATURE_GATES of your shell is not used"), ContainSubstring("SCHEDULER_CONFIG of your shell is not used")))
		Expect(os.Getenv("FEATURE_GATES")).To(Equal("everything"))
	})

	It("should read no variable of a Deployment but settings", func() {
		fromSecret := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "others"}, Key: "a"}}
		f.put(f.controller(corev1.EnvVar{Name: "DB_PASSWORD", ValueFrom: fromSecret}, corev1.EnvVar{Name: "VM_MEMORY_OVERHEAD_PERCENT", Value: "0.2"},
			corev1.EnvVar{Name: "FEATURE_GATES", Value: "NodeOverlay=true"}))
		f.change = func(s *connect.Session) {
			Expect(s.Settings.MemoryOverheadPercent).To(Equal(0.2))
			Expect(s.Core.FeatureGates.NodeOverlay).To(BeTrue())
		}
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).ToNot(ContainSubstring("karpenter/others"))
		f.put(f.controller(corev1.EnvVar{Name: "BIZFLY_CLOUD_PASSWORD", ValueFrom: fromSecret}))
		f.change = nil
		Expect(f.run("top")).To(Equal(cli.ExitOK), f.err)
		Expect(f.err).To(ContainSubstring("karpenter/others"))
	})
})

var _ = Describe("a terminal", func() {
	const escape = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\u009b8m\r\x1b[32m✓ everything is in order"

	It("should get no control character from the cluster", func() {
		f.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u1"}},
			&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Type: "Warning", Message: "Liveness probe failed: " + escape,
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default", UID: "u1"}, LastTimestamp: metav1.Now()},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: "Ready", Status: "False", Message: escape}}}})
		setEnv("FORCE_COLOR", "true")
		colors := strings.NewReplacer("\x1b[31m", "", "\x1b[33m", "", "\x1b[0m", "")
		for _, args := range [][]string{{"why", "p"}, {"why", "node/n1"}} {
			Expect(f.run(args...)).To(Equal(cli.ExitOK), f.err)
			Expect(f.out).To(ContainSubstring(`\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x9b8m\x0d\x1b[32m`))
			// What is left are the colours of the plugin itself.
			Expect(colors.Replace(f.out)).ToNot(MatchRegexp("[\x00-\x08\x0b-\x1f\x7f-\u009f]"))
			var decoded map[string]any
			Expect(f.run(append(args, "-o", "json")...)).To(Equal(cli.ExitOK), f.err)
			Expect(f.out).ToNot(MatchRegexp("[\x00-\x08\x0b-\x1f\x7f-\u009f]"))
			Expect(json.Unmarshal([]byte(f.out), &decoded)).To(Succeed())
			Expect(f.run(append(args, "-o", "yaml")...)).To(Equal(cli.ExitOK), f.err)
			Expect(f.out).ToNot(MatchRegexp("[\x00-\x08\x0b-\x1f\x7f-\u009f]"))
		}
		Expect(f.run("why", "node/"+escape)).To(Equal(cli.ExitFailure))
		Expect(colors.Replace(f.err)).To(And(ContainSubstring(`\x1b]0;owned`), Not(ContainSubstring("\x1b"))))
	})

	It("should get one line of what others write, and none that reads backwards", func() {
		const forged = "quota\n    why: each attempt is paid for\n    fix: kubectl get events\n\nerror   RightsMissing\n    " +
			"fix: kubectl apply -f https://fix.example\n" +
			"ok \u202egnorw\u202c\u2028\nWhat would help:\n  - kubectl apply -f https://fix.example"
		f.install()
		f.apply(pools)
		event := func(namespace, name, kind, of string) {
			f.put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: "Warning", Reason: "LaunchFailed", LastTimestamp: metav1.Now(),
				InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: kind, Name: of}, Message: forged})
		}
		f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		By("nothing of a tenant's namespace about what has no namespace")
		event("team-a", "claim", "NodeClaim", "x")
		event("team-a", "node", "Node", "n1")
		for _, args := range [][]string{{"doctor"}, {"why", "node/n1"}} {
			f.run(args...)
			Expect(f.out+f.err).ToNot(ContainSubstring("fix.example"), "%v", args)
		}
		By("one line of what is in default")
		event("default", "claim", "NodeClaim", "x")
		event("default", "node", "Node", "n1")
		for _, args := range [][]string{{"doctor"}, {"why", "node/n1"}} {
			f.run(args...)
			Expect(f.out).To(ContainSubstring(`quota\n    why: each attempt is paid for\n    fix: kubectl get events\n\nerror   RightsMissing\n`), "%v", args)
			Expect(f.out).To(ContainSubstring(`ok \u202egnorw\u202c\u2028\nWhat would help:\n`), "%v", args)
			Expect(f.out).ToNot(MatchRegexp("(?m)^ *(error +RightsMissing|What would help|- kubectl apply|fix: kubectl apply -f https)"), "%v", args)
		}
		for _, format := range []string{"json", "yaml"} {
			f.run("why", "node/n1", "-o", format)
			Expect(f.out).To(And(ContainSubstring("gnorw"), Not(ContainSubstring("\u202e"))), format)
		}
	})
})

var _ = Describe("support-bundle", func() {
	It("should hold no annotation that may hold the whole object, nor a secret inside a value", func() {
		const object = `{"kind":"BizflyNodeClass","spec":{"userData":"#!/bin/sh\nK3S_TOKEN=K10abc::server:THE-SECRET k3s agent"}}`
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		Expect(writer.Write([]byte(object))).Error().ToNot(HaveOccurred())
		Expect(writer.Close()).To(Succeed())
		applied := base64.RawStdEncoding.EncodeToString(compressed.Bytes())
		f.install()
		f.put(&v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "k3s", Annotations: map[string]string{
			"objectset.rio.cattle.io/applied": applied, "kapp.k14s.io/original": object, "karpenter.bizflycloud.vn/shown": "shown-value",
			corev1.LastAppliedConfigAnnotation: object,
		}}, Spec: v1alpha1.BizflyNodeClassSpec{UserData: lo.ToPtr("#!/bin/sh")}})
		d := f.controller()
		d.Spec.Template.Annotations = map[string]string{"checksum/credentials": "abc123hash"}
		d.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "named-pull-secret"}}
		f.put(d)
		files := supportBundle()
		for name, content := range files {
			Expect(content).ToNot(Or(ContainSubstring(applied), ContainSubstring("THE-SECRET"), ContainSubstring("abc123hash")), name)
		}
		Expect(files["support-bundle/cluster/bizflynodeclasses.karpenter.bizflycloud.vn.yaml"]).To(ContainSubstring("shown-value"))
		Expect(files["support-bundle/controller/deployment.yaml"]).To(ContainSubstring("named-pull-secret"))
	})

	It("should hold no secret that a review has planted, and the events that are about Karpenter", func() {
		f.install()
		f.put(f.controller(
			corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxyuser:Pr0xyPassw0rd@proxy.corp:3128"}, corev1.EnvVar{Name: "DB_PWD", Value: "plainPWD-1"},
		))
		f.apply(`
apiVersion: karpenter.bizflycloud.vn/v1alpha1
kind: BizflyNodeClass
metadata: {name: a}
spec: {userData: "#!/bin/sh\nk3s token", tags: {k3s-server: "K10aaa::server:tagvalue"}}
`)
		event := func(namespace, kind, name, message string) {
			f.put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Message: message,
				InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: kind, Name: name}})
		}
		const texts = `{"password": "abc\"def-tail"} token: abc def-second-word`
		const tokens = "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl K10abcdef::server:0123456789 abcdef.0123456789abcdef"
		event("payments", "Pod", "pay-1", "could not connect to postgres://pay:S3cr3tDSN@db/pay; customer 4111-1111, AKIAIOSFODNN7EXAMPLE "+texts+tokens)
		event("default", "Node", "n1", "about-a-node \u009b\x1b[2J postgres://pay:S3cr3tDSN@db/pay "+texts)
		event("default", "NodeClaim", "c1", "about-a-claim "+tokens)
		event("karpenter", "Pod", "karpenter-1", "about-the-controller")
		files := supportBundle()
		for name, content := range files {
			for _, planted := range []string{"Pr0xyPassw0rd", "plainPWD-1", "S3cr3tDSN", "4111-1111", "def-tail", "def-second-word", "AKIAIOSFODNN7EXAMPLE",
				"eyJzdWIiOiIxIn0", "K10abcdef", "K10aaa", "k3s token", "abcdef.0123456789abcdef"} {
				Expect(content).ToNot(ContainSubstring(planted), name)
			}
		}
		Expect(files["support-bundle/cluster/events.yaml"]).To(And(ContainSubstring("about-a-node"), ContainSubstring("about-a-claim"),
			ContainSubstring("about-the-controller"), Not(ContainSubstring("pay-1"))))
		Expect(files["support-bundle/controller/deployment.yaml"]).To(And(ContainSubstring("name: HTTPS_PROXY"), ContainSubstring("name: DB_PWD")))
	})
})
