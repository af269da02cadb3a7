// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/e2e"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	// mark is in every secret of this suite, so that one search finds any of them.
	mark               = "MARKED0SECRET0"
	markedPassword     = mark + "password"
	markedAppSecret    = mark + "application0credential"
	markedClusterToken = mark + "cluster0token"
	markedToken        = mark + "token0"
	markedWrong        = mark + "wrong"
	appCredID          = "9c1f5a7f2d1b4e6f8a3c5b7d9e0f1a2b"

	controllerNamespace = "karpenter"
	secretName          = "karpenter-provider-bizflycloud"
)

// markedSecrets are the arguments that give the sandbox its secrets.
func markedSecrets() []string {
	return []string{
		"--password=" + markedPassword, "--app-credential-id=" + appCredID, "--app-credential-secret=" + markedAppSecret,
		"--cluster-token=" + markedClusterToken, "--token-prefix=" + markedToken,
	}
}

// shapes are the mark as it looks in text and, wherever it begins, in base64.
func shapes() []string {
	found := []string{mark}
	for offset := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + mark))
		// What depends on the neighbours is cut off.
		found = append(found, strings.TrimRight(encoded, "=")[(offset*8+5)/6:len(mark)*8/6])
	}
	return found
}

// leaks are the surroundings of every mark in a text.
func leaks(text string) []string {
	var found []string
	for _, shape := range shapes() {
		for rest := text; ; {
			at := strings.Index(rest, shape)
			if at < 0 {
				break
			}
			found = append(found, rest[max(0, at-150):min(len(rest), at+60)])
			rest = rest[at+len(shape):]
		}
	}
	return found
}

// written is everything that the controller has written by now, and everything that it writes to, by its name.
func written(g Gomega) map[string]string {
	log, err := os.ReadFile(filepath.Join(env.Dir(), "logs", "controller.log"))
	g.Expect(err).NotTo(HaveOccurred())
	_, metrics := fetched(g, env.Controller().MetricsURL())
	texts := map[string]string{"log": string(log), "metrics": metrics}
	for _, probe := range []string{"healthz?verbose", "readyz?verbose"} {
		_, texts[probe] = fetched(g, env.Controller().HealthURL()+probe)
	}
	for kind, list := range map[string]client.ObjectList{
		"events": &corev1.EventList{}, "nodes": &corev1.NodeList{}, "pods": &corev1.PodList{}, "config maps": &corev1.ConfigMapList{},
		"namespaces": &corev1.NamespaceList{}, "leases": &coordinationv1.LeaseList{}, "claims": &karpv1.NodeClaimList{}, "pools": &karpv1.NodePoolList{},
		"node classes": &v1alpha1.BizflyNodeClassList{}, "provider configs": &v1alpha1.ProviderConfigList{},
	} {
		content, err := json.Marshal(e2e.Listed(g, env, list))
		g.Expect(err).NotTo(HaveOccurred())
		texts[kind] = string(content)
	}
	return texts
}

// expectNoSecret searches everything.
func expectNoSecret(when string) {
	GinkgoHelper()
	for place, text := range written(Default) {
		Expect(leaks(text)).To(BeEmpty(), "in the %s, %s", place, when)
	}
}

// providerConfig is the one that counts.
func providerConfig(g Gomega) *v1alpha1.ProviderConfig {
	config := &v1alpha1.ProviderConfig{}
	g.Expect(env.Client().Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, config)).To(Succeed())
	return config
}

// useSecret makes the ProviderConfig name the Secret, or none.
func useSecret(reference *v1alpha1.SecretReference) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		config := providerConfig(g)
		config.Spec.SecretRef = reference
		g.Expect(env.Client().Update(ctx, config)).To(Succeed())
	}).Should(Succeed())
}

