// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/yaml"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/cli"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/connect"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/cmd/kubectl-bizfly/internal/rules"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/capacity"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/providerid"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

func parse(quantity string) (resource.Quantity, error) { return resource.ParseQuantity(quantity) }

// nodeClass is a NodeClass with a spec.
func nodeClass(spec string) func(*fixture) {
	return func(f *fixture) {
		f.apply("apiVersion: karpenter.bizflycloud.vn/v1alpha1\nkind: BizflyNodeClass\nmetadata: {name: default}\nspec: " + spec)
	}
}

// limited is NodePool default with a limit of CPU, and what is in use of it.
func limited(limit, used string) func(*fixture) {
	return func(f *fixture) {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		Expect(client.IgnoreNotFound(f.objects.Get(context.Background(), client.ObjectKeyFromObject(pool), pool))).To(Succeed())
		pool.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse(limit)}
		pool.Status.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(used)}
		f.put(pool)
	}
}

func deployment(name, image string) func(*fixture) {
	return func(f *fixture) {
		f.put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}}}})
	}
}

func node(change func(*corev1.Node)) func(*fixture) {
	return func(f *fixture) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)), Labels: map[string]string{corev1.LabelTopologyZone: "HN1"},
		}, Spec: corev1.NodeSpec{ProviderID: "bizflycloud://1"}}
		change(n)
		f.put(n)
	}
}

// event is an event of the controller, so long ago.
func event(name string, e karpevents.Event, ago time.Duration) func(*fixture) {
	return func(f *fixture) {
		kind := lo.Must(apiutil.GVKForObject(e.InvolvedObject, scheme.Scheme)).Kind
		of := lo.CoalesceOrEmpty(e.InvolvedObject.(client.Object).GetName(), "x")
		f.put(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Type: e.Type, Reason: e.Reason, Message: e.Message,
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: of}, LastTimestamp: metav1.NewTime(time.Now().Add(-ago))})
	}
}

// staticWaits is the event of NodePool default that nothing it lacks can be launched.
func staticWaits(ago time.Duration) func(*fixture) {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	return event("e", events.StaticNodePoolWaits(pool, 3), ago)
}

func claimNamed(name string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

var (
	errQuota      = errors.New("quota exceeded")
	quotaTooSmall = events.QuotaTooSmall(&karpv1.NodeClaim{}, 8, 16384, time.Hour, errQuota)
	quotaPaused   = events.LaunchesPaused(&v1alpha1.BizflyNodeClass{}, capacity.ReasonQuotaExceeded, time.Hour, errQuota)
)

// buffers switches the controller's feature gate CapacityBuffer on.
func buffers(f *fixture) {
	GinkgoHelper()
	f.put(f.controller(corev1.EnvVar{Name: "FEATURE_GATES", Value: "CapacityBuffer=true"}))
}

func variable(key, value string) func(*fixture) { return func(*fixture) { setEnv(key, value) } }

// closedPort is an address at which no process listens.
func closedPort() string {
	listener := lo.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String() + "/api"
}

// policy is a policy about an address, of a network plugin.
func policy(apiVersion, kind, address string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "block"},
		"spec": map[string]any{"egressDeny": []any{map[string]any{"toCIDR": []any{address}}}},
	}}
}

// pin makes the cluster one whose servers are in another project at this host.
func (f *fixture) pin(host string) {
	GinkgoHelper()
	f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: v1alpha1.ProviderConfigStatus{
		Scope: &v1alpha1.ScopeStatus{Host: host, Region: "HaNoi", ProjectID: "another"},
	}})
}

func codesOf(report rules.Report) []string {
	return lo.Map(report.Findings, func(finding rules.Finding, _ int) string { return finding.Code })
}

// provoked are the codes of the findings that the table below provokes.
var provoked = map[string]bool{}

// finding is a rule, what breaks it, and what its fix does.
func finding(name, code string, severity rules.Severity, provoke, fix func(*fixture)) TableEntry {
	provoked[code] = true
	return Entry(name, code, severity, provoke, fix)
}

// expectFinding provokes a finding, applies its fix, and expects that this ends it.
func (f *fixture) expectFinding(code string, severity rules.Severity, provoke, fix func(*fixture), args ...string) rules.Report {
	GinkgoHelper()
	provoke(f)
	report := answer[rules.Report](f, args...)
	found, ok := lo.Find(report.Findings, func(finding rules.Finding) bool { return finding.Code == code })
	Expect(ok).To(BeTrue(), "%+v skipped: %v", report.Findings, report.Skipped)
	Expect(found.Severity).To(Equal(severity))
	Expect([]string{found.What, found.Why, found.Fix}).ToNot(ContainElement(BeEmpty()))
	Expect(f.run(args...)).To(Equal(lo.Ternary(report.Failed(false), cli.ExitFindings, cli.ExitOK)))
	Expect(f.out).To(ContainSubstring(code))
	fix(f)
	Expect(codesOf(answer[rules.Report](f, args...))).ToNot(ContainElement(code), "its fix ends it: %s", found.Fix)
	return report
}

// apiServer lets the API server be of a version.
func apiServer(gitVersion string) func(*fixture) {
	return func(f *fixture) {
		f.change = func(s *connect.Session) {
			clientset := fake.NewClientset()
			clientset.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: gitVersion}
			s.Kubernetes = clientset
		}
	}
}

// scaledToZero is what the fix of a second autoscaler does.
func scaledToZero(name string) func(*fixture) {
	return func(f *fixture) {
		of := get[appsv1.Deployment](f, "kube-system", name)
		of.Spec.Replicas = lo.ToPtr(int32(0))
		f.put(of)
	}
}

func deleted(object client.Object) func(*fixture) {
	return func(f *fixture) { Expect(f.objects.Delete(context.Background(), object)).To(Succeed()) }
}

// configured stores a ProviderConfig in which nothing is wrong.
func configured(f *fixture) {
	f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
}

// useTLS puts an endpoint with TLS before the cloud, whose certificate the ProviderConfig trusts.
func useTLS(f *fixture) {
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(lo.Must(url.Parse(f.URL))))
	DeferCleanup(front.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	f.put(&v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ProviderConfigSpec{CABundle: string(authority)}})
	setEnv("BIZFLY_CLOUD_API_URL", front.URL+"/api")
}

