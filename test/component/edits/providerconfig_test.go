// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package edits_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/component/edits"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
)

// granted is the name of the Secret and of the ConfigMap that the controller may read.
const granted = "granted"

// applied is a client that remembers with which configuration it works.
type applied struct {
	*bizfly.Client
	config bizfly.Config
}

// Reconfigure implements config.Client.
func (a *applied) Reconfigure(c bizfly.Config) error {
	err := a.Client.Reconfigure(c)
	if err == nil {
		a.config = c
	}
	return err
}

// process is the controller of the ProviderConfig in a process that has just started.
type process struct {
	client     *applied
	controller *providerconfig.Controller
}

// claimed is a reader of the API server that has one NodeClaim without a server, or none.
type claimed struct {
	client.Reader
	claims bool
}

func (c *claimed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	claims, ok := list.(*karpv1.NodeClaimList)
	if !ok {
		return c.Reader.List(ctx, list, opts...)
	}
	claims.Items = nil
	if c.claims {
		claims.Items = []karpv1.NodeClaim{{Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group}}}}
	}
	return nil
}

func newProcess(claims bool) *process {
	GinkgoHelper()
	credentials := env.Sandbox.Credentials()
	base := bizfly.Config{
		APIURL: env.Sandbox.APIURL, AllowHTTP: true, Region: credentials.Region, AuthMethod: bizfly.AuthMethodAppCredential,
		AppCredID: credentials.AppCredID, AppCredSecret: credentials.AppCredSecret, Registerer: prometheus.NewRegistry(),
	}
	made := lo.Must(bizfly.NewClient(base))
	p := &process{client: &applied{Client: made, config: base}}
	settings := config.NewDefaultProvider(config.Options{
		Reader: &claimed{Reader: env.APIReader, claims: claims}, Environment: base, Namespace: metav1.NamespaceDefault, SecretName: granted,
		Client: p.client, Clock: env.Clock,
	})
	opts := options.Defaults()
	opts.Namespace, opts.TuningConfigMapName = metav1.NamespaceDefault, granted
	elected := make(chan struct{})
	close(elected)
	p.controller = providerconfig.NewController(env.Clock, env.APIReader, env.Recorder, settings,
		tuning.NewDefaultProvider(env.APIReader, options.NewStore(opts)), env.Catalog, env.CloudProvider.Launches, env.Account.UnpaidAtRest,
		&instance.Forms{}, false, elected)
	return p
}

// state is what a ProviderConfig says, without times, and what is active.
type state struct {
	Conditions map[string]string
	Status     v1alpha1.ProviderConfigStatus
	Active     bizfly.Config
}

// settle lets the controller look until it is at rest.
func (p *process) settle() (*v1alpha1.ProviderConfig, state) {
	GinkgoHelper()
	object := &v1alpha1.ProviderConfig{}
	for range 5 {
		result := lo.Must(p.controller.Reconcile(ctx))
		if result.RequeueAfter.Seconds() < 1 {
			continue
		}
		Expect(env.APIReader.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object)).To(Succeed())
		found := state{Conditions: map[string]string{}, Status: *object.Status.DeepCopy(), Active: p.client.config}
		for _, condition := range object.Status.Conditions {
			// The library lists in Ready what is wrong in the order in which it went wrong.
			parts := strings.Split(condition.Message, ", ")
			if condition.Type == status.ConditionReady {
				slices.Sort(parts)
			}
			found.Conditions[condition.Type] = fmt.Sprintf("%s, %s: %s", condition.Status, condition.Reason, strings.Join(parts, ", "))
		}
		found.Status.Conditions, found.Status.LastLoginTime, found.Active.Registerer = nil, nil, nil
		return object, found
	}
	Fail("the controller does not come to rest")
	return nil, state{}
}

func writeConfig(spec map[string]any) error {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProviderConfig"))
	err := env.APIReader.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, object)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	object.SetName(v1alpha1.ProviderConfigName)
	object.Object["spec"] = runtime.DeepCopyJSON(spec)
	if err != nil {
		return env.APIReader.Create(ctx, object)
	}
	return env.APIReader.Update(ctx, object)
}

func deleteConfig() {
	GinkgoHelper()
	Expect(env.APIReader.DeleteAllOf(ctx, &v1alpha1.ProviderConfig{})).To(Succeed())
}

