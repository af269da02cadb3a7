// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package realcloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/realcloud/answers"
)

const (
	// longest is how long the server may live: the most that is paid for. Each hour that has begun is charged.
	longest = 2 * time.Hour
	// rootDiskGiB is the default root disk of a NodeClass, and dataDiskGiB the smallest data disk.
	rootDiskGiB = 40
	dataDiskGiB = 10
	// markerPrefix is what the names of files begin with that name a run whose servers may be left.
	markerPrefix = "e2e-cloud-run-"
)

// run is one run with the controller's own client and providers, under an identity of its own: no controller that runs in
// the cluster recognises its server as one of its own, and no other server.
type run struct {
	settings

	// id is what the servers have as the UID of their cluster. Nothing else has it.
	id       string
	recorder *answers.Recorder
	api      *bizfly.Client
	*wiring.Providers
	// kube is the cluster that servers join; nil without one.
	kube kubernetes.Interface
	// apiServer is the address of its API server.
	apiServer string
	// notLearned is why what servers join with is not known; it holds no secret.
	notLearned string

	// balance is that of the account at the beginning, in VND.
	balance      float64
	balanceKnown bool

	// workerImages are the worker images by version as they were first read.
	workerImages map[string]string

	// seenPorts are the servers of the run by the network interfaces that were seen on them.
	seenPorts map[string]string

	// attempt counts the create requests, which have a name each.
	attempt int

	mu       sync.Mutex
	findings map[string]answers.Finding
	// name and taskID are those of the last create request that was accepted.
	name, taskID string
	// unseen are the create requests of which a server may come that no list has shown yet: their tasks by the server's name, empty where
	// no answer named one.
	unseen map[string]string
}

// noting is the client that servers are launched with: it notes the task of a launch that is under way. It is noted before it is sent: a
// server may come of a request whose answer was never read.
type noting struct {
	*bizfly.Client
	run *run
}

func (n noting) CreateServer(ctx context.Context, request *gobizfly.ServerCreateRequest) (string, error) {
	n.run.note(request.Name, "")
	taskID, err := n.Client.CreateServer(ctx, request)
	var answer *bizfly.APIError
	switch {
	case err == nil:
		n.run.note(request.Name, taskID)
		n.run.mu.Lock()
		defer n.run.mu.Unlock()
		n.run.name, n.run.taskID = request.Name, taskID
	case bizfly.IsNotSent(err) || errors.As(err, &answer) && !answer.Ambiguous:
		n.run.forget(request.Name)
	}
	return taskID, err
}

func newRun(s settings) (*run, error) {
	r := &run{settings: s, id: lo.CoalesceOrEmpty(s.leftoversOf, string(uuid.NewUUID())), findings: map[string]answers.Finding{}, seenPorts: map[string]string{},
		unseen: map[string]string{}}
	if s.leftoversOf != "" {
		r.note("any of that run", "")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	if strings.HasSuffix(r.answers, "/") {
		r.answers = filepath.Join(r.answers, fmt.Sprintf("answers-%s-%s.json", s.client.Region, r.id[:8]))
	}
	r.recorder = answers.NewRecorder(transport, s.secrets()...)
	config := s.client
	config.Transport, config.Registerer = r.recorder, prometheus.NewRegistry()
	var err error
	if r.api, err = bizfly.NewClient(config); err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	scope, err := r.api.Scope(ctx)
	if err != nil {
		return nil, fmt.Errorf("logging in: %w", err)
	}
	r.api.Confirm(scope)
	opts := options.Defaults()
	opts.ServerIDWait, opts.VisibilityWindow = s.patience, s.patience
	opts.ServerPollInterval = lo.CoalesceOrEmpty(s.poll, opts.ServerPollInterval)
	opts.ClusterName = "e2e-cloud"
	opts.BKEClusterID, opts.BKEClusterToken, opts.BKEJoinEndpoint, opts.BKELogEndpoint = s.bke.ClusterID, s.bke.Token, s.bke.JoinEndpoint, s.bke.LogEndpoint
	// Without a cluster there is no node of a pool to learn from, and no volume of pods. The controller's own objects are in neither.
	empty := fake.NewClientBuilder().Build()
	reader, err := r.connect()
	if err != nil {
		return nil, err
	}
	// As by default: what the environment leaves out is learned from BKE's own pools.
	opts.BKEDiscoverFromPool = r.kube != nil
	if r.kube == nil {
		reader = empty
	}
	r.Providers = wiring.Build(wiring.Dependencies{
		API: noting{Client: r.api, run: r}, Client: empty, APIReader: reader,
		Settings: options.NewStore(opts), ClusterUID: r.id, APIServer: r.apiServer,
	})
	if r.kube != nil && s.leftoversOf == "" {
		if r.bke, err = r.BKE.Values(ctx); err != nil {
			r.notLearned = ", and nothing was learned of BKE's own pools: " + err.Error()
		}
		r.recorder.Hide(r.bke.Token, r.bke.ClusterID)
	}
	return r, nil
}

// connect makes the clients of the cluster, and returns the one that the providers only read with; nil without a cluster.
func (r *run) connect() (client.Reader, error) {
	if r.kubeconfig == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	rest, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	r.apiServer = rest.Host
	if r.kube, err = kubernetes.NewForConfig(rest); err != nil {
		return nil, fmt.Errorf("making a client of the cluster: %w", err)
	}
	reader, err := client.New(rest, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client of the cluster: %w", err)
	}
	return reader, nil
}

// joins reports whether a server can join a cluster, and else what is missing for it.
func (r *run) joins() (bool, string) {
	if r.kubeconfig == "" {
		return false, "KUBECONFIG is not set"
	}
	return r.bke.Complete(), "BKE_CLUSTER_ID, BKE_CLUSTER_TOKEN and BKE_JOIN_ENDPOINT are not all set" + r.notLearned
}

// note notes that a server may come of a create request; its task is empty where no answer named one.
func (r *run) note(name, taskID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen[name] = taskID
}

// forget notes that no server will come of a create request, or that it was listed.
func (r *run) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unseen, name)
}

