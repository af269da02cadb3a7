// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bke"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/bootstrap"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/suite"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/unit/connect"
)

const (
	clusterName = "prod"
	clusterUID  = "5f1f2a5e-0000-4000-8000-00000000000a"
	claimName   = "default-x7k2p"
	claimUID    = "9a4c1d1e-0000-4000-8000-000000000001"

	listServers  = "GET /iaas-cloud/api/servers"
	listVolumes  = "GET /iaas-cloud/api/volumes"
	createServer = "POST /iaas-cloud/api/servers"
	deleteServer = "DELETE /iaas-cloud/api/servers/{id}"
	deleteVolume = "DELETE /iaas-cloud/api/volumes/{id}"
	getServer    = "GET /iaas-cloud/api/servers/{id}"
	getTask      = "GET /iaas-cloud/api/tasks/{id}"
	leaveCluster = "POST /api/kubernetes-engine/engine/cluster_leave/{uid}"
)

// ownName is the name of the server that the claim's first attempt makes.
var ownName = instance.Name(claimName, claimUID, clusterUID, 1)

var closing sync.WaitGroup

var _ = BeforeSuite(func() { log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter))) })

var _ = AfterSuite(func() { closing.Wait() })

func TestInstance(t *testing.T) { suite.Run(t, "Instance") }

// world is a cloud with a real client and one cluster's provider.
type world struct {
	box       *cloud.Sandbox
	client    *bizfly.Client
	catalog   *catalog.DefaultProvider
	config    instance.Config
	provider  *instance.DefaultProvider
	protected *protectedVolumes
}

// protectedVolumes stands for the PersistentVolumes of the cluster.
type protectedVolumes struct {
	mu      sync.Mutex
	handles sets.Set[string]
	err     error
}

func (p *protectedVolumes) set(err error, handles ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handles, p.err = sets.New(handles...), err
}

func (p *protectedVolumes) read(context.Context) (sets.Set[string], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handles, p.err
}

// times are the settings of a world, changed.
func times(change func(*options.Options)) *options.Store {
	return unit.Settings(func(o *options.Options) {
		// Every reader gets a list that begins with its call, unless a spec is about older ones.
		o.ServerIDWait, o.ServerPollInterval, o.ServerListMaxAge = suite.Patience, 10*time.Millisecond, 0
		change(o)
	})
}

// sharing lets readers share a list of a few seconds ago, as by default.
func sharing(c *instance.Config) {
	c.Settings = times(func(o *options.Options) { o.ServerListMaxAge = options.Defaults().ServerListMaxAge })
}

// newWorld starts a cloud; the changes are applied to the provider's configuration.
func newWorld(config cloud.Options, changes ...func(*instance.Config)) *world {
	GinkgoHelper()
	w := &world{box: cloud.Start(config), protected: &protectedVolumes{}}
	// A server that stops gives fresh connections two seconds; the next spec need not wait for that.
	DeferCleanup(func() { closing.Go(w.box.Close) })
	w.client = connect.Client(context.Background(), w.box, connect.Unlimited)
	w.catalog = connect.Catalog(context.Background(), w.client, func(c *catalog.Config) { c.BKEClusterID = w.box.BKE().ClusterUID })
	w.config = instance.Config{
		ClusterName: clusterName, ClusterUID: clusterUID, BKE: bke.Values{ClusterID: w.box.BKE().ClusterUID, Token: w.box.BKE().ClusterToken},
		Settings: times(func(*options.Options) {}), Clock: clock.RealClock{}, OnLeaveFailed: func(string, error) {},
	}
	for _, change := range changes {
		change(&w.config)
	}
	w.provider = w.restart()
	w.box.ResetRequests()
	return w
}

// restart is the provider of a controller that starts anew and remembers nothing.
func (w *world) restart(changes ...func(*instance.Config)) *instance.DefaultProvider {
	config := w.config
	for _, change := range changes {
		change(&config)
	}
	scripts := bootstrap.NewDefaultProvider(bootstrap.Config{
		Options: &options.Options{ClusterName: config.ClusterName},
		BKE: bke.Values{ClusterID: w.box.BKE().ClusterUID, Token: w.box.BKE().ClusterToken,
			JoinEndpoint: w.box.BKE().JoinEndpoint, LogEndpoint: w.box.BKE().LogEndpoint},
	}, w.catalog)
	return instance.NewDefaultProvider(config, w.client, scripts, w.catalog, w.protected.read)
}

