// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

// cloudDomain is where clients without an option for the API's URL send everything.
const cloudDomain = "manage.bizflycloud.vn"

// authority signs a certificate for any name that a client asks for.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	// pem is the certificate as clients are given it.
	pem []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "BizFly Cloud sandbox"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.AddDate(1, 0, 0),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	return &authority{key: key, certificate: certificate, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})}, nil
}

// config makes a certificate for each connection: for the name that is asked for, or the address that was reached.
func (a *authority) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			now := time.Now()
			template := &x509.Certificate{
				SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "sandbox"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 1, 0),
				KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}
			if hello.ServerName != "" {
				template.DNSNames = []string{hello.ServerName}
			} else if address, isTCP := hello.Conn.LocalAddr().(*net.TCPAddr); isTCP {
				template.IPAddresses = []net.IP{address.IP}
			}
			raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.key.PublicKey, a.key)
			if err != nil {
				return nil, err
			}
			return &tls.Certificate{Certificate: [][]byte{raw, a.certificate.Raw}, PrivateKey: a.key}, nil
		},
	}
}

// doorman is a listener that takes connections with and without TLS on one port, and those of tunnels.
type doorman struct {
	net.Listener
	config *tls.Config
	conns  chan net.Conn
	closed chan struct{}
}

func newDoorman(listener net.Listener, config *tls.Config) *doorman {
	d := &doorman{Listener: listener, config: config, conns: make(chan net.Conn), closed: make(chan struct{})}
	go d.run()
	return d
}

func (d *doorman) run() {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			close(d.closed)
			return
		}
		go d.sort(conn)
	}
}

// sort decides by the first byte whether a connection begins with a handshake.
func (d *doorman) sort(conn net.Conn) {
	buffered := &peeked{Conn: conn, reader: bufio.NewReader(conn)}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	first, err := buffered.reader.Peek(1)
	_ = conn.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		_ = conn.Close()
	case first[0] == 0x16:
		d.admit(tls.Server(buffered, d.config))
	default:
		d.admit(buffered)
	}
}

func (d *doorman) admit(conn net.Conn) {
	select {
	case d.conns <- conn:
	case <-d.closed:
		_ = conn.Close()
	}
}

// tunnel serves the other end of a CONNECT.
func (d *doorman) tunnel(conn net.Conn) { d.admit(tls.Server(conn, d.config)) }

// Accept implements net.Listener.
func (d *doorman) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// peeked is a connection of which the first bytes were read.
type peeked struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (p *peeked) Read(b []byte) (int, error) { return p.reader.Read(b) }

// serveConnect opens a tunnel to the sandbox itself where the real cloud is meant, and counts every other one as foreign.
func (c *Cloud) serveConnect(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.Host)
	isCloud := host == cloudDomain || strings.HasSuffix(host, "."+cloudDomain)
	hijacker, canHijack := w.(http.Hijacker)
	if c.tunnel == nil || err != nil || !isCloud || port != "443" || !canHijack {
		c.serveForeign(w, r)
		return
	}
	conn, buffer, err := hijacker.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		_ = conn.Close()
		return
	}
	c.tunnel(&peeked{Conn: conn, reader: buffer.Reader})
}
