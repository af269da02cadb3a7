// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bizflycloud/gobizfly"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/bizfly"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator/wiring"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/options"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/pricing"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/catalog"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/instance"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/internal/providers/network"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/pkg/apis/v1alpha1"
	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/cloud/answers"
)

const (
	// longest is how long the server may live: the most that is paid for. Each hour that has begun is charged.
	longest = time.Hour
	// rootDiskGiB is the default root disk of a NodeClass, and dataDiskGiB the smallest data disk.
	rootDiskGiB = 40
	dataDiskGiB = 10
)

// offer is what is launched.
type offer struct {
	flavor, category, zone string
	cpu, memoryMiB         int
	// price is in VND per hour, disk included, by the table that the controller has.
	price float64
}

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

	// balance is that of the account at the beginning, in VND.
	balance      float64
	balanceKnown bool

	// workerImages are the worker images by version as they were first read.
	workerImages map[string]string

	// seenPorts are the servers of the run by the network interfaces that were seen on them.
	seenPorts map[string]string

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
	r := &run{settings: s, id: lo.CoalesceOrEmpty(s.leftoversOf, uuid.NewString()), findings: map[string]answers.Finding{}, seenPorts: map[string]string{},
		unseen: map[string]string{}}
	if s.leftoversOf != "" {
		r.note("any of that run", "")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	r.recorder = answers.NewRecorder(transport, s.bke.ClusterID, s.client.ProjectID)
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
	// The node is closed to pods, so no volume of theirs is ever on it; the disks to delete are those of the create request.
	empty := fake.NewClientBuilder().Build()
	r.Providers = wiring.Build(wiring.Dependencies{
		API: noting{Client: r.api, run: r}, Client: empty, APIReader: empty, Settings: options.NewStore(opts), ClusterUID: r.id,
	})
	if s.kubeconfig != "" {
		rest, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading KUBECONFIG: %w", err)
		}
		r.apiServer = rest.Host
		if r.kube, err = kubernetes.NewForConfig(rest); err != nil {
			return nil, fmt.Errorf("making a client of the cluster: %w", err)
		}
	}
	return r, nil
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
	d := &answers.Document{Version: answers.Version, Cloud: "sandbox", Findings: r.findings, Answers: r.recorder.Answers()}
	if region, err := bizfly.ParseRegion(r.client.Region); err == nil {
		d.Region = region
	}
	if !r.sandbox {
		d.Cloud = "BizFly Cloud"
	}
	return d
}

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

// cheapest chooses what is launched: the least expensive offering that is large enough for a kubelet, on demand.
func (r *run) cheapest() (offer, error) {
	snapshot, err := r.Catalog.Snapshot()
	if err != nil {
		return offer{}, err
	}
	best := offer{price: math.Inf(1)}
	for _, f := range snapshot.Flavors {
		if r.flavor != "" && f.Name != r.flavor || !usable(snapshot, f) {
			continue
		}
		for _, z := range snapshot.Region.Zones {
			o := offer{flavor: f.Name, category: strings.ToLower(f.Category), zone: z.ShortName, cpu: f.VCPUs, memoryMiB: f.RAM}
			_, disk := lo.Must(r.Catalog.Snapshot()).VolumeType(o.zone, o.category, v1alpha1.DiskMediumSSD)
			available := z.Active && disk && (len(f.Generation.AvailabilityZones) == 0 || lo.Contains(f.Generation.AvailabilityZones, o.zone))
			if !available || r.zone != "" && o.zone != r.zone {
				continue
			}
			var known bool
			o.price, known = pricing.DefaultTable().Price(pricing.Item{
				Category: o.category, Generation: f.Generation.Code, CPU: f.VCPUs, MemoryMiB: f.RAM,
				Disks:       []pricing.Disk{{GiB: rootDiskGiB, Type: v1alpha1.DiskMediumSSD}, {GiB: dataDiskGiB, Type: v1alpha1.DiskMediumSSD}},
				BillingPlan: v1alpha1.BillingPlanOnDemand,
			})
			if known && o.price < best.price {
				best = o
			}
		}
	}
	if best.flavor == "" {
		return best, fmt.Errorf("no flavor with 2 vCPUs and 2 GiB is available on demand (E2E_CLOUD_FLAVOR=%q, E2E_CLOUD_ZONE=%q)", r.flavor, r.zone)
	}
	return best, nil
}

// usable reports whether this run may launch a flavor.
func usable(snapshot *catalog.Snapshot, f *gobizfly.ServerFlavorResponse) bool {
	available := lo.SomeBy(snapshot.ServerTypes, func(t *gobizfly.ServerType) bool { return t.Enabled && strings.EqualFold(t.Name, f.Category) })
	plan := len(f.BillingPlans) == 0 || lo.Contains(f.BillingPlans, bizfly.PlanWord(v1alpha1.BillingPlanOnDemand))
	return available && plan && f.GPU == nil && f.VCPUs >= 2 && f.RAM >= 2048 && !strings.Contains(f.Name, "_vps")
}

// request is the create request of the run's server.
func (r *run) request(class *v1alpha1.BizflyNodeClass, o offer, attempt int) *instance.LaunchRequest {
	return &instance.LaunchRequest{
		NodeClaim: &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: r.claim(), UID: types.UID(r.id)}}, NodeClass: class, Attempt: attempt,
		Flavor: o.flavor, Category: o.category, Zone: o.zone, BillingPlan: bizfly.PlanWord(v1alpha1.BillingPlanOnDemand), CPU: o.cpu, MemoryMiB: o.memoryMiB,
	}
}

// launch sends the create request of the run's server.
func (r *run) launch(ctx context.Context, class *v1alpha1.BizflyNodeClass, o offer, attempt int) (*instance.Instance, instance.Intent, error) {
	request := r.request(class, o, attempt)
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
