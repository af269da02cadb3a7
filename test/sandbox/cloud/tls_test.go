// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bizflycloud/karpenter-provider-bizflycloud/test/sandbox/cloud"
)

var _ = Describe("TLS", func() {
	var sandbox *cloud.Sandbox
	var trusting *tls.Config
	BeforeEach(func() {
		sandbox = cloud.Start(cloud.Options{TLS: true})
		DeferCleanup(sandbox.Close)
		pool := x509.NewCertPool()
		Expect(pool.AppendCertsFromPEM(sandbox.CA)).To(BeTrue())
		trusting = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	})
	// proxied is an HTTP client as HTTPS_PROXY makes it, which may dial nothing but the proxy.
	proxied := func() *http.Client {
		proxy, err := url.Parse(sandbox.URL)
		Expect(err).ToNot(HaveOccurred())
		return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: trusting, Proxy: http.ProxyURL(proxy),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != proxy.Host {
					return nil, fmt.Errorf("bytes for %s", address)
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		}}
	}

	It("should take a client of the real cloud's URL through HTTPS_PROXY, and send nothing else", func() {
		ctx := context.Background()
		client, err := gobizfly.NewClient(gobizfly.WithRegionName("HN"), gobizfly.WithHTTPClient(proxied()))
		Expect(err).ToNot(HaveOccurred())
		token, err := client.Token.Init(ctx, &gobizfly.TokenCreateRequest{
			AuthMethod: "password", Username: sandbox.Credentials().Email, Password: sandbox.Credentials().Password, ProjectID: sandbox.Credentials().ProjectID,
		})
		Expect(err).ToNot(HaveOccurred())
		client.SetKeystoneToken(token)
		Expect(client.GetServiceURL("cloud_server")).To(Equal("https://manage.bizflycloud.vn/iaas-cloud/api"))
		_, err = client.CloudServer.List(ctx, nil)
		Expect(err).ToNot(HaveOccurred())
		// This one always uses production, whatever the catalog contains.
		generations, err := client.CloudServer.FlavorGenerations().List(ctx, gobizfly.WithAZ("HN1"))
		Expect(err).ToNot(HaveOccurred())
		Expect(generations).ToNot(BeEmpty())
		Expect(sandbox.State().ForeignRequests).To(BeZero())
	})
	It("should open no tunnel to anywhere else", func() {
		for _, target := range []string{"https://example.com/", "https://bizflycloud.vn/", "https://manage.bizflycloud.vn:8443/", "https://xmanage.bizflycloud.vn/"} {
			_, err := proxied().Get(target)
			Expect(err).To(MatchError(ContainSubstring("Forbidden")), target)
		}
		Expect(sandbox.State().ForeignRequests).To(Equal(4))
	})
	It("should take https and http on one port", func() {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trusting}}
		for _, base := range []string{sandbox.URL, strings.Replace(sandbox.URL, "http://", "https://", 1),
			strings.Replace(sandbox.URL, "http://127.0.0.1", "https://localhost", 1)} {
			response, err := client.Get(base + "/api/auth/service")
			Expect(err).ToNot(HaveOccurred(), base)
			body, err := io.ReadAll(response.Body)
			Expect(err).ToNot(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(string(body)).To(ContainSubstring(`"service_url":"` + base + "/iaas-cloud/api"))
		}
		untrusting := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		_, err := untrusting.Get(strings.Replace(sandbox.URL, "http://", "https://", 1))
		Expect(err).To(MatchError(ContainSubstring("certificate")))
	})
	It("should tunnel nowhere without it", func() {
		plain := newBox(cloud.Options{})
		conn, err := net.Dial("tcp", strings.TrimPrefix(plain.URL, "http://"))
		Expect(err).ToNot(HaveOccurred())
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte("CONNECT manage.bizflycloud.vn:443 HTTP/1.1\r\nHost: manage.bizflycloud.vn:443\r\n\r\n"))
		Expect(err).ToNot(HaveOccurred())
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		Expect(err).ToNot(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusForbidden))
		Expect(plain.State().ForeignRequests).To(Equal(1))
	})
})