// awaited are the create requests of which a server may still come, with their tasks.
func (r *run) awaited() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.unseen)
}

// find writes a finding down. A behaviour is what the sandbox must do alike.
func (r *run) find(key, question string, answer any) { r.write(key, question, answer, false) }

func (r *run) behaves(key, question string, answer any) { r.write(key, question, answer, true) }

func (r *run) write(key, question string, answer any, behaviour bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings[key] = answers.Finding{Question: question, Answer: answer, Behaviour: behaviour}
}

// document is all that was learned.
func (r *run) document() *answers.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &answers.Document{Version: answers.Version, Cloud: "sandbox", Findings: maps.Clone(r.findings), Answers: r.recorder.Answers()}
	if region, err := bizfly.ParseRegion(r.client.Region); err == nil {
		d.Region = region
	}
	if !r.sandbox {
		d.Cloud = "BizFly Cloud"
	}
	return d
}

// save writes down what was learned. A removal learns nothing, and the file would be that of the run which it is of.
func (r *run) save() error {
	d := r.document()
	if len(d.Answers) == 0 || r.leftoversOf != "" {
		return nil
	}
	return d.Write(r.answers, r.secrets())
}

// marker is a file that is there while a server of the run may be: its name has the run's id, for the removal.
func (r *run) marker() string { return filepath.Join(filepath.Dir(r.answers), markerPrefix+r.key()) }

// key is how a later run is told what to remove the remains of.
func (r *run) key() string { return r.client.Region + "-" + r.id }

// claim is the name of the claim that the run's servers are for; the servers' and disks' names begin with it.
func (r *run) claim() string { return "e2e-cloud-" + r.id[:8] }

// nodeClass is what most users write, resolved: nothing. Without BKE it is an Ubuntu that runs and joins nothing.
func (r *run) nodeClass(ctx context.Context) (*v1alpha1.BizflyNodeClass, error) {
	class := &v1alpha1.BizflyNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "e2e-cloud"}}
	class.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{Alias: "bke@latest"}}
	if joins, _ := r.joins(); !joins {
		class.Spec.BootstrapMode, class.Spec.UserData = v1alpha1.BootstrapModeCustom, lo.ToPtr("#!/bin/sh\ntrue\n")
		public, err := r.api.ListOSImages(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing public images: %w", err)
		}
		ubuntu, ok := lo.Find(public, func(i bizfly.OSImage) bool { return strings.EqualFold(i.Distribution, "Ubuntu") })
		if !ok {
			return nil, errors.New("there is no public Ubuntu image")
		}
		class.Spec.ImageSelectorTerms = []v1alpha1.ImageSelectorTerm{{ID: ubuntu.ID}}
	}
	found, err := r.Images.Resolve(ctx, class)
	if err != nil {
		return nil, fmt.Errorf("finding the image: %w", err)
	}
	if class.Status.PoolServer, err = r.Networks.PoolServer(ctx, class); err != nil {
		return nil, fmt.Errorf("reading the interfaces of a server of a pool: %w", err)
	}
	if class.Status.Firewalls, err = r.Networks.Firewalls(ctx, class); err != nil {
		return nil, fmt.Errorf("finding the firewalls: %w", err)
	}
	networks, err := r.Networks.Networks(ctx, class)
	if err != nil {
		return nil, fmt.Errorf("finding the network: %w", err)
	}
	class.Status.Images = []v1alpha1.ImageStatus{{ID: found.ID, Name: found.Name}}
	class.Status.KubernetesVersion = found.KubernetesVersion
	class.Status.Networks = lo.Map(networks, func(n network.Network, _ int) v1alpha1.NetworkStatus {
		return v1alpha1.NetworkStatus{ID: n.ID, Name: n.Name}
	})
	return class, nil
}

