// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The kubelet's lease lasts kwokLeaseSeconds and kube-controller-manager calls a node dead after nodeGrace: short
// enough that a test sees a server die, long enough that a busy machine does not look like dead servers.
const (
	kwokLeaseSeconds = 20
	nodeGrace        = 25 * time.Second
)

// apiServer is the name of the process that the others talk to.
const apiServer = "kube-apiserver"

// aliveSelector is the label that the sandbox puts on the Nodes of running servers and removes from the others.
const aliveSelector = "sandbox.bizflycloud.vn/alive=true"

var loopback = net.IPv4(127, 0, 0, 1)

// startControlPlane starts etcd and kube-apiserver, and then what works against them.
func (e *Environment) startControlPlane(ctx context.Context) error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	pki, err := newAuthority(filepath.Join(e.dir, "pki"))
	if err != nil {
		return err
	}
	if err := pki.signingKey(); err != nil {
		return err
	}
	host := loopback
	if e.options.Machines {
		host = machinesHost
	}
	serving, err := pki.issue("kube-apiserver", nil, loopback, host, net.IPv4(10, 0, 0, 1))
	if err != nil {
		return err
	}
	if err := pki.write("apiserver", serving); err != nil {
		return err
	}
	e.pki, e.server = pki, "https://"+net.JoinHostPort(host.String(), strconv.Itoa(ports[2]))
	if err := e.startEtcd(ctx, ports[0], ports[1]); err != nil {
		return err
	}
	reach, forwards, err := e.reachPods()
	if err != nil {
		return err
	}
	e.kwok = ports[3]
	if err := e.startAPIServer(ctx, ports[0], ports[2], reach); err != nil {
		return err
	}
	for _, start := range []func() error{e.startControllerManager, e.startScheduler} {
		if err := start(); err != nil {
			return err
		}
	}
	if e.options.Machines {
		return nil // real kubelets keep their Nodes alive
	}
	return e.startKwok(forwards)
}

