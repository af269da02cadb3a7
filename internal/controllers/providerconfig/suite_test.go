// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package providerconfig_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	coretest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/controllers/providerconfig"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/account"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/config"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/tuning"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/ttl"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
)

const (
	namespace    = "default"
	secretName   = "karpenter-provider-bizflycloud"
	tuningName   = "karpenter-provider-bizflycloud-tuning"
	otherProject = "0000000000000000000000000000dead"
)

var (
	ctx        = context.Background()
	env        *coretest.Environment
	kubeClient client.Client
	sandbox    *cloud.Sandbox
	process    *replica
	// apiServers are the addresses that the API servers publish.
	apiServers []string
)

func TestProviderConfig(t *testing.T) { suite.Run(t, "ProviderConfig") }

var _ = unit.APIServer(&env, func() {
	// As in production: what decides about the scope is read from the API server itself.
	kubeClient = lo.Must(client.New(env.Config, client.Options{Scheme: scheme.Scheme}))
})

// reader is an API server beside those of apiServers; the one of the suite publishes no address, or its own.
type reader struct{ client.Reader }

// errUnreadable is the error of reading the ProviderConfig; nil where it can be read. afterRead is called once it was read; nil for nothing.
var (
	errUnreadable error
	afterRead     func()
)

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, ok := object.(*v1alpha1.ProviderConfig); ok {
		if errUnreadable != nil {
			return errUnreadable
		}
		if afterRead != nil {
			defer afterRead()
		}
	}
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return r.Reader.Get(ctx, key, object, options...)
	}
	slice.Ports = []discoveryv1.EndpointPort{{Port: lo.ToPtr[int32](6443)}}
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: apiServers}}
	return nil
}

// replica is one process of the controller: its client, and its look at the configuration.
type replica struct {
	client     *bizfly.Client
	catalog    *catalog.DefaultProvider
	controller *providerconfig.Controller
	recorder   *coretest.EventRecorder
	clock      *clocktesting.FakeClock
	// active are the settings, and seen what was in force when a spec looked last.
	active *options.Store
	seen   *options.Options
	// forms are those of its create requests.
	forms instance.Forms
	// limit is the reason of the limit that holds launches back.
	limit string
	// account is the reason of BizFly Cloud's rejection of the account.
	account string
	// elect lets it win the lease.
	elect func()
}

func environment() bizfly.Config {
	credentials := sandbox.Credentials()
	return bizfly.Config{
		APIURL: sandbox.APIURL, AllowHTTP: true, Region: credentials.Region, AuthMethod: bizfly.AuthMethodAppCredential,
		AppCredID: credentials.AppCredID, AppCredSecret: credentials.AppCredSecret, Registerer: prometheus.NewRegistry(),
	}
}

// start makes a replica as the operator does; a leader has won the lease.
func start(leader bool, base bizfly.Config) *replica { return startWith(leader, base, true) }

// startWith makes a replica that makes a ProviderConfig where there is none, or does not.
func startWith(leader bool, base bizfly.Config, create bool) *replica {
	r := &replica{recorder: coretest.NewEventRecorder(), clock: clocktesting.NewFakeClock(time.Now())}
	r.client = bizfly.NewInactiveClient(base)
	settings := config.NewDefaultProvider(config.Options{
		Reader: reader{kubeClient}, Client: r.client, Environment: base, Namespace: namespace, SecretName: secretName,
	})
	settings.Sync(ctx) // a process looks once before its controllers start
	r.catalog = catalog.NewDefaultProvider(r.client, clock.RealClock{}, catalog.Config{})
	elected := make(chan struct{})
	r.elect = func() { close(elected) }
	if leader {
		r.elect()
	}
	opts := options.Defaults()
	opts.Namespace, opts.TuningConfigMapName = namespace, tuningName
	r.active, r.seen = options.NewStore(opts), opts
	tuned := tuning.NewDefaultProvider(kubeClient, r.active)
	r.controller = providerconfig.NewController(r.clock, kubeClient, events.Recorder(r.recorder), settings, tuned,
		r.catalog, r, account.NewProvider(r.client, r.clock).UnpaidAtRest, &r.forms, create, elected)
	return r
}

// LimitReached implements providerconfig.Launches.
func (r *replica) LimitReached() (reason, description string) { return r.limit, "a description" }

// AccountRejected implements providerconfig.Launches.
func (r *replica) AccountRejected() (reason, description string) { return r.account, "a description" }

// look reconciles as often as the controller asks for it at once.
func (r *replica) look() {
	GinkgoHelper()
	for range 5 {
		result := lo.Must(r.controller.Reconcile(ctx))
		if result.RequeueAfter.Seconds() >= 1 {
			return
		}
	}
	Fail("the controller does not come to rest")
}