// nodeClass is what an empty spec resolves to.
func (w *world) nodeClass() *v1alpha1.BizflyNodeClass {
	snapshot := lo.Must(w.catalog.Snapshot())
	version, _ := lo.Find(w.box.Options().Catalog.Versions, func(v cloud.KubernetesVersion) bool { return v.KubernetesVersion == "v1.35.4" })
	return &v1alpha1.BizflyNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Status: v1alpha1.BizflyNodeClassStatus{
			Images:            []v1alpha1.ImageStatus{{ID: version.WorkerImageID, Name: "bke"}},
			Networks:          []v1alpha1.NetworkStatus{{ID: w.box.BKE().NetworkID}},
			KubernetesVersion: snapshot.Cluster.Version.K8SVersion,
		},
	}
}

// intentLog is the claim's annotation.
type intentLog struct {
	mu      sync.Mutex
	intents []instance.Intent
}

func (l *intentLog) record(intent instance.Intent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intents = append(l.intents, intent)
}

// send records the intent of a launch, launches, and records what has become of it where there is no server.
func send(ctx context.Context, provider *instance.DefaultProvider, request *instance.LaunchRequest, written *intentLog) (
	*instance.Instance, instance.Intent, error) {
	if written == nil {
		written = &intentLog{}
	}
	intent, err := provider.Intent(request)
	if err != nil {
		return nil, intent, err
	}
	written.record(intent)
	server, intent, err := provider.Launch(ctx, request, intent)
	if err != nil {
		written.record(intent)
	}
	return server, intent, err
}

func (l *intentLog) last() instance.Intent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.intents[len(l.intents)-1]
}

func (l *intentLog) all() []instance.Intent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]instance.Intent{}, l.intents...)
}

// request is a launch for the NodeClaim.
func (w *world) request(changes ...func(*instance.LaunchRequest)) (*instance.LaunchRequest, *intentLog) {
	written := &intentLog{}
	request := &instance.LaunchRequest{
		NodeClaim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: claimName, UID: claimUID, Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}}},
		NodeClass: w.nodeClass(), Attempt: 1, Flavor: "p2.2c_4g", Category: "premium", Zone: "HN1", BillingPlan: "on_demand", CPU: 2, MemoryMiB: 4096,
	}
	for _, change := range changes {
		change(request)
	}
	return request, written
}

// launch launches a server and expects success, in another form where the first one was rejected.
func (w *world) launch(changes ...func(*instance.LaunchRequest)) (*instance.Instance, instance.Intent) {
	GinkgoHelper()
	request, _ := w.request(changes...)
	server, intent, err := send(context.Background(), w.provider, request, nil)
	for errors.Is(err, instance.ErrFormRejected) {
		request.Attempt++
		server, intent, err = send(context.Background(), w.provider, request, nil)
	}
	Expect(err).NotTo(HaveOccurred())
	w.box.AddDataDisks()
	return server, intent
}

// intent is what is on the NodeClaim after a launch.
func (w *world) intent(changes ...func(*instance.Intent)) instance.Intent {
	intent := instance.Intent{
		Attempt: 1, Name: instance.Name(claimName, claimUID, clusterUID, 1), Flavor: "p2.2c_4g", Zone: "HN1", BillingPlan: "on_demand", RequestedAt: time.Now(),
	}
	for _, change := range changes {
		change(&intent)
	}
	return intent
}

// metadata is what a server of the claim carries.
func metadata(cluster, claim string, attempt int) map[string]string {
	return map[string]string{
		v1alpha1.MetadataManaged: "true", v1alpha1.MetadataClusterName: clusterName, v1alpha1.MetadataClusterUID: cluster,
		v1alpha1.MetadataNodeClaimUID: claim, v1alpha1.MetadataNodeClaim: claimName, v1alpha1.MetadataAttempt: fmt.Sprint(attempt),
	}
}

func (w *world) count(route string) int { return w.box.RequestCounts()[route] }