func (e *Environment) startEtcd(ctx context.Context, clients, peers int) error {
	url := "http://" + local(clients)
	err := e.run("etcd",
		"--name=default", "--data-dir="+filepath.Join(e.dir, "etcd"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls=http://"+local(peers),
		"--initial-advertise-peer-urls=http://"+local(peers), "--initial-cluster=default=http://"+local(peers),
		"--unsafe-no-fsync", // thrown away at the end: nothing needs to survive a power cut
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	return e.await(ctx, "etcd", startPatience, func(ctx context.Context) (bool, error) {
		return answers(ctx, http.DefaultClient, url+"/health"), nil
	})
}

func (e *Environment) startAPIServer(ctx context.Context, etcd, port int, reach []string) error {
	e.apiServer = []string{
		"--etcd-servers=http://" + local(etcd),
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + e.pki.dir, "--client-ca-file=" + e.pki.path("ca.crt"),
		"--tls-cert-file=" + e.pki.path("apiserver.crt"), "--tls-private-key-file=" + e.pki.path("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + e.pki.path("sa.pub"), "--service-account-signing-key-file=" + e.pki.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
		// Nodes join by bootstrap tokens, as in clusters that kubeadm has made.
		"--enable-bootstrap-token-auth=true", "--enable-admission-plugins=NodeRestriction",
	}
	more, err := e.reachedByNodes()
	if err != nil {
		return err
	}
	audit, err := e.auditArgs()
	if err != nil {
		return err
	}
	e.apiServer = slices.Concat(e.apiServer, more, audit, reach)
	if err := e.run(apiServer, e.apiServer...); err != nil {
		return err
	}
	e.kubeconfig = filepath.Join(e.dir, "kubeconfig")
	if err := e.pki.kubeconfig(e.kubeconfig, e.server, "admin", "system:masters"); err != nil {
		return err
	}
	if e.config, err = clientcmd.BuildConfigFromFlags("", e.kubeconfig); err != nil {
		return fmt.Errorf("reading our own kubeconfig: %w", err)
	}
	e.config.QPS, e.config.Burst = 100, 200
	return e.awaitAPIServer(ctx)
}

// awaitAPIServer waits until it is ready: readyz also waits for the roles and priority classes that the API server
// creates for the others.
func (e *Environment) awaitAPIServer(ctx context.Context) error {
	httpClient, err := rest.HTTPClientFor(e.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return e.await(ctx, apiServer, startPatience, func(ctx context.Context) (bool, error) {
		return answers(ctx, httpClient, e.server+"/readyz"), nil
	})
}

// KubernetesVersion is the version of the API server.
func (e *Environment) KubernetesVersion() (*version.Version, error) {
	client, err := discovery.NewDiscoveryClientForConfig(e.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking for the version: %w", err)
	}
	return version.ParseSemantic(info.GitVersion)
}

func (e *Environment) startControllerManager() error {
	config := filepath.Join(e.dir, "kube-controller-manager.kubeconfig")
	if err := e.pki.kubeconfig(config, e.server, "system:kube-controller-manager"); err != nil {
		return err
	}
	if err := e.pki.writeKey("ca.key"); err != nil {
		return err
	}
	return e.run("kube-controller-manager",
		"--kubeconfig="+config, "--leader-elect=false", "--secure-port=0", "--controllers=*,bootstrapsigner,tokencleaner",
		"--cluster-signing-cert-file="+e.pki.path("ca.crt"), "--cluster-signing-key-file="+e.pki.path("ca.key"),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+e.pki.path("sa.key"), "--root-ca-file="+e.pki.path("ca.crt"),
		"--node-monitor-period=2s", "--node-monitor-grace-period="+max(nodeGrace, e.options.NodeLease*5/4).String(),
	)
}

func (e *Environment) startScheduler() error {
	config := filepath.Join(e.dir, "kube-scheduler.kubeconfig")
	if err := e.pki.kubeconfig(config, e.server, "system:kube-scheduler"); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--secure-port=0",
	}
	if e.options.SchedulerConfig != "" {
		// Beside --config, kube-scheduler ignores the flags with the same meaning.
		content := map[string]any{}
		if err := yaml.Unmarshal([]byte(e.options.SchedulerConfig), &content); err != nil {
			return fmt.Errorf("reading the scheduler's configuration: %w", err)
		}
		content["clientConnection"] = map[string]any{"kubeconfig": config}
		content["leaderElection"] = map[string]any{"leaderElect": false}
		file := filepath.Join(e.dir, "kube-scheduler.yaml")
		if err := os.WriteFile(file, lo.Must(yaml.Marshal(content)), 0o600); err != nil {
			return fmt.Errorf("writing the scheduler's configuration: %w", err)
		}
		args = append(args, "--config="+file)
	}
	return e.run("kube-scheduler", args...)
}

func (e *Environment) startKwok(more []string) error {
	config := filepath.Join(e.dir, "kwok.kubeconfig")
	if err := e.pki.kubeconfig(config, e.server, "kwok", "system:masters"); err != nil {
		return err
	}
	managed := lo.Ternary(e.options.KwokNodes, "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--manage-nodes-with-label-selector="+aliveSelector)
	return e.run("kwok",
		"--kubeconfig="+config, "--config="+strings.Join(append([]string{e.stages()}, more...), ","),
		"--manage-all-nodes=false", managed,
		"--node-lease-duration-seconds="+strconv.Itoa(max(kwokLeaseSeconds, int(e.options.NodeLease.Seconds()))),
		"--server-address="+local(e.kwok),
	)
}

// awaitServiceAccount waits until pods can be created: they need the namespace's default service account.
func (e *Environment) awaitServiceAccount(ctx context.Context) error {
	return e.await(ctx, "kube-controller-manager", startPatience, func(ctx context.Context) (bool, error) {
		err := e.client.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(ignoreServerTimeout(err))
	})
}

// ignoreServerTimeout drops what an API server that has just started may answer.
func ignoreServerTimeout(err error) error {
	if apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return err
}

// portBlocks are the ports that this process may still take. Suites run side by side, and a port that was found free is not taken before the process
// that it is for listens on it. So each process has blocks of ports, and keeps a listener on the first port of each for as long as it
// runs. They are below the ports that the kernel gives to connections.
var portBlocks struct {
	sync.Mutex
	next, end int
	// held are the listeners, which end with the process.
	held []net.Listener
}

// freePorts returns TCP ports of the loopback interface that nothing listens on, and that no other process of the suites is given.
func freePorts(n int) ([]int, error) {
	portBlocks.Lock()
	defer portBlocks.Unlock()
	var found []int
	for len(found) < n {
		if portBlocks.next == portBlocks.end {
			if err := takeBlock(); err != nil {
				return nil, err
			}
		}
		port := portBlocks.next
		portBlocks.next++
		if l, err := listen(port); err == nil {
			_ = l.Close()
			found = append(found, port)
		}
	}
	return found, nil
}

// takeBlock takes a block of ports, chosen at random; the caller holds the lock.
func takeBlock() error {
	const first, size, blocks, attempts = 20000, 100, 127, 500
	var err error
	for range attempts {
		guard := first + size*rand.IntN(blocks) //nolint:gosec // nothing secret depends on it
		var l net.Listener
		if l, err = listen(guard); err == nil {
			portBlocks.held, portBlocks.next, portBlocks.end = append(portBlocks.held, l), guard+1, guard+size
			return nil
		}
	}
	return fmt.Errorf("looking for a block of free ports from %d to %d: %w", first, first+size*blocks, err)
}

func listen(port int) (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: loopback, Port: port})
}

func local(port int) string { return net.JoinHostPort(loopback.String(), strconv.Itoa(port)) }

// answers reports whether a GET is answered with 200.
func answers(ctx context.Context, c *http.Client, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := c.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
