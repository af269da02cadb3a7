// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/support/environment"
)

const (
	// release is the name that core's suites expect of the Deployment and of the label of its pods, leaseName that of its lease.
	release   = "karpenter"
	leaseName = "karpenter-leader-election"
	// gates are what the suites need switched on from the beginning; some specs add to it.
	gates = "NodeRepair=true,NodeOverlay=true,StaticCapacity=true,CapacityBuffer=true"
	// latency and boot are how long the sandbox takes to make or delete a server and to boot it.
	latency, boot = 500 * time.Millisecond, 500 * time.Millisecond
	// lease is that of the nodes: a hundred that speak every few seconds keep a small machine busy. Those of the performance suite are
	// hundreds, and none of them dies.
	lease, longLease = time.Minute, 10 * time.Minute
	// leftoversPatience is how long after a spec the cloud may take to be empty.
	leftoversPatience = 2 * time.Minute
)

// truth is what the cloud holds, by its own word.
type truth struct{ servers, volumes, ports, foreign int }

func (t truth) String() string {
	return fmt.Sprintf("servers=%d volumes=%d ports=%d foreign_requests=%d", t.servers, t.volumes, t.ports, t.foreign)
}

func (t truth) add(o truth) truth {
	return truth{t.servers + o.servers, t.volumes + o.volumes, t.ports + o.ports, t.foreign + o.foreign}
}

// after is how much of it counts after a spec with this outcome. Core stops a spec that fails in the midst of what it does: what is left then
// is no leak, and the spec may pass the second time.
func (t truth) after(outcome string) truth {
	if outcome == failed {
		return truth{foreign: t.foreign}
	}
	return t
}

// cluster is a control plane with a cloud of its own, in which the controller runs as a Deployment, as core's suites expect.
type cluster struct {
	env     *environment.Environment
	kubelet *environment.Kubelet
	cancel  context.CancelFunc
	done    chan struct{}

	mu  sync.Mutex
	err error
}

// startCluster starts everything and waits until the controller is ready. A node is taken for alive for as long as its lease says.
func startCluster(ctx context.Context, scheduler []byte, seed int64, nodeLease time.Duration) (*cluster, error) {
	c := &cluster{done: make(chan struct{})}
	env, err := environment.Start(ctx, environment.Options{
		Latency: latency, Boot: boot, Seed: seed, NoController: true,
		SchedulerConfig: string(scheduler),
		// One of core's specs spreads four pods over four zones.
		SandboxArgs: []string{"--zones=4"},
		NodeLease:   nodeLease,
		Pods:        c,
	})
	if err != nil {
		return nil, err
	}
	c.env = env
	if err := c.install(ctx); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	return c, nil
}

func (c *cluster) install(ctx context.Context) (err error) {
	for _, object := range c.objects() {
		if err := c.env.Client().Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	if c.kubelet, err = c.env.StartKubelet(metav1.NamespaceSystem, map[string]string{"app.kubernetes.io/instance": release}); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(c.env.Context())
	c.cancel = cancel
	started := make(chan struct{})
	go c.watch(watching, sync.OnceFunc(func() { close(started) }))
	select {
	case <-started:
		return nil
	case <-c.done:
		return c.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(2 * time.Minute):
		return errors.New("the controller was not ready within 2m")
	}
}

// watch looks after the controller until the context ends: it fails the cluster when a pod's process has ended by itself, and
// holds the lease in the name of the pod whose process is ready. A pod's hostname is its name, and with it the first part of
// what a controller writes into its lease; the processes here all have the hostname of this machine, so leader election is
// off, and the Deployment never runs two pods at once.
func (c *cluster) watch(ctx context.Context, ready func()) {
	defer close(c.done)
	seen := map[string]bool{}
	for ; ctx.Err() == nil; wait(ctx, 500*time.Millisecond) {
		if err := c.look(ctx, seen, ready); err != nil && ctx.Err() == nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

func (c *cluster) look(ctx context.Context, seen map[string]bool, ready func()) error {
	processes, err := c.kubelet.Processes()
	if err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := c.env.Client().List(ctx, pods, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"app.kubernetes.io/instance": release}); err != nil {
		return fmt.Errorf("listing the controller's pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		process, running := processes[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil:
		case running && !seen[pod.Name] && process.Ready(ctx):
			seen[pod.Name] = true
			if err := c.holdLease(ctx, pod.Name); err != nil {
				return err
			}
			ready()
		case !running && seen[pod.Name]:
			// Its pod may be going at this moment; whether it was is seen at the next look.
			if err := c.env.Client().Get(ctx, client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("getting the controller's pod: %w", err)
			} else if err == nil && pod.DeletionTimestamp == nil {
				return fmt.Errorf("the controller ended by itself; its last lines were:\n%s", c.env.Log("pod-"+pod.Name, 30))
			}
		}
	}
	return nil
}

// placeholder is part of our routes, such as "/servers/{id}". Core's reader of metrics takes the last brace of a line for the one that begins
// the labels, and panics where a label's value has one.
var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// ServeHTTP answers as the controller's pod: with its metrics, which core's performance suite reads.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r) // that suite also asks for profiles, which the controller serves only where it is told to
		return
	}
	metrics, err := c.metrics(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = io.WriteString(w, placeholder.ReplaceAllString(metrics, ":$1"))
}

func (c *cluster) metrics(r *http.Request) (string, error) {
	processes, err := c.kubelet.Processes()
	if err != nil {
		return "", err
	}
	for _, process := range processes {
		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, process.MetricsURL(), nil)
		if err != nil {
			return "", fmt.Errorf("asking for metrics: %w", err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", fmt.Errorf("asking for metrics: %w", err)
		}
		content, err := io.ReadAll(response.Body)
		return string(content), errors.Join(err, response.Body.Close())
	}
	return "", errors.New("the controller does not run")
}

func (c *cluster) holdLease(ctx context.Context, pod string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaseName}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.env.Client(), lease, func() error {
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: lo.ToPtr(pod + "_conformance"), RenewTime: lo.ToPtr(metav1.NowMicro())}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	return nil
}