// releaseAddresses deletes the public addresses of the project.
func releaseAddresses(f *fixture) {
	ctx, credentials := context.Background(), f.Credentials()
	api := lo.Must(gobizfly.NewClient(gobizfly.WithAPIURL(f.APIURL), gobizfly.WithRegionName(credentials.Region)))
	token := lo.Must(api.Token.Init(ctx, &gobizfly.TokenCreateRequest{AuthMethod: "application_credential", AppCredID: credentials.AppCredID,
		AppCredSecret: credentials.AppCredSecret}))
	api.SetKeystoneToken(token)
	for _, address := range f.State().WanIPs {
		Expect(api.CloudServer.PublicNetworkInterfaces().Delete(ctx, address.ID)).To(Succeed())
	}
}

// firewallSelected is BizflyNodeClass default with the first firewall.
func firewallSelected(f *fixture) {
	var name string
	f.Edit(func(c *cloud.Catalog) { name = c.Firewalls[cloud.RegionHN][0].Name })
	nodeClass(fmt.Sprintf("{firewallSelectorTerms: [{name: %q}]}", name))(f)
}

// openKubelet adds the rule that the API server needs.
func openKubelet(f *fixture) {
	f.Edit(func(c *cloud.Catalog) {
		selected := &c.Firewalls[cloud.RegionHN][0]
		selected.Inbound = append(selected.Inbound, cloud.FirewallRule{Direction: "ingress", EtherType: "IPv4",
			Protocol: lo.ToPtr("tcp"), PortRangeMin: lo.ToPtr(10250), PortRangeMax: lo.ToPtr(10250)})
	})
}

// readyPool makes NodePool default ready, as the controllers do when nothing is wrong with it.
func readyPool(f *fixture) {
	pool := get[karpv1.NodePool](f, "", "default")
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	f.put(pool)
}

// sold lets all flavors be sold by a billing plan alone.
func sold(plan string) func(*fixture) {
	return func(f *fixture) {
		f.Edit(func(catalog *cloud.Catalog) {
			for i := range catalog.Flavors[cloud.RegionHN] {
				flavor := &catalog.Flavors[cloud.RegionHN][i]
				flavor.BillingPlans, flavor.Omit = []string{plan}, nil
			}
		})
	}
}

func removeServers(f *fixture) {
	for _, server := range f.Servers() {
		Expect(f.RemoveServer(server.ID)).To(Succeed())
	}
}

func removeVolumes(f *fixture) {
	for _, volume := range f.State().Volumes {
		Expect(f.RemoveVolume(volume.ID)).To(Succeed())
	}
}

// applyPrinted applies the manifest that a preflight prints.
func applyPrinted(f *fixture) {
	report := answer[rules.Report](f, "doctor", "--preflight")
	differs, _ := lo.Find(report.Findings, func(finding rules.Finding) bool { return finding.Code == "PoolServerDiffers" })
	document, _, _ := strings.Cut(strings.TrimPrefix(differs.Fix, "echo '"), "' | kubectl apply -f -")
	f.apply(document)
}

// deletingClass is a BizflyNodeClass that is being deleted, with a NodeClaim.
func deletingClass(f *fixture) {
	nodeClass("{}")(f)
	claim := claimNamed("default-x7k2p")
	claim.Spec.NodeClassRef = &karpv1.NodeClassReference{Name: "default"}
	f.put(claim)
	of := get[v1alpha1.BizflyNodeClass](f, "", "default")
	of.Finalizers = []string{"karpenter.bizflycloud.vn/termination"}
	Expect(f.objects.Update(context.Background(), of)).To(Succeed())
	Expect(f.objects.Delete(context.Background(), of)).To(Succeed())
}

// podAccessEnforced is BizflyNodeClass default whose servers keep pods from the metadata service.
func podAccessEnforced(f *fixture) {
	object := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	object.StatusConditions().SetTrue(v1alpha1.ConditionTypePodAccessEnforced)
	f.put(object)
}

// stoppedServer is a server of a NodeClaim that somebody, or the cloud, has stopped.
func stoppedServer(f *fixture) {
	server := f.AddServer(cloud.ServerSpec{Name: "n"})
	f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(server.ID)}})
	Expect(f.SetServerStatus(server.ID, "SHUTOFF")).To(Succeed())
}

