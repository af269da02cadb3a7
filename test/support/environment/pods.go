// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podMetricsPort is the port of a controller's pod that has its metrics.
const podMetricsPort = "8080"

// egress is the way by which the API server makes its connections to nodes and pods. Pods have no addresses here: whatever is sent to
// podMetricsPort of one is answered by Options.Pods.
type egress struct {
	server *http.Server
	// pods is the port of the loopback interface at which Options.Pods answers.
	pods int
}

// reachPods returns the argument by which the API server reaches pods, and the file by which KWOK does, if that is wanted.
func (e *Environment) reachPods() (apiServer, kwok []string, err error) {
	if e.options.Pods == nil {
		return nil, nil, nil
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, nil, err
	}
	socket, config, forwards := filepath.Join(e.dir, "egress.sock"), filepath.Join(e.dir, "egress.yaml"), filepath.Join(e.dir, "forwards.yaml")
	for path, content := range map[string]string{
		config: fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, socket),
		forwards: fmt.Sprintf(`apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: pods}
spec:
  forwards:
    - ports: [%s]
      target: {address: %s, port: %d}
`, podMetricsPort, loopback, ports[0]),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, nil, fmt.Errorf("writing how pods are reached: %w", err)
		}
	}
	connections, err := net.Listen("unix", socket) //nolint:noctx // it listens at once
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the API server's connections: %w", err)
	}
	requests, err := listen(ports[0])
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listening for pods: %w", err), connections.Close())
	}
	e.egress = &egress{pods: ports[0]}
	// CONNECT goes to the egress; every other request is one to a pod.
	e.egress.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			e.egress.connect(w, r)
		} else {
			e.options.Pods.ServeHTTP(w, r)
		}
	})}
	for _, listener := range []net.Listener{connections, requests} {
		go func() { _ = e.egress.server.Serve(listener) }()
	}
	return []string{"--egress-selector-config-file=" + config}, []string{forwards}, nil
}

// connect makes the connection that the API server asks for.
func (g *egress) connect(w http.ResponseWriter, r *http.Request) {
	address := r.Host
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if port == podMetricsPort && !net.ParseIP(host).IsLoopback() {
		address = local(g.pods)
	}
	target, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = target.Close() }()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the API server has closed it
	}
	defer func() { _ = client.Close() }()
	go func() {
		_, _ = io.Copy(target, buffered)
		_ = target.Close()
	}()
	_, _ = io.Copy(client, target)
}

func (g *egress) close() error {
	if err := g.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("closing the API server's way to pods: %w", err)
	}
	return nil
}

// NodeEndpoint is where the API server reaches the kubelet of a node that a test creates itself: KWOK's server.
func (e *Environment) NodeEndpoint() ([]corev1.NodeAddress, corev1.NodeDaemonEndpoints) {
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback.String()}},
		corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(e.kwok)}} //nolint:gosec // a port
}