// failure is why the cluster cannot be used any more, nil while it can.
func (c *cluster) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.env.Context().Err() != nil {
		return context.Cause(c.env.Context())
	}
	return nil
}

// truth waits until the cloud is empty, or for as long as it may take to be, and returns what it holds then.
func (c *cluster) truth(ctx context.Context) (truth, error) {
	deadline := time.Now().Add(leftoversPatience)
	for {
		state, err := c.env.Sandbox().State(ctx)
		if err != nil {
			return truth{}, err
		}
		t := truth{servers: len(state.Servers), volumes: len(state.Volumes), ports: len(state.NetworkInterfaces) + len(state.WanIPs)}
		t.foreign, _ = c.env.ForeignRequests()
		if t.servers+t.volumes+t.ports == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return t, nil //nolint:nilerr // where time is up, what is left now is the answer
		}
		wait(ctx, time.Second)
	}
}

// stop ends everything; the logs are kept in a folder if one is given.
func (c *cluster) stop(logs string) error {
	c.cancel()
	<-c.done
	errs := []error{c.kubelet.Stop()}
	if logs != "" {
		errs = append(errs, os.CopyFS(logs, os.DirFS(filepath.Join(c.env.Dir(), "logs"))))
	}
	return errors.Join(append(errs, c.env.Stop())...)
}

// objects are what core's suites expect of a cluster: a tainted node for what is not theirs, the controller's Deployment there,
// and the static pod of a kube-scheduler that was given core's configuration, as ours is.
func (c *cluster) objects() []client.Object {
	const node = "system-0"
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	labels := map[string]string{"app.kubernetes.io/instance": release, "app.kubernetes.io/name": release}
	system := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	}
	addresses, endpoints := c.env.NodeEndpoint()
	tolerations := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	variables := maps.Clone(c.env.Sandbox().Env())
	maps.Copy(variables, map[string]string{
		"BIZFLY_CLOUD_ALLOW_HTTP": "true", "DISABLE_LEADER_ELECTION": "true", "FEATURE_GATES": gates, "LOG_LEVEL": "info",
		// Core looks for a buffer's pods every 30 seconds, and protects a new node for twice the longest batch. Nodes boot in a
		// second here: with the default of 10 seconds, core would delete them as empty before it finds the buffer's pods on them.
		// The idle time lets the second look come after the launch, which takes up to two seconds.
		"BATCH_IDLE_DURATION": "3s", "BATCH_MAX_DURATION": "20s",
	})
	return []client.Object{
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{
				"sandbox.bizflycloud.vn/alive": "true", corev1.LabelHostname: node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}},
			Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Addresses: addresses, DaemonEndpoints: endpoints},
		},
		&corev1.ServiceAccount{ObjectMeta: system(release)},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: release},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: release}},
		},
		&appsv1.Deployment{
			ObjectMeta: system(release),
			Spec: appsv1.DeploymentSpec{
				Replicas: lo.ToPtr[int32](1),
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						ServiceAccountName: release, NodeName: "", NodeSelector: map[string]string{corev1.LabelHostname: node}, Tolerations: tolerations,
						PriorityClassName: "system-cluster-critical",
						Containers: []corev1.Container{{Name: "controller", Image: "controller", Env: lo.Map(slices.Sorted(maps.Keys(variables)),
							func(name string, _ int) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: variables[name]} })}},
					},
				},
			},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler-" + node, Labels: map[string]string{"component": "kube-scheduler"}},
			Spec: corev1.PodSpec{
				NodeName: node, Tolerations: tolerations, PriorityClassName: "system-node-critical",
				Containers: []corev1.Container{{Name: "kube-scheduler", Image: "kube-scheduler", Command: []string{
					"kube-scheduler", "--config=/etc/kubernetes/karpenter-scheduler-config/kube-scheduler-config.yaml",
				}}},
			},
		},
	}
}

// wait waits for a time or for the end of the context.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
