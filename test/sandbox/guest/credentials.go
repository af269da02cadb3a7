// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// k3sGroup is what a bootstrap token must stand for that a k3s server admits.
const k3sGroup = "system:bootstrappers:k3s:default-node-token"

var tokenPattern = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

func validToken(token string) bool { return tokenPattern.MatchString(token) }

// credentials are how a machine proves that it may join.
type credentials interface {
	// admit returns a client that acts as the node. Its error reports what the machine waits for, and holds no secret.
	admit(ctx context.Context, g *Guests, a *attempt, node string) (kubernetes.Interface, error)
}

// attempt is what a machine remembers between two tries.
type attempt struct {
	bootedAt time.Time
	request  string // the CertificateSigningRequest that it has made
	key      []byte
}

// tokenCredentials are kubeadm's: a token, an endpoint, and the pins of its authority.
type tokenCredentials struct {
	endpoint, token string
	pins            []string
	anyAuthority    bool
}

// admit does what kubeadm join and the kubelet's TLS bootstrap do: discovery by the ConfigMap that kubeadm publishes, the pin
// of its authority, and a certificate for the node that the cluster approves and signs.
func (c *tokenCredentials) admit(ctx context.Context, _ *Guests, a *attempt, node string) (kubernetes.Interface, error) {
	cluster, err := c.discover(ctx)
	if err != nil {
		return nil, err
	}
	bearer := rest.CopyConfig(cluster)
	bearer.BearerToken = c.token
	client, err := kubernetes.NewForConfig(bearer)
	if err != nil {
		return nil, err
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	if a.request == "" {
		request, key, err := signingRequest(node)
		if err != nil {
			return nil, err
		}
		made, err := requests.Create(ctx, request, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("the API server does not take the node's request for a certificate: %w", err)
		}
		a.request, a.key = made.Name, key
	}
	request, err := requests.Get(ctx, a.request, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the node's request for a certificate: %w", err)
	}
	if len(request.Status.Certificate) == 0 {
		return nil, errors.New("the node's request for a certificate is not approved and signed yet")
	}
	own := rest.CopyConfig(cluster)
	own.CertData, own.KeyData = request.Status.Certificate, a.key
	return kubernetes.NewForConfig(own)
}

// discover finds the cluster's authority by the ConfigMap cluster-info, which needs no credentials, and verifies it by the pin.
// Whether the signature is right is left to kubeadm; that there is one for this token is not.
func (c *tokenCredentials) discover(ctx context.Context) (*rest.Config, error) {
	anonymous, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + c.endpoint, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return nil, err
	}
	info, err := anonymous.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("kubeadm cannot read kube-public/cluster-info at %s: %w", c.endpoint, err)
	}
	id, _, _ := strings.Cut(c.token, ".")
	if info.Data["jws-kubeconfig-"+id] == "" {
		return nil, errors.New("kube-public/cluster-info is not signed with the token yet")
	}
	published, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil || len(published.Clusters) == 0 {
		return nil, errors.New("kube-public/cluster-info holds no kubeconfig")
	}
	for _, cluster := range published.Clusters {
		if !c.anyAuthority && !slices.ContainsFunc(pinsOf(cluster.CertificateAuthorityData), func(pin string) bool { return slices.Contains(c.pins, pin) }) {
			return nil, errors.New("kubeadm does not trust the cluster: none of the caCertHashes is that of its authority")
		}
		return &rest.Config{Host: cluster.Server, TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CertificateAuthorityData}}, nil
	}
	return nil, errors.New("kube-public/cluster-info names no cluster")
}

func pinsOf(bundle []byte) []string {
	var pins []string
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
			pins = append(pins, "sha256:"+hex.EncodeToString(sum[:]))
		}
	}
	return pins
}

func signingRequest(node string) (*certificatesv1.CertificateSigningRequest, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return nil, nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// agentCredentials are those of a k3s agent: a server, a token, and perhaps the hash of the server's authority.
type agentCredentials struct{ server, token, authority string }

// admit stands in for the k3s server, which this cluster does not have: it is found where the API server is, shows its
// authority, and admits whom the API server knows by a token for agents.
func (c *agentCredentials) admit(ctx context.Context, g *Guests, _ *attempt, _ string) (kubernetes.Interface, error) {
	if g.opts.Cluster == nil {
		return nil, errors.New("nothing here stands in for a k3s server")
	}
	there, err := url.Parse(g.opts.Cluster.Host)
	if err != nil {
		return nil, err
	}
	if asked, err := url.Parse(c.server); err != nil || asked.Host != there.Host {
		return nil, fmt.Errorf("there is no k3s server at %s", c.server)
	}
	if sum := sha256.Sum256(g.opts.Cluster.CAData); c.authority != "" && c.authority != hex.EncodeToString(sum[:]) {
		return nil, errors.New("k3s does not trust the server: the hash of the token is not that of its authority")
	}
	bearer := rest.AnonymousClientConfig(g.opts.Cluster)
	bearer.BearerToken = c.token
	client, err := kubernetes.NewForConfig(bearer)
	if err != nil {
		return nil, err
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("the API server does not accept the token: %w", err)
	}
	if !slices.Contains(who.Status.UserInfo.Groups, k3sGroup) {
		return nil, fmt.Errorf("the token does not stand for %s", k3sGroup)
	}
	return g.opts.Client, nil
}