// request is the next create request of the run.
func (r *run) request(class *v1alpha1.BizflyNodeClass, o offer) *instance.LaunchRequest {
	r.attempt++
	return &instance.LaunchRequest{
		NodeClaim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: r.claim(), UID: types.UID(r.id)}}, NodeClass: class, Attempt: r.attempt,
		Flavor: o.flavor, Category: o.category, Zone: o.zone, BillingPlan: bizfly.PlanWord(v1alpha1.BillingPlanOnDemand), CPU: o.cpu, MemoryMiB: o.memoryMiB,
	}
}

// launch sends the next create request of the run.
func (r *run) launch(ctx context.Context, class *v1alpha1.BizflyNodeClass, o offer) (*instance.Instance, instance.Intent, error) {
	request := r.request(class, o)
	intent, err := r.Instances.Intent(request)
	if err != nil {
		return nil, intent, err
	}
	return r.Instances.Launch(ctx, request, intent)
}

// accepted is the name and the task of the last create request that was accepted; empty before the first.
func (r *run) accepted() (name, taskID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name, r.taskID
}

// launchFirst launches the first of the offerings that the cloud builds a server of. What one that failed leaves behind is removed first.
func (r *run) launchFirst(ctx context.Context, class *v1alpha1.BizflyNodeClass, offers []offer) (server *instance.Instance, o offer, err error) {
	outcomes := []string{}
	for _, o = range offers {
		server, err = r.build(ctx, class, o)
		outcomes = append(outcomes, fmt.Sprintf("%s in %s: %s", o.flavor, o.zone, said(err)))
		r.find("launches", "the outcomes of the create requests, the least expensive offering first", slices.Clone(outcomes))
		r.find("request-forms", "the forms in which volume types and flavors were accepted, where several are known", r.Instances.Forms().Accepted())
		// Where the outcome is not known, there may be a server: a second one would be one too many.
		if err == nil || ctx.Err() != nil || errors.Is(err, instance.ErrAwaitingServerID) || errors.Is(err, instance.ErrOutcomeUnknown) {
			return server, o, err
		}
		limited, cancel := context.WithTimeout(ctx, r.patience)
		defer cancel()
		if left := r.deleteLeftovers(limited); left != nil {
			return nil, o, errors.Join(err, left)
		}
	}
	return nil, o, err
}

// build launches an offering, in each form that the cloud may take, and waits until its server runs.
func (r *run) build(ctx context.Context, class *v1alpha1.BizflyNodeClass, o offer) (*instance.Instance, error) {
	begun := time.Now()
	var server *instance.Instance
	var intent instance.Intent
	var watched chan seen
	err := instance.ErrFormRejected
	for range 6 {
		if !errors.Is(err, instance.ErrFormRejected) {
			break
		}
		r.mu.Lock()
		r.name, r.taskID = "", ""
		r.mu.Unlock()
		watching, stop := context.WithTimeout(ctx, r.patience)
		defer stop()
		watched = make(chan seen, 1)
		go func() { watched <- r.watch(watching) }()
		server, intent, err = r.launch(ctx, class, o)
	}
	if err != nil {
		return nil, err
	}
	r.find("id-seconds", "how many seconds until the server's id was known", int(time.Since(begun).Seconds()))
	if server, err = r.active(ctx, server.ID, intent); err != nil {
		return nil, err
	}
	r.find("active-seconds", "how many seconds until the server ran", int(time.Since(begun).Seconds()))
	r.record(<-watched)
	return server, nil
}

// active waits until a server runs.
func (r *run) active(ctx context.Context, id string, intent instance.Intent) (*instance.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	for {
		server, err := r.Instances.Get(ctx, id)
		switch {
		case err == nil && server.Failed():
			return nil, fmt.Errorf("%w: status %s: %w", instance.ErrBuildFailed, server.Status, r.Instances.FailureReason(ctx, intent))
		case err == nil && server.Status == instance.StatusActive:
			return server, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: waiting until its server runs: %w", instance.ErrOutcomeUnknown, errors.Join(err, ctx.Err()))
		case <-time.After(r.poll):
		}
	}
}

// said returns the message of a rejection, as far as a program can read it.
func said(err error) string {
	var answer *bizfly.APIError
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, instance.ErrBuildFailed):
		return "accepted, and the task failed"
	case errors.As(err, &answer):
		return fmt.Sprintf("rejected with %d", answer.Status)
	default:
		return "no answer"
	}
}