func stored() *v1alpha1.ProviderConfig {
	GinkgoHelper()
	object := &v1alpha1.ProviderConfig{}
	Expect(kubeClient.Get(ctx, types.NamespacedName{Name: v1alpha1.ProviderConfigName}, object)).To(Succeed())
	return object
}

func condition(name string) *status.Condition {
	GinkgoHelper()
	return stored().StatusConditions().Get(name)
}

func apply(spec v1alpha1.ProviderConfigSpec) {
	GinkgoHelper()
	object := stored()
	object.Spec = spec
	Expect(kubeClient.Update(ctx, object)).To(Succeed())
}

func applySecret(name string, data map[string]string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	Expect(client.IgnoreNotFound(kubeClient.Delete(ctx, secret))).To(Succeed())
	secret.ResourceVersion, secret.StringData = "", data
	Expect(kubeClient.Create(ctx, secret)).To(Succeed())
}

var _ = Describe("ProviderConfig", func() {
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{})
		process = start(true, environment())
	})
	AfterEach(func() {
		sandbox.Close()
		Expect(kubeClient.DeleteAllOf(ctx, &v1alpha1.ProviderConfig{})).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &karpv1.NodeClaim{})).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(namespace))).To(Succeed())
		Expect(kubeClient.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
	})

	Context("first contact", func() {
		It("should keep servers and volumes out of reach before a scope is written down", func() {
			_, err := process.client.ListServers(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			_, err = process.client.GetServer(ctx, "71b9caeb-0000-4000-8000-000000000000")
			Expect(bizfly.IsNotFound(err)).To(BeFalse(), "closed must never look like gone")
			_, err = process.client.ListVolumes(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())
			_, err = process.client.ListFlavors(ctx)
			Expect(err).ToNot(HaveOccurred(), "what the cloud offers belongs to no project")
		})
		It("should make the ProviderConfig where there is none, write the scope down and open", func() {
			process.look()
			Expect(stored().Status.Scope).To(Equal(&v1alpha1.ScopeStatus{
				Host: lo.Must(process.client.Scope(ctx)).Host, Region: "HaNoi", ProjectID: sandbox.Credentials().ProjectID,
			}))
			Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
			Expect(stored().Status.LastLoginTime).ToNot(BeNil())
			Expect(process.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should wait for a user's ProviderConfig where it must create none, and use it", func() {
			process = startWith(true, environment(), false)
			process.look()
			Expect(kubeClient.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, &v1alpha1.ProviderConfig{})).To(MatchError(ContainSubstring("not found")))
			_, err := process.client.ListServers(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue(), "nothing can be ordered meanwhile")
			Expect(kubeClient.Create(ctx, &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}})).To(Succeed())
			process.look()
			Expect(stored().Status.Scope).ToNot(BeNil())
			Expect(process.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should list the zones once the catalog knows them", func() {
			process.look()
			Expect(stored().Status.Zones).To(BeEmpty())
			Expect(process.catalog.Refresh(ctx)).To(Succeed())
			process.look()
			Expect(stored().Status.Zones).To(ConsistOf("HN1", "HN2"))
		})
		It("should read the catalog of another region at once", func() {
			Expect(process.catalog.Refresh(ctx)).To(Succeed())
			process.look()
			Expect(stored().Status.Zones).To(ConsistOf("HN1", "HN2"))
			apply(v1alpha1.ProviderConfigSpec{Region: "HCM"})
			process.look()
			Expect(stored().Status.Scope.Region).To(Equal("HoChiMinh"))
			Expect(stored().Status.Zones).To(ConsistOf("HCM1"))
		})
		It("should pin another region before its catalog is read, and read that again later", func() {
			Expect(process.catalog.Refresh(ctx)).To(Succeed())
			process.look()
			sandbox.AddFaults(1, cloud.Fault{Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
			apply(v1alpha1.ProviderConfigSpec{Region: "HCM"})
			process.look()
			Expect(stored().Status.Scope.Region).To(Equal("HoChiMinh"))
			read := func() int {
				return lo.CountBy(sandbox.Requests(), func(r cloud.Request) bool { return strings.HasSuffix(r.Path, "/flavors") })
			}
			failed := read()
			process.look()
			Expect(read()).To(Equal(failed), "not at each look")
			sandbox.ClearFaults()
			process.clock.Step(ttl.CatalogBackoff)
			process.look()
			Expect(read()).To(BeNumerically(">", failed))
			process.clock.Step(ttl.CatalogBackoff)
			failed = read()
			process.look()
			Expect(read()).To(Equal(failed), "once it was read")
		})
		It("should not open on a replica that is not the leader before the leader has written", func() {
			follower := start(false, environment())
			result := lo.Must(follower.controller.Reconcile(ctx))
			Expect(result.RequeueAfter).To(BeNumerically(">", 0))
			_, err := follower.client.ListServers(ctx)
			Expect(bizfly.IsAuth(err)).To(BeTrue())

			process.look()
			Expect(follower.controller.Reconcile(ctx)).Error().ToNot(HaveOccurred())
			Expect(follower.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should record accepted forms of create requests, and give them to each new replica", func() {
			process.look()
			Expect(stored().Status.RequestForms).To(BeEmpty())
			learned := map[string]string{"volumeType": "Medium", "flavor.nix": "Short"}
			process.forms.Restore(learned)
			process.look()
			Expect(stored().Status.RequestForms).To(Equal(learned))
			for _, leader := range []bool{true, false} {
				restarted := start(leader, environment())
				Expect(restarted.controller.Reconcile(ctx)).Error().ToNot(HaveOccurred())
				Expect(restarted.forms.Accepted()).To(Equal(learned))
			}
		})
		It("should write nothing once all is said", func() {
			process.look()
			before := stored().ResourceVersion
			process.look()
			Expect(stored().ResourceVersion).To(Equal(before))
		})
	})

	Context("another scope", func() {
		BeforeEach(func() { process.look() })

		for _, claims := range []bool{true, false} {
			It("should "+lo.Ternary(claims, "reject another project while NodeClaims exist", "take another project when no NodeClaim exists"), func() {
				server := sandbox.AddServer(cloud.ServerSpec{Name: "worker"})
				if claims {
					Expect(kubeClient.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
						NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"},
					}}))).To(Succeed())
				}
				apply(v1alpha1.ProviderConfigSpec{ProjectID: otherProject})
				process.look()
				if claims {
					Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))
					Expect(condition(v1alpha1.ConditionTypeScopePinned).Message).To(And(ContainSubstring(otherProject), ContainSubstring(sandbox.Credentials().ProjectID)))
					Expect(process.client.GetServer(ctx, server.ID)).ToNot(BeNil())
					Expect(stored().Status.Scope.ProjectID).To(Equal(sandbox.Credentials().ProjectID))
				} else {
					Expect(stored().Status.Scope.ProjectID).To(Equal(otherProject))
					Expect(process.client.ListServers(ctx)).To(BeEmpty())
				}
			})
		}
		It("should touch nothing after a restart with the credentials of another project", func() {
			server := sandbox.AddServer(cloud.ServerSpec{Name: "worker"})
			Expect(kubeClient.Create(ctx, coretest.NodeClaim(karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "BizflyNodeClass", Name: "default"},
			}}))).To(Succeed())
			elsewhere := environment()
			elsewhere.ProjectID = otherProject
			restarted := start(true, elsewhere)
			restarted.look()
			_, err := restarted.client.GetServer(ctx, server.ID)
			Expect(err).To(HaveOccurred())
			Expect(bizfly.IsNotFound(err)).To(BeFalse(), "a token of another project sees nothing, which is not gone")
			Expect(restarted.client.DeleteServer(ctx, server.ID, nil)).NotTo(Succeed())
			Expect(condition(v1alpha1.ConditionTypeScopePinned).Reason).To(Equal(providerconfig.ReasonScopeChanged))
		})
	})

	Context("credentials", func() {
		BeforeEach(func() { process.look() })

		It("should take a rotated Secret of the same project", func() {
			credentials := sandbox.Credentials()
			// As from a file, which ends with a line break.
			applySecret(secretName, map[string]string{"email": credentials.Email, "password": credentials.Password + "\n"})
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: secretName}})
			process.look()
			Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
			Expect(process.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should keep the old credentials when the new ones are rejected, and not print them", func() {
			applySecret(secretName, map[string]string{"application_credential_id": "wrong", "application_credential_secret": "marked-secret"})
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: secretName}})
			process.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Reason).To(Equal(providerconfig.ReasonCredentialsInvalid))
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Message).ToNot(ContainSubstring("marked-secret"))
			Expect(process.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should name the rule when the Secret is not the one that may be read", func() {
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: "someone-elses"}})
			process.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Reason).To(Equal(providerconfig.ReasonSecretForbidden))
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Message).
				To(And(ContainSubstring("someone-elses"), ContainSubstring(secretName), ContainSubstring("resourceNames")))
		})
		It("should not end a start, but be reported, and taken once they are complete", func() {
			credentials := sandbox.Credentials()
			applySecret(secretName, map[string]string{"application_credential_id": credentials.AppCredID})
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: secretName}})
			base := environment()
			base.AppCredID, base.AppCredSecret = "", ""
			restarted := start(true, base)
			restarted.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Message).To(ContainSubstring("application_credential_secret"))
			_, err := restarted.client.ListFlavors(ctx)
			Expect(bizfly.IsNotSent(err)).To(BeTrue())
			applySecret(secretName, map[string]string{
				"application_credential_id": credentials.AppCredID, "application_credential_secret": credentials.AppCredSecret,
			})
			restarted.look()
			Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
			Expect(restarted.client.ListServers(ctx)).To(BeEmpty())
		})
		It("should say which keys a Secret lacks", func() {
			applySecret(secretName, map[string]string{"user": "x"})
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: secretName}})
			process.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Message).To(ContainSubstring("application_credential_id"))
		})
		It("should read the Secret that the Role grants where the reference names none", func() {
			applySecret(secretName, map[string]string{"user": "x"})
			apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{}})
			process.look()
			Expect(condition(v1alpha1.ConditionTypeCredentialsReady).Message).To(And(ContainSubstring(secretName), ContainSubstring("application_credential_id")))
		})
		It("should show a login before which the replica did not lead, and each once", func() {
			process.look()
			old := stored()
			old.Status.LastLoginTime = lo.ToPtr(metav1.NewTime(time.Now().Add(-time.Hour)))
			Expect(kubeClient.Status().Update(ctx, old)).To(Succeed())
			next := start(false, environment())
			next.look()
			next.elect()
			next.look()
			Expect(stored().Status.LastLoginTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
			reported := stored().ResourceVersion
			next.look()
			Expect(stored().ResourceVersion).To(Equal(reported))
		})
		It("should apply changed limits", func() {
			apply(v1alpha1.ProviderConfigSpec{RateLimits: &v1alpha1.RateLimits{Read: &v1alpha1.RateLimit{QPS: 7}}})
			before := stored().Status.LastLoginTime
			process.look()
			Expect(condition(status.ConditionReady).IsTrue()).To(BeTrue())
			Expect(stored().Status.LastLoginTime.Time).To(BeTemporally(">=", before.Time))
		})
	})

	Context("an outage", func() {
		It("should work on after a restart, as soon as the cloud is back", func() {
			process.look()
			sandbox.AddFaults(1, cloud.Fault{Path: "*", Effect: cloud.EffectStatus, Probability: 1, Status: 503})
			restarted := start(true, environment())
			restarted.look()
			Expect(condition(v1alpha1.ConditionTypeEndpointReachable).Reason).To(Equal(providerconfig.ReasonEndpointUnreachable))
			Expect(stored().Status.Scope).ToNot(BeNil())
			sandbox.ClearFaults()
			Eventually(func() bool { // the next login comes a second or two after the failed ones
				restarted.look()
				return condition(status.ConditionReady).IsTrue()
			}).Should(BeTrue())
			Expect(restarted.client.ListServers(ctx)).To(BeEmpty())
		})
	})

	It("should not be created, nor looked for at once, while it is unknown whether one exists", func() {
		errUnreadable = errors.New("the API server does not answer")
		DeferCleanup(func() { errUnreadable = nil })
		for range 30 {
			_, err := process.controller.Reconcile(ctx)
			Expect(err).To(MatchError(errUnreadable))
			Expect(providerconfig.Retries.When(reconcile.Request{})).To(Equal(ttl.ProviderConfigInterval), "what the queue does with the error")
		}
		err := kubeClient.Get(ctx, client.ObjectKey{Name: v1alpha1.ProviderConfigName}, &v1alpha1.ProviderConfig{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
	It("should be made anew when it is deleted while its status is about to be written", func() {
		process.look()
		apply(v1alpha1.ProviderConfigSpec{SecretRef: &v1alpha1.SecretReference{Name: "missing"}})
		afterRead = func() { Expect(kubeClient.Delete(ctx, stored())).To(Succeed()) }
		DeferCleanup(func() { afterRead = nil })
		_, err := process.controller.Reconcile(ctx)
		Expect(err).To(HaveOccurred(), "without an error and a time nothing would look again")
		afterRead = nil
		process.look()
		Expect(stored().Status.Scope).ToNot(BeNil())
	})
	DescribeTable("should reject invalid specs at once",
		func(spec v1alpha1.ProviderConfigSpec, says string) {
			object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderConfigName}, Spec: spec}
			Expect(kubeClient.Create(ctx, object)).To(MatchError(ContainSubstring(says)))
		},
		Entry("an endpoint that is no address", v1alpha1.ProviderConfigSpec{Endpoint: "manage.bizflycloud.vn"}, "https"),
		Entry("a region that is a zone", v1alpha1.ProviderConfigSpec{Region: "HN1"}, "spec.region"),
		Entry("a project with a slash", v1alpha1.ProviderConfigSpec{ProjectID: "a/b"}, "projectID must be made of letters"),
		Entry("a bundle that is no PEM", v1alpha1.ProviderConfigSpec{CABundle: "x"}, "BEGIN CERTIFICATE"),
		Entry("a limit below one", v1alpha1.ProviderConfigSpec{RateLimits: &v1alpha1.RateLimits{Read: &v1alpha1.RateLimit{QPS: -1}}}, "qps"),
	)
})
