// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// proxy is the only way out that the controller is given: an HTTP proxy that rejects everything and counts it. What is
// on this machine is reached without a proxy, so every request here was meant for a foreign host.
type proxy struct {
	server *http.Server
	url    string

	mu    sync.Mutex
	count int
	hosts []string
}

func startProxy() (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the counting proxy: %w", err)
	}
	p := &proxy{url: "http://" + listener.Addr().String()}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// ServeHTTP counts and rejects a request.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.count++
	if len(p.hosts) < 100 && !slices.Contains(p.hosts, r.Host) {
		p.hosts = append(p.hosts, r.Host)
	}
	p.mu.Unlock()
	http.Error(w, "this environment has no way out", http.StatusBadGateway)
}

func (p *proxy) seen() (int, []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, slices.Clone(p.hosts)
}

// env is what makes Go's HTTP clients use the proxy.
func (p *proxy) env() map[string]string {
	return map[string]string{
		"HTTP_PROXY": p.url, "HTTPS_PROXY": p.url, "NO_PROXY": "127.0.0.1,localhost," + MachinesHost(),
	}
}

func (p *proxy) close() error {
	if err := p.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stopping the counting proxy: %w", err)
	}
	return nil
}
