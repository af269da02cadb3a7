// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Sandbox is a cloud that listens.
type Sandbox struct {
	*Cloud
	// URL is where it listens, without a trailing slash; APIURL is what a client is configured with.
	URL, APIURL string

	server *http.Server
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Start makes a cloud and listens on a free port of the loopback interface. It panics where it cannot, like httptest.
func Start(opts Options) *Sandbox {
	var listening net.ListenConfig
	listener, err := listening.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return New(opts).Serve(listener)
}

// Serve serves the cloud on the listener until Close. With a real clock it also keeps time, so that hooks fire although
// no request comes; with a fake one the test does it, by Advance or Settle.
func (c *Cloud) Serve(listener net.Listener) *Sandbox {
	ctx, cancel := context.WithCancel(context.Background())
	url := "http://" + listener.Addr().String()
	s := &Sandbox{
		Cloud: c, URL: url, APIURL: url + "/api", cancel: cancel,
		server: &http.Server{Handler: c.Handler(), ReadHeaderTimeout: 10 * time.Second},
	}
	s.done.Go(func() { _ = s.server.Serve(listener) })
	if _, keepsTime := c.opts.Clock.(clock.RealClock); keepsTime {
		s.done.Go(func() { c.Run(ctx) })
	}
	return s
}

// Close stops listening and ends every connection, also in the middle of a request: http.Server.Shutdown would wait for seconds for
// connections that clients have opened and not used yet.
func (s *Sandbox) Close() {
	s.cancel()
	_ = s.server.Close()
	s.done.Wait()
}