var _ = Describe("doctor", func() {
	It("should find nothing wrong with an installation in which nothing is", func() {
		f.install()
		f.apply(pools)
		readyPool(f)
		f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32"))
		openKubelet(f)
		firewallSelected(f)
		report := answer[rules.Report](f, "doctor")
		// The sandbox has no TLS.
		Expect(report.Findings).To(HaveEach(HaveField("Code", "EndpointWithoutTLS")), "%+v", report.Findings)
		Expect(f.run("doctor")).To(Equal(cli.ExitOK), f.out)
		Expect(f.run("doctor", "--strict")).To(Equal(cli.ExitFindings))
	})

	DescribeTable("should find, until its fix is applied,", func(code string, severity rules.Severity, provoke, fix func(*fixture)) {
		f := newFixture()
		f.install()
		f.expectFinding(code, severity, provoke, fix, "doctor")
	},
		finding("an unreachable cluster", "ClusterUnreachable", rules.Error, func(f *fixture) { f.reader = nil },
			func(f *fixture) { f.reader = f.objects }),
		finding("an API server that is too old", "APIServerTooOld", rules.Error, apiServer("v1.29.4"), apiServer("v1.30.0")),
		finding("missing definitions", "DefinitionsMissing", rules.Error, func(f *fixture) {
			Expect(f.objects.Delete(context.Background(), apis.CRDs[0].DeepCopy())).To(Succeed())
		}, (*fixture).install),
		finding("outdated definitions", "DefinitionsOutdated", rules.Error, func(f *fixture) {
			old := apis.CRDs[0].DeepCopy()
			spec := old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: spec.Type}
			f.put(old)
		}, (*fixture).install),
		finding("a plugin of another version than the controller", "VersionSkew", rules.Warning, func(f *fixture) {
			controller := f.controller()
			controller.Labels["app.kubernetes.io/version"] = "9.9.9"
			f.put(controller)
		}, (*fixture).install),
		finding("no controller", "ControllerNotInstalled", rules.Info, func(f *fixture) {
			Expect(f.objects.Delete(context.Background(), f.controller())).To(Succeed())
		}, (*fixture).install),
		finding("nodes that outlived the controller", "ControllerGone", rules.Error, func(f *fixture) {
			Expect(f.objects.Delete(context.Background(), f.controller())).To(Succeed())
			f.put(claimNamed("default-x7k2p"))
		}, (*fixture).install),
		finding("a controller that is not ready", "ControllerNotReady", rules.Error, func(f *fixture) {
			controller := f.controller()
			controller.Status.ReadyReplicas = 0
			f.put(controller)
		}, (*fixture).install),
		finding("missing rights", "RightsMissing", rules.Error, func(f *fixture) {
			role := clusterRole()
			role.Rules = role.Rules[1:]
			f.put(role)
		}, (*fixture).install),
		finding("rights that are too wide", "RightsTooWide", rules.Warning, func(f *fixture) {
			f.put(clusterRole(rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}))
		}, (*fixture).install),
		finding("another Karpenter", "AnotherKarpenter", rules.Error, deployment("karpenter", "public.ecr.aws/karpenter/controller:1.15.0"),
			scaledToZero("karpenter")),
		finding("the older provider for BizFly Cloud", "AnotherKarpenter", rules.Error,
			deployment("karpenter", "cr-hn-1.bizflycloud.vn/31ff/karpenter-provider-bizflycloud:v1.2.2-beta.1"),
			scaledToZero("karpenter")),
		finding("another provider of Karpenter, by digest", "AnotherKarpenter", rules.Error,
			deployment("autoscaler", "registry:5000/team/karpenter-provider-other@sha256:00"), scaledToZero("autoscaler")),
		finding("a cluster-autoscaler", "ClusterAutoscaler", rules.Warning,
			deployment("cluster-autoscaler", "registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0"),
			scaledToZero("cluster-autoscaler")),
		finding("nodes that the cloud controller manager has not initialized", "NodesUninitialized", rules.Error,
			node(func(n *corev1.Node) { n.Spec.ProviderID, n.Labels[karpv1.NodePoolLabelKey] = "", "default" }),
			node(func(*corev1.Node) {})),
		finding("a zone label that is no zone", "ZoneLabelWrong", rules.Warning, node(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "HN" }),
			node(func(*corev1.Node) {})),
		finding("no CSI driver", "CSIDriverMissing", rules.Info, func(f *fixture) {
			Expect(f.objects.Delete(context.Background(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CSIBlockDriver}})).To(Succeed())
		}, (*fixture).install),
		finding("volumes of another billing plan", "VolumeBillingPlan", rules.Warning,
			func(f *fixture) {
				volume := f.AddVolume(cloud.VolumeSpec{Name: "pvc-1", BillingPlan: cloud.PlanSaving})
				f.put(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: volume.ID}}}})
			}, deleted(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}})),
		finding("no credentials", "CredentialsMissing", rules.Error, func(f *fixture) { setEnv("BIZFLY_CLOUD_APP_CRED_ID", "") },
			(*fixture).environment),
		finding("rejected credentials", "CredentialsRejected", rules.Error, variable("BIZFLY_CLOUD_APP_CRED_SECRET", "wrong-secret"),
			(*fixture).environment),
		finding("an unknown region", "RegionUnknown", rules.Error, variable("BIZFLY_CLOUD_REGION", "Atlantis"),
			(*fixture).environment),
		finding("an endpoint that does not answer", "EndpointUnreachable", rules.Error, func(*fixture) { setEnv("BIZFLY_CLOUD_API_URL", closedPort()) },
			(*fixture).environment),
		finding("an endpoint whose certificate is not trusted", "EndpointTLS", rules.Error, func(*fixture) {
			server := httptest.NewTLSServer(http.NotFoundHandler())
			server.Config.ErrorLog = nil
			DeferCleanup(server.Close)
			setEnv("BIZFLY_CLOUD_API_URL", server.URL+"/api")
		}, (*fixture).environment),
		finding("a catalog that cannot be read", "CatalogUnreadable", rules.Error, func(f *fixture) {
			f.AddFaults(1, cloud.Fault{Path: "/flavors", Effect: cloud.EffectStatus, Status: http.StatusForbidden})
		}, func(f *fixture) { f.ClearFaults() }),
		finding("an endpoint without TLS", "EndpointWithoutTLS", rules.Warning, func(*fixture) {}, useTLS),
		finding("credentials of another project", "ProjectDiffers", rules.Error, func(f *fixture) { f.pin(strings.TrimPrefix(f.URL, "http://")) },
			configured),
		finding("an endpoint of another host than the servers'", "HostDiffers", rules.Error, func(f *fixture) { f.pin("manage.bizflycloud.vn") },
			configured),
		finding("nothing that keeps pods from the metadata service", "MetadataServiceOpen", rules.Warning,
			nodeClass("{}"),
			func(f *fixture) {
				f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32"))
			}),
		finding("a policy that lets pods reach the metadata service", "MetadataServiceOpen", rules.Warning, func(f *fixture) {
			nodeClass("{}")(f)
			allows := policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32")
			allows.Object["spec"] = map[string]any{"egress": []any{map[string]any{"toCIDR": []any{"169.254.169.254/32"}}}}
			f.put(allows)
		}, func(f *fixture) {
			f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32"))
		}),
		finding("a public address that no firewall of the user's protects", "PublicWithoutFirewall", rules.Warning, nodeClass("{}"),
			nodeClass("{publicIPv4: false}")),
		finding("a ProviderConfig that is not ready", "ProviderConfigNotReady", rules.Error, func(f *fixture) {
			object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			object.StatusConditions().SetFalse(v1alpha1.ConditionTypeTuningReady, "TuningInvalid", "prices cannot be parsed")
			f.put(object)
		}, configured),
		finding("a limit of the cluster that holds launches back", "ConditionFalse", rules.Warning, func(f *fixture) {
			setEnv("BIZFLY_CLOUD_APP_CRED_ID", "") // what the controller has stored needs no cloud
			object := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			object.StatusConditions().SetFalse(v1alpha1.ConditionTypeWithinSpendingLimits, "MaxServersReached", "the cluster has 3 servers")
			f.put(object)
		}, configured),
		finding("launches that pause", "ConditionFalse", rules.Warning, func(f *fixture) {
			object := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			object.StatusConditions().SetFalse(v1alpha1.ConditionTypeLaunchesSucceeding, "NodeNotRegistered", "launches with this NodeClass fail")
			f.put(object)
		}, nodeClass("{}")),
		finding("a BKE cluster that does not exist", "BKEClusterNotFound", rules.Error, variable("BKE_CLUSTER_ID", "aaaaaaaaaaaaaaaa"),
			(*fixture).environment),
		finding("a BKE cluster that cannot be learned from a worker pool", "BKEUnknown", rules.Error, func(*fixture) {
			setEnv("BKE_CLUSTER_ID", "")
			setEnv("BKE_CLUSTER_TOKEN", "")
			setEnv("BKE_DISCOVER_FROM_POOL", "true")
		}, (*fixture).environment),
		finding("a worker pool that scales by itself", "WorkerPoolAutoscaling", rules.Warning, addAutoscalingPool,
			func(f *fixture) { Expect(f.run("pool", "pin", "pool-1", "--yes")).To(Equal(cli.ExitOK), f.err) }),
		finding("a zone that does not exist", "NodeClassZones", rules.Error, nodeClass("{zones: [HN9]}"), nodeClass("{}")),
		finding("an image that does not exist", "NodeClassImages", rules.Error, nodeClass("{imageSelectorTerms: [{alias: bke@v1.19.0}]}"),
			nodeClass("{}")),
		finding("a network that does not exist", "NodeClassNetworks", rules.Error, nodeClass("{networkSelectorTerms: [{name: nowhere}]}"),
			nodeClass("{}")),
		finding("a firewall that does not exist", "NodeClassFirewalls", rules.Error, nodeClass("{firewallSelectorTerms: [{name: nowhere}]}"),
			nodeClass("{}")),
		finding("a key that does not exist", "NodeClassSSHKey", rules.Error, nodeClass("{sshKeyName: nobody}"),
			nodeClass("{}")),
		finding("a volume type that does not exist", "NodeClassDisks", rules.Error, nodeClass("{rootDisk: {size: 40Gi, volumeType: MAGNETIC}}"),
			nodeClass("{}")),
		finding("flavors that do not exist", "NodeClassFlavors", rules.Error, nodeClass("{flavorSelectorTerms: [{name: z9.1c_1g}]}"),
			nodeClass("{}")),
		finding("what nodes join with is missing", "NodeClassBootstrap", rules.Error, variable("BKE_JOIN_ENDPOINT", ""),
			(*fixture).environment),
		finding("a token that is missing", "NodeClassBootstrap", rules.Error, variable("BKE_CLUSTER_TOKEN", ""),
			(*fixture).environment),
		finding("a join endpoint that is no URL", "NodeClassBootstrap", rules.Error, variable("BKE_JOIN_ENDPOINT", "join-here"),
			(*fixture).environment),
		finding("no way out of the network", "NodeClassEgress", rules.Warning, nodeClass("{publicIPv4: false}"),
			nodeClass("{}")),
		finding("a firewall without a rule that nodes need", "FirewallPort", rules.Warning, func(f *fixture) {
			f.Edit(func(c *cloud.Catalog) { c.Firewalls[cloud.RegionHN][0].Inbound = nil })
			firewallSelected(f)
		}, openKubelet),
		finding("a NodePool of another provider", "NodePoolForeign", rules.Warning, func(f *fixture) {
			f.apply(strings.NewReplacer("group: karpenter.bizflycloud.vn, kind: BizflyNodeClass", "group: karpenter.k8s.aws, kind: EC2NodeClass").Replace(pools))
		}, func(f *fixture) { f.apply(pools) }),
		finding("a static NodePool without its feature gate", "NodePoolStaticOff", rules.Error, func(f *fixture) {
			f.apply(strings.Replace(pools, "\nspec:\n  template", "\nspec:\n  replicas: 2\n  template", 1))
		}, variable("FEATURE_GATES", "StaticCapacity=true")),
		finding("a static NodePool of which nothing can be launched", "NodePoolStaticWaits", rules.Warning, func(f *fixture) {
			f.apply(pools)
			staticWaits(0)(f)
		}, staticWaits(4*time.Minute)),
		finding("a NodePool that leaves no flavor", "NoFlavorSatisfies", rules.Error,
			func(f *fixture) { f.apply(strings.Replace(pools, "[premium]", "[nothing]", 1)) }, func(f *fixture) { f.apply(pools) }),
		finding("a NodePool whose offerings lately failed", "OfferingsUnavailable", rules.Warning, func(f *fixture) {
			f.apply(strings.Replace(pools, "instance-category, operator: In, values: [premium]",
				"instance-cpu, operator: In, values: [\"2\"]", 1))
			changePool(f, func(pool *karpv1.NodePool) {
				pool.Spec.Template.Labels = map[string]string{corev1.LabelInstanceTypeStable: "p2.2c_4g",
					corev1.LabelTopologyZone: "HN1"}
			})
			unavailable := events.OfferingUnavailable(claimNamed("default-x7k2p"), "p2.2c_4g", "HN1", "NoHost", errors.New("no"))
			event("e", unavailable, 0)(f)
		}, deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("a NodeOverlay without its feature gate", "NodeOverlayUnused", rules.Warning, func(f *fixture) { f.apply(overlay) }, func(f *fixture) {
			setEnv("FEATURE_GATES", "NodeOverlay=true")
			ready := get[karpv1alpha1.NodeOverlay](f, "", "dearer")
			ready.StatusConditions().SetTrue(karpv1alpha1.ConditionTypeValidationSucceeded)
			f.put(ready)
		}),
		finding("a BizflyNodeClass that waits for its NodeClaims", "NodeClassDeleting", rules.Warning, deletingClass,
			deleted(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x7k2p"}})),
		finding("a server that is stopped", "ServerStopped", rules.Warning, stoppedServer,
			func(f *fixture) { Expect(f.SetServerStatus(f.Servers()[0].ID, "ACTIVE")).To(Succeed()) }),
		finding("an unpaid account", "AccountUnpaid", rules.Error, func(f *fixture) { f.SetQuota(cloud.Quota{Unpaid: true}) },
			func(f *fixture) { f.SetQuota(cloud.Quota{}) }),
		finding("a NodePool that is not ready", "NodePoolNotReady", rules.Error, func(f *fixture) { f.apply(pools) },
			readyPool),
		finding("a NodePool whose limits are used up", "NodePoolLimit", rules.Warning, func(f *fixture) {
			f.apply(pools)
			limited("10", "10")(f)
		}, limited("100", "10")),
		finding("a NodePool without a flavor that fits into what its limits leave", "NodePoolLimit", rules.Warning, func(f *fixture) {
			f.apply(pools)
			limited("10", "9500m")(f)
		}, limited("100", "9500m")),
		finding("a balance that does not last", "BalanceLow", rules.Warning, func(f *fixture) {
			f.AddServer(cloud.ServerSpec{Name: "running"})
			f.SetQuota(cloud.Quota{Balance: 1000})
		}, func(f *fixture) { f.SetQuota(cloud.Quota{}) }),
		finding("an unpaid balance", "QuotaRejected", rules.Warning,
			event("e", events.AccountLimitReached(&karpv1.NodeClaim{}, capacity.ReasonBalanceExhausted, time.Hour, errQuota), 0),
			deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("rejections by the quota of vCPUs or memory", "QuotaRejected", rules.Warning, event("e", quotaTooSmall, 0),
			deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("rejections by another quota", "QuotaRejected", rules.Warning, event("e", quotaPaused, 0),
			deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("launches that failed", "LaunchesFailed", rules.Warning,
			event("e", events.NodeNotRegistered(&karpv1.NodeClaim{}, "x", "p2.2c_4g", "HN1"), 0),
			deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("launches that pause for another reason", "LaunchesFailed", rules.Warning,
			event("e", events.LaunchesPaused(&v1alpha1.BizflyNodeClass{}, "LaunchNotPrepared", time.Hour, errors.New("no address")), 0),
			deleted(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}})),
		finding("servers without owner", "ServerWithoutNodeClaim", rules.Warning, func(f *fixture) {
			f.AddServer(cloud.ServerSpec{Name: "lost", Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID, v1alpha1.MetadataNodeClaimUID: "gone"}})
		}, removeServers),
		finding("servers that name no NodeClaim", "ServerWithoutNodeClaim", rules.Warning, func(f *fixture) {
			f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "launching"}})
			f.AddServer(cloud.ServerSpec{Name: "lost", Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID}})
		}, removeServers),
		finding("disks without owner", "DiskWithoutOwner", rules.Warning, func(f *fixture) {
			f.AddVolume(cloud.VolumeSpec{Name: instance.Name("lost", "lost", clusterUID, 1) + instance.RootDiskSuffix})
		}, removeVolumes),
		finding("volumes of pods without a PersistentVolume", "DiskWithoutOwner", rules.Warning,
			func(f *fixture) { f.AddVolume(cloud.VolumeSpec{Name: "pvc-lost"}) }, removeVolumes),
		finding("addresses without owner", "AddressWithoutOwner", rules.Warning, func(f *fixture) {
			server := f.AddServer(cloud.ServerSpec{Name: "short"})
			Expect(f.AddWanIP(server.ID, "kept")).ToNot(BeEmpty())
			Expect(f.RemoveServer(server.ID)).To(Succeed())
		}, releaseAddresses),
	)

	DescribeTable("should find before an installation, until its fix is applied,", func(code string, severity rules.Severity, provoke, fix func(*fixture)) {
		newFixture().expectFinding(code, severity, provoke, fix, "doctor", "--preflight")
	},
		finding("an account that is unpaid", "AccountUnpaid", rules.Error, func(f *fixture) { f.SetQuota(cloud.Quota{Unpaid: true}) },
			func(f *fixture) { f.SetQuota(cloud.Quota{}) }),
		finding("a join endpoint that cannot be reached", "JoinEndpointUnreachable", rules.Warning,
			func(*fixture) { setEnv("BKE_JOIN_ENDPOINT", closedPort()+"/engine/cluster_join/c") },
			func(f *fixture) { setEnv("BKE_JOIN_ENDPOINT", f.URL+"/engine/cluster_join/c") }),
		finding("a project without a flavor that can be launched", "NoFlavorLeft", rules.Error, sold(cloud.PlanSaving),
			sold(cloud.PlanOnDemand)),
		finding("a pool server that is unlike new ones", "PoolServerDiffers", rules.Warning, addPoolServer, applyPrinted),
		finding("a NodePool that leaves no flavor", "NoFlavorSatisfies", rules.Error,
			func(f *fixture) { f.apply(strings.Replace(pools, "[premium]", "[nothing]", 1)) },
			func(f *fixture) { f.apply(pools) }),
		finding("a cluster-autoscaler outside the cluster", "ClusterAutoscaler", rules.Warning, func(f *fixture) {
			f.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status", Annotations: map[string]string{
				"cluster-autoscaler.kubernetes.io/last-updated": time.Now().UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST"),
			}}})
		},
			deleted(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}})),
	)

	It("should find out before an installation what a launch depends on", func() {
		setEnv("BKE_JOIN_ENDPOINT", f.URL+"/engine/cluster_join/c")
		addPoolServer(f)
		report := answer[rules.Report](f, "doctor", "--preflight")
		facts := lo.SliceToMap(report.Facts, func(fact rules.Known) (string, string) { return fact.Name, lo.CoalesceOrEmpty(fact.Value, "?") })
		Expect(facts).To(And(
			HaveKeyWithValue("project", ContainSubstring(f.Credentials().ProjectID)),
			HaveKeyWithValue("account", "nothing is unpaid"),
			HaveKeyWithValue("balance", MatchRegexp(`^108,768,098 VND, which pays for \d+ hours of .* \([\d,]+ VND per hour`)),
			HaveKeyWithValue("services of the region", ContainSubstring("kubernetes_engine")),
			HaveKeyWithValue("volume types, as name and type", ContainSubstring("PREMIUM-SSD1")),
			HaveKeyWithValue("join endpoint", HaveSuffix("accepts connections")),
			HaveKeyWithValue("pool server", And(HavePrefix("pool-1: zone HN1, billing plan"), ContainSubstring("public address: false"))),
			HaveKeyWithValue("names of its metadata", ContainSubstring("bke_cluster_token")),
			HaveKeyWithValue("flavors of a NodePool without requirements", MatchRegexp(`^\d+ in HN1 and HN2, from \S+ at [\d,]+ VND per hour$`)),
			HaveKeyWithValue("billing plans of volumes of pods", "?"),
			HaveKeyWithValue("quota of servers, vCPUs, memory, disks and addresses", "?"),
			HaveKeyWithValue("boot and join", "?"),
		))
		Expect(fmt.Sprintf("%+v", report)).ToNot(ContainSubstring(f.BKE().ClusterToken))
		differs, _ := lo.Find(report.Findings, func(finding rules.Finding) bool { return finding.Code == "PoolServerDiffers" })
		Expect(differs.What).To(And(ContainSubstring("not in network"), HaveSuffix("with a public address")))
		document, _, _ := strings.Cut(strings.TrimPrefix(differs.Fix, "echo '"), "' | kubectl apply -f -")
		like := &v1alpha1.BizflyNodeClass{}
		Expect(yaml.UnmarshalStrict([]byte(document), like)).To(Succeed(), "a NodeClass like the pool's: %s", differs.Fix)
		Expect(like.Spec.NetworkSelectorTerms).ToNot(BeEmpty())
		Expect(like.Spec.PublicIPv4).To(HaveValue(BeFalse()))
		Expect(f.run("doctor", "--preflight")).To(Equal(cli.ExitOK), f.out)
		Expect(f.out).To(ContainSubstring("? boot and join: not known until the first launch: no server was created"))

		f.AddVolume(cloud.VolumeSpec{Name: "pvc-1", BillingPlan: cloud.PlanOnDemand})
		Expect(answer[rules.Report](f, "doctor", "--preflight").Facts).To(ContainElement(
			rules.Known{Name: "billing plans of volumes of pods", Value: "on_demand"}))
		Expect(answer[rules.Report](f, "doctor").Facts).To(BeEmpty(), "they are those of a preflight")
	})

	It("should learn the BKE cluster from its pools where the user names none", func() {
		withoutBKE()
		Expect(answer[rules.Report](f, "doctor", "--preflight").NotApplicable).To(HaveKey("join endpoint"), "a cluster that is not BKE's")

		addAutoscalingPool(f)
		known := f.BKE()
		server := f.AddServer(cloud.ServerSpec{Name: "pool-1-1", Metadata: map[string]string{"bke_cluster_id": known.ClusterUID,
			"bke_cluster_token": known.ClusterToken, "bke_join_endpoint": f.URL + "/engine/cluster_join/" + known.ClusterUID}})
		node(func(n *corev1.Node) {
			n.Labels["bke.bizflycloud.vn/node-id"], n.Spec.ProviderID = "1", "bizflycloud://"+server.ID
		})(f)
		report := answer[rules.Report](f, "doctor", "--preflight")
		Expect(codesOf(report)).To(And(ContainElement("WorkerPoolAutoscaling"), Not(ContainElement(HavePrefix("BKE"))),
			Not(ContainElement(BeElementOf("NodeClassImages", "NodeClassBootstrap")))), "%+v", report.Findings)
		Expect(report.Facts).To(ContainElements(HaveField("Name", "join endpoint"), HaveField("Name", "pool server")), "%+v", report.Skipped)
	})

	It("should end in time before an installation, and say what has not answered", func() {
		over := make(chan struct{})
		silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		DeferCleanup(func() {
			close(over)
			silent.Close()
		})
		setEnv("BIZFLY_CLOUD_API_URL", silent.URL+"/api")
		bound := rules.PreflightTime
		DeferCleanup(func() { rules.PreflightTime = bound })
		rules.PreflightTime = time.Second
		report := answer[rules.Report](f, "doctor", "--preflight")
		Expect(report.Skipped).To(ContainElement("the time of a preflight was over before BizFly Cloud or the cluster had answered"))
		Expect(report.Passed).To(ContainElement("other autoscalers"), "what had its answer is told")
		Expect(bound).To(Equal(time.Minute), "as the page says")
	})

	It("should only log in and read before an installation", func() {
		addPoolServer(f)
		f.ResetRequests()
		Expect(f.run("doctor", "--preflight")).To(Equal(cli.ExitOK), f.out)
		Expect(f.Requests()).ToNot(BeEmpty())
		for _, request := range f.Requests() {
			Expect(request.Method == http.MethodGet || request.Route == "/api/token").To(BeTrue(), "%+v", request)
		}
	})

	DescribeTable("should accept what keeps pods from the metadata service", func(protect func(*fixture)) {
		f.install()
		nodeClass("{}")(f)
		protect(f)
		Expect(codesOf(answer[rules.Report](f, "doctor"))).ToNot(ContainElement("MetadataServiceOpen"))
	},
		Entry("what the controller adds to user data", podAccessEnforced),
		Entry("a policy of Cilium", func(f *fixture) {
			f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32"))
		}),
		Entry("a policy of Calico", func(f *fixture) { f.put(policy("projectcalico.org/v3", "GlobalNetworkPolicy", "169.254.169.254/32")) }),
		Entry("a policy of Calico without its API server", func(f *fixture) {
			f.put(policy("crd.projectcalico.org/v1", "GlobalNetworkPolicy", "169.254.169.254/32"))
		}),
	)

	It("should not take a policy about other addresses for one about the metadata service", func() {
		f.install()
		nodeClass("{}")(f)
		f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "10.0.0.0/8"))
		Expect(codesOf(answer[rules.Report](f, "doctor"))).To(ContainElement("MetadataServiceOpen"))
	})

	It("should name nodes of BKE's pools where only a BizflyNodeClass guards the metadata service", func() {
		f.install()
		podAccessEnforced(f)
		open := func() []rules.Finding {
			return lo.Filter(answer[rules.Report](f, "doctor").Findings, func(found rules.Finding, _ int) bool { return found.Code == "MetadataServiceOpen" })
		}
		labelled := func(name string, labels map[string]string) {
			f.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: lo.Assign(labels, map[string]string{"bke.bizflycloud.vn/node-id": name})}})
		}
		labelled("default-x7k2p", map[string]string{karpv1.NodePoolLabelKey: "default"})
		Expect(open()).To(BeEmpty(), "it holds on Karpenter's nodes, which BKE may label like its own")
		for i := range 7 {
			labelled(fmt.Sprintf("pool-1-%d", i), nil)
		}
		Expect(open()).To(HaveExactElements(And(HaveField("Severity", rules.Warning), HaveField("What", And(
			ContainSubstring("BKE's pool nodes pool-1-0, pool-1-1, pool-1-2, pool-1-3, pool-1-4 and 2 more"), Not(ContainSubstring("default-x7k2p")))))))
		nodeClass("{}")(f)
		Expect(open()).To(HaveExactElements(HaveField("What", ContainSubstring("BizflyNodeClass default")), HaveField("What", ContainSubstring("pool-1-0"))))
		f.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", "169.254.169.254/32"))
		Expect(open()).To(BeEmpty())
	})

	It("should miss the definition of CapacityBuffers only where the controller looks at them", func() {
		f.install()
		definition, _ := lo.Find(apis.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
			return crd.Spec.Names.Kind == "CapacityBuffer"
		})
		Expect(f.objects.Delete(context.Background(), definition.DeepCopy())).To(Succeed())
		Expect(codesOf(answer[rules.Report](f, "doctor"))).ToNot(ContainElement(HavePrefix("Definitions")))
		buffers(f)
		Expect(answer[rules.Report](f, "doctor").Findings).To(ContainElement(And(HaveField("Code", "DefinitionsMissing"),
			HaveField("What", HaveSuffix(definition.Name)))))
	})

	It("should fail in strict mode for checks that could not look, not for inapplicable ones", func() {
		f.install()
		f.failLists(&karpv1.NodePoolList{}, forbidden)
		report := answer[rules.Report](f, "doctor")
		Expect(report.Skipped).To(HaveKeyWithValue("NodePools", ContainSubstring("you may not list nodepools.karpenter.sh")))
		report.Findings = nil
		Expect(report.Failed(false)).To(BeFalse())
		Expect(report.Failed(true)).To(BeTrue())
		f.failLists(&karpv1.NodePoolList{}, &meta.NoKindMatchError{})
		Expect(answer[rules.Report](f, "doctor").NotApplicable).To(HaveKey("NodePools"))
		Expect(f.run("doctor")).To(Equal(cli.ExitOK))
		Expect(f.out).To(ContainSubstring("- NodePools: nothing to check: the cluster has no nodepools.karpenter.sh"))
		Expect((&rules.Report{NotApplicable: report.Skipped}).Failed(true)).To(BeFalse())
	})

	It("should find a second installation of the controller where the user has named the first", func() {
		f.install()
		another := f.controller()
		another.Namespace = "apps"
		f.put(another)
		report := answer[rules.Report](f, "doctor", "--controller-namespace", "karpenter")
		Expect(report.Findings).To(ContainElement(And(HaveField("Code", "AnotherKarpenter"), HaveField("What", ContainSubstring("apps/")))))
	})

	It("should have a spec above for every rule", func() {
		codes := lo.Map(rules.Codes(), func(d rules.Described, _ int) string { return d.Code })
		Expect(codes).To(ConsistOf(lo.ToAnySlice(lo.Keys(provoked))...))
	})

	It("should name a broken BizflyNodeClass once for all of its NodePools", func() {
		f := newFixture()
		f.install()
		f.apply(web)
		for _, name := range []string{"a", "b"} {
			f.apply(strings.NewReplacer("metadata: {name: default}\nspec:\n", "metadata: {name: "+name+"}\nspec:\n").Replace(pools))
			pool := get[karpv1.NodePool](f, "", name)
			pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
			pool.StatusConditions().SetFalse(karpv1.ConditionTypeNodeClassReady, "ImageNotFound", "no image")
			f.put(pool)
		}
		Expect(lo.Filter(answer[rules.Report](f, "doctor").Findings, func(found rules.Finding, _ int) bool { return found.Code == "NodePoolNotReady" })).To(
			HaveExactElements(And(HaveField("What", HavePrefix("NodePools a, b: it is not ready: "+
				"NodeClassReady is False: ImageNotFound: no image")),
				HaveField("Fix", "kubectl describe nodepool a b"))))
		Expect(f.run("why", "web-0", "-n", "shop")).To(Equal(cli.ExitOK), f.err)
		Expect(strings.Count(f.out, "no image")).To(Equal(1))
		Expect(f.out).To(ContainSubstring("\nThe same prevents 1 other NodePool: b\n"))
	})

	It("should say one line of a BizflyNodeClass that is being deleted", func() {
		f := newFixture()
		f.install()
		deletingClass(f)
		Expect(lo.Filter(answer[rules.Report](f, "doctor").Findings, func(found rules.Finding, _ int) bool { return strings.HasPrefix(found.Code, "NodeClass") })).To(
			HaveExactElements(HaveField("What", "BizflyNodeClass default is being deleted, and waits for its NodeClaims: default-x7k2p")))
	})

	DescribeTable("should not pass what it could not look at:", func(about string, list client.ObjectList, change func(*fixture)) {
		f := newFixture()
		f.install()
		f.apply(pools)
		if list != nil {
			f.failLists(list, forbidden)
		}
		change(f)
		report := answer[rules.Report](f, "doctor")
		Expect(report.Passed).ToNot(ContainElement(about))
		Expect(report.Skipped).To(HaveKey(about))
	},
		Entry("volumes without credentials", "volumes", nil, func(*fixture) { withoutCredentials() }),
		Entry("zones without a catalog", "cloud controller manager", nil, func(*fixture) { withoutCredentials() }),
		Entry("zones without nodes", "cloud controller manager", &corev1.NodeList{}, func(*fixture) {}),
		Entry("BizflyNodeClasses", "metadata service", &v1alpha1.BizflyNodeClassList{}, func(*fixture) {}),
	)

	It("should not pass a BKE cluster and its pools where none is known, nor complain", func() {
		f.install()
		withoutBKE()
		nodeClass("{bootstrapMode: Custom, userData: join}")(f)
		report := answer[rules.Report](f, "doctor")
		Expect(report.Passed).ToNot(ContainElement(BeElementOf("BKE cluster", "worker pools")))
		Expect(report.NotApplicable).To(And(HaveKey("BKE cluster"), HaveKey("worker pools")))
		Expect(codesOf(report)).ToNot(ContainElement(Or(HavePrefix("BKE"), HavePrefix("WorkerPool"))))
		setEnv("BKE_DISCOVER_FROM_POOL", "true")
		report = answer[rules.Report](f, "doctor")
		Expect(report.Passed).ToNot(ContainElement("worker pools"))
		Expect(codesOf(report)).To(ContainElement("BKEUnknown"))
	})

	It("should resolve NodeClasses where a server of a pool names the BKE cluster", func() {
		f.install()
		withoutBKE()
		setEnv("BKE_DISCOVER_FROM_POOL", "true")
		known := f.BKE()
		server := f.AddServer(cloud.ServerSpec{Name: "pool-1-0", Metadata: map[string]string{
			"bke_cluster_id": known.ClusterUID, "bke_cluster_token": known.ClusterToken, "bke_join_endpoint": known.JoinEndpoint,
		}})
		node(func(n *corev1.Node) {
			n.Labels["bke.bizflycloud.vn/node-id"], n.Spec.ProviderID = "1", "bizflycloud://"+server.ID
		})(f)
		nodeClass("{}")(f)
		Expect(codesOf(answer[rules.Report](f, "doctor"))).ToNot(ContainElement(HavePrefix("NodeClass")))
	})

	It("should resolve user data with a join token and a CA file, and issue no token", func() {
		f.install()
		setEnv("JOIN_TOKENS", "true")
		authority := written("ca.crt", "-----BEGIN CERTIFICATE-----")
		f.change = func(s *connect.Session) {
			s.REST = &rest.Config{Host: closedPort(), TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}
		}
		nodeClass(`{bootstrapMode: Custom, joinToken: {}, userData: "#!/bin/sh\njoin {{ .JoinToken }} '{{ .CABundle }}'\n"}`)(f)
		Expect(codesOf(answer[rules.Report](f, "doctor"))).ToNot(ContainElement("NodeClassBootstrap"))
	})

	It("should name the last of several rejections by time", func() {
		f.install()
		event("a", quotaPaused, time.Minute)(f)
		event("b", quotaTooSmall, time.Hour)(f)
		found, _ := lo.Find(answer[rules.Report](f, "doctor").Findings, func(finding rules.Finding) bool { return finding.Code == "QuotaRejected" })
		Expect(found.What).To(And(HavePrefix("2 launches were rejected"), ContainSubstring(quotaPaused.Message)))
	})

	It("should name the environment where nothing is installed and there are no credentials", func() {
		withoutCredentials()
		Expect(answer[rules.Report](f, "doctor", "--preflight").Findings).To(ContainElement(And(HaveField("Code", "CredentialsMissing"),
			HaveField("Fix", Equal("export BIZFLY_CLOUD_REGION=HN BIZFLY_CLOUD_APP_CRED_ID=... BIZFLY_CLOUD_APP_CRED_SECRET=...")))))
		setEnv("BIZFLY_CLOUD_REGION", "Atlantis")
		Expect(answer[rules.Report](f, "doctor", "--preflight").Findings).To(ContainElement(And(HaveField("Code", "RegionUnknown"),
			HaveField("Fix", "export BIZFLY_CLOUD_REGION=HN"))))
	})

	It("should take no dashboard for another Karpenter and no foreign volume for its own", func() {
		f.install()
		deployment("karpenter-dashboard", "ghcr.io/karpenter/dashboard:1")(f)
		deployment("exporter", "ghcr.io/team/karpenter-exporter:1")(f)
		f.AddVolume(cloud.VolumeSpec{Name: "pvc-1", BillingPlan: cloud.PlanSaving})
		Expect(answer[rules.Report](f, "doctor").Findings).ToNot(ContainElement(HaveField("Code", BeElementOf("AnotherKarpenter", "VolumeBillingPlan"))))
	})

	It("should look for other autoscalers without the right to read the status of one", func() {
		f.install()
		deployment("karpenter", "public.ecr.aws/karpenter/controller:1.15.0")(f)
		f.failGets(&corev1.ConfigMap{}, forbidden)
		report := answer[rules.Report](f, "doctor")
		Expect(report.Findings).To(ContainElement(HaveField("Code", "AnotherKarpenter")))
		Expect(report.Skipped).To(HaveKeyWithValue("other autoscalers", ContainSubstring("you may not get configmaps")))
		Expect(report.Passed).ToNot(ContainElement("other autoscalers"))
	})

	It("should find no limit where a flavor still fits, nor where it is 0 to pause the NodePool", func() {
		f.install()
		f.apply(pools)
		for _, limit := range []string{"10", "0"} {
			limited(limit, "0")(f)
			Expect(answer[rules.Report](f, "doctor").Findings).ToNot(ContainElement(HaveField("Code", "NodePoolLimit")), "with a limit of "+limit)
		}
	})

	It("should know the server of a NodeClaim that was restored with another UID", func() {
		f.install()
		server := f.AddServer(cloud.ServerSpec{Name: "n", Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID, v1alpha1.MetadataNodeClaimUID: "old"}})
		f.put(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: karpv1.NodeClaimStatus{ProviderID: providerid.New(server.ID)}})
		Expect(answer[rules.Report](f, "doctor").Findings).ToNot(ContainElement(HaveField("Code", "ServerWithoutNodeClaim")))
	})

	DescribeTable("should leave out disks that may be needed", func(provoke func(f *fixture)) {
		f.install()
		provoke(f)
		Expect(answer[rules.Report](f, "doctor").Findings).ToNot(ContainElement(HaveField("Code", "DiskWithoutOwner")))
	},
		Entry("one made from a snapshot, perhaps to restore a root disk", func(f *fixture) {
			f.AddVolume(cloud.VolumeSpec{Name: "n_rootdisk", SnapshotID: "s"})
		}),
		Entry("one whose name does not prove that it is of this cluster", func(f *fixture) { f.AddVolume(cloud.VolumeSpec{Name: "n_rootdisk"}) }),
		Entry("one named like the root disk of a server that exists", func(f *fixture) {
			name := instance.Name("n", "n", clusterUID, 1)
			f.AddServer(cloud.ServerSpec{Name: name, Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID}})
			f.AddVolume(cloud.VolumeSpec{Name: name + instance.RootDiskSuffix})
		}),
	)

	It("should price a disk without owner by its own billing plan", func() {
		f.install()
		f.AddVolume(cloud.VolumeSpec{Name: "pvc-a", BillingPlan: cloud.PlanOnDemand})
		f.AddVolume(cloud.VolumeSpec{Name: "pvc-b", BillingPlan: cloud.PlanSaving})
		disks := lo.Filter(answer[rules.Report](f, "doctor").Findings, func(finding rules.Finding, _ int) bool {
			return finding.Code == "DiskWithoutOwner"
		})
		slices.SortFunc(disks, func(a, b rules.Finding) int { return strings.Compare(a.What, b.What) })
		Expect(disks).To(HaveLen(2))
		Expect(disks[1].VNDPerMonth).To(And(BeNumerically(">", 0), BeNumerically("<", disks[0].VNDPerMonth)))
	})

	It("should promise no hours for servers whose price is not known", func() {
		f.AddServer(cloud.ServerSpec{Name: "priced"})
		f.AddServer(cloud.ServerSpec{Name: "old", Flavor: "p2.8c_16g"})
		f.Edit(func(c *cloud.Catalog) {
			c.Flavors[cloud.RegionHN] = lo.Reject(c.Flavors[cloud.RegionHN], func(of cloud.Flavor, _ int) bool { return of.Name == "p2.8c_16g" })
		})
		Expect(answer[rules.Report](f, "doctor", "--preflight").Facts).To(ContainElement(And(HaveField("Name", "balance"),
			HaveField("Value", MatchRegexp(`pays for at most \d+ hours .* without other services and 1 server whose price is not known`)))))
	})

	It("should price what is paid for without need", func() {
		f.install()
		f.AddServer(cloud.ServerSpec{Name: "lost", Metadata: map[string]string{v1alpha1.MetadataClusterUID: clusterUID}})
		Expect(f.run("doctor")).To(Equal(cli.ExitOK), f.out)
		Expect(f.out).To(MatchRegexp(`Paid for without need: about [\d,]{6,} VND per month`))
	})
})

// addPoolServer adds a node of one of BKE's pools with its server, which has no public address.
func addPoolServer(f *fixture) {
	GinkgoHelper()
	bke := f.BKE()
	server := f.AddServer(cloud.ServerSpec{Name: "pool-1", Metadata: map[string]string{"bke_cluster_id": bke.ClusterUID, "bke_cluster_token": bke.ClusterToken}})
	f.put(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Labels: map[string]string{"bke.bizflycloud.vn/node-id": "pool-1", corev1.LabelTopologyZone: "HN1"}},
		Spec:       corev1.NodeSpec{ProviderID: "bizflycloud://" + server.ID},
	})
}

// addAutoscalingPool makes a worker pool of one node that scales by itself.
func addAutoscalingPool(f *fixture) {
	server := f.AddServer(cloud.ServerSpec{Name: "pool-1-0"})
	f.AddWorkerPool(cloud.PoolSpec{Name: "pool-1", Servers: []string{server.ID}, MinSize: 1, MaxSize: 3})
}