func metaOf(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

var _ = Describe("Secrets", func() {
	It("should be found where they are written, by this suite's own search", func() {
		for _, text := range []string{
			"token=" + markedToken + "1", base64.StdEncoding.EncodeToString([]byte(markedPassword)),
			base64.StdEncoding.EncodeToString([]byte("a" + markedPassword)), base64.RawURLEncoding.EncodeToString([]byte(`{"password":"` + markedPassword + `"}`)),
		} {
			Expect(leaks(text)).NotTo(BeEmpty(), text)
		}
		Expect(leaks("nothing to see here")).To(BeEmpty())
	})
	It("should be in nothing that the controller writes, in any case", func() {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: secretName},
			StringData: map[string]string{"application_credential_id": appCredID, "application_credential_secret": markedAppSecret},
		}
		create(secret)
		DeferCleanup(useSecret, (*v1alpha1.SecretReference)(nil))

		By("scaling up while the cloud rejects, fails and repeats what it was sent")
		echo := "invalid metadata: bke_cluster_token=" + markedClusterToken + " password " + markedPassword + " X-Auth-Token: " + markedToken
		behave := misbehave(
			cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusBadRequest, Message: echo, Count: 1},
			cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectErrorServer, Message: echo, Skip: 1, Count: 1},
			cloud.Fault{Method: http.MethodPost, Path: "/servers", Effect: cloud.EffectLostResponse, Skip: 2, Count: 1},
			cloud.Fault{Method: http.MethodGet, Path: "/servers", Effect: cloud.EffectStatus, Status: http.StatusBadGateway, Message: echo, Probability: 0.2},
		)
		pool := readyPool()
		web := deployment(pool, 2, environment.Apart)
		create(web)
		Eventually(func(g Gomega) { g.Expect(running(g, web)).To(HaveLen(2)) }).WithTimeout(afterOutage).Should(Succeed())
		behave()
		expectNoSecret("after launches that failed in every way")

		By("rotating the credentials")
		loggedInBefore := providerConfig(Default).Status.LastLoginTime
		useSecret(&v1alpha1.SecretReference{Name: secretName})
		Eventually(func(g Gomega) {
			config := providerConfig(g)
			g.Expect(config.Status.LastLoginTime).NotTo(Equal(loggedInBefore))
			g.Expect(config.StatusConditions().Get(v1alpha1.ConditionTypeCredentialsReady).IsTrue()).To(BeTrue())
		}).Should(Succeed())
		Expect(env.Sandbox().Call(ctx, http.MethodPost, "tokens/expire", nil, nil)).To(Succeed())

		By("giving it wrong ones, which the cloud repeats in its rejection")
		behave = misbehave(cloud.Fault{
			Method: http.MethodPost, Path: "/api/token", Contains: markedWrong, Effect: cloud.EffectStatus, Status: http.StatusUnauthorized,
			Message: "no credential has the secret " + markedWrong,
		})
		secret.StringData = map[string]string{"application_credential_secret": markedWrong}
		Expect(env.Client().Update(ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) {
			condition := providerConfig(g).StatusConditions().Get(v1alpha1.ConditionTypeCredentialsReady)
			g.Expect(condition.IsFalse()).To(BeTrue())
			g.Expect(condition.Message).To(ContainSubstring("no credential has the secret"))
		}).WithTimeout(patience + time.Minute).Should(Succeed())
		By("starting with wrong ones, which a controller that has known its cloud does")
		_, err := env.RestartController(ctx, map[string]string{"BIZFLY_CLOUD_PASSWORD": markedWrong, "BIZFLY_CLOUD_APP_CRED_SECRET": markedWrong})
		Expect(err).NotTo(HaveOccurred())
		Consistently(func(g Gomega) { expectProbes(g) }).WithTimeout(10 * time.Second).WithPolling(time.Second).Should(Succeed())
		behave()
		expectNoSecret("while the credentials are wrong")

		By("scaling down with the right ones")
		Expect(env.RestartController(ctx, nil)).Error().NotTo(HaveOccurred())
		secret.StringData = map[string]string{"application_credential_secret": markedAppSecret}
		Expect(env.Client().Update(ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(providerConfig(g).StatusConditions().Root().IsTrue()).To(BeTrue())
		}).Should(Succeed())
		Expect(env.Client().Delete(ctx, web)).To(Succeed())
		expectNothingLeft(pool)
		expectNoSecret("after all is gone")
	})
})

// What the other specs made the controller write is searched as well.
var _ = AfterSuite(func() {
	if env != nil && env.Controller() != nil {
		expectNoSecret("after the whole suite")
	}
})