// bodies are the JSON bodies of the requests of this method whose path has this ending or, with a "*", contains it.
func (w *world) bodies(method, path string) []map[string]any {
	GinkgoHelper()
	var bodies []map[string]any
	for _, request := range w.box.Requests() {
		if request.Method != method || !strings.Contains(request.Path, path) {
			continue
		}
		var body any
		Expect(json.Unmarshal(request.Body, &body)).To(Succeed())
		if list, ok := body.([]any); ok {
			Expect(list).To(HaveLen(1))
			body = list[0]
		}
		bodies = append(bodies, body.(map[string]any))
	}
	return bodies
}

func (w *world) created() []map[string]any {
	GinkgoHelper()
	return w.bodies(http.MethodPost, "/iaas-cloud/api/servers")
}

// deleted are the volumes listed in each DELETE of a server.
func (w *world) deleted() [][]string {
	GinkgoHelper()
	return lo.Map(w.bodies(http.MethodDelete, "/iaas-cloud/api/servers/"), func(body map[string]any, _ int) []string {
		return lo.Map(body["delete_volume"].([]any), func(id any, _ int) string { return id.(string) })
	})
}

// answer answers all lists of a path with this one.
func (w *world) answer(path string, list any) {
	GinkgoHelper()
	body := lo.Must(json.Marshal(list))
	w.box.AddFaults(1, cloud.Fault{Method: http.MethodGet, Path: path, Effect: cloud.EffectBody, Body: string(body)})
}

// counted reads a counter of the process, which all specs share, by outcome.
func counted(name, outcome string) float64 {
	GinkgoHelper()
	metric, found := expectations.FindMetricWithLabelValues(name, map[string]string{"outcome": outcome})
	Expect(found).To(BeTrue(), name)
	return metric.GetCounter().GetValue()
}

// leftovers is what the cloud still holds.
func (w *world) leftovers() []string {
	state := w.box.State()
	return append(lo.Map(state.Servers, func(s cloud.Server, _ int) string { return "server " + s.Name }),
		lo.Map(state.Volumes, func(v cloud.Volume, _ int) string { return "volume " + v.Name })...)
}

// deleteUntilGone polls like core does.
func (w *world) deleteUntilGone(provider *instance.DefaultProvider, request instance.DeleteRequest) {
	GinkgoHelper()
	Eventually(func() error { return provider.Delete(context.Background(), request) }).
		WithPolling(5 * time.Millisecond).Should(MatchError(instance.ErrNotFound))
}

// collectOnce does what one pass of garbage collection does where no NodeClaim exists, and returns what went wrong.
func collectOnce(provider *instance.DefaultProvider) error {
	servers, err := provider.Snapshot(ctx, 0)
	if err != nil {
		return err
	}
	var errs []error
	for _, server := range servers.All() {
		if err := provider.Delete(ctx, instance.DeleteRequest{ID: server.ID, Node: server.Name}); !errors.Is(err, instance.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	left, err := provider.Leftovers(ctx)
	for _, leftover := range left {
		if leftover.Kept == "" {
			errs = append(errs, provider.DeleteLeftover(ctx, leftover))
		}
	}
	return errors.Join(append(errs, err)...)
}

// collectAll makes passes until nothing is left.
func collectAll(w *world) {
	GinkgoHelper()
	Eventually(func() []string {
		Expect(collectOnce(w.provider)).To(Succeed())
		return w.leftovers()
	}).Should(BeEmpty())
}

// deletedWithLeftovers deletes a server like core, and what it has left like garbage collection.
func (w *world) deletedWithLeftovers(provider *instance.DefaultProvider, request instance.DeleteRequest) {
	GinkgoHelper()
	w.deleteUntilGone(provider, request)
	Eventually(func() []instance.Leftover {
		left := lo.Must(provider.Leftovers(ctx))
		left = lo.Filter(left, func(l instance.Leftover, _ int) bool { return l.Kept == "" })
		for _, leftover := range left {
			Expect(provider.DeleteLeftover(ctx, leftover)).To(Succeed())
		}
		return left
	}).Should(BeEmpty())
}

func contextWithTimeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// ofClass reports whether an error has the class.
func ofClass(class bizfly.Class) func(error) bool {
	return func(err error) bool { return bizfly.ClassOf(err) == class }
}