var _ = Describe("A ProviderConfig", func() {
	var (
		schema *edits.Schema
		bases  []map[string]any
		// counted are edits that were tried, rejected by the API server, and not ready.
		tried, rejected, unready int
	)
	BeforeEach(func() {
		credentials := env.Sandbox.Credentials()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: granted, Namespace: metav1.NamespaceDefault}, StringData: map[string]string{
			config.SecretKeyAppCredID: credentials.AppCredID, config.SecretKeyAppCredSecret: credentials.AppCredSecret,
		}}
		tuned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: granted, Namespace: metav1.NamespaceDefault}}
		Expect(env.APIReader.Create(ctx, secret)).To(Succeed())
		Expect(env.APIReader.Create(ctx, tuned)).To(Succeed())
		DeferCleanup(func() {
			deleteConfig()
			Expect(env.APIReader.Delete(ctx, secret)).To(Succeed())
			Expect(env.APIReader.Delete(ctx, tuned)).To(Succeed())
		})
		authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: env.Config.CAData}))
		if strings.HasPrefix(string(env.Config.CAData), "-----") {
			authority = string(env.Config.CAData)
		}
		var err error
		schema, err = edits.New(apis.CRDs[1], map[string][]any{
			"endpoint":                {env.Sandbox.APIURL, "https://127.0.0.1:1/api", "http://127.0.0.1:1/api", "ftp://127.0.0.1/api", "https://"},
			"projectID":               {credentials.ProjectID, "0000000000000000000000000000dead"},
			"secretRef.name":          {granted, "of-others"},
			"tuningConfigMapRef.name": {granted, "of-others"},
			"caBundle":                {authority, "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"},
		})
		Expect(err).ToNot(HaveOccurred())
		limit := map[string]any{"qps": int64(5), "burst": int64(6), "concurrency": int64(7)}
		bases = []map[string]any{{}, {
			"endpoint": env.Sandbox.APIURL, "region": "HN", "projectID": credentials.ProjectID, "secretRef": map[string]any{"name": granted},
			"caBundle": authority, "tuningConfigMapRef": map[string]any{"name": granted}, "rateLimits": map[string]any{"create": limit, "read": limit, "delete": limit},
		}}
		tried, rejected, unready = 0, 0, 0
	})

	// try edits the base and goes back to it.
	try := func(base map[string]any, claims bool, all ...edits.Edit) {
		GinkgoHelper()
		spec := schema.Apply(base, all...)
		if same(spec, base) {
			return
		}
		tried++
		story := storyOf(all)
		Expect(writeConfig(base)).To(Succeed())
		p := newProcess(claims)
		first, before := p.settle()
		Expect(first.StatusConditions().Root().IsTrue()).To(BeTrue(), "%v", before.Conditions)
		defer deleteConfig()
		if err := writeConfig(spec); err != nil {
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", story, err)
			expectNamed(err.Error(), story, all)
			rejected++
			return
		}
		object, now := p.settle()
		ready := object.StatusConditions().Root().IsTrue()
		if !ready {
			unready++
			texts := strings.Join(lo.Values(lo.PickBy(now.Conditions, func(_, text string) bool { return !strings.HasPrefix(text, "True") })), "; ")
			expectNamed(texts, story, all)
		}
		if !ready && !object.StatusConditions().Get(v1alpha1.ConditionTypeTuningReady).IsFalse() {
			Expect(now.Active).To(Equal(before.Active), "%s: what was active does not stay active", story)
		}
		// A process that starts with it comes to the same.
		_, again := newProcess(claims).settle()
		Expect(again.Conditions).To(Equal(now.Conditions), "%s: conditions depend on the history", story)
		if ready {
			Expect(again.Active).To(Equal(now.Active), "%s: what is active depends on the history", story)
		}
		Expect(writeConfig(base)).To(Succeed())
		_, back := p.settle()
		Expect(back).To(Equal(before), "%s, and back", story)
	}

	DescribeTable("should be the same after each edit of a field, and of two, and back", func(claims bool) {
		var problems []string
		attempt := func(base map[string]any, all ...edits.Edit) {
			if failures := InterceptGomegaFailures(func() { try(base, claims, all...) }); len(failures) > 0 {
				problems = append(problems, failures[0])
			}
		}
		for i, base := range bases {
			for j, edit := range schema.Edits() {
				if chosen(j, i, len(bases)) {
					attempt(base, edit)
				}
			}
		}
		AddReportEntry("edits", fmt.Sprintf("%d edits: %d rejected, %d not ready", tried, rejected, unready))
		tried, rejected, unready = 0, 0, 0
		seed := GinkgoRandomSeed()
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		for _, pair := range pairs(schema, random, int(suite.Number(pairsVariable, 20)), func(edits.Edit) bool { return true }) {
			attempt(bases[random.IntN(len(bases))], pair...)
		}
		AddReportEntry("pairs of edits", fmt.Sprintf("%d edits: %d rejected, %d not ready", tried, rejected, unready))
		Expect(problems).To(BeEmpty(), "again with GINKGO_SEED=%d: %s", seed, strings.Join(problems, "\n"))
	},
		Entry("while there are no NodeClaims", false),
		Entry("while there are NodeClaims", true),
	)
})
